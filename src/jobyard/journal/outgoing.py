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
        storage = self.storage()
        pending = self.pending
        if not pending:
            return
        self.pending = []
        for one in pending:
            if one.is_seal:
                for unsynced in self.take_unsynced():
                    storage.sync(unsynced)
            at = one.offset
            for piece in one.pieces:
                storage.write(one.segment.name, at, piece)
                at += len(piece)
            if one.is_seal:
                storage.sync(one.segment.name)
            self._note_written(one)
        self._id_limit_written = self._id_limit_sealed

    def _note_written(self, one: Pending) -> None:
        """Note that a batch is with the kernel, or a seal and all before it on the disk."""
        segment = one.segment
        if not one.is_seal:
            self._unsynced[segment.name] = one.number
            self.written = one.number
            return
        segment.is_sealed = True
        if segment.temperature == COLD:
            # Else what fills half of it would be copied from one to the next for ever.
            self.storage().truncate(segment.name, segment.end)
            segment.size = segment.end
        self.mark_durable(self.written, 0)

    def long_pending(self) -> list[Pending]:
        """Return what is closed if it is long, for another thread to write; else nothing.

        That thread keeps to the order of `write_pending`. Until `mark_written` all of it can be
        read from here.
        """
        size: i64 = 0
        for one in self.pending:
            size += one.size
        return self.pending[:] if size > LONG_BATCH else []

    def mark_written(self, written: list[Pending], id_limit: i64) -> None:
        """Note that another thread has written the first of what is closed."""
        assert self.pending[: len(written)] == written
        del self.pending[: len(written)]
        for one in written:
            self._note_written(one)
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
