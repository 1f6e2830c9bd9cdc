"""Closed batches on their way to the disk, and two watermarks: `written` and `durable`.

A failed write or sync raises StorageFailed; the caller must stop.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.journal.history import History
from jobyard.journal.segment import COLD, Segment
from jobyard.journal.storage import Storage

# A longer batch is closed before more comes to it, and may be written by another thread.
LONG_BATCH: Final = 1 << 20


@final
class Pending:
    """A closed batch or seal on its way to the kernel, in pieces."""

    def __init__(
        self, segment: Segment, pieces: list[bytes], number: i64, *, is_seal: bool
    ) -> None:
        self.segment: Segment = segment
        self.offset: i64 = segment.end
        self.pieces = pieces
        self.number: i64 = number
        self.is_seal: bool = is_seal
        self.size: i64 = 0
        for piece in pieces:
            self.size += len(piece)

    def read(self, at: i64, size: i64) -> bytes:
        """Return bytes of it, as many as there are."""
        found: list[bytes] = []
        for piece in self.pieces:
            if at < len(piece) and size > 0:
                some = piece[at : at + size]
                found.append(some)
                size -= len(some)
            at = max(at - len(piece), 0)
        return found[0] if len(found) == 1 else b"".join(found)


class Outgoing:
    """What is closed and not written, or written and not synced."""

    def __init__(self, storage: Storage | None) -> None:
        self._storage: Storage | None = storage
        # The newest batches that the kernel and the disk have.
        self.written: i64 = 0
        self.durable: i64 = 0
        self.history = History()
        # Of the newest batch that is closed, written, on the disk.
        self._id_limit_sealed: i64 = 0
        self._id_limit_written: i64 = 0
        self._id_limit_durable: i64 = 0
        self.pending: list[Pending] = []
        # Files written since their last sync, and the newest batch in each.
        self._unsynced: dict[str, i64] = {}

    def storage(self) -> Storage:
        """Return the storage of a journal that is on."""
        storage = self._storage
        assert storage is not None
        return storage

    def write_pending(self) -> None:
        """Hand every closed batch to the kernel, in order.

        Before a seal everything earlier is synced, and the seal itself at once: where a seal is
        found on disk, all up to its number is there too, and no batch reaches a later segment while
        an earlier one could still lose its end.
        """
        if self.pending:
            self._write_first(len(self.pending))
            self._id_limit_written = self._id_limit_sealed

    def _write_first(self, count: i64) -> None:
        storage = self.storage()
        pending = self.pending[:count]
        del self.pending[:count]
        for one in pending:
            name = one.segment.name
            if one.is_seal:
                for unsynced in self.take_unsynced():
                    storage.sync(unsynced)
                self._write_one(storage, one)
                storage.sync(name)
                one.segment.is_sealed = True
                if one.segment.temperature == COLD:
                    # Else what fills half of it would be copied from one to the next for ever.
                    storage.truncate(name, one.segment.end)
                    one.segment.size = one.segment.end
                self.mark_durable(self.written, 0)
            else:
                self._write_one(storage, one)
                self._note_written(one)

    def _write_one(self, storage: Storage, one: Pending) -> None:
        at = one.offset
        for piece in one.pieces:
            storage.write(one.segment.name, at, piece)
            at += len(piece)

    def _note_written(self, one: Pending) -> None:
        self._unsynced[one.segment.name] = one.number
        self.written = one.number

    def write_short(self) -> list[Pending]:
        """Hand closed batches to the kernel; return long ones behind the last seal instead.

        They are for another thread to write, and can be read from here until `mark_written`.
        """
        rest: i64 = len(self.pending)
        size: i64 = 0
        while rest > 0 and not self.pending[rest - 1].is_seal:
            rest -= 1
            size += self.pending[rest].size
        if size <= LONG_BATCH:
            self.write_pending()
            return []
        self._write_first(rest)
        return self.pending[:]

    def mark_written(self, batches: list[Pending], id_limit: i64) -> None:
        """Note that the first of the closed batches are with the kernel."""
        assert self.pending[: len(batches)] == batches
        for one in batches:
            self._note_written(one)
        del self.pending[: len(batches)]
        self._id_limit_written = id_limit

    def id_limit_sealed(self) -> i64:
        """Return the id limit that the newest closed batch carries."""
        return self._id_limit_sealed

    def take_unsynced(self) -> list[str]:
        """Return the files to sync for `written` to become durable.

        They are returned again until `mark_durable` covers them: a sync under way is none yet.
        """
        return list(self._unsynced)

    def mark_durable(self, number: i64, id_limit: i64) -> None:
        """Note that everything up to batch `number` is on disk."""
        self.durable = max(self.durable, number)
        self.history.advance(self.durable)
        for name in [name for name, newest in self._unsynced.items() if newest <= number]:
            del self._unsynced[name]
        self._id_limit_durable = max(self._id_limit_durable, id_limit)

    def id_limit_written(self) -> i64:
        """Return the id limit that the newest written batch carries."""
        return self._id_limit_written
