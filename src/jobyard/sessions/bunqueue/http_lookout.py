"""What dashboards are told because nothing happened: queues that rest, workers that have no rest.

Looks around every ten seconds while somebody listens, and remembers only what it saw last time.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.sessions.bunqueue.door import BunqueueDoor
from jobyard.sessions.bunqueue.http_asides import Told

# How long a queue must rest, or a worker run all it can, before a word is said.
IDLE_MS: Final = 30_000
OVERLOAD_MS: Final = 30_000


@final
class Lookout:
    """Looks after the queues and workers of one door."""

    def __init__(self, door: BunqueueDoor) -> None:
        self._door = door
        self._queues: set[str] = set()
        # Since when, by name or id.
        self._idle: dict[str, int] = {}
        self._overloaded: dict[str, int] = {}

    def begin(self) -> None:
        """Take what there is for granted."""
        self._queues = set(self._door.yard.queues)
        self._idle.clear()
        self._overloaded.clear()

    def is_new(self, queue: str) -> bool:
        """Tell whether a queue was not there before."""
        if queue in self._queues:
            return False
        self._queues.add(queue)
        return True

    def was_known(self, queue: str) -> bool:
        """Tell whether a queue that is gone was there before."""
        if queue not in self._queues:
            return False
        self._queues.discard(queue)
        return True

    def look(self, now_ms: i64) -> list[Told]:
        """Return what is worth a word."""
        return self._gone() + self._resting(now_ms) + self._busy(now_ms)

    def _gone(self) -> list[Told]:
        queues = self._door.yard.queues
        gone = [name for name in self._queues if name not in queues]
        self._queues.difference_update(gone)
        return [("queue:removed", {"queue": name}) for name in sorted(gone)]

    def _resting(self, now_ms: i64) -> list[Told]:
        told: list[Told] = []
        before = self._idle
        self._idle = {}
        for name, queue in self._door.yard.queues.items():
            if queue.ready.items or queue.leased.items or queue.held_count > 0:
                continue
            since_ms = before.get(name, int(now_ms))
            if now_ms - since_ms >= IDLE_MS:
                seconds = int((now_ms - since_ms) // 1000)
                told.append(("queue:idle", {"queue": name, "idleSeconds": seconds}))
            else:
                self._idle[name] = since_ms
        return told

    def _busy(self, now_ms: i64) -> list[Told]:
        told: list[Told] = []
        before = self._overloaded
        self._overloaded = {}
        for worker in self._door.workers.by_id.values():
            if worker.active < max(1, worker.concurrency):
                continue
            since_ms = before.get(worker.id, int(now_ms))
            if now_ms - since_ms < OVERLOAD_MS:
                self._overloaded[worker.id] = since_ms
                continue
            fields: dict[str, object] = {"workerId": worker.id, "name": worker.name}
            fields["activeJobs"] = int(worker.active)
            fields["concurrency"] = int(worker.concurrency)
            fields["overloadedSeconds"] = int((now_ms - since_ms) // 1000)
            told.append(("worker:overloaded", fields))
        return told
