"""Decides when appended records are written and synced, and releases the replies that wait for it.

At the end of every turn in which a reply waits: one write, one sync, one release. While syncs are
quick they run inline, which costs less than a thread switch; slow ones run in the single worker
thread, and what arrives in the meantime forms the next batch. No timer delays a commit. In class os
a write is enough, with a sync at intervals, or as in class sync while a reply requires it.

A failed write or sync raises StorageFailed out of the turn, before any reply: the server stops.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol, final

from mypy_extensions import i64

from jobyard.engine.jobs.put import give_back_seqs
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFailed, StorageFull
from jobyard.journal.batches import FULL_RETRY_MS
from jobyard.journal.outgoing import LONG_BATCH, OutgoingBatch
from jobyard.journal.reply_gate import Gate
from jobyard.model.limits import NEVER_MS
from jobyard.server.disk import FileStorage
from jobyard.server.turn import Commits

# Durability classes: reply after the sync, after the write, or after the write and never sync.
SYNC: Final = "sync"
OS: Final = "os"
OFF: Final = "off"

# Records that no reply waits for are committed after this time, or once they are a long batch.
LAZY_MS: Final = 50
# Mean sync time above which the thread pays off, and below which inline syncs do again.
# The thread costs about 30 us per commit; a sync of 0.3 ms is ten times that.
THREAD_FROM_S: Final = 0.0003
INLINE_BELOW_S: Final = 0.0002

# Bytes checksummed per unit of work.
SUMMED_PER_UNIT: Final = 1024


class CommitObserver(Protocol):
    """Measures how long replies wait for commits."""

    def begin(self) -> None:
        """Note that a commit begins, with everything appended so far."""

    def end(self, took_us: int) -> None:
        """Note that the last commit has ended."""


class WorkerThread:
    """The worker thread: runs syncs and creates spare files, in order."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="jobyard-sync", daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], Callable[[], None]]) -> None:
        """Run `task` in the thread, and the function it returns in the loop."""

        def run() -> None:
            self._done.put(task())

        self._tasks.put(run)

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                return
            try:
                task()
            except BaseException as error:  # noqa: BLE001  raised in the loop by `collect`
                # Later tasks are never run: a sync could succeed without the pages that failed.
                self._failure = error
                self._wake()
                return
            self._wake()

    def collect(self) -> None:
        """Run the results of finished tasks in the loop; raise the error of a failed one."""
        while not self._done.empty():
            self._done.get()()
        failure = self._failure
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """End the thread after all submitted tasks."""
        self._tasks.put(None)
        self._thread.join()


@final
class ChecksumTask(Task):
    """Computes the checksums of closed long batches, one slice per turn.

    Not done by the worker: each covers one sector, and such short calls keep the GIL, so the loop
    could not run meanwhile.
    """

    def __init__(self, committer: "Committer") -> None:
        super().__init__()
        self._committer = committer

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the interface of Task
        """Compute some checksums."""
        done = self._committer.sum_some(int(most) * SUMMED_PER_UNIT)
        return done // SUMMED_PER_UNIT


def _is_long(closed: list[OutgoingBatch]) -> bool:
    return sum(one.size for one in closed) > LONG_BATCH


@final
class Committer(Commits):
    """Commits of one yard in one durability class."""

    def __init__(
        self,
        yard: Yard,
        gate: Gate,
        storage: FileStorage,
        worker: WorkerThread,
        durability: str,
        interval_ms: int,
    ) -> None:
        self._yard = yard
        self._journal = yard.journal
        self._gate = gate
        self._storage = storage
        self._worker = worker
        self._durability = durability
        self._interval_ms = interval_ms
        # Measures syncs.
        self.clock: Callable[[], float] = time.perf_counter
        self._mean_sync_s = 0.0
        self._is_inline = True
        self._is_syncing = False
        self._is_writing = False
        self._is_summing = False
        self._is_making_spare = False
        self._lazy_since_ms: i64 = NEVER_MS
        self._synced_ms: i64 = 0
        self._failure: StorageFailed | None = None
        self.commits_count = 0
        # The open batch at the last call of `look`.
        self._looked_at: i64 = 0
        self.observer: CommitObserver | None = None

    def mean_sync_us(self) -> int:
        """Return the recent mean duration of a sync; 0 if there was none."""
        return int(self._mean_sync_s * 1e6)

    def turn(self, now_ms: int) -> int:
        """Commit what clients wait for; return when to call again at the latest.

        Once the disk has failed, every turn fails: a later sync could succeed without the pages
        that an earlier one failed to write.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._turn(now_ms)
        except StorageFailed as error:
            self._failure = error
            raise

    def look(self) -> None:
        """Check the directory; called once a second. When idle, note the newest durable batch."""
        try:
            self._storage.look()
            is_idle = self._looked_at == self._journal.open_number
            self._looked_at = self._journal.open_number
            if is_idle and self._durability != OFF:
                self._journal.vouch()
        except StorageFailed as error:
            self._failure = error
            raise

    def collect(self) -> None:
        """Collect the finished tasks of the worker."""
        try:
            self._worker.collect()
        except StorageFailed as error:
            self._failure = error
            raise

    def _turn(self, now_ms: int) -> int:
        journal = self._journal
        is_open = journal.has_open_records() or bool(journal.pending)
        if self._durability == SYNC:
            if not is_open:
                self._lazy_since_ms = NEVER_MS
            elif self._is_due(now_ms):
                self._close()
                if self._is_syncing:
                    return NEVER_MS
                self._commit()
                self._lazy_since_ms = NEVER_MS
        else:
            self._write(now_ms, is_open=is_open)
        self._make_spare()
        if journal.is_full:
            journal.retry_full(now_ms)
            return min(self._next_ms(now_ms), now_ms + FULL_RETRY_MS)
        return self._next_ms(now_ms)

    def _is_due(self, now_ms: int) -> bool:
        """Return whether a reply waits, or other records have waited long enough."""
        if self._gate.held or self._journal.pending:
            return True
        if self._lazy_since_ms == NEVER_MS:
            self._lazy_since_ms = now_ms
        return now_ms - self._lazy_since_ms >= LAZY_MS or self._is_long()

    def _next_ms(self, now_ms: int) -> int:
        if self._lazy_since_ms != NEVER_MS:
            return self._lazy_since_ms + LAZY_MS
        if self._durability == OS and self._journal.durable < self._journal.written:
            # The end of a running sync wakes the loop; this covers only what came later.
            return (now_ms if self._is_syncing else self._synced_ms) + self._interval_ms
        return NEVER_MS

    # -- class sync ----------------------------------------------------------------------------

    def _is_long(self) -> bool:
        return self._journal.open_bytes() > LONG_BATCH

    def _close(self) -> None:
        """Close the open batch; while others are being written or synced, only if it is long.

        Otherwise everything that arrives during a sync would be one batch; with a few large bodies,
        its checksums alone would take a hundred milliseconds.
        """
        journal = self._journal
        is_syncing = self._is_syncing and self._durability == SYNC
        is_waiting = is_syncing or self._is_writing or self._is_summing
        if not is_waiting or self._is_long():
            journal.seal_batch()
        if not self._is_summing and journal.has_unsummed():
            self._is_summing = True
            self._yard.tasks.follow(ChecksumTask(self))

    def sum_some(self, most: int) -> int:
        """Compute some checksums of closed long batches; return the number of bytes covered."""
        done = int(self._journal.sum_some(most))
        self._is_summing = done >= most
        return done

    def _commit(self) -> None:
        journal = self._journal
        ready = journal.ready()
        if not ready:
            return
        self.commits_count += 1
        if self.observer is not None:
            self.observer.begin()
        if _is_long(ready):
            self._is_syncing = True
            self._write_in_thread(ready)
            return
        journal.write_ready()
        self._yard.bodies.cool()
        self._sync()
        if not self._is_syncing:
            self._gate.release(journal.durable)

    def _write_in_thread(self, closed: list[OutgoingBatch]) -> None:
        """Write long batches in the worker, and in class sync also sync them.

        Copying 10 MiB into the kernel takes 10 ms.
        """
        unsynced = set(self._journal.take_unsynced())
        self._is_writing = True
        is_synced = self._durability == SYNC

        def write() -> Callable[[], None]:
            took = 0.0
            for one in closed:
                if one.is_seal:
                    took += self._sync_files(unsynced)
                    unsynced.clear()
                self._storage.write_apart(one.segment.name, one.offset, one.pieces)
                unsynced.add(one.segment.name)
                if one.is_seal:
                    took += self._sync_files(unsynced)
                    unsynced.clear()
            if is_synced:
                took += self._sync_files(unsynced)
            return lambda: self._on_written(closed, took, is_synced=is_synced)

        self._worker.submit(write)

    def _sync_files(self, names: Iterable[str]) -> float:
        """Sync files; return how long it took."""
        started = self.clock()
        for name in names:
            self._storage.sync(name)
        return self.clock() - started

    def _on_written(self, closed: list[OutgoingBatch], took_s: float, *, is_synced: bool) -> None:
        journal = self._journal
        self._is_writing = False
        journal.mark_written(closed)
        self._yard.bodies.cool()
        if is_synced:
            self._on_synced(journal.written, journal.id_limit_written(), took_s)
        else:
            self._gate.release_up_to(journal.written, journal.durable)

    def _sync(self) -> None:
        """Sync inline, or in the worker where syncs are slow."""
        if not self._is_inline:
            self._sync_in_thread()
            return
        started = self.clock()
        self._sync_all()
        self._note_sync(self.clock() - started)

    def _sync_all(self) -> None:
        journal = self._journal
        for name in journal.take_unsynced():
            self._storage.sync(name)
        journal.mark_durable(journal.written, journal.id_limit_written())

    def _sync_in_thread(self) -> None:
        journal = self._journal
        names = journal.take_unsynced()
        number = journal.written
        id_limit = journal.id_limit_written()
        self._is_syncing = True

        def sync() -> Callable[[], None]:
            took = self._sync_files(names)
            return lambda: self._on_synced(number, id_limit, took)

        self._worker.submit(sync)

    def _on_synced(self, number: int, id_limit: int, took_s: float) -> None:
        self._is_syncing = False
        self._note_sync(took_s)
        journal = self._journal
        journal.mark_durable(number, id_limit)
        if self._durability == SYNC:
            self._gate.release(journal.durable)
        else:
            self._gate.release_up_to(journal.written, journal.durable)

    def _note_sync(self, took_s: float) -> None:
        self._mean_sync_s += (took_s - self._mean_sync_s) * 0.1
        if self.observer is not None:
            self.observer.end(int(took_s * 1e6))
        if self._is_inline:
            self._is_inline = self._mean_sync_s < THREAD_FROM_S
        else:
            self._is_inline = self._mean_sync_s < INLINE_BELOW_S

    # -- classes os and off --------------------------------------------------------------------

    def _write(self, now_ms: int, *, is_open: bool) -> None:
        journal = self._journal
        if is_open:
            self._close()
            ready = journal.ready()
            if ready and not self._is_writing:
                self.commits_count += 1
                if _is_long(ready):
                    self._write_in_thread(ready)
                else:
                    journal.write_ready()
                    self._yard.bodies.cool()
        if self._durability == OFF:
            journal.take_unsynced()
            journal.mark_durable(journal.written, journal.id_limit_written())
        elif journal.ids_at_risk() and journal.durable < journal.written:
            # An id above the limit on disk could be issued twice after a power cut.
            self._sync_all()
        elif journal.durable < journal.written and not self._is_syncing:
            if self._gate.held_sync_batch > journal.durable:
                self._synced_ms = now_ms
                self._sync()
            elif now_ms - self._synced_ms >= self._interval_ms:
                self._synced_ms = now_ms
                self._sync_in_thread()
        self._gate.release_up_to(journal.written, journal.durable)

    # -- spare files ---------------------------------------------------------------------------

    def _make_spare(self) -> None:
        """Keep enough zero-filled files ready; filled piece by piece, so that syncs can run."""
        journal = self._journal
        if self._is_making_spare or journal.is_full or journal.spares_wanted() == 0:
            return
        self._is_making_spare = True
        name = journal.new_spare_name()

        def create() -> Callable[[], None]:
            try:
                self._storage.create(name, journal.segment_size)
                self._storage.sync_directory()
            except StorageFull:
                return self._on_no_spare
            return lambda: self._fill(name, 0)

        self._worker.submit(create)

    def _on_no_spare(self) -> None:
        self._is_making_spare = False
        self._journal.note_full()

    def _fill(self, name: str, offset: int) -> None:
        def fill() -> Callable[[], None]:
            after = self._storage.fill(name, offset)
            return lambda: self._on_spare(name) if after < 0 else self._fill(name, after)

        self._worker.submit(fill)

    def _on_spare(self, name: str) -> None:
        self._is_making_spare = False
        self._journal.add_spare(name)

    def stop(self) -> None:
        """Commit everything, record a clean stop, and seal the journal."""
        journal = self._journal
        self._worker.stop()
        self._worker.collect()
        give_back_seqs(self._yard)
        journal.append_clean()
        journal.close()
        self._gate.release(journal.durable)
