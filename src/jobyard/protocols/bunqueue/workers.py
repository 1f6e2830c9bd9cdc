"""Workers that told the server of themselves: who they are, what they did, when they were seen.

A worker belongs to the connection it registered on last, and leaves with it. What it did is
remembered by its id beyond that, so that a worker that comes back, even after a restart of the
server, is not counted twice; this is written when it leaves and at most once a minute, never with a
heartbeat as such.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.model.entry import WORKER
from jobyard.protocols.bunqueue.observer import Onlooker
from jobyard.wire.msgpack.forms import Malformed, decode
from jobyard.wire.msgpack.write import encode

# Without a heartbeat for so long a worker is shown as stale, and after the longer time not at all.
STALE_MS: Final = 30_000
LOST_MS: Final = 90_000
WRITE_MS: Final = 60_000
# Workers that left and are remembered; ids are usually new with every process.
PAST_MAX: Final = 1000

# So many failed jobs of one worker are worth a word each time.
FAILED_STEPS: Final = (5, 10, 25, 50, 100)

# The entry of the totals. No worker has an empty id.
_TOTALS: Final = b""


@final
class Worker:
    """One worker as it registered. Times are steady but for those in its history."""

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
        # The ids of all workers of its connection, this one's among them.
        self.home: list[str] = []
        self.written_ms: i64 = now_ms
        self.is_changed: bool = False

    def is_active(self, now_ms: i64) -> bool:
        """Tell whether it was heard of lately."""
        return now_ms - self.seen_ms < STALE_MS


@final
class Workers:
    """All registered workers by id, and what those that left had done."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self.by_id: dict[str, Worker] = {}
        # Processed and failed of those that left, the longest gone first.
        self._past: dict[str, tuple[int, int]] = {}
        self.processed_total: i64 = 0
        self.failed_total: i64 = 0
        # None while nobody listens.
        self.onlooker: Onlooker | None = None
        self._load()

    # -- coming and going ----------------------------------------------------------------------

    def enter(self, worker: Worker, home: list[str]) -> Worker:
        """Take in a worker, or what is new of one that is known, on the connection of `home`."""
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
        """Note that a worker lives, and how many jobs it runs and has ended so far (-1: unsaid)."""
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
        if self.onlooker is not None:
            if was_busy and worker.active == 0:
                told: dict[str, object] = {"workerId": worker.id}
                told["processedJobs"] = int(worker.processed)
                self.onlooker.tell("worker:idle", told)
            self._tell_failures(self.onlooker, worker, failed_before)

    def _tell_failures(self, onlooker: Onlooker, worker: Worker, before: i64) -> None:
        for step in FAILED_STEPS:
            if before < step <= worker.failed:
                rate = float(worker.failed) / float(worker.processed + worker.failed)
                told: dict[str, object] = {"workerId": worker.id, "name": worker.name}
                told["failedJobs"] = int(worker.failed)
                told["processedJobs"] = int(worker.processed)
                told["failureRate"] = round(rate, 3)
                onlooker.tell("worker:error", told)
                return

    def dismiss(self, worker_id: str) -> bool:
        """Let a worker go whose connection stays; False if there was none."""
        worker = self.by_id.get(worker_id)
        if worker is not None and worker_id in worker.home:
            worker.home.remove(worker_id)
        return self.leave(worker_id)

    def leave(self, worker_id: str) -> bool:
        """Let a worker go with its connection; False if there was none."""
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
        """Let those go that have not been heard of for long."""
        for worker in list(self.by_id.values()):
            if now_ms - worker.seen_ms >= LOST_MS:
                self.dismiss(worker.id)
                if self.onlooker is not None:
                    told: dict[str, object] = {"workerId": worker.id, "name": worker.name}
                    self.onlooker.tell("worker:removed-stale", told)

    def serves(self, queue: str, now_ms: i64) -> bool:
        """Tell whether any worker is there for a queue."""
        for worker in self.by_id.values():
            if queue in worker.queues and worker.is_active(now_ms):
                return True
        return False

    # -- what is remembered --------------------------------------------------------------------

    def _write(self, worker: Worker) -> None:
        journal = self._yard.journal
        worker.is_changed = False
        # What a full disk does not take is only statistics.
        if not journal.is_on or not journal.admit(256 + len(worker.id), self._yard.now_ms):
            return
        done: object = [worker.processed, worker.failed]
        journal.set_entry(WORKER, worker.id.encode("utf-8", "replace"), encode(done))
        total: object = [float(self.processed_total), float(self.failed_total)]
        journal.set_entry(WORKER, _TOTALS, encode(total))

    def _forget_oldest(self) -> None:
        while len(self._past) > PAST_MAX:
            oldest = next(iter(self._past))
            del self._past[oldest]
            journal = self._yard.journal
            if journal.is_on and journal.admit(256 + len(oldest), self._yard.now_ms):
                journal.drop_entry(WORKER, oldest.encode("utf-8", "replace"))

    def _load(self) -> None:
        for entry in self._yard.journal.entries.values():
            if entry.kind == WORKER and not entry.is_gone:
                processed, failed = _read_pair(entry.value)
                if entry.key == _TOTALS:
                    self.processed_total = processed
                    self.failed_total = failed
                else:
                    self._past[entry.key.decode("utf-8", "replace")] = (processed, failed)


def _grown(before: i64, after: i64) -> i64:
    # A worker that started anew under its old id counts from nothing again.
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
