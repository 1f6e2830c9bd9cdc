"""A directory in memory that tracks what a power cut would leave of it.

Every file has two contents: what a read sees, and what the disk holds. `sync` makes the writes
to one file durable, `sync_directory` the names; nothing else does.
`killed`, `cut_off` and `forgotten` return the directory as the next process would find it. A script
can stop the process at any call, make the disk full, fail a sync, or make sectors unreadable.
"""

from collections.abc import Callable, Iterator
from typing import Final

from jobyard import build
from jobyard.errors import ReadFailed, StorageFailed, StorageFull
from jobyard.journal.storage import SECTOR, Storage

# Of the places where a run could be cut, those that are tried: all of them on the compiled build,
# which is the one that ships, and three times as fast at it.
EACH: Final = 1 if build.kind() == "compiled" else 3


class PowerCut(Exception):
    """The process ended in the middle of a call; never catch this and continue."""


class File:
    """What is read, what the disk holds, and where the two may differ."""

    def __init__(self, data: bytes) -> None:
        self.seen = bytearray(data)
        self.durable = bytearray(data)
        self.dirty: list[tuple[int, int]] = []
        # Sectors that cannot be read, until they are written.
        self.bad: set[int] = set()

    def write(self, offset: int, data: bytes) -> None:
        """Change what reads see."""
        self.seen[offset : offset + len(data)] = data
        self.dirty.append((offset, offset + len(data)))

    def sync(self) -> None:
        """Make what was written since the last sync durable, and nothing else."""
        size = len(self.seen)
        self.durable = self.durable[:size].ljust(size, b"\0")
        for start, end in self.dirty:
            self.durable[start:end] = self.seen[start:end]
        self.dirty.clear()


class MemoryStorage(Storage):
    """Files of one directory, with a fault at any call."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self._durable_names: dict[str, File] = {}
        self.capacity: int | None = None
        # Calls that change something, in order; reads are counted but not listed.
        self.calls: list[str] = []
        self.calls_count = 0
        self.stop_at: int | None = None
        self.fail_sync = False

    # -- faults -------------------------------------------------------------------------------

    def killed(self) -> "MemoryStorage":
        """Return what is left when the process dies: the kernel still has every write."""
        return _copy(self.files, {name: bytes(file.seen) for name, file in self.files.items()})

    def cut_off(self) -> "MemoryStorage":
        """Return what is left after a power cut: only what was synced."""
        names = self._durable_names
        return _copy(names, {name: bytes(file.durable) for name, file in names.items()})

    def forgotten(self) -> "MemoryStorage":
        """Return what is left after a failed sync: reads still see what was never synced."""
        left = self.killed()
        for name, file in self.files.items():
            left.files[name].durable = bytearray(file.durable)
        return left

    def flip(self, name: str, offset: int, bit: int) -> None:
        """Damage one bit, in memory and on disk."""
        file = self.files[name]
        file.seen[offset] ^= 1 << bit
        file.durable[offset] ^= 1 << bit

    def spoil(self, name: str, offset: int) -> None:
        """Make the sector with a byte unreadable."""
        self.files[name].bad.add(offset // SECTOR)

    def _enter(self, call: str, *names: str) -> None:
        if self.stop_at is not None and self.calls_count >= self.stop_at:
            raise PowerCut(f"before {call} {names}")
        self.calls_count += 1
        if call not in ("names", "size", "read"):
            self.calls.append(" ".join((call, *names)))

    def used(self) -> int:
        """Return the bytes reserved by all files."""
        return sum(len(file.seen) for file in self.files.values())

    # -- the seam -----------------------------------------------------------------------------

    def names(self) -> list[str]:
        self._enter("names")
        return list(self.files)

    def size(self, name: str) -> int:
        self._enter("size", name)
        return len(self.files[name].seen)

    def read(self, name: str, offset: int, size: int) -> bytes:
        self._enter("read", name)
        file = self.files[name]
        stop = min(offset + size, len(file.seen))
        for sector in file.bad:
            if offset < (sector + 1) * SECTOR and sector * SECTOR < stop:
                at = max(offset, sector * SECTOR)
                raise ReadFailed(f"read {name} at offset {at}: I/O error", name, at)
        return bytes(file.seen[offset : offset + size])

    def create(self, name: str, size: int) -> None:
        self._enter("create", name)
        assert name not in self.files, name
        if self.capacity is not None and self.used() + size > self.capacity:
            raise StorageFull(name)
        self.files[name] = File(bytes(size))

    def write(self, name: str, offset: int, data: bytes) -> None:
        self._enter("write", name)
        file = self.files[name]
        assert offset <= len(file.seen), "a write leaves a gap"
        file.write(offset, data)

    def sync(self, name: str) -> None:
        self._enter("sync", name)
        if self.fail_sync:
            raise StorageFailed(f"sync {name}: I/O error")
        self.files[name].sync()

    def truncate(self, name: str, size: int) -> None:
        self._enter("truncate", name)
        del self.files[name].seen[size:]

    def rename(self, old: str, new: str) -> None:
        self._enter("rename", old, new)
        assert new not in self.files, new
        self.files[new] = self.files.pop(old)

    def unlink(self, name: str) -> None:
        self._enter("unlink", name)
        del self.files[name]

    def sync_directory(self) -> None:
        self._enter("sync_directory")
        self._durable_names = dict(self.files)


def _copy(files: dict[str, File], contents: dict[str, bytes]) -> MemoryStorage:
    storage = MemoryStorage()
    for name, data in contents.items():
        storage.files[name] = File(data)
        storage.files[name].bad = set(files[name].bad)
    storage.sync_directory()
    storage.calls.clear()
    storage.calls_count = 0
    return storage


def stop_everywhere(
    begin: Callable[[], MemoryStorage], run: Callable[[MemoryStorage], None]
) -> Iterator[MemoryStorage]:
    """Run something once per storage call it makes, stopped before that call.

    One call in EACH is tried. Yield the storages as each stop left them, one at a time, for all of
    them may be gigabytes; the last one is of the run that was not stopped.
    """
    is_stopped = True
    calls = 0
    while is_stopped:
        storage = begin()
        storage.stop_at = storage.calls_count + calls
        is_stopped = False
        try:
            run(storage)
        except PowerCut:
            is_stopped = True
        yield storage
        calls += EACH
