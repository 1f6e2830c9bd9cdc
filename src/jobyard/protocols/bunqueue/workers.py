"""Registered workers: their identity, their job counts, and when they were last seen.

A worker belongs to the connection it registered on last and is removed with it. Its counts are kept
by id beyond that, so that a worker that returns, even after a restart of the server, is not counted
twice. Counts are written when a worker leaves and at most once a minute, not with every heartbeat.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.model.entry import EntryKind
from jobyard.protocols.bunqueue.observer import CommandObserver
from jobyard.wire.msgpack.forms import Malformed, decode
from jobyard.wire.msgpack.write import encode

# A worker without a heartbeat is shown as stale after STALE_MS and removed after LOST_MS.
STALE_MS: Final = 30_000
LOST_MS: Final = 90_000
WRITE_MS: Final = 60_000
# How many workers that left are kept; most processes use new ids.
PAST_MAX: Final = 1000

# An event is sent when the failed jobs of a worker reach one of these counts.
FAILED_STEPS: Final = (5, 10, 25, 50, 100)

# Key of the entry with the totals. No worker has an empty id.
_TOTALS: Final = b""


@final
class Worker:
    """One registered worker. All times are steady."""

    def __init__(self, worker_id: str, name: str, queues: list[str], now_ms: i64) -> None:
        self.id: str = worker_id
        self.name: str = name
        self.queues: list[str] = queues
        self.registered_ms: i64 = now_ms
        self.seen_ms: i64 = now_ms
        self.concurrency: i64 = 1
        self.hostname: str = ""
        self.pid: i64 = 0
        self.active: i64 = 0
        self.processed: i64 = 0
        self.failed: i64 = 0
        # The ids of all workers of its connection, including this one.
        self.home: list[str] = []
        self.written_ms: i64 = now_ms
        self.is_changed: bool = False

    def is_active(self, now_ms: i64) -> bool:
        """Return whether the worker sent a heartbeat within `STALE_MS`."""
        return now_ms - self.seen_ms < STALE_MS


@final
class Workers:
    """All registered workers by id, and the counts of workers that left."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self.by_id: dict[str, Worker] = {}
        # Processed and failed jobs of workers that left, the earliest first.
        self._past: dict[str, tuple[int, int]] = {}
        self.processed_total: i64 = 0
        self.failed_total: i64 = 0
        # None while there are no listeners.
        self.observer: CommandObserver | None = None
        self._load()

    # -- registration --------------------------------------------------------------------------

    def enter(self, worker: Worker, home: list[str]) -> Worker:
        """Register a worker, or update a known one, on the connection that owns `home`."""
        known = self.by_id.get(worker.id)
        if known is None:
            past = self._past.pop(worker.id, None)
            if past is not None:
                worker.processed, worker.failed = past
            self.by_id[worker.id] = worker
            known = worker
        else:
            if known.id in known.home:
                known.home.remove(known.id)
            known.name = worker.name
            known.queues = worker.queues
            known.concurrency = worker.concurrency
            known.hostname = worker.hostname or known.hostname
            known.pid = worker.pid or known.pid
            known.seen_ms = worker.seen_ms
        known.home = home
        if known.id not in home:
            home.append(known.id)
        return known

    def beat(self, worker: Worker, counts: tuple[i64, i64, i64], now_ms: i64) -> None:
        """Record a heartbeat: the jobs that run, were processed and failed (-1: not given)."""
        active, processed, failed = counts
        worker.seen_ms = now_ms
        was_busy = worker.active > 0
        failed_before = worker.failed
        if active >= 0:
            worker.active = active
        if processed >= 0 and processed != worker.processed:
            self.processed_total += _grown(worker.processed, processed)
            worker.processed = processed
            worker.is_changed = True
        if failed >= 0 and failed != worker.failed:
            self.failed_total += _grown(worker.failed, failed)
            worker.failed = failed
            worker.is_changed = True
        if worker.is_changed and now_ms - worker.written_ms >= WRITE_MS:
            worker.written_ms = now_ms
            self._write(worker)
        if self.observer is not None:
            if was_busy and worker.active == 0:
                fields: dict[str, object] = {"workerId": worker.id}
                fields["processedJobs"] = int(worker.processed)
                self.observer.publish("worker:idle", fields)
            self._publish_failures(self.observer, worker, failed_before)

    def _publish_failures(self, observer: CommandObserver, worker: Worker, before: i64) -> None:
        for step in FAILED_STEPS:
            if before < step <= worker.failed:
                rate = float(worker.failed) / float(worker.processed + worker.failed)
                fields: dict[str, object] = {"workerId": worker.id, "name": worker.name}
                fields["failedJobs"] = int(worker.failed)
                fields["processedJobs"] = int(worker.processed)
                fields["failureRate"] = round(rate, 3)
                observer.publish("worker:error", fields)
                return

    def dismiss(self, worker_id: str) -> bool:
        """Remove a worker whose connection stays open; False if it is unknown."""
        worker = self.by_id.get(worker_id)
        if worker is not None and worker_id in worker.home:
            worker.home.remove(worker_id)
        return self.leave(worker_id)

    def leave(self, worker_id: str) -> bool:
        """Remove a worker whose connection closes; False if it is unknown."""
        worker = self.by_id.pop(worker_id, None)
        if worker is None:
            return False
        if worker.is_changed:
            self._write(worker)
        if worker.processed or worker.failed:
            self._past[worker_id] = (int(worker.processed), int(worker.failed))
            self._forget_oldest()
        return True

    def drop_lost(self, now_ms: i64) -> None:
        """Remove workers without a heartbeat for `LOST_MS`."""
        for worker in list(self.by_id.values()):
            if now_ms - worker.seen_ms >= LOST_MS:
                self.dismiss(worker.id)
                if self.observer is not None:
                    fields: dict[str, object] = {"workerId": worker.id, "name": worker.name}
                    self.observer.publish("worker:removed-stale", fields)

    def serves(self, queue: str, now_ms: i64) -> bool:
        """Return whether an active worker serves a queue."""
        for worker in self.by_id.values():
            if queue in worker.queues and worker.is_active(now_ms):
                return True
        return False

    # -- journal -------------------------------------------------------------------------------

    def _write(self, worker: Worker) -> None:
        journal = self._yard.journal
        worker.is_changed = False
        # Only statistics are lost if the disk is full.
        if not journal.is_on or not journal.admit(256 + len(worker.id), self._yard.now_ms):
            return
        done: object = [worker.processed, worker.failed]
        journal.set_entry(EntryKind.WORKER, worker.id.encode("utf-8", "replace"), encode(done))
        total: object = [float(self.processed_total), float(self.failed_total)]
        journal.set_entry(EntryKind.WORKER, _TOTALS, encode(total))

    def _forget_oldest(self) -> None:
        while len(self._past) > PAST_MAX:
            oldest = next(iter(self._past))
            del self._past[oldest]
            journal = self._yard.journal
            if journal.is_on and journal.admit(256 + len(oldest), self._yard.now_ms):
                journal.drop_entry(EntryKind.WORKER, oldest.encode("utf-8", "replace"))

    def _load(self) -> None:
        for entry in self._yard.journal.entries.values():
            if entry.kind == EntryKind.WORKER and not entry.is_gone:
                processed, failed = _read_pair(entry.value)
                if entry.key == _TOTALS:
                    self.processed_total = processed
                    self.failed_total = failed
                else:
                    self._past[entry.key.decode("utf-8", "replace")] = (processed, failed)


def _grown(before: i64, after: i64) -> i64:
    # A worker that restarted under its old id counts from zero again.
    return after - before if after > before else after


def _read_pair(value: bytes) -> tuple[int, int]:
    try:
        pair = decode(value, 0, len(value))
    except Malformed:
        return 0, 0
    if isinstance(pair, list) and len(pair) == 2:
        first, second = pair
        if isinstance(first, int | float) and isinstance(second, int | float):
            return int(first), int(second)
    return 0, 0
