"""Periodic dashboard events: idle queues, removed queues and overloaded workers.

The check runs every ten seconds while there are listeners, and stores only what the last check
found.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.http.derived_events import DashboardEvent

# How long a queue must be idle, or a worker at full concurrency, before an event is sent.
QUEUE_IDLE_MS: Final = 30_000
OVERLOAD_MS: Final = 30_000
# Copying this many names takes as long as checking one queue.
NAMES_PER_UNIT: Final = 32


@final
class Watchdog:
    """Tracks the queues and workers of one door."""

    def __init__(self, door: BunqueueDoor) -> None:
        self._door = door
        # Known queues; a dict because a very large set takes longer to copy.
        self._queues: dict[str, None] = {}
        # Lists the queues that exist at the start; None once it has ended.
        self._survey: QueueSurvey | None = None
        # Steady time since when, by queue name and by worker id.
        self._idle: dict[str, int] = {}
        self._overloaded: dict[str, int] = {}

    def begin(self, now_ms: i64) -> None:
        """Record the queues that exist now, which are not reported as created."""
        yard = self._door.yard
        if self._survey is not None:
            yard.tasks.leave(self._survey)
        self._queues = {}
        self._survey = QueueSurvey(self, self._queues, list(yard.queues))
        yard.tasks.begin(self._survey, None, now_ms)
        self._idle.clear()
        self._overloaded.clear()

    def surveyed(self) -> None:
        """Note that all queues that existed at the start are known."""
        self._survey = None

    def is_new(self, queue: str) -> bool:
        """Return whether a queue was unknown before, and record it."""
        if queue in self._queues:
            return False
        self._queues[queue] = None
        return self._survey is None

    def was_known(self, queue: str) -> bool:
        """Return whether a removed queue was known before, and drop it."""
        if queue not in self._queues:
            return self._survey is not None
        del self._queues[queue]
        return True

    def begin_check(self, now_ms: i64) -> "WatchdogCheck":
        """Return a new check as a task; its `events` returns the events."""
        return WatchdogCheck(self, self._door, self._queues, self._idle, now_ms)

    def seen(self, gone: list[str], idle: dict[str, int]) -> None:
        """Store the result of a check."""
        for name in gone:
            self._queues.pop(name, None)
        self._idle = idle

    def busy(self, now_ms: i64) -> list[DashboardEvent]:
        """Return the events of workers that have been overloaded for `OVERLOAD_MS`."""
        events: list[DashboardEvent] = []
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
            events.append(("worker:overloaded", fields))
        return events


@final
class QueueSurvey(Task):
    """Records the names of existing queues in slices."""

    def __init__(self, watchdog: Watchdog, known: dict[str, None], names: list[str]) -> None:
        super().__init__()
        self.is_reading = True
        self._watchdog = watchdog
        self._known = known
        self._names = names

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Record some names."""
        done: i64 = 0
        while done < most and self._names:
            self._known[self._names.pop()] = None
            done += 1
        if done < most:
            self._watchdog.surveyed()
        return done


@final
class WatchdogCheck(Task):
    """One check of all queues, in slices."""

    def __init__(
        self,
        watchdog: Watchdog,
        door: BunqueueDoor,
        known: dict[str, None],
        idle: dict[str, int],
        now_ms: i64,
    ) -> None:
        super().__init__()
        self._watchdog = watchdog
        self._yard = door.yard
        self._all_known = known
        self._known: list[str] = []
        self._names: list[str] = []
        # How many of the two lists were made; with very many queues each copy takes time.
        self._lists: i64 = 0
        self._before = idle
        self._idle: dict[str, int] = {}
        self._gone: list[str] = []
        self._now_ms: i64 = now_ms
        self._resting: list[DashboardEvent] = []

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  all events have one time
        """Check some queues."""
        done: i64 = 0
        queues = self._yard.queues
        while done < most:
            if self._known:
                name = self._known.pop()
                if name not in queues:
                    self._gone.append(name)
            elif self._names:
                self._look_at(self._names.pop())
            elif self._lists == 0:
                self._known = list(self._all_known)
                done += len(self._known) // NAMES_PER_UNIT
                self._lists = 1
            elif self._lists == 1:
                self._names = list(queues)
                done += len(self._names) // NAMES_PER_UNIT
                self._lists = 2
            else:
                break
            done += 1
        return done

    def _look_at(self, name: str) -> None:
        queue = self._yard.queues.get(name)
        if queue is None or queue.ready.items or queue.leased.items or queue.held_count > 0:
            return
        since_ms = self._before.get(name, int(self._now_ms))
        if self._now_ms - since_ms >= QUEUE_IDLE_MS:
            seconds = int((self._now_ms - since_ms) // 1000)
            self._resting.append(("queue:idle", {"queue": name, "idleSeconds": seconds}))
        else:
            self._idle[name] = since_ms

    def events(self) -> list[DashboardEvent]:
        """Return the events of the finished check."""
        gone = sorted(name for name in self._gone if name not in self._yard.queues)
        self._resting.reverse()
        self._watchdog.seen(gone, self._idle)
        removed: list[DashboardEvent] = [("queue:removed", {"queue": name}) for name in gone]
        return removed + self._resting + self._watchdog.busy(self._now_ms)
