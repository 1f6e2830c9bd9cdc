"""The forms of MessagePack: where a value ends, its kind, and its decoded value.

The first byte of a value is its form, and determines everything but a length:

    00-7f int          c0    nil           cc-cf uint 8 16 32 64   d9-db str, length 8 16 32
    80-8f map          c1    never used    d0-d3 int 8 16 32 64    dc dd array, count 16 32
    90-9f array        c2 c3 false, true   d4-d8 ext of 1 to 16    de df map, count 16 32
    a0-bf str          c4-c6 bin           ca cb float 32 64
    e0-ff int < 0      c7-c9 ext: length, type, bytes

Integers are big-endian. Knows nothing of commands and jobs. Nothing here trusts a length or a
count: the announced size of a value must fit into the remaining bytes before it is used.
"""

import json
from typing import Final, final

from librt.strings import read_f32_be, read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from jobyard.errors import Refused

# Deeper than any command, and far from where a recursion would be a problem.
DECODED_DEPTH_MAX: Final = 100
# An empty map is one byte to send and 72 in memory; values that are stored whole stay bytes.
VALUES_MAX: Final = 1_000_000

KIND_ABSENT: Final = 0
KIND_NIL: Final = 1
KIND_BOOL: Final = 2
KIND_INTEGER: Final = 3
KIND_FLOAT: Final = 4
KIND_TEXT: Final = 5
KIND_BIN: Final = 6
KIND_ARRAY: Final = 7
KIND_MAP: Final = 8
KIND_EXT: Final = 9

# By form, from c0 on: size of the length or count, size of other fixed bytes, and kind.
_LENGTH_SIZES: Final = (
    b"\0\0\0\0\1\2\4\1\2\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\2\4\2\4\2\4"  # c0 to df
)
_FIXED_SIZES: Final = (
    b"\0\0\0\0\0\0\0\1\1\1\4\x08\1\2\4\x08\1\2\4\x08\2\3\5\x09\x11\0\0\0\0\0\0\0"  # c0 to df
)
_KINDS: Final = (
    b"\1\0\2\2\6\6\6\x09\x09\x09\4\4\3\3\3\3\3\3\3\3\x09\x09\x09\x09\x09\5\5\5\7\7\x08\x08"
)

# Up to here every whole number has its own float64.
_EXACT_MAX: Final = 9007199254740992.0


class Malformed(Refused):
    """Bytes that are not a MessagePack value, or one nested too deep or too large to decode."""


@final
class Absent:
    """The value of an option that was not given; not the same as nil."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


@final
class Ext:
    """A value of an extension type."""

    def __init__(self, code: int, content: bytes) -> None:
        self.code = code
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ext) and other.code == self.code and other.content == self.content

    def __hash__(self) -> int:
        return hash((self.code, self.content))

    def __repr__(self) -> str:
        return f"Ext({self.code}, {self.content!r})"


def skip(data: bytes, at: i64, end: i64) -> i64:
    """Return where the value at `at` ends, or -1 when it is malformed or incomplete.

    Counts the values still expected instead of recursing, so depth costs nothing.
    """
    left: i64 = 1
    while left > 0:
        if at >= end:
            return -1
        form: i64 = data[at]
        at += 1
        left -= 1
        if form < 0x80 or form >= 0xE0:
            continue
        if form >= 0xC0:
            at, more = _skip_wide(data, at, end, form)
            left += more
        elif form >= 0xA0:
            at += form & 31
        elif form >= 0x90:
            left += form & 15
        else:
            left += (form & 15) * 2
        # Every value has at least one byte: more announced values than bytes are an error.
        if left > end - at:
            return -1
    return at


def is_deeper(data: bytes, at: i64, end: i64, most: i64) -> bool:
    """Return whether a value that `skip` accepts is nested more than `most` deep."""
    # How many values are still expected in the innermost list or map, and in those around it.
    left: i64 = 1
    around: list[i64] = []
    while True:
        while left == 0:
            if not around:
                return False
            left = around.pop()
        if at >= end:
            return False
        left -= 1
        form: i64 = data[at]
        at += 1
        if form < 0x80 or form >= 0xE0:
            continue
        at, more = past_head(data, at, end, form)
        if more > 0:
            if len(around) >= most:
                return True
            around.append(left)
            left = more


def past_head(data: bytes, at: i64, end: i64, form: i64) -> tuple[i64, i64]:
    """Return where the bytes of a form from 80 to df end, and how many values follow them."""
    if form >= 0xC0:
        return _skip_wide(data, at, end, form)
    if form >= 0xA0:
        return at + (form & 31), 0
    return at, (form & 15 if form >= 0x90 else (form & 15) * 2)


def _skip_wide(data: bytes, at: i64, end: i64, form: i64) -> tuple[i64, i64]:
    """Return where the bytes of a form from c0 to df end, and how many values follow them."""
    size: i64 = _LENGTH_SIZES[form - 0xC0]
    fixed: i64 = _FIXED_SIZES[form - 0xC0]
    if size == 0:
        # One past the end marks a truncated value.
        return (at + fixed if form != 0xC1 else end + 1), 0
    if end - at < size:
        return end + 1, 0
    length = read_length(data, at, size)
    at += size
    if form < 0xDC:
        return at + fixed + length, 0
    return at, (length if form < 0xDE else length * 2)


def read_length(data: bytes, at: i64, size: i64) -> i64:
    """Read a length or count of `size` bytes: 1, 2 or 4."""
    if size == 1:
        return data[at]
    if size == 2:
        return i64(read_i16_be(data, at)) & 0xFFFF
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF


def kind_of(data: bytes, at: i64) -> i64:
    """Return the kind of the well-formed value at `at`; KIND_ABSENT is JavaScript's undefined."""
    form: i64 = data[at]
    if form < 0x80 or form >= 0xE0:
        return KIND_INTEGER
    if form >= 0xC0:
        kind: i64 = _KINDS[form - 0xC0]
        if kind == KIND_EXT and is_undefined(data, at):
            return KIND_ABSENT
        return kind
    if form >= 0xA0:
        return KIND_TEXT
    return KIND_ARRAY if form >= 0x90 else KIND_MAP


def is_undefined(data: bytes, at: i64) -> bool:
    """Return whether the well-formed value at `at` is an extension of type 0.

    JavaScript writers send one of a single byte wherever an option is not set.
    """
    form: i64 = data[at]
    if 0xD4 <= form <= 0xD8:
        return data[at + 1] == 0
    return 0xC7 <= form <= 0xC9 and data[at + 1 + _LENGTH_SIZES[form - 0xC0]] == 0


def content_start(data: bytes, at: i64) -> i64:
    """Return where the bytes of the well-formed str, bin or ext at `at` begin."""
    form: i64 = data[at]
    if form < 0xC0:
        return at + 1
    if 0xD4 <= form <= 0xD8:
        return at + 2
    return at + 1 + _LENGTH_SIZES[form - 0xC0] + _FIXED_SIZES[form - 0xC0]


def array_header(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Return (count, position of the first item), or (-1, at) when there is no array."""
    if at >= end:
        return -1, at
    form: i64 = data[at]
    if 0x90 <= form < 0xA0:
        return form & 15, at + 1
    if form < 0xDC or form > 0xDD:
        return -1, at
    return _wide_header(data, at, end, form)


def map_header(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Return (count of pairs, position of the first key), or (-1, at) when there is no map."""
    if at >= end:
        return -1, at
    form: i64 = data[at]
    if 0x80 <= form < 0x90:
        return form & 15, at + 1
    if form < 0xDE or form > 0xDF:
        return -1, at
    return _wide_header(data, at, end, form)


def _wide_header(data: bytes, at: i64, end: i64, form: i64) -> tuple[i64, i64]:
    size: i64 = _LENGTH_SIZES[form - 0xC0]
    if end - at <= size:
        return -1, at
    count = read_length(data, at + 1, size)
    first = at + 1 + size
    if count > end - first:
        return -1, at
    return count, first


def integer_at(data: bytes, at: i64) -> i64:
    """Read the well-formed integer at `at`. One of 2^63 or more wraps: it is 2^64 less."""
    form: i64 = data[at]
    if form < 0x80:
        return form
    if form >= 0xE0:
        return form - 256
    at += 1
    if form <= 0xCF:
        return read_length(data, at, 1 << (form - 0xCC)) if form < 0xCF else read_i64_be(data, at)
    return _signed(data, at, form)


def _signed(data: bytes, at: i64, form: i64) -> i64:
    if form == 0xD0:
        byte: i64 = data[at]
        return byte if byte < 128 else byte - 256
    if form == 0xD1:
        return i64(read_i16_be(data, at))
    return i64(read_i32_be(data, at)) if form == 0xD2 else read_i64_be(data, at)


def float_at(data: bytes, at: i64) -> float:
    """Read the well-formed float at `at`."""
    return read_f32_be(data, at + 1) if data[at] == 0xCA else read_f64_be(data, at + 1)


def text_of(content: bytes) -> str:
    """Decode UTF-8 as JavaScript does: invalid bytes become the replacement character."""
    try:
        return content.decode()  # compiled, faster than with an `errors` argument
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace")


def decode(data: bytes, at: i64, end: i64, most: i64 = VALUES_MAX) -> object:
    """Return the value that fills the bytes from `at` to `end`; raise Malformed if none does.

    A map becomes a dict with text keys, an array a list, str and bin become str and bytes, an
    extension Ext. Undefined is ABSENT at the top, None in a list, and left out of a dict. Also
    raises Malformed for more than `most` values.
    """
    if skip(data, at, end) != end:
        raise Malformed("not a MessagePack value")
    return _Decoder(data, at, most).value(0)


@final
class _Decoder:
    """Decodes bytes that `skip` has checked, so no bound is checked again."""

    def __init__(self, data: bytes, at: i64, most: i64) -> None:
        self.data = data
        self.at: i64 = at
        self.values_left: i64 = most

    def value(self, depth: i64) -> object:
        self.values_left -= 1
        if self.values_left < 0:
            raise Malformed("too many values")
        data = self.data
        at = self.at
        kind = kind_of(data, at)
        if kind == KIND_TEXT:
            return text_of(self.content())
        if kind == KIND_INTEGER:
            return self.integer()
        if kind == KIND_MAP:
            return self.map(depth + 1)
        if kind == KIND_ARRAY:
            return self.array(depth + 1)
        self.at = skip(data, at, len(data))
        return float_at(data, at) if kind == KIND_FLOAT else self.other(at, kind)

    def content(self) -> bytes:
        at = self.at
        self.at = skip(self.data, at, len(self.data))
        return self.data[content_start(self.data, at) : self.at]

    def integer(self) -> int:
        at = self.at
        self.at = skip(self.data, at, len(self.data))
        value = int(integer_at(self.data, at))
        return value + (1 << 64) if value < 0 and self.data[at] == 0xCF else value

    def other(self, at: i64, kind: i64) -> object:
        if kind == KIND_NIL:
            return None
        if kind == KIND_BOOL:
            return self.data[at] == 0xC3
        if kind == KIND_ABSENT:
            return ABSENT
        start = content_start(self.data, at)
        content = self.data[start : self.at]
        if kind == KIND_BIN:
            return content
        code: i64 = self.data[start - 1]
        return Ext(int(code if code < 128 else code - 256), content)

    def map(self, depth: i64) -> dict[str, object]:
        count, self.at = map_header(self.data, self.at, len(self.data))
        _check_depth(depth)
        found: dict[str, object] = {}
        while count > 0:
            count -= 1
            key = key_text(self.value(depth))
            value = self.value(depth)
            if value is ABSENT:
                # The last of two equal keys counts, even if it is undefined.
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def array(self, depth: i64) -> list[object]:
        count, self.at = array_header(self.data, self.at, len(self.data))
        _check_depth(depth)
        found: list[object] = []
        while count > 0:
            count -= 1
            value = self.value(depth)
            found.append(None if value is ABSENT else value)
        return found


def _check_depth(depth: i64) -> None:
    if depth > DECODED_DEPTH_MAX:
        raise Malformed("nested too deep")


_KEY_WORDS: Final[dict[type, str]] = {
    type(None): "null",
    Absent: "undefined",
    list: "[object Array]",
    dict: "[object Object]",
}


def key_text(key: object) -> str:
    """Print the key of a map, as JavaScript prints one that is not text.

    A map or array as a key is named, not printed: with nested quotes each level would double the
    backslashes of the one inside, and a hundred bytes would fill the memory.
    """
    if isinstance(key, str):
        return key
    if isinstance(key, float):
        return float_text(key)
    if isinstance(key, bytes):
        return text_of(key)
    if isinstance(key, Ext):
        return f"{key.code}:{key.content.hex()}"
    return _KEY_WORDS.get(type(key)) or str(key).lower()


def float_text(number: float) -> str:
    """Print a float as JavaScript would where that matters: whole numbers have no fraction."""
    if -_EXACT_MAX <= number <= _EXACT_MAX and number == int(number):
        return str(int(number))
    return json.dumps(number)
