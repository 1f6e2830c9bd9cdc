"""Writes MessagePack: single values for responses built by hand, and whole Python values.

Knows nothing of commands and jobs. Never writes a 64-bit integer: JavaScript clients read one as a
BigInt and fail on it, so a number beyond 32 bits is written as float64. Everything else is written
in its shortest form.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_f64_be, write_i32_be
from mypy_extensions import i32, i64, u8

from jobyard.wire.msgpack.forms import ABSENT, DECODED_DEPTH_MAX, Ext, Malformed, key_text

FRAME_HEADER_SIZE: Final = 4

_U32_MAX: Final = 0xFFFFFFFF
_I32_MIN: Final = -0x80000000


@final
class Raw:
    """A value that is already MessagePack and is written byte for byte."""

    def __init__(self, data: bytes) -> None:
        self.data = data


@final
class RawPart:
    """A value that is already MessagePack, as a part of larger data."""

    def __init__(self, data: bytes, start: i64, end: i64) -> None:
        self.data = data
        self.start: i64 = start
        self.end: i64 = end


@final
class LongRaw:
    """A value that is already MessagePack, in pieces because it is too long to copy at once."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces


def begin_frame(out: BytesWriter) -> i64:
    """Reserve the length of a frame; return its position for `end_frame`."""
    position: i64 = len(out)
    write_i32_be(out, 0)
    return position


def end_frame(out: BytesWriter, position: i64) -> None:
    """Fill in the length of the frame begun at `position`: everything written since."""
    size: i64 = len(out) - position - FRAME_HEADER_SIZE
    assert size <= _U32_MAX
    out[position] = u8(size >> 24)
    out[position + 1] = u8(size >> 16 & 0xFF)
    out[position + 2] = u8(size >> 8 & 0xFF)
    out[position + 3] = u8(size & 0xFF)


def write_nil(out: BytesWriter) -> None:
    """Append nil."""
    out.append(0xC0)


def write_bool(out: BytesWriter, value: bool) -> None:  # noqa: FBT001  the value to write
    """Append true or false."""
    out.append(0xC3 if value else 0xC2)


def write_int(out: BytesWriter, number: i64) -> None:
    """Append a number as the shortest integer up to 32 bits, as a float64 beyond."""
    if number < 0:
        _write_negative(out, number)
    elif number < 0x80:
        out.append(u8(number))
    elif number <= 0xFF:
        out.append(0xCC)
        out.append(u8(number))
    elif number <= 0xFFFF:
        out.append(0xCD)
        _write_u16(out, number)
    elif number <= _U32_MAX:
        out.append(0xCE)
        _write_u32(out, number)
    else:
        write_float(out, float(number))


def _write_negative(out: BytesWriter, number: i64) -> None:
    if number >= -32:
        out.append(u8(number + 0x100))
    elif number >= -0x80:
        out.append(0xD0)
        out.append(u8(number + 0x100))
    elif number >= -0x8000:
        out.append(0xD1)
        _write_u16(out, number + 0x10000)
    elif number >= _I32_MIN:
        out.append(0xD2)
        write_i32_be(out, i32(number))
    else:
        write_float(out, float(number))


def write_float(out: BytesWriter, number: float) -> None:
    """Append a float64, whole or not."""
    out.append(0xCB)
    write_f64_be(out, number)


def write_text(out: BytesWriter, text: str) -> None:
    """Append a text. Halves of surrogate pairs, which UTF-8 cannot hold, are replaced."""
    try:
        write_ascii(out, text.encode())
    except UnicodeEncodeError:
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        write_ascii(out, whole.encode())


def write_ascii(out: BytesWriter, text: bytes) -> None:
    """Append a text that is given as UTF-8."""
    write_text_head(out, len(text))
    out.write(text)


def write_text_head(out: BytesWriter, size: i64) -> None:
    """Append the head of a text; `size` bytes must follow."""
    if size < 32:
        out.append(u8(0xA0 + size))
    else:
        _write_length(out, size, 0xD9)


def write_bin(out: BytesWriter, content: bytes) -> None:
    """Append binary data."""
    _write_length(out, len(content), 0xC4)
    out.write(content)


def write_ext(out: BytesWriter, code: i64, content: bytes) -> None:
    """Append an extension of type `code`, -128 to 127."""
    size: i64 = len(content)
    if size == 1:
        out.append(0xD4)
    elif size == 2:
        out.append(0xD5)
    elif size == 4:
        out.append(0xD6)
    elif size == 8:
        out.append(0xD7)
    elif size == 16:
        out.append(0xD8)
    else:
        _write_length(out, size, 0xC7)
    out.append(u8(code & 0xFF))
    out.write(content)


def write_array(out: BytesWriter, count: i64) -> None:
    """Append the head of an array; `count` values must follow."""
    if count < 16:
        out.append(u8(0x90 + count))
    else:
        _write_count(out, count, 0xDC)


def write_map(out: BytesWriter, count: i64) -> None:
    """Append the head of a map; `count` pairs of key and value must follow."""
    if count < 16:
        out.append(u8(0x80 + count))
    else:
        _write_count(out, count, 0xDE)


def _write_length(out: BytesWriter, size: i64, form: i64) -> None:
    """Append a length in the first of three forms, of 1, 2 and 4 bytes, that holds it."""
    if size <= 0xFF:
        out.append(u8(form))
        out.append(u8(size))
    else:
        _write_count(out, size, form + 1)


def _write_count(out: BytesWriter, count: i64, form: i64) -> None:
    """Append a count in the first of two forms, of 2 and 4 bytes, that holds it."""
    if count <= 0xFFFF:
        out.append(u8(form))
        _write_u16(out, count)
    else:
        out.append(u8(form + 1))
        _write_u32(out, count)


def _write_u16(out: BytesWriter, number: i64) -> None:
    out.append(u8(number >> 8))
    out.append(u8(number & 0xFF))


def _write_u32(out: BytesWriter, number: i64) -> None:
    # The plain build checks the range; the compiled one computes modulo 2^32.
    write_i32_be(out, i32(number if number < 0x80000000 else number - 0x100000000))


def encode(value: object) -> bytes:
    """Return a whole Python value as MessagePack; see `write_value`."""
    out = BytesWriter()
    write_value(out, value)
    return out.getvalue()


def framed(pairs: dict[str, object]) -> bytes:
    """Return a map as a frame; long parts of it are copied only once."""
    head = BytesWriter()
    write_map(head, len(pairs))
    pieces: list[bytes | memoryview] = [head.getvalue()]
    size = len(pieces[0])
    for key, value in pairs.items():
        pieces.append(encode(key))
        size += len(pieces[-1])
        if isinstance(value, RawPart):
            pieces.append(memoryview(value.data)[value.start : value.end])
        else:
            pieces.append(encode(value))
        size += len(pieces[-1])
    pieces.insert(0, size.to_bytes(FRAME_HEADER_SIZE, "big"))
    return b"".join(pieces)


def write_value(out: BytesWriter, value: object) -> None:
    """Append a whole Python value: None, bool, int, float, str, bytes, list, tuple, dict, Ext.

    Raw, RawPart and LongRaw are MessagePack already.
    ABSENT is left out of maps and nil elsewhere. Raises Malformed for a value nested deeper than
    `decode` accepts.
    """
    _write_nested(out, value, 0)


def _write_nested(out: BytesWriter, value: object, depth: i64) -> None:
    if isinstance(value, str):
        write_text(out, value)
    elif value is None or value is ABSENT:
        write_nil(out)
    elif isinstance(value, bool):
        write_bool(out, value)
    elif isinstance(value, int):
        _write_any_int(out, value)
    elif isinstance(value, float):
        write_float(out, value)
    elif isinstance(value, dict):
        _write_dict(out, value, depth + 1)
    elif isinstance(value, (list, tuple)):
        _check_depth(depth + 1)
        write_array(out, len(value))
        for item in value:
            _write_nested(out, item, depth + 1)
    else:
        _write_opaque(out, value)


def _write_opaque(out: BytesWriter, value: object) -> None:
    if isinstance(value, Raw):
        out.write(value.data)
    elif isinstance(value, RawPart):
        out.write(value.data[value.start : value.end])
    elif isinstance(value, LongRaw):
        for piece in value.pieces:
            out.write(piece)
    elif isinstance(value, bytes):
        write_bin(out, value)
    elif isinstance(value, Ext):
        write_ext(out, i64(value.code), value.content)
    else:
        raise TypeError(f"no MessagePack form for {type(value).__name__}")


def _write_dict(out: BytesWriter, pairs: dict[object, object], depth: i64) -> None:
    _check_depth(depth)
    count: i64 = len(pairs)
    for value in pairs.values():
        if value is ABSENT:
            count -= 1
    write_map(out, count)
    for key, value in pairs.items():
        if value is not ABSENT:
            write_text(out, key_text(key))
            _write_nested(out, value, depth)


def _write_any_int(out: BytesWriter, number: int) -> None:
    if _I32_MIN <= number <= _U32_MAX:
        write_int(out, i64(number))
        return
    try:
        write_float(out, float(number))
    except OverflowError:
        write_float(out, float("inf") if number > 0 else float("-inf"))


def _check_depth(depth: i64) -> None:
    if depth > DECODED_DEPTH_MAX:
        raise Malformed("nested too deep")
