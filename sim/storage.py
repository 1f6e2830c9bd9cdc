"""A disk in memory that loses everything it may lose and fails on request.

Every file has what a process sees (`view`), what a power cut leaves (`durable`) and the writes
between the two. It gives the minimum that POSIX guarantees: only `sync` makes bytes durable and
only `sync_directory` makes names durable; whatever else survives a crash is up to the seed. Durable
data stays unchanged: a torn sector damages only bytes that were being written.

Knows the head of a journal batch, and nothing else of the journal: enough to decide, independently
of the journal's own marks, whether a batch is safe.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from jobyard.errors import ReadFailed, StorageFailed, StorageFull
from jobyard.journal.storage import Storage

SECTOR: Final = 512
BATCH_MAGIC: Final = b"JYBT"
UNLIMITED: Final = 1 << 60
NEVER: Final = 1 << 60


class Stopped(Exception):
    """The process or the machine ends here, in the middle of an operation."""


class File:
    """One inode. A pending item is a write (order, offset, data), or a cut (order, size, None)."""

    __slots__ = ("bad", "durable", "pending", "view")

    def __init__(self, size: int) -> None:
        self.view = bytearray(size)
        self.durable = bytearray(size)
        self.pending: list[tuple[int, int, bytes | None]] = []
        # Sectors that cannot be read.
        self.bad: set[int] = set()

    def clone(self) -> "File":
        """Return an independent copy."""
        copy = File(0)
        copy.bad = set(self.bad)
        copy.view = bytearray(self.view)
        copy.durable = bytearray(self.durable)
        copy.pending = list(self.pending)
        return copy

    def has_bad(self, offset: int, size: int) -> bool:
        """Return whether some of these bytes cannot be read."""
        stop = min(offset + size, len(self.view))
        return any(offset < (one + 1) * SECTOR and one * SECTOR < stop for one in self.bad)

    def settle(self, mark: int = NEVER) -> None:
        """Make everything written before `mark` durable."""
        pending = self.pending
        while pending and pending[0][0] < mark:
            _, offset, data = pending.pop(0)
            _apply(self.durable, offset, data)

    def crash(self, rng: Random) -> None:
        """Lose what was never synced, in one of the ways disks do."""
        pending = self.pending
        if pending:
            way = rng.random()
            if way < 0.3:
                pass
            elif way < 0.4:
                self.settle()
            elif way < 0.7:
                self._keep_prefix(rng)
            else:
                self._keep_sectors(rng)
            pending.clear()
        self.view = bytearray(self.durable)

    def _keep_prefix(self, rng: Random) -> None:
        count = int(rng.random() * len(self.pending))
        for _, offset, data in self.pending[:count]:
            _apply(self.durable, offset, data)
        _, offset, data = self.pending[count]
        if data is not None:
            _apply(self.durable, offset, data[: int(rng.random() * len(data))])

    def _keep_sectors(self, rng: Random) -> None:
        """Keep each sector of each write, lose it, or replace it by something else."""
        for _, offset, data in self.pending:
            if data is None:
                if rng.random() < 0.5:
                    _apply(self.durable, offset, None)
                continue
            at = 0
            while at < len(data):
                stop = min(len(data), at + SECTOR - (offset + at) % SECTOR)
                self._keep_sector(rng, offset + at, data[at:stop])
                at = stop

    def _keep_sector(self, rng: Random, offset: int, data: bytes) -> None:
        old = self.durable[offset : offset + len(data)]
        fate = rng.random()
        # Bytes rewritten with the same content are safe whatever happens to the write.
        if fate < 0.4 or old == data:
            return
        if fate >= 0.7:
            _apply(self.durable, offset, data)
            return
        noise = bytes(len(data)) if fate < 0.55 else rng.randbytes(len(data))
        for i in range(len(old)):
            if old[i] != data[i]:
                self.durable[offset + i] = noise[i]


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    # A truncated file grows by what is written behind its end.
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class DirectoryChange:
    """A name that was added, removed or replaced; `new` is the other name of a rename."""

    __slots__ = ("file", "name", "new")

    def __init__(self, name: str, new: str, file: File) -> None:
        self.name = name
        self.new = new
        self.file = file


class VirtualDisk(Storage):
    """One directory. Faults are armed by setting the fields below `faults`."""

    def __init__(self, rng: Random, reach: Callable[[str], None]) -> None:
        self._rng = rng
        self._reach = reach
        self.files: dict[str, File] = {}
        self._durable_names: dict[str, File] = {}
        self._changes: list[DirectoryChange] = []
        # Faults: what fails after how many more calls of its kind, and how much fits.
        self.stop_in = NEVER
        self.fail_sync_in = NEVER
        self.fail_write_in = NEVER
        self.fail_read_in = NEVER
        # Which calls were renames, recorded in a run without a stop.
        self.renames_at: list[int] = []
        self.budget = UNLIMITED
        self.sync_ms = 0
        # Values that the world reads.
        self.owed_ms = 0
        self.refusals_count = 0
        self.failed_reads_count = 0
        self.written_batch = 0
        self._order = 0
        # Batches that are not synced yet, or never will be: when they were written and where.
        self._unsafe: dict[int, tuple[int, File | None]] = {}

    def clone(self, rng: Random | None = None) -> "VirtualDisk":
        """Return a copy without faults, for a trial that must not change the original."""
        copy = VirtualDisk(rng or self._rng, _ignore)
        twins: dict[int, File] = {}
        for names, others in (
            (self.files, copy.files),
            (self._durable_names, copy._durable_names),
        ):
            for name, file in names.items():
                twin = twins.get(id(file))
                if twin is None:
                    twin = file.clone()
                    twins[id(file)] = twin
                others[name] = twin
        for change in self._changes:
            twin = twins.get(id(change.file))
            if twin is not None:
                copy._changes.append(DirectoryChange(change.name, change.new, twin))
        copy._order = self._order
        return copy

    def disarm(self) -> None:
        """Disarm all calls that would stop or fail."""
        self.stop_in = self.fail_sync_in = self.fail_write_in = self.fail_read_in = NEVER

    def heal(self) -> None:
        """End every fault."""
        self.disarm()
        self.budget = UNLIMITED
        self.sync_ms = 0

    def usage(self) -> int:
        """Return how many bytes the files take."""
        return sum(len(file.view) for file in self.files.values())

    def is_safe(self, batch: int) -> bool:
        """Return whether every batch up to this number was written and synced without an error."""
        return batch <= self.written_batch and all(number > batch for number in self._unsafe)

    # -- the end of a process ------------------------------------------------------------------

    def restart(self, batch: int) -> None:
        """Note that a new process begins with `batch` as the newest batch on disk."""
        self._unsafe.clear()
        self.written_batch = batch

    def cut_power(self) -> None:
        """Lose what the seed chooses of everything that was not synced."""
        names = dict(self._durable_names)
        stuck: set[int | str] = set()
        odds = self._rng.choice((0.0, 0.5, 1.0))
        for change in self._changes:
            # A change needs earlier ones that concern the same file or name.
            touched: set[int | str] = {id(change.file), change.name, change.new}
            touched.discard("")
            if touched & stuck or self._rng.random() >= odds:
                stuck |= touched
                self._reach("directory change lost")
            else:
                self._change(names, change)
        self._changes.clear()
        self.files = names
        self._durable_names = dict(names)
        for file in {id(file): file for file in names.values()}.values():
            file.crash(self._rng)

    @staticmethod
    def _change(names: dict[str, File], change: DirectoryChange) -> None:
        if change.name:
            names.pop(change.name, None)
        if change.new:
            names[change.new] = change.file

    # -- Storage -------------------------------------------------------------------------------

    def _call(self) -> None:
        self.stop_in -= 1
        if self.stop_in < 0:
            raise Stopped

    def names(self) -> list[str]:
        """Return all names."""
        self._call()
        return list(self.files)

    def size(self, name: str) -> int:
        """Return the size of a file."""
        self._call()
        return len(self.files[name].view)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return bytes as a process sees them."""
        self._call()
        assert offset >= 0, f"read before the start of {name}"
        assert size >= 0, f"read of {size} bytes of {name}"
        file = self.files[name]
        self.fail_read_in -= 1
        if self.fail_read_in < 0 or file.has_bad(offset, size):
            self.fail_read_in = NEVER
            self.failed_reads_count += 1
            self._reach("failed read")
            raise ReadFailed(f"read {name}", name, offset)
        return bytes(file.view[offset : offset + size])

    def spoil(self, name: str, offset: int) -> None:
        """Make the sector with a byte unreadable."""
        self.files[name].bad.add(offset // SECTOR)

    def create(self, name: str, size: int) -> None:
        """Make a file if the budget allows."""
        self._call()
        assert name not in self.files, f"{name} exists"
        if self.usage() + size > self.budget:
            self.refusals_count += 1
            self._reach("create refused")
            raise StorageFull
        self._record("", name, File(size))

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write into the page cache; a stop or failure may come in the middle."""
        file = self.files[name]
        assert 0 <= offset <= len(file.view), f"write past the end of {name}"
        self.stop_in -= 1
        self.fail_write_in -= 1
        if self.stop_in < 0 or self.fail_write_in < 0:
            part = data[: int(self._rng.random() * len(data))]
            self._put(file, offset, part)
            if self.stop_in < 0:
                raise Stopped
            self.fail_write_in = NEVER
            self._reach("failed write")
            raise StorageFailed(f"write {name}")
        self._put(file, offset, data)
        if data.startswith(BATCH_MAGIC):
            number = int.from_bytes(data[16:24], "little")
            self._unsafe[number] = (self._order - 1, file)
            self.written_batch = max(self.written_batch, number)

    def _put(self, file: File, offset: int, data: bytes | None) -> None:
        _apply(file.view, offset, data)
        if file.bad and data:
            # A disk replaces a bad sector when it is written.
            file.bad -= set(range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1))
        file.pending.append((self._order, offset, data))
        self._order += 1

    def mark(self) -> int:
        """Return a mark between the writes so far and later ones."""
        return self._order

    def sync(self, name: str) -> None:
        """Make the bytes of a file durable, or fail and keep them in the view only."""
        self.sync_until(name, self._order)

    def sync_until(self, name: str, mark: int) -> None:
        """End a sync that began at `mark`: it does not cover later writes."""
        self._call()
        self.owed_ms += self.sync_ms
        file = self.files[name]
        self.fail_sync_in -= 1
        if self.fail_sync_in < 0:
            self.fail_sync_in = NEVER
            self._lose(file)
            self._reach("failed sync")
            raise StorageFailed(f"sync {name}")
        file.settle(mark)
        for number, (order, held) in list(self._unsafe.items()):
            if held is file and order < mark:
                del self._unsafe[number]

    def _lose(self, file: File) -> None:
        """Mark pages clean that never reached the disk: the view keeps them, a crash does not."""
        kept = int(self._rng.random() * (len(file.pending) + 1))
        for _, offset, data in file.pending[:kept]:
            _apply(file.durable, offset, data)
        file.pending.clear()
        for number, (_, held) in self._unsafe.items():
            if held is file:
                self._unsafe[number] = (NEVER, None)

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file."""
        self._call()
        self._put(self.files[name], size, None)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._call()
        self.renames_at.append(NEVER - self.stop_in)
        assert new not in self.files, f"{new} exists"
        self._record(old, new, self.files[old])

    def unlink(self, name: str) -> None:
        """Remove a name."""
        self._call()
        self._record(name, "", self.files[name])

    def _record(self, name: str, new: str, file: File) -> None:
        change = DirectoryChange(name, new, file)
        self._change(self.files, change)
        self._changes.append(change)

    def sync_directory(self) -> None:
        """Make all names durable."""
        self._call()
        self.owed_ms += self.sync_ms
        self._durable_names = dict(self.files)
        self._changes.clear()


def _ignore(_: str) -> None:
    """Count nothing: what happens in a trial is not part of the run."""
