"""Numbers that clients send, of any size, converted to 64 bits, and numbers written as digits.

The code behind a door counts in 64 bits. A whole number beyond them cannot be compared with an i64
or assigned to one: compiled code raises on either. So a number is clamped to 64 bits where it is
read, and only then checked against the bounds of its field. A number that is too large or too small
becomes the largest or the smallest i64, which no field allows, so that it is refused with the error
of its protocol, like any other number out of bounds.
"""

from math import isfinite
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

# What is wrong with a value that should be a whole number.
FINE: Final = 0
NO_NUMBER: Final = 1
NOT_FINITE: Final = 2
NOT_WHOLE: Final = 3

# Instead of a number that cannot be read.
REFUSED: Final = -1

LEAST: Final = -(1 << 63)
MOST: Final = (1 << 63) - 1
# Floats hold this number exactly, but not the one before it.
_SPAN: Final = 9223372036854775808.0
# More digits than any 64-bit number has. Parsing thousands of them would take long, and raise.
_DIGITS_MAX: Final = 20


def flaw_of(value: object) -> int:
    """Return why a decoded value is not a whole number, or FINE."""
    if isinstance(value, bool):
        return NO_NUMBER
    if isinstance(value, float):
        if not isfinite(value):
            return NOT_FINITE
        return FINE if value.is_integer() else NOT_WHOLE
    return FINE if isinstance(value, int) else NO_NUMBER


def nearest(value: object) -> i64:
    """Return the whole part of a number, clamped to 64 bits.

    NaN and values that are not numbers become 0: call `flaw_of` first.
    """
    if isinstance(value, float):
        return _nearest_to_float(value)
    if not isinstance(value, int):
        return 0
    if value > MOST:
        return MOST
    return i64(value) if value > LEAST else LEAST


def _nearest_to_float(value: float) -> i64:
    if value >= _SPAN:
        return MOST
    if value <= -_SPAN:
        return LEAST
    return i64(int(value)) if value == value else 0  # noqa: PLR0124  NaN


def whole_or(number: float, otherwise: i64) -> i64:
    """Return a float that is a whole number within 64 bits; otherwise `otherwise`."""
    # Compared first: NaN and infinity have no integer.
    if not -_SPAN <= number < _SPAN:
        return otherwise
    whole = i64(int(number))
    return whole if float(whole) == number else otherwise


def decimal(digits: bytes) -> i64:
    """Return the value of a run of nothing but decimal digits, or MOST if it is larger."""
    short = digits.lstrip(b"0")
    if len(short) > _DIGITS_MAX:
        return MOST
    return nearest(int(short or b"0"))


def parse_number(data: bytes, at: i64, end: i64, most: i64) -> tuple[i64, i64]:
    """Read a decimal after any run of spaces; return (value, next), or (REFUSED, at)."""
    while at < end and data[at] == 32:
        at += 1
    value: i64 = 0
    start = at
    while at < end:
        digit: i64 = data[at] - 48
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        if value > most:
            return REFUSED, at
        at += 1
    if at == start:
        return REFUSED, at
    return value, at


def write_number(out: BytesWriter, number: i64) -> None:
    """Append a non-negative number in decimal."""
    if number < 10:
        out.append(u8(48 + number))
        return
    rest = number
    while rest > 0:
        out.append(48)
        rest //= 10
    # Filled in from the end: dividing by a constant is a multiplication, by a variable it is not.
    at: i64 = len(out)
    while number > 0:
        rest = number // 10
        at -= 1
        out[at] = u8(48 + number - rest * 10)
        number = rest
