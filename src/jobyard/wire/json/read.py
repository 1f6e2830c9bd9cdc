"""Finds JSON values in place: only the values that are read are decoded.

Strictly RFC 8259: no NaN, no trailing comma, no control characters in text, no invalid UTF-8. Two
bounds of our own: values nested deeper than JSON_DEPTH_MAX and numbers longer than NUMBER_SIZE_MAX
count as malformed. Depth is counted, without recursion. Escapes may name halves of surrogate pairs,
which UTF-8 cannot hold; those are replaced when text is decoded, and stay in raw bytes.

Knows nothing of topics and jobs. Of two equal keys the last one counts, unless the caller checks
for them; keys are compared by their decoded text, so one written with escapes is found too. Kinds
and ABSENT are those of `wire/msgpack/forms.py`, since a session may get a request in either format.
"""

import json
from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from jobyard.wire.json.check import JsonCheck
from jobyard.wire.json.scan import (
    JSON_DEPTH_MAX,
    end_of,
    is_at,
    skip_blanks,
    string_end,
    value_start,
)
from jobyard.wire.msgpack.forms import (
    ABSENT,
    KIND_ABSENT,
    KIND_ARRAY,
    KIND_BOOL,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_MAP,
    KIND_NIL,
    KIND_TEXT,
)
from jobyard.wire.numbers import LEAST, MOST, whole_or

# A row of the index: key start i32, key size i32, value start i32, value end i32.
_ROW_SIZE: Final = 16
# From this many keys on, a set costs less than comparing each key with all others.
_MANY_KEYS: Final = 16
_LOW: Final = 0xFFFFFFFF
# The longest whole number within 64 bits, including its sign.
_WIDE_SIZE: Final = 20
# In place of the size of a key with escapes.
_ESCAPED: Final = 0x7FFFFFFF


@final
@mypyc_attr(free_list_len=1, acyclic=True)
class JsonFields:
    """The positions of the values of one object; made by `read_object`."""

    def __init__(self, data: bytes, index: bytes) -> None:
        self.data = data
        self._index = index

    def _span(self, key: bytes) -> i64:
        """Return the start of the value of `key`, and its end in the upper 32 bits; or -1."""
        index = self._index
        size: i64 = len(key)
        row: i64 = len(index)
        while row > 0:
            row -= _ROW_SIZE
            name = read_i64_le(index, row)
            name_size = name >> 32
            if name_size == size:
                if is_at(self.data, name & _LOW, key):
                    return read_i64_le(index, row + 8)
            elif name_size == _ESCAPED and _key_at(self.data, name & _LOW) == key:
                return read_i64_le(index, row + 8)
        return -1

    def find(self, key: bytes) -> tuple[i64, i64]:
        """Return where the value of `key` starts and ends; (-1, -1) when there is none."""
        span = self._span(key)
        if span < 0:
            return -1, -1
        return span & _LOW, span >> 32

    def keys(self) -> list[str]:
        """Return all keys decoded, in their order, including repeated ones."""
        found: list[str] = []
        row: i64 = 0
        while row < len(self._index):
            start = read_i64_le(self._index, row) & _LOW
            found.append(
                text_of(self.data[start : string_end(self.data, start, len(self.data)) - 1])
            )
            row += _ROW_SIZE
        return found

    def is_only(self, key: bytes) -> bool:
        """Return whether the object has this key and no other."""
        return len(self._index) == _ROW_SIZE and self._span(key) >= 0

    def has_twins(self) -> bool:
        """Return whether a key is repeated."""
        index = self._index
        end: i64 = len(index)
        if end > _MANY_KEYS * _ROW_SIZE:
            names = self.keys()
            return len(set(names)) < len(names)
        row: i64 = _ROW_SIZE
        while row < end:
            name = read_i64_le(index, row)
            before: i64 = 0
            while before < row:
                if self._are_twins(name, read_i64_le(index, before)):
                    return True
                before += _ROW_SIZE
            row += _ROW_SIZE
        return False

    def _are_twins(self, one: i64, other: i64) -> bool:
        """Return whether two keys, each with start and size in one number, are the same text."""
        size = one >> 32
        other_size = other >> 32
        data = self.data
        at = one & _LOW
        from_at = other & _LOW
        if _ESCAPED in (size, other_size):
            return _key_at(data, at) == _key_at(data, from_at)
        if size != other_size:
            return False
        end = at + size
        while at < end:
            if data[at] != data[from_at]:
                return False
            at += 1
            from_at += 1
        return True

    def has(self, key: bytes) -> bool:
        """Return whether there is a value, null included."""
        return self._span(key) >= 0

    def kind(self, key: bytes) -> i64:
        """Return the kind of a value, KIND_ABSENT when there is none."""
        start, end = self.find(key)
        return kind_of(self.data, start, end) if start >= 0 else KIND_ABSENT

    def is_nil(self, key: bytes) -> bool:
        """Return whether the value is there and null."""
        return self._first(key) == 110

    def is_true(self, key: bytes) -> bool:
        """Return whether the value is true; nothing else counts as true."""
        return self._first(key) == 116

    def is_false(self, key: bytes) -> bool:
        """Return whether the value is there and false."""
        return self._first(key) == 102

    def _first(self, key: bytes) -> i64:
        span = self._span(key)
        if span < 0:
            return -1
        return self.data[span & _LOW]

    def raw(self, key: bytes) -> bytes | None:
        """Return the bytes of a value as sent, without the white space around it."""
        span = self._span(key)
        if span < 0:
            return None
        return self.data[span & _LOW : span >> 32]

    def value(self, key: bytes) -> object:
        """Return a value decoded, or ABSENT."""
        start, end = self.find(key)
        return value_at(self.data, start, end) if start >= 0 else ABSENT

    def text(self, key: bytes) -> str | None:
        """Return a value that is text; None for all others."""
        start, end = self.find(key)
        return text_at(self.data, start, end) if start >= 0 else None

    def content(self, key: bytes) -> bytes | None:
        """Return the UTF-8 of a value that is text, escapes decoded; None for all others."""
        start, end = self.find(key)
        return content_at(self.data, start, end) if start >= 0 else None

    def texts(self, key: bytes) -> list[str] | None:
        """Return a value that is an array of only texts; None for all others."""
        start, end = self.find(key)
        if start < 0:
            return None
        spans = _item_spans(self.data, start, end)
        if spans is None:
            return None
        found: list[str] = []
        for first, last in spans:
            text = text_at(self.data, first, last)
            if text is None:
                return None
            found.append(text)
        return found

    def integer(self, key: bytes, otherwise: i64) -> i64:
        """Return a whole number within 64 bits, written as integer or float; or `otherwise`."""
        start, end = self.find(key)
        return integer_at(self.data, start, end, otherwise) if start >= 0 else otherwise

    def number(self, key: bytes, otherwise: float) -> float:
        """Return any number as a float, infinite if it is too large; or `otherwise`."""
        start, end = self.find(key)
        if start < 0 or not _is_number(self.data, start):
            return otherwise
        return float(self.data[start:end])


# --- documents


def read_object(data: bytes, start: i64, end: i64) -> JsonFields | None:
    """Find the fields of the object that fills the bytes; None if they are not one object.

    Everything in it is checked, so that values can be used without another check.
    """
    if not _is_utf8(data, start, end):
        return None
    at = skip_blanks(data, start, end)
    if at >= end or data[at] != 123:
        return None
    index = BytesWriter()
    at = skip_blanks(data, at + 1, end)
    if at >= end or data[at] != 125:
        at = _index_pairs(data, at, end, index)
        if at < 0:
            return None
    return JsonFields(data, index.getvalue()) if skip_blanks(data, at + 1, end) == end else None


@final
class Checked:
    """Reads a long text that was already checked, in slices."""

    def __init__(self, check: JsonCheck) -> None:
        self._check = check
        self.data = check.data
        # In the array that is being read.
        self._at: i64 = 0
        self._end: i64 = 0

    def top(self, keys_max: i64) -> JsonFields | None:
        """Return the fields of the outermost object; None for another value, or too many keys."""
        end: i64 = len(self.data)
        at = skip_blanks(self.data, 0, end)
        return self._object(at, keys_max)[0]

    def enter(self, start: i64, end: i64) -> None:
        """Go to the first item of an array."""
        self._end = end
        self._at = skip_blanks(self.data, start + 1, end)

    def has_more(self) -> bool:
        """Return whether there is another item."""
        return self.data[self._at] != 93

    def next(self, keys_max: i64) -> JsonFields | None:
        """Return the fields of the next item and advance; None if it is no object or too large."""
        fields, at = self._object(self._at, keys_max)
        if fields is None:
            return None
        at = skip_blanks(self.data, at, self._end)
        if self.data[at] == 44:
            at = skip_blanks(self.data, at + 1, self._end)
        self._at = at
        return fields

    def _object(self, at: i64, keys_max: i64) -> tuple[JsonFields | None, i64]:
        """Return the fields of the object at `at`, and where it ends."""
        data = self.data
        end: i64 = len(data)
        if data[at] != 123:
            return None, at
        index = BytesWriter()
        at = skip_blanks(data, at + 1, end)
        while data[at] != 125:
            if len(index) >= keys_max * _ROW_SIZE:
                return None, at
            key = at + 1
            at = value_start(data, at, end, 125)
            value_end = self._check.after(at)
            write_i64_le(index, key | _key_size(data, key) << 32)
            write_i64_le(index, at | value_end << 32)
            at = skip_blanks(data, value_end, end)
            if data[at] == 44:
                at = skip_blanks(data, at + 1, end)
        return JsonFields(data, index.getvalue()), at + 1


def is_json(data: bytes) -> bool:
    """Return whether bytes are one JSON value and nothing else."""
    end: i64 = len(data)
    if not _is_utf8(data, 0, end):
        return False
    at = skip_blanks(data, 0, end)
    if at >= end:
        return False
    at = end_of(data, at, end, JSON_DEPTH_MAX)
    return at >= 0 and skip_blanks(data, at, end) == end


def read_objects(data: bytes, start: i64, end: i64, most: i64) -> list[JsonFields] | None:
    """Find the fields of the first objects in a well-formed array; None if it holds other values.

    Only the first `most` are read: millions of items fit into one request.
    """
    found: list[JsonFields] = []
    at = skip_blanks(data, start + 1, end)
    while at < end and data[at] != 93 and len(found) < most:
        if data[at] == 44:
            at = skip_blanks(data, at + 1, end)
        if data[at] != 123:
            return None
        index = BytesWriter()
        at = skip_blanks(data, at + 1, end)
        if data[at] != 125:
            at = _index_pairs(data, at, end, index)
        found.append(JsonFields(data, index.getvalue()))
        at = skip_blanks(data, at + 1, end)
    return found


def _index_pairs(data: bytes, at: i64, end: i64, index: BytesWriter) -> i64:
    """Write a row for every pair; return the position of the closing brace, or -1."""
    while True:
        key = at + 1
        at = value_start(data, at, end, 125)
        if at < 0:
            return -1
        value_end = end_of(data, at, end, JSON_DEPTH_MAX - 1)
        if value_end < 0:
            return -1
        write_i64_le(index, key | _key_size(data, key) << 32)
        write_i64_le(index, at | value_end << 32)
        at = skip_blanks(data, value_end, end)
        if at >= end:
            return -1
        if data[at] != 44:
            return _if_at(data, at, 125)
        at = skip_blanks(data, at + 1, end)


def items(data: bytes, start: i64, end: i64) -> list[tuple[i64, i64]] | None:
    """Return start and end of each item of the array that fills the bytes; None if not an array."""
    return _item_spans(data, start, end) if _is_utf8(data, start, end) else None


def first_items(data: bytes, start: i64, end: i64, most: i64) -> list[tuple[i64, i64]]:
    """Return start and end of the first items of a well-formed array."""
    spans: list[tuple[i64, i64]] = []
    at = skip_blanks(data, start + 1, end)
    while data[at] != 93 and len(spans) < most:
        item_end = end_of(data, at, end, JSON_DEPTH_MAX - 1)
        spans.append((at, item_end))
        at = skip_blanks(data, item_end, end)
        if data[at] == 44:
            at = skip_blanks(data, at + 1, end)
    return spans


def _item_spans(data: bytes, start: i64, end: i64) -> list[tuple[i64, i64]] | None:
    at = skip_blanks(data, start, end)
    if at >= end or data[at] != 91:
        return None
    spans: list[tuple[i64, i64]] = []
    at = skip_blanks(data, at + 1, end)
    if at >= end or data[at] != 93:
        at = _note_items(data, at, end, spans)
        if at < 0:
            return None
    return spans if skip_blanks(data, at + 1, end) == end else None


def _note_items(data: bytes, at: i64, end: i64, spans: list[tuple[i64, i64]]) -> i64:
    """Note where items are; return the position of the closing bracket, or -1."""
    while True:
        item_end = end_of(data, at, end, JSON_DEPTH_MAX - 1)
        if item_end < 0:
            return -1
        spans.append((at, item_end))
        at = skip_blanks(data, item_end, end)
        if at >= end:
            return -1
        if data[at] != 44:
            return _if_at(data, at, 93)
        at = skip_blanks(data, at + 1, end)


def _is_utf8(data: bytes, start: i64, end: i64) -> bool:
    # Offsets are stored in 32 bits; no body comes near.
    assert end <= _ESCAPED
    part = data[start:end]
    if part.isascii():
        return True
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- decoding well-formed values


def kind_of(data: bytes, start: i64, end: i64) -> i64:
    """Return the kind of a well-formed value; a number with a point or exponent is a float."""
    byte: i64 = data[start]
    if byte == 34:
        return KIND_TEXT
    if byte == 123:
        return KIND_MAP
    if byte == 91:
        return KIND_ARRAY
    if _is_number(data, start):
        return KIND_INTEGER if is_plain_integer(data, start, end) else KIND_FLOAT
    return KIND_NIL if byte == 110 else KIND_BOOL


def text_at(data: bytes, start: i64, end: i64) -> str | None:
    """Return the text of a well-formed value; None if it is not a text."""
    return text_of(data[start + 1 : end - 1]) if data[start] == 34 else None


def content_at(data: bytes, start: i64, end: i64) -> bytes | None:
    """Return the UTF-8 of a well-formed text value; None if it is not a text."""
    if data[start] != 34:
        return None
    content = data[start + 1 : end - 1]
    return content if b"\\" not in content else text_of(content).encode()


def integer_at(data: bytes, start: i64, end: i64, otherwise: i64) -> i64:
    """Return a well-formed value that is a whole number within 64 bits; or `otherwise`."""
    if not _is_number(data, start):
        return otherwise
    if not is_plain_integer(data, start, end):
        return whole_or(float(data[start:end]), otherwise)
    if end - start > _WIDE_SIZE:
        # Parsing thousands of digits would take long, and Python refuses them.
        return otherwise
    if end - start > 18:
        number = int(data[start:end])
        return number if LEAST <= number <= MOST else otherwise
    is_negative = data[start] == 45
    at = start + 1 if is_negative else start
    value: i64 = 0
    while at < end:
        value = value * 10 + data[at] - 48
        at += 1
    if is_negative:
        return -value
    return value


def value_at(data: bytes, start: i64, end: i64) -> object:
    """Return a well-formed value decoded."""
    raw = data[start:end]
    value: object = json.loads(raw)
    # Half a surrogate pair can only come from an escape.
    return _mended(value) if b"\\ud" in raw or b"\\uD" in raw else value


def text_of(content: bytes) -> str:
    """Return the text of the bytes between quotes."""
    if b"\\" not in content:
        return content.decode()
    text: object = json.loads(b'"' + content + b'"')
    assert isinstance(text, str)
    return _mended_text(text)


def _mended_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _mended(value: object) -> object:
    if isinstance(value, str):
        return _mended_text(value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended_text(key): _mended(item) for key, item in value.items()}
    return value


def _key_at(data: bytes, start: i64) -> bytes:
    """Return the UTF-8 of a key, escapes decoded, that begins at `start` after its quote."""
    return text_of(data[start : string_end(data, start, len(data)) - 1]).encode()


def _key_size(data: bytes, key: i64) -> i64:
    """Return the size of the well-formed key at `key`, _ESCAPED if it has escapes."""
    at = key
    while data[at] != 34:
        if data[at] == 92:
            return _ESCAPED
        at += 1
    return at - key


def _is_number(data: bytes, start: i64) -> bool:
    byte: i64 = data[start]
    return byte == 45 or 48 <= byte <= 57


def is_plain_integer(data: bytes, start: i64, end: i64) -> bool:
    """Return whether a well-formed number has neither point nor exponent."""
    at = start + 1
    while at < end:
        if not 48 <= data[at] <= 57:
            return False
        at += 1
    return True


def _if_at(data: bytes, at: i64, byte: i64) -> i64:
    if data[at] != byte:
        return -1
    return at
