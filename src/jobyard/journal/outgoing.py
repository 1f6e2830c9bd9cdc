"""Closed batches that are not on disk yet, and two watermarks: `written` and `durable`.

A failed write or sync raises StorageFailed; the caller must stop.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.journal.format.segment import COLD, Segment
from jobyard.journal.history.window import History
from jobyard.journal.storage import Storage

if TYPE_CHECKING:
    from jobyard.journal.unsummed import Unsummed

# A longer batch is closed before more is added, and may be written by another thread.
LONG_BATCH: Final = 1 << 20
# If a batch has more bytes to sum, its checksums are computed over several turns: this many take
# half a millisecond, and such a batch comes at the end of a long turn.
SUMMED_AT_ONCE: Final = 768 << 10
# The most pieces written one by one; if a batch that is not long has more, they are joined.
PIECES_MAX: Final = 8


@final
class OutgoingBatch:
    """A closed batch or seal that is not written yet, in pieces."""

    def __init__(
        self, segment: Segment, pieces: list[bytes], number: i64, id_limit: i64, *, is_seal: bool
    ) -> None:
        self.segment: Segment = segment
        self.offset: i64 = segment.end
        self.pieces = pieces
        self.number: i64 = number
        # The id limit it carries.
        self.id_limit: i64 = id_limit
        self.is_seal: bool = is_seal
        # The unfinished checksums of a long batch.
        self.unsummed: Unsummed | None = None
        self.size: i64 = 0
        for piece in pieces:
            self.size += len(piece)

    def sum(self, most: i64) -> i64:
        """Sum about `most` bytes; return how many. Fewer mean that it is ready to be written."""
        unsummed = self.unsummed
        if unsummed is None:
            return 0
        done = unsummed.proceed(most)
        if done < most:
            self.unsummed = None
        return done

    def read(self, at: i64, size: i64) -> bytes:
        """Return up to `size` bytes of the batch from `at` on."""
        found: list[bytes] = []
        for piece in self.pieces:
            if at < len(piece) and size > 0:
                some = piece[at : at + size]
                found.append(some)
                size -= len(some)
            at = max(at - len(piece), 0)
        return found[0] if len(found) == 1 else b"".join(found)


class Outgoing:
    """Batches that are closed and not written, or written and not synced."""

    def __init__(self, storage: Storage | None) -> None:
        self._storage: Storage | None = storage
        # The newest batches that are in the kernel and on the disk.
        self.written: i64 = 0
        self.durable: i64 = 0
        # The newest batch that the file `newest` names.
        self._vouched: i64 = 0
        self.history = History()
        # The id limits of the newest batches that are written and on disk.
        self._id_limit_written: i64 = 0
        self._id_limit_durable: i64 = 0
        self.pending: list[OutgoingBatch] = []
        # SUMMED_AT_ONCE, less in tests.
        self.summed_at_once: i64 = SUMMED_AT_ONCE
        # The number of the newest record that is a row of history.
        self.last_row: i64 = 0
        # How many rows there were up to it, counted from the oldest that the start read.
        self.rows_count: i64 = 0
        # Files written since their last sync, and the newest batch in each.
        self._unsynced: dict[str, i64] = {}

    def storage(self) -> Storage:
        """Return the storage; the journal must be on."""
        storage = self._storage
        assert storage is not None
        return storage

    def write_pending(self) -> None:
        """Sum and write every closed batch, in order."""
        for one in self.pending:
            if one.unsummed is not None:
                one.sum(one.size + 1)
        self.write_ready()

    def write_ready(self) -> None:
        """Write closed batches, in order, up to the first that is not summed yet.

        Before a seal everything earlier is synced, and the seal itself at once: if a seal is found
        on disk, everything up to its number is there too, and no batch reaches a later segment
        while an earlier one could still lose its end.
        """
        storage = self.storage()
        for one in self.take_ready():
            if one.is_seal:
                for unsynced in self.take_unsynced():
                    storage.sync(unsynced)
            at = one.offset
            pieces = one.pieces
            if len(pieces) > PIECES_MAX and one.size <= LONG_BATCH:
                pieces = [b"".join(pieces)]
            for piece in pieces:
                storage.write(one.segment.name, at, piece)
                at += len(piece)
            if one.is_seal:
                storage.sync(one.segment.name)
            self._note_written(one)

    def take_ready(self) -> list[OutgoingBatch]:
        """Remove and return the closed batches up to the first that is not summed yet."""
        ready = self.ready()
        if len(ready) == len(self.pending):
            self.pending = []
        else:
            del self.pending[: len(ready)]
        return ready

    def ready(self) -> list[OutgoingBatch]:
        """Return the closed batches up to the first that is not summed yet."""
        count: i64 = 0
        while count < len(self.pending) and self.pending[count].unsummed is None:
            count += 1
        return self.pending[:count]

    def has_unsummed(self) -> bool:
        """Return whether a closed batch is not summed yet."""
        return self.first_unsummed() is not None

    def sum_some(self, most: i64) -> i64:
        """Sum about `most` bytes of closed batches, in order; return how many."""
        done: i64 = 0
        while done < most:
            one = self.first_unsummed()
            if one is None:
                break
            done += one.sum(most - done)
        return done

    def first_unsummed(self) -> OutgoingBatch | None:
        """Return the first closed batch that is not summed yet."""
        for one in self.pending:
            if one.unsummed is not None:
                return one
        return None

    def _note_written(self, one: OutgoingBatch) -> None:
        """Mark a batch as written, or a seal and everything before it as durable."""
        segment = one.segment
        if not one.is_seal:
            self._unsynced[segment.name] = one.number
            self.written = one.number
            self._id_limit_written = one.id_limit
            return
        segment.is_sealed = True
        if segment.temperature == COLD:
            # Otherwise records that fill half of it would be copied again and again.
            self.storage().truncate(segment.name, segment.end)
            segment.size = segment.end
        self.mark_durable(self.written, 0)

    def mark_written(self, written: list[OutgoingBatch]) -> None:
        """Mark the first closed batches as written by another thread.

        That thread keeps to the order of `write_ready`. Until now they could be read from memory.
        """
        assert self.pending[: len(written)] == written
        del self.pending[: len(written)]
        for one in written:
            self._note_written(one)

    def take_unsynced(self) -> list[str]:
        """Return the files to sync for `written` to become durable.

        They are returned again until `mark_durable` covers them: a sync in progress does not count.
        """
        return list(self._unsynced)

    def mark_durable(self, number: i64, id_limit: i64) -> None:
        """Mark everything up to batch `number` as on disk."""
        self.durable = max(self.durable, number)
        self.history.advance(self.durable)
        for name in [name for name, newest in self._unsynced.items() if newest <= number]:
            del self._unsynced[name]
        self._id_limit_durable = max(self._id_limit_durable, id_limit)

    def id_limit_written(self) -> i64:
        """Return the id limit that the newest written batch carries."""
        return self._id_limit_written
