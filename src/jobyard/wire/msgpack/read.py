"""Finds the fields of a command (a map) in place, without decoding its values.

A command has about ten keys, most of them never read, so no key and no value becomes an object
before it is needed. Six keys that nearly every command has are noted while the map is checked; the
others are indexed when the first of them is read, which never happens for the usual commands of a
job. A lookup is a scan that compares lengths and first and last bytes; a dict of a dozen keys takes
four times as long to build and is not faster to search. A value of extension type 0 is JavaScript's
undefined and counts as absent; of two equal keys the last one counts.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from jobyard.wire.msgpack.forms import (
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
from jobyard.wire.msgpack.scan import Ends
from jobyard.wire.numbers import whole_or

# No command has more than fifty; the index of a frame full of keys would be eight times as long.
MAP_KEYS_MAX: Final = 1024
# Limit of a list of names, whose bytes alone would allow millions.
TEXTS_MAX: Final = 100_000
# A larger option counts as malformed; values that may be long are read in place.
OPTION_VALUES_MAX: Final = 20_000

# A row of the index: key start i32, signature of the key i32, value start i32, value end i32.
_ROW_SIZE: Final = 16
# No known key is longer than this; longer ones are left out of the index.
_KEY_SIZE_MAX: Final = 127
_LOW: Final = 0xFFFFFFFF
# The difference between an unsigned number and the same bits read as a signed one.
_UNSIGNED_MORE: Final = 18446744073709551616.0


@final
@mypyc_attr(free_list_len=1, acyclic=True)
class MapFields:
    """The positions of the values of one map; made by `read_fields`.

    A span is the start of a value, with its end in the upper 32 bits; -1 if there is none.
    """

    def __init__(self, data: bytes, first: i64, end: i64) -> None:
        self.data = data
        self.cmd: i64 = -1
        self.req_id: i64 = -1
        self.queue: i64 = -1
        self.job_data: i64 = -1
        self.id: i64 = -1
        self.name: i64 = -1
        # How many keys there are besides these six.
        self.others_count: i64 = 0
        # Where long values end, if a scan noted it.
        self.ends: Ends | None = None
        self._first: i64 = first
        self._end: i64 = end
        self._index: bytes = b""

    def set_index(self, index: bytes) -> None:
        """Set the positions of all values."""
        self._index = index

    def _span(self, key: bytes) -> i64:
        """Return the span of `key`, or -1."""
        if len(self._index) == 0:
            self._index = _index_of(self.data, self._first, self._end)
        data = self.data
        index = self._index
        size: i64 = len(key)
        sign = _sign(key, 0, size)
        row: i64 = len(index)
        while row > 0:
            row -= _ROW_SIZE
            name = read_i64_le(index, row)
            if name >> 32 == sign and _is_at(data, name & _LOW, key):
                return _defined(data, read_i64_le(index, row + 8))
        return -1

    def content_at(self, span: i64) -> bytes | None:
        """Return the UTF-8 of a value that is text, not validated; None for all others."""
        if span < 0:
            return None
        start = span & _LOW
        if kind_of(self.data, start) != KIND_TEXT:
            return None
        return self.data[content_start(self.data, start) : span >> 32]

    def is_text_at(self, span: i64, content: bytes) -> bool:
        """Return whether a value, which must exist, is this short text."""
        size: i64 = len(content)
        start = span & _LOW
        if size > 31 or self.data[start] != 0xA0 + size:
            return False
        return _is_at(self.data, start + 1, content)

    def raw_at(self, span: i64) -> bytes | None:
        """Return the bytes of a value as sent, including its form."""
        if span < 0:
            return None
        return self.data[span & _LOW : span >> 32]

    def find(self, key: bytes) -> tuple[i64, i64]:
        """Return where the value of `key` starts and ends; (-1, -1) when there is none."""
        span = self._span(key)
        if span < 0:
            return -1, -1
        return span & _LOW, span >> 32

    def has(self, key: bytes) -> bool:
        """Return whether there is a value, nil included."""
        return self._span(key) >= 0

    def kind(self, key: bytes) -> i64:
        """Return the kind of a value, KIND_ABSENT when there is none."""
        span = self._span(key)
        if span < 0:
            return KIND_ABSENT
        return kind_of(self.data, span & _LOW)

    def is_nil(self, key: bytes) -> bool:
        """Return whether the value is there and nil."""
        return self._form(key) == 0xC0

    def is_true(self, key: bytes) -> bool:
        """Return whether the value is true; nothing else counts as true."""
        return self._form(key) == 0xC3

    def is_false(self, key: bytes) -> bool:
        """Return whether the value is there and false."""
        return self._form(key) == 0xC2

    def _form(self, key: bytes) -> i64:
        span = self._span(key)
        if span < 0:
            return -1
        return self.data[span & _LOW]

    def raw(self, key: bytes) -> bytes | None:
        """Return the bytes of a value as sent, including its form."""
        return self.raw_at(self._span(key))

    def value(self, key: bytes) -> object:
        """Return a value decoded, or ABSENT; raise Malformed when it is nested too deep."""
        start, end = self.find(key)
        return decode(self.data, start, end, OPTION_VALUES_MAX) if start >= 0 else ABSENT

    def text(self, key: bytes) -> str | None:
        """Return a value that is text; None for all others."""
        start, end = self.find(key)
        return text_at(self.data, start, end) if start >= 0 else None

    def content(self, key: bytes) -> bytes | None:
        """Return the UTF-8 of a value that is text, not validated; None for all others."""
        return self.content_at(self._span(key))

    def inside_at(self, span: i64) -> "MapFields | None":
        """Return the fields of a value that is a map; None for all others."""
        if span < 0:
            return None
        return read_known(self.data, span & _LOW, span >> 32, self.ends)

    def count(self, key: bytes) -> i64:
        """Return the number of items of an array; -1 for all other values."""
        start, end = self.find(key)
        return array_header(self.data, start, end)[0] if start >= 0 else i64(-1)

    def texts(self, key: bytes, most: i64 = TEXTS_MAX) -> list[str] | None:
        """Return a value that is an array of only texts; None for all others, or too many."""
        start, end = self.find(key)
        if start < 0:
            return None
        count, at = array_header(self.data, start, end)
        if count < 0 or count > most:
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
        """Return a whole number within 64 bits, written as int or float; or `otherwise`."""
        span = self._span(key)
        if span < 0:
            return otherwise
        start = span & _LOW
        kind = kind_of(self.data, start)
        if kind == KIND_INTEGER:
            number = integer_at(self.data, start)
            return otherwise if number < 0 and self.data[start] == 0xCF else number
        return whole_or(float_at(self.data, start), otherwise) if kind == KIND_FLOAT else otherwise

    def number(self, key: bytes, otherwise: float) -> float:
        """Return any number as a float, NaN included; or `otherwise`."""
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
        return number + _UNSIGNED_MORE if number < 0 and self.data[start] == 0xCF else number


def read_fields(data: bytes, start: i64, end: i64) -> MapFields | None:
    """Find the fields of the map that fills the bytes; None if they are not one map."""
    count, at = map_header(data, start, end)
    if count < 0 or count > MAP_KEYS_MAX:
        return None
    fields = MapFields(data, at, end)
    while count > 0:  # not `for _`, which makes an object of every number when compiled
        count -= 1
        after = skip(data, at, end)
        if after < 0:
            return None
        value_end = skip(data, after, end)
        if value_end < 0:
            return None
        if kind_of(data, at) == KIND_TEXT:
            _note(fields, content_start(data, at), after, after | value_end << 32)
        at = value_end
    return fields if at == end else None


def read_known(data: bytes, start: i64, end: i64, ends: Ends | None) -> MapFields | None:
    """Find the fields of a map, using the noted ends of long values if there are any."""
    if ends is None:
        return read_fields(data, start, end)
    count, at = map_header(data, start, end)
    if count < 0 or count > MAP_KEYS_MAX:
        return None
    fields = MapFields(data, at, end)
    fields.ends = ends
    index = BytesWriter()
    while count > 0:
        count -= 1
        after = ends.after(data, at, end)
        value_end = ends.after(data, after, end)
        if kind_of(data, at) == KIND_TEXT:
            key = content_start(data, at)
            _note(fields, key, after, after | value_end << 32)
            if after - key <= _KEY_SIZE_MAX:
                write_i64_le(index, key | _sign(data, key, after) << 32)
                write_i64_le(index, after | value_end << 32)
        at = value_end
    fields.set_index(index.getvalue())
    return fields


def _note(fields: MapFields, key: i64, key_end: i64, span: i64) -> None:
    """Note the value of one of the six usual keys, or count another key."""
    data = fields.data
    size = key_end - key
    if size == 5:
        if _is_at(data, key, b"reqId"):
            fields.req_id = _defined(data, span)
            return
        if _is_at(data, key, b"queue"):
            fields.queue = _defined(data, span)
            return
    elif size == 4:
        if _is_at(data, key, b"data"):
            fields.job_data = _defined(data, span)
            return
        if _is_at(data, key, b"name"):
            fields.name = _defined(data, span)
            return
    elif size == 3:
        if _is_at(data, key, b"cmd"):
            fields.cmd = _defined(data, span)
            return
    elif size == 2 and _is_at(data, key, b"id"):
        fields.id = _defined(data, span)
        return
    fields.others_count += 1


def _defined(data: bytes, span: i64) -> i64:
    # Compiled, `-1 if ... else span` would make an object of the number.
    if is_undefined(data, span & _LOW):
        return -1
    return span


def _index_of(data: bytes, at: i64, end: i64) -> bytes:
    """Return a row for every text key of a map that is known to be well-formed."""
    index = BytesWriter()
    while at < end:
        after = skip(data, at, end)
        value_end = skip(data, after, end)
        if kind_of(data, at) == KIND_TEXT:
            key = content_start(data, at)
            if after - key <= _KEY_SIZE_MAX:
                write_i64_le(index, key | _sign(data, key, after) << 32)
                write_i64_le(index, after | value_end << 32)
        at = value_end
    return index.getvalue()


def _sign(data: bytes, start: i64, end: i64) -> i64:
    """Return a signature that equal keys share: size, first and last byte."""
    if start == end:
        return 0
    first: i64 = data[start]
    last: i64 = data[end - 1]
    return (end - start) << 16 | first << 8 | last


def text_at(data: bytes, start: i64, end: i64) -> str | None:
    """Return the text of the well-formed value from `start` to `end`; None if it is not text."""
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
