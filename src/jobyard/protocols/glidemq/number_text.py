"""Numbers as glide-mq clients write them: text, perhaps with a fraction, within safe bounds."""

from typing import Final

# Numbers from clients are integers below this: milliseconds, counts, millitokens. It is far enough
# below 2^63 that the sum of two of them still fits.
NUMBER_MAX: Final = 1 << 53


def whole(data: bytes) -> int | None:
    """Return the integer part of a number in text; None if it is not a number or too large."""
    if not data or len(data) > 32:
        return None
    digits = data[1:] if data[:1] == b"-" else data
    if digits.isdigit():
        number = int(data)
    else:
        # int() and float() also accept blanks, underscores and words.
        if digits.strip(b"0123456789.eE+-") or not digits[:1].isdigit():
            return None
        try:
            value = float(data)
        except ValueError:
            return None
        if not -NUMBER_MAX <= value <= NUMBER_MAX:
            return None
        number = int(value)
    return number if -NUMBER_MAX <= number <= NUMBER_MAX else None
