"""Answers of the RESP protocol, in version 2 or 3 as the connection asked for.

What version 2 cannot say it says as Valkey does there: a map as an array of keys and values, a
double as text, a set as an array. `proto` is 2 or 3. A container is its head; the caller writes as
many elements behind it as it said there are.
"""

from math import isfinite, isnan
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.wire.beanstalk import write_number

OK: Final = b"+OK\r\n"
# Doubles that are whole and below this are written without a fraction.
_WHOLE_MAX: Final = 1e17


def write_ok(out: BytesWriter) -> None:
    """Append that it is done."""
    out.write(OK)


def write_simple(out: BytesWriter, word: bytes) -> None:
    """Append a word of our own; it holds no end of a line."""
    out.append(43)
    out.write(word)
    out.write(b"\r\n")


def write_error(out: BytesWriter, text: str) -> None:
    """Append an error: its code, a space, a sentence. What it quotes may hold anything."""
    line = " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
    out.append(45)
    # Other ends of lines, of which clients know nothing, do no harm.
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
    """Append a number of at least 0 as bulk."""
    _write_head(out, 36, _digits(number))
    write_number(out, number)
    out.write(b"\r\n")


def write_pair(out: BytesWriter, high: i64, low: i64) -> None:
    """Append two numbers of at least 0 with a dash between them as bulk, as entries are called."""
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
    """Append text as bulk; surrogates become the bytes they stand for."""
    write_bulk(out, text.encode("utf-8", "surrogateescape"))


def write_verbatim(out: BytesWriter, text: str, proto: i64) -> None:
    """Append text that is for people."""
    if proto < 3:
        write_text(out, text)
        return
    data = text.encode("utf-8", "surrogateescape")
    _write_head(out, 61, len(data) + 4)
    out.write(b"txt:")
    out.write(data)
    out.write(b"\r\n")


def write_nil(out: BytesWriter, proto: i64) -> None:
    """Append that there is no value."""
    out.write(b"_\r\n" if proto >= 3 else b"$-1\r\n")


def write_nil_array(out: BytesWriter, proto: i64) -> None:
    """Append that there is no value, where an array would have been one."""
    out.write(b"_\r\n" if proto >= 3 else b"*-1\r\n")


def write_array(out: BytesWriter, count: i64) -> None:
    """Begin an array."""
    _write_head(out, 42, count)


def write_map(out: BytesWriter, count: i64, proto: i64) -> None:
    """Begin a map of so many keys, each followed by its value."""
    if proto >= 3:
        _write_head(out, 37, count)
    else:
        _write_head(out, 42, count * 2)


def write_set(out: BytesWriter, count: i64, proto: i64) -> None:
    """Begin a set."""
    _write_head(out, 126 if proto >= 3 else 42, count)


def write_push(out: BytesWriter, count: i64, proto: i64) -> None:
    """Begin a message that answers nothing."""
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
    """Return the shortest text that reads back as this double; a whole one has no fraction."""
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
