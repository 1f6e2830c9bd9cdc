"""The map that is a command, found in place: where each value stands, nothing decoded.

A command has some ten keys, most of them never asked for, so no key and no value becomes an
object before it is wanted. Finding one is a scan that compares lengths first; a dict of a dozen
keys takes four times as long to build and finds none faster. Knows no command. A value of
extension type 0 is JavaScript's undefined and counts as not there; of two equal keys the last one
counts.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.wire.msgpack import (
    ABSENT,
    KIND_ABSENT,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_TEXT,
    array_header,
    content_start,
    decode,
    float_at,
    integer_at,
    is_undefined,
    kind_of,
    map_header,
    skip,
    text_of,
)

# No command has more than fifty; the table of a frame full of keys would be eight times as long.
KEYS_MAX: Final = 1024

# A row of the table: key start i32, key size i32, value start i32, value end i32.
_ROW_SIZE: Final = 16
_LOW: Final = 0xFFFFFFFF
_I64_SPAN: Final = 9223372036854775808.0


@final
class Fields:
    """Where the values of one map stand; made by `read_fields`."""

    def __init__(self, data: bytes, table: bytes) -> None:
        self.data = data
        self._table = table

    def _span(self, key: bytes) -> i64:
        """Return the second half of the row of `key`, or -1."""
        data = self.data
        table = self._table
        size: i64 = len(key)
        row: i64 = len(table)
        while row > 0:
            row -= _ROW_SIZE
            name = read_i64_le(table, row)
            if name >> 32 == size and _is_at(data, name & _LOW, key):
                span = read_i64_le(table, row + 8)
                # Compiled, `-1 if ... else span` would make an object of the number.
                if is_undefined(data, span & _LOW):
                    return -1
                return span
        return -1

    def find(self, key: bytes) -> tuple[i64, i64]:
        """Return where the value of `key` starts and ends; (-1, -1) when it is not there."""
        span = self._span(key)
        if span < 0:
            return -1, -1
        return span & _LOW, span >> 32

    def count(self) -> i64:
        """Return how many keys there are."""
        return len(self._table) // _ROW_SIZE

    def has(self, key: bytes) -> bool:
        """Tell whether there is a value, nil included."""
        return self._span(key) >= 0

    def kind(self, key: bytes) -> i64:
        """Return the kind of a value, KIND_ABSENT when it is not there."""
        span = self._span(key)
        if span < 0:
            return KIND_ABSENT
        return kind_of(self.data, span & _LOW)

    def is_nil(self, key: bytes) -> bool:
        """Tell whether the value is there and nil."""
        return self._form(key) == 0xC0

    def is_true(self, key: bytes) -> bool:
        """Tell whether the value is true; nothing else counts as true."""
        return self._form(key) == 0xC3

    def is_false(self, key: bytes) -> bool:
        """Tell whether the value is there and false."""
        return self._form(key) == 0xC2

    def _form(self, key: bytes) -> i64:
        span = self._span(key)
        if span < 0:
            return -1
        return self.data[span & _LOW]

    def raw(self, key: bytes) -> bytes | None:
        """Return the bytes of a value as they came, form and all."""
        start, end = self.find(key)
        return self.data[start:end] if start >= 0 else None

    def value(self, key: bytes) -> object:
        """Return a value decoded, or ABSENT; raise Malformed when it is nested too deep."""
        start, end = self.find(key)
        return decode(self.data, start, end) if start >= 0 else ABSENT

    def text(self, key: bytes) -> str | None:
        """Return a value that is text; None for all others."""
        start, end = self.find(key)
        return text_at(self.data, start, end) if start >= 0 else None

    def content(self, key: bytes) -> bytes | None:
        """Return the UTF-8 of a value that is text, unchecked; None for all others."""
        start, end = self.find(key)
        if start < 0 or kind_of(self.data, start) != KIND_TEXT:
            return None
        return self.data[content_start(self.data, start) : end]

    def texts(self, key: bytes) -> list[str] | None:
        """Return a value that is an array of nothing but text; None for all others."""
        start, end = self.find(key)
        if start < 0:
            return None
        count, at = array_header(self.data, start, end)
        if count < 0:
            return None
        found: list[str] = []
        while count > 0:
            count -= 1
            after = skip(self.data, at, end)
            text = text_at(self.data, at, after)
            if text is None:
                return None
            found.append(text)
            at = after
        return found

    def integer(self, key: bytes, otherwise: i64) -> i64:
        """Return a whole number within 64 bits, written as int or float; else `otherwise`."""
        span = self._span(key)
        if span < 0:
            return otherwise
        start = span & _LOW
        kind = kind_of(self.data, start)
        if kind == KIND_INTEGER:
            number = integer_at(self.data, start)
            return otherwise if number < 0 and self.data[start] == 0xCF else number
        return _whole(float_at(self.data, start), otherwise) if kind == KIND_FLOAT else otherwise

    def number(self, key: bytes, otherwise: float) -> float:
        """Return any number as a float, NaN included; else `otherwise`."""
        span = self._span(key)
        if span < 0:
            return otherwise
        start = span & _LOW
        kind = kind_of(self.data, start)
        if kind == KIND_FLOAT:
            return float_at(self.data, start)
        if kind != KIND_INTEGER:
            return otherwise
        number = float(integer_at(self.data, start))
        return number + 2 * _I64_SPAN if number < 0 and self.data[start] == 0xCF else number


def read_fields(data: bytes, start: i64, end: i64) -> Fields | None:
    """Find the fields of the map that fills the bytes; None if there is no such map."""
    count, at = map_header(data, start, end)
    if count < 0 or count > KEYS_MAX:
        return None
    table = BytesWriter()
    while count > 0:  # not `for _`: compiled, that makes an object of every number
        count -= 1
        after = skip(data, at, end)
        if after < 0:
            return None
        value_end = skip(data, after, end)
        if value_end < 0:
            return None
        if kind_of(data, at) == KIND_TEXT:
            key = content_start(data, at)
            write_i64_le(table, key | (after - key) << 32)
            write_i64_le(table, after | value_end << 32)
        at = value_end
    return Fields(data, table.getvalue()) if at == end else None


def text_at(data: bytes, start: i64, end: i64) -> str | None:
    """Return the text that the well-formed value from `start` to `end` is, None if it is none."""
    if kind_of(data, start) != KIND_TEXT:
        return None
    return text_of(data[content_start(data, start) : end])


def _is_at(data: bytes, at: i64, key: bytes) -> bool:
    size: i64 = len(key)
    each: i64 = 0
    while each < size:
        if data[at + each] != key[each]:
            return False
        each += 1
    return True


def _whole(number: float, otherwise: i64) -> i64:
    # Compared first: NaN and infinity have no integer.
    if not -_I64_SPAN <= number < _I64_SPAN:
        return otherwise
    whole = i64(int(number))
    return whole if float(whole) == number else otherwise
