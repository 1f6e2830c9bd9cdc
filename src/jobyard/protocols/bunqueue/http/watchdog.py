"""What dashboards are told because nothing happened: queues that rest, workers that have no rest.

Looks around every ten seconds while somebody listens, and remembers only what it saw last time.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.http.derived_events import Told

# How long a queue must rest, or a worker run all it can, before a word is said.
IDLE_MS: Final = 30_000
OVERLOAD_MS: Final = 30_000
# So many names are copied in the time it takes to look at one.
NAMES_PER_UNIT: Final = 32


@final
class Lookout:
    """Looks after the queues and workers of one door."""

    def __init__(self, door: BunqueueDoor) -> None:
        self._door = door
        # In the order they were noted: a set of very many takes longer to copy.
        self._queues: dict[str, None] = {}
        # What was there at the beginning, as long as not all of it is known.
        self._survey: Survey | None = None
        # Since when, by name or id.
        self._idle: dict[str, int] = {}
        self._overloaded: dict[str, int] = {}

    def begin(self, now_ms: i64) -> None:
        """Take what there is for granted."""
        yard = self._door.yard
        if self._survey is not None:
            yard.tasks.leave(self._survey)
        self._queues = {}
        self._survey = Survey(self, self._queues, list(yard.queues))
        yard.tasks.begin(self._survey, None, now_ms)
        self._idle.clear()
        self._overloaded.clear()

    def surveyed(self) -> None:
        """Take note that all is known that was there at the beginning."""
        self._survey = None

    def is_new(self, queue: str) -> bool:
        """Tell whether a queue was not there before."""
        if queue in self._queues:
            return False
        self._queues[queue] = None
        return self._survey is None

    def was_known(self, queue: str) -> bool:
        """Tell whether a queue that is gone was there before."""
        if queue not in self._queues:
            return self._survey is not None
        del self._queues[queue]
        return True

    def glance(self, now_ms: i64) -> "Glance":
        """Return the work of looking around; it tells what is worth a word."""
        return Glance(self, self._door, self._queues, self._idle, now_ms)

    def seen(self, gone: list[str], idle: dict[str, int]) -> None:
        """Remember what a look around has found."""
        for name in gone:
            self._queues.pop(name, None)
        self._idle = idle

    def busy(self, now_ms: i64) -> list[Told]:
        """Return which workers have no rest."""
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


@final
class Survey(Task):
    """Notes which queues are there, some at a time."""

    def __init__(self, lookout: Lookout, known: dict[str, None], names: list[str]) -> None:
        super().__init__()
        self.is_reading = True
        self._lookout = lookout
        self._known = known
        self._names = names

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only looks
        """Note some."""
        done: i64 = 0
        while done < most and self._names:
            self._known[self._names.pop()] = None
            done += 1
        if done < most:
            self._lookout.surveyed()
        return done


@final
class Glance(Task):
    """One look around, at some queues at a time."""

    def __init__(
        self,
        lookout: Lookout,
        door: BunqueueDoor,
        known: dict[str, None],
        idle: dict[str, int],
        now_ms: i64,
    ) -> None:
        super().__init__()
        self._lookout = lookout
        self._yard = door.yard
        self._all_known = known
        self._known: list[str] = []
        self._names: list[str] = []
        # How many of the two lists were made; with very many queues that alone takes its time.
        self._lists: i64 = 0
        self._before = idle
        self._idle: dict[str, int] = {}
        self._gone: list[str] = []
        self._now_ms: i64 = now_ms
        self._resting: list[Told] = []

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  all are told as of one moment
        """Look at some."""
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
        if self._now_ms - since_ms >= IDLE_MS:
            seconds = int((self._now_ms - since_ms) // 1000)
            self._resting.append(("queue:idle", {"queue": name, "idleSeconds": seconds}))
        else:
            self._idle[name] = since_ms

    def tell(self) -> list[Told]:
        """Return what is worth a word; there is no more to look at."""
        gone = sorted(name for name in self._gone if name not in self._yard.queues)
        self._resting.reverse()
        self._lookout.seen(gone, self._idle)
        removed: list[Told] = [("queue:removed", {"queue": name}) for name in gone]
        return removed + self._resting + self._lookout.busy(self._now_ms)
