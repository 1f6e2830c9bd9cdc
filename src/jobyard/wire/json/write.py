"""Writes JSON: single values for responses built by hand, and whole Python values.

Knows nothing of topics and jobs. Text is written as UTF-8 with everything escaped that could break
out of its context: line ends of SSE and of JavaScript, and characters that open or close an HTML
tag. The output is always valid JSON: NaN and the infinities are null.
"""

import math
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from jobyard.errors import Refused
from jobyard.wire.json.scan import JSON_DEPTH_MAX
from jobyard.wire.msgpack.forms import ABSENT
from jobyard.wire.numbers import write_number

_HEX: Final = b"0123456789abcdef"
_SPECIAL: Final = dict(zip(b'\b\t\n\f\r"\\&<>\xe2', b'btnfr"\\\1\1\1\2', strict=True))
# By byte: 0 is written as is, 1 as \u00.., 2 may begin U+2028 or U+2029; else the letter after \.
_ESCAPES: Final = bytes([_SPECIAL.get(byte, 1 if byte < 32 else 0) for byte in range(256)])
_I64_MIN: Final = -9223372036854775808


class Unwritable(Refused):
    """A value nested deeper than `wire.json.read` would accept."""


@final
class JsonRaw:
    """A value that is already JSON and is written byte for byte."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def write_text(out: BytesWriter, text: str) -> None:
    """Append a text. Halves of surrogate pairs, which UTF-8 cannot hold, are replaced."""
    try:
        write_content(out, text.encode())
    except UnicodeEncodeError:
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        write_content(out, whole.encode())


def write_content(out: BytesWriter, content: bytes) -> None:
    """Append a text that is given as its UTF-8."""
    out.append(34)
    size: i64 = len(content)
    # Bytes without escapes are written in runs.
    start: i64 = 0
    at: i64 = 0
    while at < size:
        escape: i64 = _ESCAPES[content[at]]
        if escape != 0:
            width = _escaped_width(content, at, escape)
            if width > 0:
                out.write(content[start:at])
                _write_escape(out, content, at, escape)
                start = at + width
                at = start
                continue
        at += 1
    out.write(content[start:] if start > 0 else content)
    out.append(34)


def _escaped_width(content: bytes, at: i64, escape: i64) -> i64:
    """Return how many bytes an escape replaces; 0 if none is needed after all."""
    if escape != 2:
        return 1
    # U+2028 is e2 80 a8, U+2029 is e2 80 a9; many other characters begin alike.
    if at + 2 < len(content) and content[at + 1] == 0x80 and content[at + 2] in (0xA8, 0xA9):
        return 3
    return 0


def _write_escape(out: BytesWriter, content: bytes, at: i64, escape: i64) -> None:
    out.append(92)
    if escape > 2:
        out.append(u8(escape))
    elif escape == 2:
        out.write(b"u2028" if content[at + 2] == 0xA8 else b"u2029")
    else:
        byte: i64 = content[at]
        out.write(b"u00")
        out.append(u8(_HEX[byte >> 4]))
        out.append(u8(_HEX[byte & 15]))


def quoted(text: str) -> bytes:
    """Return a text as JSON."""
    out = BytesWriter()
    write_text(out, text)
    return out.getvalue()


def write_int(out: BytesWriter, number: i64) -> None:
    """Append a whole number."""
    if number >= 0:
        write_number(out, number)
    elif number == _I64_MIN:  # has no positive counterpart
        out.write(b"-9223372036854775808")
    else:
        out.append(45)
        write_number(out, -number)


def write_float(out: BytesWriter, number: float) -> None:
    """Append a number in the fewest digits that read back the same; null if it is not finite."""
    out.write(repr(number).encode() if math.isfinite(number) else b"null")


def write_bool(out: BytesWriter, value: bool) -> None:  # noqa: FBT001  the value to write
    """Append true or false."""
    out.write(b"true" if value else b"false")


def write_texts(out: BytesWriter, texts: list[str]) -> None:
    """Append an array of texts."""
    out.append(91)
    is_first = True
    for text in texts:
        if not is_first:
            out.append(44)
        is_first = False
        write_text(out, text)
    out.append(93)


# --- whole values, for responses that are not hot


def encode(value: object) -> bytes:
    """Return a value as JSON; see `write_value`."""
    out = BytesWriter()
    write_value(out, value)
    return out.getvalue()


def write_value(out: BytesWriter, value: object) -> None:
    """Append one of: None, bool, int, float, str, list, tuple, dict, JsonRaw.

    ABSENT is left out of dicts and null elsewhere. Raises Unwritable for a value nested deeper than
    anything that can be read.
    """
    _write_nested(out, value, 0)


def _write_nested(out: BytesWriter, value: object, depth: i64) -> None:
    if isinstance(value, str):
        write_text(out, value)
    elif value is None or value is ABSENT:
        out.write(b"null")
    elif isinstance(value, bool):
        write_bool(out, value)
    elif isinstance(value, int):
        out.write(str(value).encode())
    elif isinstance(value, float):
        write_float(out, value)
    elif isinstance(value, dict):
        _write_dict(out, value, depth + 1)
    elif isinstance(value, (list, tuple)):
        _write_list(out, list(value), depth + 1)
    elif isinstance(value, JsonRaw):
        out.write(value.data)
    else:
        raise TypeError(f"no JSON form for {type(value).__name__}")


def _write_list(out: BytesWriter, values: list[object], depth: i64) -> None:
    _check_depth(depth)
    out.append(91)
    is_first = True
    for value in values:
        if not is_first:
            out.append(44)
        is_first = False
        _write_nested(out, value, depth)
    out.append(93)


def _write_dict(out: BytesWriter, pairs: dict[object, object], depth: i64) -> None:
    _check_depth(depth)
    out.append(123)
    is_first = True
    for key, value in pairs.items():
        if value is not ABSENT:
            if not is_first:
                out.append(44)
            is_first = False
            if not isinstance(key, str):
                raise TypeError("only text can be a key")
            write_text(out, key)
            out.append(58)
            _write_nested(out, value, depth)
    out.append(125)


def _check_depth(depth: i64) -> None:
    if depth > JSON_DEPTH_MAX:
        raise Unwritable("nested too deep")
