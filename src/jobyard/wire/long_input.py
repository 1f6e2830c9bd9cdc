"""A message that arrives in many pieces, joined as they arrive. No I/O."""

from io import BytesIO
from typing import final

from mypy_extensions import i64

__all__ = ["LongInput"]


@final
class LongInput:
    """The pieces of a message so far, in one block.

    The block itself is returned in the end. Joining up to 64 MiB of pieces after the last one would
    take 40 ms of one turn, and so would copying the content of a BytesWriter.
    """

    def __init__(self) -> None:
        self.size: i64 = 0
        self._block: BytesIO | None = None

    def append(self, piece: bytes | memoryview) -> None:
        """Add a piece."""
        if self._block is None:
            self._block = BytesIO()
        self._block.write(piece)
        self.size += len(piece)

    def take(self) -> bytes:
        """Return everything received, and start over."""
        block = self._block
        if block is None:
            return b""
        self.clear()
        # A BytesIO returns its own buffer without a copy if there is no other reference to it.
        return block.getvalue()

    def clear(self) -> None:
        """Drop everything received."""
        self.size = 0
        self._block = None
