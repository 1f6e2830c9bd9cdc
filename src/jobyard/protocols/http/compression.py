"""Answers that leave compressed, for clients that ask for it.

Only bodies that are large enough to be worth it and are text. What would take too long in one turn
is compressed piece by piece, one a turn, and leaves as a stream.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, final

from jobyard.protocols.http.call import JSON, Call, Pending
from jobyard.wire.http.accept import names

if TYPE_CHECKING:
    from mypy_extensions import i64

# Less is not worth the time, and hardly anybody who is in a hurry gets more.
SIZE_MIN: Final = 8 << 10
# Compressed at once: a few milliseconds.
PIECE_SIZE: Final = 256 << 10

LINES: Final = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
VARY: Final = b"Vary: Accept-Encoding\r\n"

# The quickest, and with the frame of gzip.
_LEVEL: Final = 1
_GZIP: Final = 31


def is_large(body: bytes, content_type: str) -> bool:
    """Tell whether a body is one that leaves compressed, if the client likes."""
    return len(body) >= SIZE_MIN and (content_type == JSON or content_type.startswith("text/"))


def is_wanted(call: Call) -> bool:
    """Tell whether the client of a call reads what is compressed."""
    return names(call.header("accept-encoding"), "gzip")


def compress(body: bytes) -> bytes:
    """Return a body compressed, all at once."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()


@final
class Packing(Pending):
    """Sends a large body, compressed piece by piece."""

    def __init__(self, call: Call, pieces: list[bytes]) -> None:
        self._call = call
        # Those that are left, the next one last, and how far that one is compressed.
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
            call.stir()
        else:
            call.end_stream()

    def _send_piece(self) -> None:
        piece = self._pieces[-1]
        end = self._at + PIECE_SIZE
        packed = self._packer.compress(piece[self._at : end])
        self._at = end
        if end >= len(piece):
            self._pieces.pop()
            self._at = 0
        if not self._pieces:
            packed += self._packer.flush()
        if packed:
            self._call.send(packed)

    def hurry(self, now_ms: i64) -> None:
        """Go on as before: nothing is waited for."""

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Let go of the body."""
        self._pieces = []
