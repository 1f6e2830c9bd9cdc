"""Where JSON values end, and whether they are well-formed: the loop under all reading of JSON.

Strictly RFC 8259, with the two bounds below. Depth is counted, without recursion. Bytes above ASCII
are not checked here.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_le
from mypy_extensions import i64, u8

# Deeper than any request, and far from where the recursion of a decoder would be a problem.
JSON_DEPTH_MAX: Final = 128
# Python refuses to parse integers of some thousand digits, and parsing takes quadratic time.
NUMBER_SIZE_MAX: Final = 1024

# From this many bytes on, Python's bulk operations on a text cost less than a loop over it.
LONG_TEXT: Final = 1024
# What no text may hold unescaped: controls, and the backslash, which begins an escape.
_UNPLAIN: Final = bytes(range(32)) + b"\\"

# Seven bytes side by side: all eight would need the sign bit.
_SEVEN: Final = 0x00FFFFFFFFFFFFFF
_ONES: Final = 0x01010101010101
_TOPS: Final = 0x80 * _ONES
_QUOTES: Final = 34 * _ONES
_BACKSLASHES: Final = 92 * _ONES
_BLANKS: Final = 32 * _ONES


def skip(data: bytes, at: i64, end: i64) -> i64:
    """Return where the value at `at` ends, or -1 when it is malformed or incomplete.

    White space before it is not allowed, and bytes above ASCII are not checked.
    """
    return end_of(data, at, end, JSON_DEPTH_MAX)


def skip_blanks(data: bytes, at: i64, end: i64) -> i64:
    """Return the position of the next byte that is not white space; `end` if there is none."""
    while at < end:
        byte: i64 = data[at]
        if byte > 32 or byte not in (32, 10, 13, 9):
            return at
        at += 1
    return at


def end_of(data: bytes, at: i64, end: i64, depth_max: i64) -> i64:
    """Like `skip`, for a value that may be nested `depth_max` deep."""
    if at < end and data[at] != 123 and data[at] != 91:
        return scalar_end(data, at, end)
    return _nested_end(data, at, end, depth_max)


def _nested_end(data: bytes, at: i64, end: i64, depth_max: i64) -> i64:
    # The closing brackets still expected, the next one last.
    closers = BytesWriter()
    while at < end:
        byte: i64 = data[at]
        if byte in (123, 91):
            if len(closers) >= depth_max:
                return -1
            closers.append(u8(byte + 2))
            at = skip_blanks(data, at + 1, end)
            if at < end and data[at] != byte + 2:
                at = value_start(data, at, end, byte + 2)
                if at < 0:
                    return -1
                continue
        else:
            at = scalar_end(data, at, end)
        at = _close(data, at, end, closers)
        depth: i64 = len(closers)
        if at < 0 or depth == 0:
            return at
        at = value_start(data, skip_blanks(data, at + 1, end), end, i64(closers[depth - 1]))
        if at < 0:
            return -1
    return -1


def _close(data: bytes, at: i64, end: i64, closers: BytesWriter) -> i64:
    """Skip the closing brackets after a value; return the next comma or the end, or -1."""
    depth: i64 = len(closers)
    while depth > 0 and at >= 0:
        at = skip_blanks(data, at, end)
        if at >= end:
            return -1
        byte: i64 = data[at]
        if byte == 44:
            return at
        depth -= 1
        if byte != closers[depth]:
            return -1
        closers.truncate(depth)
        at += 1
    return at


def value_start(data: bytes, at: i64, end: i64, closer: i64) -> i64:
    """Return where the next value begins in the container that `closer` ends; or -1."""
    if closer == 93:
        return at
    if at >= end or data[at] != 34:
        return -1
    at = string_end(data, at + 1, end)
    if at < 0:
        return -1
    at = skip_blanks(data, at, end)
    if at >= end or data[at] != 58:
        return -1
    return skip_blanks(data, at + 1, end)


def scalar_end(data: bytes, at: i64, end: i64) -> i64:
    """Return where the text, number or word at `at` ends, or -1."""
    byte: i64 = data[at]
    if byte == 34:
        return string_end(data, at + 1, end)
    if byte == 116:
        return _word_end(data, at, end, b"true")
    if byte == 102:
        return _word_end(data, at, end, b"false")
    if byte == 110:
        return _word_end(data, at, end, b"null")
    after = number_end(data, at, end)
    # Compiled, `after if ... else -1` would make an object of the number.
    if after - at > NUMBER_SIZE_MAX:
        return -1
    return after


def string_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of the text whose first byte after the quote is at `at`, or -1."""
    long_from = at + LONG_TEXT
    while at < end:
        if at >= long_from:
            at = _long_end(data, at, end)
            long_from = end
        at = plain_end(data, at, min(end, long_from))
        byte: i64 = data[at]
        at += 1
        if byte == 34:
            return at
        if byte < 32:
            return -1
        if byte == 92:
            at = escape_end(data, at, end)
            if at < 0:
                return -1
    return -1


def _long_end(data: bytes, at: i64, end: i64) -> i64:
    """Skip to the quote at the end of a long text at once, if it holds only plain bytes."""
    quote: i64 = data.find(b'"', at, end)
    if quote > at:
        text = data[at:quote]
        if len(text.translate(None, _UNPLAIN)) == len(text):
            return quote
    return at


def plain_end(data: bytes, at: i64, end: i64) -> i64:
    """Skip text, seven bytes at once, up to near a quote, escape or control.

    A byte is zero when subtracting one borrows and its top bit was not set; the same with 32
    instead of one finds the controls. It takes 0.4 ns per byte; a loop over single bytes takes 2.
    """
    last = end - 8
    while at <= last:
        word = read_i64_le(data, at) & _SEVEN
        quotes = word ^ _QUOTES
        escapes = word ^ _BACKSLASHES
        found = (quotes - _ONES) & ~quotes | (escapes - _ONES) & ~escapes
        if (found | (word - _BLANKS) & ~word) & _TOPS != 0:
            return at
        at += 7
    return at


def escape_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of the escape whose backslash is before `at`, or -1."""
    if at >= end:
        return -1
    byte: i64 = data[at]
    at += 1
    if byte != 117:
        return at if byte in b'"\\/bfnrt' else i64(-1)
    if end - at < 4:
        return -1
    last = at + 4
    while at < last:
        byte = data[at]
        letter = byte | 32
        if not (48 <= byte <= 57 or 97 <= letter <= 102):
            return -1
        at += 1
    return last


def _word_end(data: bytes, at: i64, end: i64, word: bytes) -> i64:
    size: i64 = len(word)
    if end - at < size or not is_at(data, at, word):
        return -1
    return at + size


def number_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of the number at `at`, or -1."""
    if data[at] == 45:
        at += 1
    if at < end and data[at] == 48:
        at += 1
    else:
        at = _digits_end(data, at, end)
    if 0 < at < end and data[at] == 46:
        at = _digits_end(data, at + 1, end)
    if 0 < at < end and (data[at] == 101 or data[at] == 69):
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        at = _digits_end(data, at, end)
    return at


def _digits_end(data: bytes, at: i64, end: i64) -> i64:
    """Return the end of one digit or more, or -1."""
    start = at
    while at < end and 48 <= data[at] <= 57:
        at += 1
    if at == start:
        return -1
    return at


def is_at(data: bytes, at: i64, word: bytes) -> bool:
    """Return whether `word` is at `at`; the data must be long enough."""
    size: i64 = len(word)
    each: i64 = 0
    while each < size:
        if data[at + each] != word[each]:
            return False
        each += 1
    return True
