"""Writes replies of the RESP protocol, in version 2 or 3 as requested by the connection.

Types that version 2 lacks are written as Valkey does: a map as an array of keys and values, a
double as text, a set as an array. `proto` is 2 or 3. A container is only its head; the caller
writes the announced number of elements after it.
"""

from math import isfinite, isnan
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.wire.numbers import write_number

OK: Final = b"+OK\r\n"
# Whole doubles below this are written without a fraction.
_WHOLE_MAX: Final = 1e17


def write_ok(out: BytesWriter) -> None:
    """Append OK."""
    out.write(OK)


def write_simple(out: BytesWriter, word: bytes) -> None:
    """Append a constant word; it must not contain a line end."""
    out.append(43)
    out.write(word)
    out.write(b"\r\n")


def write_error(out: BytesWriter, text: str) -> None:
    """Append an error: its code, a space, a sentence. Line ends in it are replaced."""
    line = " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
    out.append(45)
    # Other line ends are harmless: clients do not know them.
    out.write(line.encode("utf-8", "surrogateescape").replace(b"\r", b" ").replace(b"\n", b" "))
    out.write(b"\r\n")


def write_integer(out: BytesWriter, number: i64) -> None:
    """Append a number."""
    _write_head(out, 58, number)


def write_bulk(out: BytesWriter, data: bytes) -> None:
    """Append bytes of any kind."""
    _write_head(out, 36, len(data))
    out.write(data)
    out.write(b"\r\n")


def write_decimal(out: BytesWriter, number: i64) -> None:
    """Append a non-negative number as bulk."""
    _write_head(out, 36, _digits(number))
    write_number(out, number)
    out.write(b"\r\n")


def write_pair(out: BytesWriter, high: i64, low: i64) -> None:
    """Append two non-negative numbers with a dash between them as bulk, like an entry id."""
    _write_head(out, 36, _digits(high) + 1 + _digits(low))
    write_number(out, high)
    out.append(45)
    write_number(out, low)
    out.write(b"\r\n")


def _digits(number: i64) -> i64:
    count: i64 = 1
    while number > 9:
        number //= 10
        count += 1
    return count


def write_text(out: BytesWriter, text: str) -> None:
    """Append text as bulk; surrogates become the original bytes."""
    write_bulk(out, text.encode("utf-8", "surrogateescape"))


def write_verbatim(out: BytesWriter, text: str, proto: i64) -> None:
    """Append text meant for humans."""
    if proto < 3:
        write_text(out, text)
        return
    data = text.encode("utf-8", "surrogateescape")
    _write_head(out, 61, len(data) + 4)
    out.write(b"txt:")
    out.write(data)
    out.write(b"\r\n")


def write_nil(out: BytesWriter, proto: i64) -> None:
    """Append a nil."""
    out.write(b"_\r\n" if proto >= 3 else b"$-1\r\n")


def write_nil_array(out: BytesWriter, proto: i64) -> None:
    """Append a nil in place of an array."""
    out.write(b"_\r\n" if proto >= 3 else b"*-1\r\n")


def write_array(out: BytesWriter, count: i64) -> None:
    """Begin an array."""
    _write_head(out, 42, count)


def write_map(out: BytesWriter, count: i64, proto: i64) -> None:
    """Begin a map of `count` keys, each followed by its value."""
    if proto >= 3:
        _write_head(out, 37, count)
    else:
        _write_head(out, 42, count * 2)


def write_set(out: BytesWriter, count: i64, proto: i64) -> None:
    """Begin a set."""
    _write_head(out, 126 if proto >= 3 else 42, count)


def write_push(out: BytesWriter, count: i64, proto: i64) -> None:
    """Begin a push message, which is not a reply."""
    _write_head(out, 62 if proto >= 3 else 42, count)


def write_double(out: BytesWriter, number: float, proto: i64) -> None:
    """Append a double."""
    if proto < 3:
        write_bulk(out, double_text(number))
        return
    out.append(44)
    out.write(double_text(number))
    out.write(b"\r\n")


def double_text(number: float) -> bytes:
    """Return the shortest text that parses to this double; a whole one has no fraction."""
    if not isfinite(number):
        if isnan(number):
            return b"nan"
        return b"inf" if number > 0 else b"-inf"
    if -_WHOLE_MAX < number < _WHOLE_MAX and number == int(number):
        return str(int(number)).encode()
    return repr(number).encode()


def _write_head(out: BytesWriter, kind: int, number: i64) -> None:
    out.append(kind)
    if number < 0:
        out.write(str(int(number)).encode())
    else:
        write_number(out, number)
    out.write(b"\r\n")
