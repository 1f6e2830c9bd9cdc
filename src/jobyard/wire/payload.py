"""Converts a body for a client of another family than the one that put it.

A body is stored once, as it was sent, and goes back byte for byte to its own family; these
functions run only when a job crosses families. Nothing here raises, whatever the bytes: a body that
cannot be decoded is shown as text, or as {"$base64": ...} if it is not UTF-8 either.

    raw      JSON if it parses, else UTF-8 text, else {"$base64"}
    bytes    bin; as JSON the same as raw
    msgpack  bin and ext are {"$base64"}, undefined is left out, keys are printed, NaN is null
    json     unchanged; as MessagePack, integers beyond 32 bits are float64
    gzip     its content, as raw; text if it cannot be unpacked, or holds more than 1 MiB
"""

import json
import zlib
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from math import isfinite
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from jobyard.model.job import BYTES, GZIP, JSON, MSGPACK, RAW
from jobyard.wire.json.read import is_json
from jobyard.wire.msgpack.forms import (
    DECODED_DEPTH_MAX,
    KIND_ARRAY,
    KIND_BIN,
    KIND_BOOL,
    KIND_EXT,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_MAP,
    KIND_TEXT,
    Malformed,
    array_header,
    content_start,
    decode,
    float_at,
    float_text,
    integer_at,
    is_undefined,
    key_text,
    kind_of,
    map_header,
    skip,
    text_of,
)
from jobyard.wire.msgpack.write import Raw, encode
from jobyard.wire.numbers import LEAST, MOST

# Up to here every whole number has its own float64.
_EXACT_MAX: Final = 1 << 53
_GZIP_MARK: Final = b"gz:"
# A few bytes may unpack to gigabytes; glide-mq clients unpack no more than this either.
_GZIP_MAX: Final = 1 << 20
# For zlib: a gzip with its header, of any window size.
_GZIP_BITS: Final = 31


def codec_of(data: bytes) -> u8:
    """Return the codec of data sent as text or bytes through a door that does not declare one."""
    if is_json(data):
        return JSON
    return GZIP if data.startswith(_GZIP_MARK) else RAW


def to_json(codec: i64, body: bytes) -> bytes:
    """Return a body as JSON text."""
    if codec == MSGPACK:
        return _msgpack_to_json(body)
    if codec == GZIP:
        body = _unzipped(body)
    elif codec not in (RAW, BYTES):
        return body
    if parse_json(body) is not NO_JSON:
        return body
    text = _text_or_none(body)
    if text is None:
        return _base64_json(body)
    return _STRINGS.encode(text).encode()


def to_raw(codec: i64, body: bytes) -> bytes:
    """Return a body for a client that knows only bytes."""
    if codec != MSGPACK:
        return _unzipped(body) if codec == GZIP else body
    end: i64 = len(body)
    if skip(body, 0, end) == end and kind_of(body, 0) == KIND_BIN:
        return body[content_start(body, 0) :]
    return _msgpack_to_json(body)


def to_msgpack(codec: i64, body: bytes) -> bytes:
    """Return a body as one MessagePack value."""
    if codec == MSGPACK:
        return body
    if codec == BYTES:
        return encode(body)
    if codec == GZIP:
        body = _unzipped(body)
    value = parse_json(body)
    if value is not NO_JSON:
        return encode(value)
    text = _text_or_none(body)
    return encode({"$base64": b64encode(body).decode()} if text is None else text)


def _unzipped(body: bytes) -> bytes:
    """Return the content of a gzip, or the body itself if it cannot be unpacked."""
    try:
        zipped = b64decode(body[len(_GZIP_MARK) :], validate=True)
        unzip = zlib.decompressobj(_GZIP_BITS)
        content = unzip.decompress(zipped, _GZIP_MAX + 1)
    except (NotBase64, zlib.error):
        return body
    return content if unzip.eof and len(content) <= _GZIP_MAX else body


def _text_or_none(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _base64_json(content: bytes) -> bytes:
    return b'{"$base64":"' + b64encode(content) + b'"}'


# --- reading JSON


def _parse_int(digits: str) -> int | float:
    # Past 32 bits it becomes a float64 anyway, and int() of thousands of digits is refused.
    return int(digits) if len(digits) <= 11 else float(digits)


def parse_finite(text: str) -> float:
    """Return a number as a float; raise ValueError if it is too large."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"number too large: {text[:20]}")
    return number


def parse_exact(digits: str) -> object:
    """Return a whole number in a form that MessagePack writes exactly."""
    if len(digits) <= 11:
        return int(digits)
    if len(digits) > 20:
        return parse_finite(digits)
    number = int(digits)
    if -_EXACT_MAX <= number <= _EXACT_MAX or not LEAST <= number < 1 << 64:
        return float(number)
    if number <= MOST:
        return Raw(b"\xd3" + number.to_bytes(8, "big", signed=True))
    return Raw(b"\xcf" + number.to_bytes(8, "big"))


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_JSON: Final = json.JSONDecoder(parse_int=_parse_int, parse_constant=_refuse_constant)
_STRICT_JSON: Final = json.JSONDecoder(
    parse_int=parse_exact, parse_float=parse_finite, parse_constant=_refuse_constant
)
_STRINGS: Final = json.JSONEncoder(ensure_ascii=False)
NO_JSON: Final = object()


def parse_json(body: bytes) -> object:
    """Return the value of a JSON text, or NO_JSON for any other bytes."""
    return _decoded(body, _JSON)


def parse_request(body: bytes) -> object:
    """Return the value of a JSON request, or NO_JSON; for `encode` alone.

    Numbers must not change: one that is too large for a double counts as invalid JSON, and whole
    numbers up to 64 bits that no double can hold are returned as encoded MessagePack.
    """
    return _decoded(body, _STRICT_JSON)


def _decoded(body: bytes, decoder: json.JSONDecoder) -> object:
    if not _is_shallow(body):
        return NO_JSON
    try:
        value: object = decoder.decode(body.decode())
    except ValueError:  # not JSON, or not even UTF-8
        return NO_JSON
    return value


def _is_shallow(body: bytes) -> bool:
    """Return whether no bracket of a JSON text is nested deeper than DECODED_DEPTH_MAX.

    Checked before parsing, because the parser recurses. Up to the first error in a text both see
    the same strings, and the parser stops there.
    """
    if body.count(b"[") + body.count(b"{") <= DECODED_DEPTH_MAX:
        # Wherever they are. Most long texts are one string and need no scan.
        return True
    depth: i64 = 0
    is_string = False
    at: i64 = 0
    end: i64 = len(body)
    while at < end:
        byte: i64 = body[at]
        at += 1
        if byte == 0x22:
            is_string = not is_string
        elif is_string:
            at += 1 if byte == 0x5C else 0
        elif byte in (0x5B, 0x7B):
            depth += 1
            if depth > DECODED_DEPTH_MAX:
                return False
        elif byte in (0x5D, 0x7D):
            depth -= 1
    return True


# --- writing JSON


def _msgpack_to_json(body: bytes) -> bytes:
    end: i64 = len(body)
    if skip(body, 0, end) != end:
        return _base64_json(body)
    try:
        printer = _Printer(body)
        printer.value(0)
    except Malformed:
        return _base64_json(body)
    return printer.out.getvalue()


@final
class _Printer:
    """Prints a value that `skip` has checked, without making objects of its parts.

    A megabyte of empty maps is two of JSON, but would be seventy of Python objects.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at: i64 = 0
        self.out = BytesWriter()

    def value(self, depth: i64) -> None:
        kind = kind_of(self.data, self.at)
        if kind in (KIND_MAP, KIND_ARRAY):
            if depth == DECODED_DEPTH_MAX:
                raise Malformed("nested too deep")
            if kind == KIND_MAP:
                self.map(depth + 1)
            else:
                self.array(depth + 1)
            return
        start = self.at
        self.at = skip(self.data, start, len(self.data))
        self.out.write(self.scalar(start, kind))

    def scalar(self, start: i64, kind: i64) -> bytes:
        data = self.data
        if kind == KIND_TEXT:
            return _STRINGS.encode(text_of(data[content_start(data, start) : self.at])).encode()
        if kind == KIND_INTEGER:
            number = int(integer_at(data, start))
            if number < 0 and data[start] == 0xCF:
                number += 1 << 64
            return b"%d" % number
        if kind == KIND_FLOAT:
            real = float_at(data, start)
            return float_text(real).encode() if isfinite(real) else b"null"
        if kind == KIND_BOOL:
            return b"true" if data[start] == 0xC3 else b"false"
        if kind in (KIND_BIN, KIND_EXT):
            return _base64_json(data[content_start(data, start) : self.at])
        return b"null"

    def array(self, depth: i64) -> None:
        count, self.at = array_header(self.data, self.at, len(self.data))
        self.out.append(0x5B)
        for each in range(count):
            if each > 0:
                self.out.append(0x2C)
            self.value(depth)
        self.out.append(0x5D)

    def map(self, depth: i64) -> None:
        data = self.data
        count, self.at = map_header(data, self.at, len(data))
        self.out.append(0x7B)
        is_first = True
        while count > 0:
            count -= 1
            key_start = self.at
            self.at = skip(data, key_start, len(data))
            if is_undefined(data, self.at):
                self.at = skip(data, self.at, len(data))
                continue
            if not is_first:
                self.out.append(0x2C)
            is_first = False
            self.out.write(self.key(key_start))
            self.out.append(0x3A)
            self.value(depth)
        self.out.append(0x7D)

    def key(self, start: i64) -> bytes:
        """Return the key that ends at the current position."""
        if kind_of(self.data, start) == KIND_TEXT:
            return self.scalar(start, KIND_TEXT)
        text = key_text(decode(self.data, start, self.at))
        return _STRINGS.encode(text).encode()
