"""The only access to a disk: plain file names inside one directory.

The simulator replaces this class. It is called once per batch, not once per job, so calls may be
slow. `write` reaches the page cache, `sync` the disk; a `create`, `rename` or `unlink` is durable
only after `sync_directory`.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from jobyard.errors import ReadFailed

# The smallest unit that a disk fails to read.
SECTOR: Final = 512


@mypyc_attr(allow_interpreted_subclasses=True)
class Storage:
    """Files of one directory. Errors are StorageFull and StorageFailed, nothing else."""

    def names(self) -> list[str]:
        """Return the names of all files, in no order."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        raise NotImplementedError

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return `size` bytes; fewer only at the end of the file.

        Raises ReadFailed if the disk cannot read some of them.
        """
        raise NotImplementedError

    def create(self, name: str, size: int) -> None:
        """Create a file of `size` zero bytes with all its space reserved, or raise StorageFull."""
        raise NotImplementedError

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write all of `data`, or raise; a truncated file grows by it."""
        raise NotImplementedError

    def sync(self, name: str) -> None:
        """Return once every byte written to the file is on disk; never retried after a failure."""
        raise NotImplementedError

    def truncate(self, name: str, size: int) -> None:
        """Free the space past `size`."""
        raise NotImplementedError

    def rename(self, old: str, new: str) -> None:
        """Rename a file to a name that is not in use."""
        raise NotImplementedError

    def unlink(self, name: str) -> None:
        """Remove a file."""
        raise NotImplementedError

    def sync_directory(self) -> None:
        """Return once every create, rename and unlink is on disk."""
        raise NotImplementedError


def read_around(
    storage: Storage, name: str, offset: i64, size: i64, failures_max: i64 = 1 << 40
) -> bytes:
    """Return bytes of a file, with zeros for the sectors that the disk cannot read.

    Only for data that is verified by a checksum afterwards. Each failure may take a disk seconds;
    after `failures_max` of them the rest is zeros.
    """
    pieces: list[bytes] = []
    left: list[tuple[i64, i64]] = [(offset, size)]
    failures: i64 = 0
    while left:
        at, length = left.pop()
        if failures < failures_max:
            try:
                pieces.append(storage.read(name, at, length))
                continue
            except ReadFailed:
                failures += 1
        length = min(length, storage.size(name) - at)
        # The middle, rounded down to a sector.
        half: i64 = (at + length // 2) // SECTOR * SECTOR - at
        if half <= 0:
            half = SECTOR - at % SECTOR
        if failures >= failures_max:
            pieces.append(bytes(max(int(length), 0)))
        elif half >= length:
            pieces.append(_second_try(storage, name, at, length))
        else:
            left.append((at + half, length - half))
            left.append((at, half))
    return b"".join(pieces)


def _second_try(storage: Storage, name: str, offset: i64, size: i64) -> bytes:
    """Return a sector that could not be read a moment ago, or zeros: some errors are transient."""
    try:
        return storage.read(name, offset, max(size, 0))
    except ReadFailed:
        return bytes(int(size))


def find_unreadable(storage: Storage, name: str, offset: i64, size: i64) -> i64:
    """Return the offset of the first sector that the disk cannot read, or -1."""
    end = min(offset + size, storage.size(name))
    while offset < end:
        stop = min(end, offset + SECTOR - offset % SECTOR)
        try:
            storage.read(name, offset, stop - offset)
        except ReadFailed:
            return offset - offset % SECTOR
        offset = stop
    return -1
