"""The server's side of WebSocket (RFC 6455): the handshake, frames to messages, messages to frames.

    byte 0   fin 80, reserved 70, opcode 0f         then 0, 2 or 8 bytes of length, big-endian,
    byte 1   masked 80, length 7f (126, 127: more)  then 4 bytes of mask, then the content

No I/O, no commands, no extensions; compression is not offered, so a reserved bit is an error. Any
split of the input gives the same messages and the same failure. An announced length costs nothing
and is refused before its bytes arrive; at most one message and one control frame are held. After a
failure or a close nothing more is read.
"""

import base64
import binascii
import hashlib
from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i64_be, read_i64_le, write_i64_le
from mypy_extensions import i64, u8

from jobyard.errors import Refused
from jobyard.wire.http.request import BadHttp

MESSAGE_SIZE_MAX: Final = 1048576
# Fragments may be empty, so their sizes alone do not bound them.
FRAGMENTS_MAX: Final = 4096
CONTROL_SIZE_MAX: Final = 125

OP_CONTINUATION: Final = 0
OP_TEXT: Final = 1
OP_BINARY: Final = 2
OP_CLOSE: Final = 8
OP_PING: Final = 9
OP_PONG: Final = 10

CLOSE_NORMAL: Final = 1000
CLOSE_GOING_AWAY: Final = 1001
CLOSE_PROTOCOL_ERROR: Final = 1002
CLOSE_UNSUPPORTED: Final = 1003
# The meaning of a close without a code; never sent.
CLOSE_NO_CODE: Final = 1005
CLOSE_BAD_TEXT: Final = 1007
CLOSE_POLICY: Final = 1008
CLOSE_TOO_LARGE: Final = 1009
CLOSE_INTERNAL_ERROR: Final = 1011
CLOSE_TRY_LATER: Final = 1013

_VERSION: Final = "13"
_KEY_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class BadFrame(Refused):
    """Bytes after which the input cannot be parsed; answered with this close code, then closed."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


# --- the handshake


def accept_key(key: str) -> bytes:
    """Return the accept value that proves that a handshake with this key was understood."""
    digest = hashlib.sha1(key.encode("latin-1") + _KEY_SUFFIX, usedforsecurity=False).digest()
    return base64.b64encode(digest)


def accept(headers: dict[str, str], details: bytes) -> bytes:
    """Return the response that upgrades the connection to WebSocket; raise BadHttp if it cannot.

    For a request that `HttpReader` marked as an upgrade; `details` are additional header lines.
    """
    if headers.get("sec-websocket-version") != _VERSION:
        # The session adds the header that names the supported version.
        raise BadHttp(426, "unsupported WebSocket version: use 13")
    key = headers.get("sec-websocket-key", "")
    if not _is_key(key):
        raise BadHttp(400, "invalid Sec-WebSocket-Key")
    return b"".join(
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
            b"Sec-WebSocket-Accept: ",
            accept_key(key),
            b"\r\n",
            details,
            b"\r\n",
        )
    )


def _is_key(key: str) -> bool:
    if len(key) != 24 or not key.isascii():
        return False
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


# --- reading


@final
class WsMessage:
    """A whole message, or a control frame. The code is that of a close, otherwise 0.

    The content of a text is UTF-8, that of a close its reason.
    """

    def __init__(self, opcode: i64, content: bytes, code: i64) -> None:
        self.opcode: i64 = opcode
        self.content = content
        self.code: i64 = code


@final
class WsReader:
    """The messages in the bytes of one connection; the session takes them out of `messages`."""

    def __init__(self, message_max: i64) -> None:
        self.messages: list[WsMessage] = []
        # Once set, nothing more is read; earlier messages stay valid.
        self.failure: BadFrame | None = None
        self.is_closed = False
        # Part of a frame or message has arrived, but not all of it.
        self.is_in_message = False
        self.held_bytes: i64 = 0
        self._message_max: i64 = message_max
        self._data = b""
        self._at: i64 = 0
        # Of the current frame, if its content is incomplete.
        self._is_in_frame = False
        self._is_last = False
        self._opcode: i64 = 0
        self._mask = b""
        self._left: i64 = 0
        self._content = BytesWriter()
        # Of the current fragmented message; its opcode is 0 if there is none.
        self._message_opcode: i64 = 0
        self._fragments_count: i64 = 0
        self._message = BytesWriter()

    def feed(self, data: bytes) -> None:
        """Parse more bytes."""
        if self.is_closed or self.failure is not None:
            return
        self._data = self._data + data if len(self._data) > 0 else data
        self._at = 0
        try:
            # A frame may have no content: it is complete with its head.
            while self._read_content() if self._is_in_frame else self._read_head():
                pass
        except BadFrame as failure:
            self.failure = failure
            self._drop_input()
        self._data = self._data[self._at :]
        self.held_bytes = len(self._data) + len(self._content) + len(self._message)
        self.is_in_message = self._is_in_frame or self._message_opcode != 0 or len(self._data) > 0

    def forget(self) -> None:
        """Drop everything received: none of it will be served."""
        self._drop_input()
        self.is_closed = True
        self.messages = []
        self.failure = None
        self._data = b""
        self._at = 0
        self.held_bytes = 0
        self.is_in_message = False

    def _drop_input(self) -> None:
        self._at = len(self._data)
        self._is_in_frame = False
        self._message_opcode = 0
        self._content = BytesWriter()
        self._message = BytesWriter()

    def _read_head(self) -> bool:
        """Read the head of a frame; return False if it is incomplete."""
        data = self._data
        at = self._at
        there = len(data) - at
        if self.is_closed or there < 2:
            return False
        first: i64 = data[at]
        second: i64 = data[at + 1]
        opcode = first & 0x0F
        size = second & 0x7F
        self._judge_head(first, second)
        head_size: i64 = 2
        if size == 126:
            head_size = 4
        elif size == 127:
            head_size = 10
        if there < head_size:
            return False
        if size >= 126:
            size = _long_size(data, at + 2, size)
        if opcode < OP_CLOSE:
            self._judge_size(opcode, size)
        if there < head_size + 4:
            return False
        self._mask = data[at + head_size : at + head_size + 4]
        self._at = at + head_size + 4
        self._is_last = first & 0x80 != 0
        self._opcode = opcode
        self._left = size
        self._is_in_frame = True
        return True

    def _judge_head(self, first: i64, second: i64) -> None:
        """Check the first two bytes of a frame."""
        if first & 0x70 != 0:
            raise BadFrame(CLOSE_PROTOCOL_ERROR, "reserved bit set")
        if second & 0x80 == 0:
            raise BadFrame(CLOSE_PROTOCOL_ERROR, "frame is not masked")
        opcode = first & 0x0F
        if OP_BINARY < opcode < OP_CLOSE or opcode > OP_PONG:
            raise BadFrame(CLOSE_PROTOCOL_ERROR, "unknown opcode")
        if opcode >= OP_CLOSE:
            if first & 0x80 == 0:
                raise BadFrame(CLOSE_PROTOCOL_ERROR, "fragmented control frame")
            if second & 0x7F > CONTROL_SIZE_MAX:
                raise BadFrame(CLOSE_PROTOCOL_ERROR, "control frame too long")
        elif (opcode == OP_CONTINUATION) != (self._message_opcode != 0):
            # A continuation without a message, or a new message within a message.
            raise BadFrame(CLOSE_PROTOCOL_ERROR, "fragment out of order")

    def _judge_size(self, opcode: i64, size: i64) -> None:
        """Refuse a message that would become too large, before its bytes arrive."""
        if size > self._message_max - len(self._message):
            raise BadFrame(CLOSE_TOO_LARGE, "message too large")
        if opcode == OP_CONTINUATION and self._fragments_count >= FRAGMENTS_MAX:
            raise BadFrame(CLOSE_TOO_LARGE, "too many fragments")

    def _read_content(self) -> bool:
        """Read content of a frame; return False if it is incomplete."""
        at = self._at
        size = min(self._left, len(self._data) - at)
        piece = self._data[at : at + size]
        self._at = at + size
        self._left -= size
        if self._left > 0:
            self._content.write(piece)
            return False
        if len(self._content) > 0:
            self._content.write(piece)
            piece = self._content.getvalue()
            self._content = BytesWriter()
        self._is_in_frame = False
        self._finish_frame(unmasked(piece, self._mask))
        return True

    def _finish_frame(self, content: bytes) -> None:
        if self._opcode == OP_CLOSE:
            self._finish_close(content)
        elif self._opcode > OP_CLOSE:
            self.messages.append(WsMessage(self._opcode, content, 0))
        elif self._is_last and self._opcode != OP_CONTINUATION:
            self._finish_message(self._opcode, content)
        else:
            self._finish_fragment(content)

    def _finish_fragment(self, content: bytes) -> None:
        if self._opcode != OP_CONTINUATION:
            self._message_opcode = self._opcode
            self._fragments_count = 0
        self._fragments_count += 1
        self._message.write(content)
        if self._is_last:
            whole = self._message.getvalue()
            self._message = BytesWriter()
            opcode = self._message_opcode
            self._message_opcode = 0
            self._finish_message(opcode, whole)

    def _finish_message(self, opcode: i64, content: bytes) -> None:
        if opcode == OP_TEXT and not _is_utf8(content):
            raise BadFrame(CLOSE_BAD_TEXT, "text is not UTF-8")
        self.messages.append(WsMessage(opcode, content, 0))

    def _finish_close(self, content: bytes) -> None:
        code: i64 = CLOSE_NO_CODE
        if len(content) > 0:
            if len(content) == 1:
                raise BadFrame(CLOSE_PROTOCOL_ERROR, "truncated close code")
            code = i64(read_i16_be(content, 0)) & 0xFFFF
            if not _is_peer_code(code):
                raise BadFrame(CLOSE_PROTOCOL_ERROR, "invalid close code")
            if not _is_utf8(content[2:]):
                raise BadFrame(CLOSE_BAD_TEXT, "close reason is not UTF-8")
        self.messages.append(WsMessage(OP_CLOSE, content[2:], code))
        self.is_closed = True
        self._drop_input()


def unmasked(content: bytes, mask: bytes) -> bytes:
    """Remove or apply a mask of four bytes."""
    out = BytesWriter()
    size: i64 = len(content)
    wide = read_i64_le(mask + mask, 0)
    at: i64 = 0
    while at + 8 <= size:
        write_i64_le(out, read_i64_le(content, at) ^ wide)
        at += 8
    while at < size:
        out.append(u8(content[at] ^ mask[at & 3]))
        at += 1
    return out.getvalue()


def _long_size(data: bytes, at: i64, form: i64) -> i64:
    if form == 126:
        size = i64(read_i16_be(data, at)) & 0xFFFF
        if size < 126:
            raise BadFrame(CLOSE_PROTOCOL_ERROR, "length is not in its shortest form")
        return size
    size = read_i64_be(data, at)
    if size < 0:
        raise BadFrame(CLOSE_PROTOCOL_ERROR, "invalid length")
    if size < 65536:
        raise BadFrame(CLOSE_PROTOCOL_ERROR, "length is not in its shortest form")
    return size


def _is_peer_code(code: i64) -> bool:
    """Return whether a peer may send this code; 1004 to 1006 and 1015 are never sent."""
    return 3000 <= code <= 4999 or 1000 <= code <= 1003 or 1007 <= code <= 1014


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- writing


def text(content: bytes) -> bytes:
    """Return a frame with a whole text, given as UTF-8."""
    return _frame(OP_TEXT, content)


def text_head(size: i64) -> bytes:
    """Return the head of a frame with a whole text of that size, which follows."""
    out = BytesWriter()
    _write_head(out, OP_TEXT, size)
    return out.getvalue()


def binary(content: bytes) -> bytes:
    """Return a frame with a whole binary message."""
    return _frame(OP_BINARY, content)


def ping(content: bytes) -> bytes:
    """Return a frame that the peer must answer with a pong of the same content."""
    assert len(content) <= CONTROL_SIZE_MAX
    return _frame(OP_PING, content)


def pong(content: bytes) -> bytes:
    """Return the answer to a ping of this content."""
    assert len(content) <= CONTROL_SIZE_MAX
    return _frame(OP_PONG, content)


def close(code: i64, reason: str) -> bytes:
    """Return the close frame; without a code it is empty, and a long reason is cut."""
    if code == CLOSE_NO_CODE:
        return _frame(OP_CLOSE, b"")
    content = reason.encode("utf-8", "replace")
    if len(content) > CONTROL_SIZE_MAX - 2:
        # Cut between characters, so that it stays valid UTF-8.
        content = content[: CONTROL_SIZE_MAX - 2].decode("utf-8", "ignore").encode()
    return _frame(OP_CLOSE, bytes((code >> 8, code & 0xFF)) + content)


def _frame(opcode: i64, content: bytes) -> bytes:
    out = BytesWriter()
    _write_head(out, opcode, len(content))
    out.write(content)
    return out.getvalue()


def _write_head(out: BytesWriter, opcode: i64, size: i64) -> None:
    out.append(u8(0x80 | opcode))
    if size < 126:
        out.append(u8(size))
    elif size < 65536:
        out.append(126)
        out.append(u8(size >> 8))
        out.append(u8(size & 0xFF))
    else:
        out.append(127)
        out.write(int(size).to_bytes(8, "big"))
