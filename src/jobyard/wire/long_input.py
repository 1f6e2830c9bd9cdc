"""A message that comes in many pieces, put together as they come. No I/O."""

from io import BytesIO
from typing import final

from mypy_extensions import i64

__all__ = ["LongInput"]


@final
class LongInput:
    """The pieces of a message so far, in one block.

    The block itself is given out in the end. Joining up to 64 MiB of pieces when the last one has
    come would take 40 ms of one turn, and so would a copy of what a BytesWriter holds.
    """

    def __init__(self) -> None:
        self.size: i64 = 0
        self._block: BytesIO | None = None

    def append(self, piece: bytes | memoryview) -> None:
        """Add what came."""
        if self._block is None:
            self._block = BytesIO()
        self._block.write(piece)
        self.size += len(piece)

    def take(self) -> bytes:
        """Return all that came, and begin anew."""
        block = self._block
        if block is None:
            return b""
        self.clear()
        # A BytesIO hands out its own bytes where nobody else has seen them.
        return block.getvalue()

    def clear(self) -> None:
        """Let go of all that came."""
        self.size = 0
        self._block = None
