"""Compresses answers for clients that accept gzip.

Only JSON and text bodies that are large enough to be worth it. A body that would take too long in
one turn is compressed piece by piece, one per turn, and sent as a stream.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, final

from jobyard.protocols.http.call import JSON_TYPE, HttpCall, PendingCall
from jobyard.wire.http.accept import names

if TYPE_CHECKING:
    from mypy_extensions import i64

# Smaller answers are not worth the time, and latency-sensitive calls rarely get larger ones.
SIZE_MIN: Final = 8 << 10
# Compressed in one turn: a few milliseconds.
COMPRESSED_PIECE_SIZE: Final = 256 << 10

GZIP_HEADERS: Final = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
VARY: Final = b"Vary: Accept-Encoding\r\n"

# The fastest level, and window bits that select the gzip format.
_LEVEL: Final = 1
_GZIP: Final = 31


def is_large(body: bytes, content_type: str) -> bool:
    """Return whether a body is worth compressing."""
    return len(body) >= SIZE_MIN and (content_type == JSON_TYPE or content_type.startswith("text/"))


def is_wanted(call: HttpCall) -> bool:
    """Return whether the client accepts gzip."""
    return names(call.header("accept-encoding"), "gzip")


def compress(body: bytes) -> bytes:
    """Compress a whole body at once."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()


@final
class GzipAnswer(PendingCall):
    """Sends a large body, compressed piece by piece."""

    def __init__(self, call: HttpCall, pieces: list[bytes]) -> None:
        self._call = call
        # The remaining pieces, the next one last, and how far that one is compressed.
        self._pieces: list[bytes] = pieces[::-1]
        self._at: int = 0
        self.size: int = sum([len(piece) for piece in pieces])
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)

    def drained(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Send the next piece, if there is room."""
        call = self._call
        if not call.has_room():
            return
        self._send_piece()
        if self._pieces:
            call.wake()
        else:
            call.end_stream()

    def _send_piece(self) -> None:
        piece = self._pieces[-1]
        end = self._at + COMPRESSED_PIECE_SIZE
        packed = self._packer.compress(piece[self._at : end])
        self._at = end
        if end >= len(piece):
            self._pieces.pop()
            self._at = 0
        if not self._pieces:
            packed += self._packer.flush()
        if packed:
            self._call.send(packed)

    def stop_waiting(self, now_ms: i64) -> None:
        """Continue: the answer waits for nothing."""

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Free the body."""
        self._pieces = []
