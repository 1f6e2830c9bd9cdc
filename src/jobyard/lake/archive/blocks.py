"""Files whose every block has a checksum: written with them, and read only where they agree.

A block is 1 MiB, the last one shorter. A reader gets no byte of a block whose CRC-32 is another
than when it was written, so damage is an error wherever in a file it lies, and a reader of a few
columns checks what it reads and no more.
"""

import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, final

from jobyard.lake.archive.faults import damaged, not_found

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK_BYTES: Final = 1 << 20
_DIGITS: Final = 8


def encode_sums(sums: Sequence[int]) -> str:
    """Return the checksums of blocks as text."""
    return "".join(f"{each:08x}" for each in sums)


def decode_sums(text: str) -> list[int]:
    """Return the checksums in a text; ValueError if it has none."""
    if len(text) % _DIGITS:
        raise ValueError(text[:_DIGITS])
    return [int(text[at : at + _DIGITS], 16) for at in range(0, len(text), _DIGITS)]


@final
class SummingFile(io.RawIOBase):
    """A file that is written from its beginning to its end, and summed on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._sums: list[int] = []
        self._sum = 0
        self._fill = 0
        self.size = 0

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def tell(self) -> int:
        """Return how much was written."""
        return self.size

    def write(self, data: "Buffer") -> int:
        """Write all of some bytes."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.size += len(view)
        at = 0
        while at < len(view):
            piece = view[at : at + BLOCK_BYTES - self._fill]
            self._sum = zlib.crc32(piece, self._sum)
            self._fill += len(piece)
            at += len(piece)
            if self._fill == BLOCK_BYTES:
                self._end_block()
        return len(view)

    def sums(self) -> list[int]:
        """Return the checksums of all blocks, at the end of the file."""
        if self._fill:
            self._end_block()
        return list(self._sums)

    def _end_block(self) -> None:
        self._sums.append(self._sum)
        self._sum = self._fill = 0


@final
class CheckedFile(io.RawIOBase):
    """A file of known size and checksums, open for reading."""

    def __init__(self, path: Path, size: int, sums: Sequence[int]) -> None:
        super().__init__()
        self._path = path
        self._size = size
        self._sums = sums
        self._at = 0
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY)
            found = os.fstat(self._fd).st_size
        except FileNotFoundError:
            raise damaged(path, "is missing") from None
        except OSError as fault:
            raise not_found(path, f"cannot be opened ({fault.strerror})") from None
        if found != size or len(sums) != -(-size // BLOCK_BYTES):
            self.close()
            raise damaged(path, f"has {found} bytes, and had {size}")

    def close(self) -> None:
        """Close the file."""
        if not self.closed and self._fd >= 0:
            os.close(self._fd)
        super().close()

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read anywhere."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set where the next read begins."""
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, after checking every block they are in."""
        left = max(self._size - self._at, 0)
        size = left if size < 0 else min(size, left)
        if size == 0:
            return b""
        first, last = self._at // BLOCK_BYTES, (self._at + size - 1) // BLOCK_BYTES
        found = self._blocks(first, last)
        begin = self._at - first * BLOCK_BYTES
        self._at += size
        return bytes(found[begin : begin + size])

    def check_all(self) -> None:
        """Read everything."""
        for block in range(len(self._sums)):
            self._blocks(block, block)

    def check_edges(self) -> None:
        """Read the first and the last block, which no row may need."""
        self._blocks(0, 0)
        self._blocks(len(self._sums) - 1, len(self._sums) - 1)

    def _blocks(self, first: int, last: int) -> memoryview:
        begin = first * BLOCK_BYTES
        end = min((last + 1) * BLOCK_BYTES, self._size)
        parts: list[bytes] = []
        at = begin
        while at < end:
            try:
                part = os.pread(self._fd, end - at, at)
            except OSError as fault:
                raise damaged(self._path, f"cannot be read ({fault.strerror})") from None
            if not part:
                raise damaged(self._path, f"ends at byte {at} of {self._size}")
            parts.append(part)
            at += len(part)
        view = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        for block in range(first, last + 1):
            piece = view[block * BLOCK_BYTES - begin : (block + 1) * BLOCK_BYTES - begin]
            if zlib.crc32(piece) != self._sums[block]:
                place = (
                    f"between bytes {block * BLOCK_BYTES} and {block * BLOCK_BYTES + len(piece)}"
                )
                raise damaged(self._path, f"is damaged {place}")
        return view
