"""Does for queues with consumer groups what their workers do, where there are none to do it.

Workers of the library promote jobs every few seconds; who reads a stream in any other way knows
nothing of it. So a job that has been due for longer than that is moved for them. Workers also give
back the jobs of those that are not heard of; what a worker held whose connection is gone is given
back here, so that it reaches others who do no such thing, and the other doors.
"""

from typing import Final, final

from mypy_extensions import i64, trait

from jobyard.engine.glidemq.finish import reclaim_lost
from jobyard.engine.glidemq.move import unstage
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue

# How long a job waits for a worker to promote it: the time between two looks of theirs.
PATIENCE_MS: Final = 5000
# How often a job may lose its worker, as with workers.
STALLS_MAX: Final = 1
ROUND_MS: Final = 1000
MOVED_MAX: Final = 1000
# Consumers of a group that are remembered, and groups of queues that may be none.
READERS_MAX: Final = 10_000
GROUPS_FEW: Final = 1024
# Queues that are looked at together.
AT_ONCE: Final = 512


@trait
class Register:
    """Knows which sessions there are."""

    def is_open(self, session_id: int) -> bool:
        """Tell whether a session is still there."""
        raise NotImplementedError


@final
class Promoter(Alarm):
    """Looks at the queues that have groups, once a second."""

    def __init__(self, yard: Yard, sessions: Register) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._sessions = sessions
        # By the queue whose consumer group somebody made or read from: those who read, and by
        # which session each did so last.
        self.groups: dict[str, dict[str, int]] = {}
        # Queues that are still to be looked at in this round.
        self._round: list[str] = []
        # Queues that somebody subscribed to.
        self._audiences: set[str] = set()
        for queue in yard.queues.values():
            if queue.audience is not None:
                self.look_after(queue.name)

    def add(self, name: str) -> None:
        """Look after a queue with workers from now on."""
        self._begin()
        self.groups.setdefault(name, {})

    def look_after(self, name: str) -> None:
        """Look after a queue that somebody subscribed to, for as long as anybody does."""
        self._begin()
        self._audiences.add(name)

    def _begin(self) -> None:
        if not self.groups and not self._audiences:
            self._yard.arm(self, self._yard.now_ms + ROUND_MS)

    def note_reader(self, name: str, consumer: str, session_id: int) -> None:
        """Take note that a consumer reads from the group of a queue."""
        readers = self.groups.get(name)
        if readers is None:
            self.add(name)
            readers = self.groups[name]
        elif len(readers) >= READERS_MAX and consumer not in readers:
            # Who still reads is noted again with the next reading.
            readers.clear()
        readers[consumer] = session_id

    def remove(self, name: str) -> bool:
        """Look after a queue no more; tell whether that was done before."""
        return self.groups.pop(name, None) is not None

    def ring(self, now_ms: i64) -> None:
        """Move what has waited for too long, and give back what nobody works on.

        Some of the queues at a time: there may be very many.
        """
        if not self._round:
            if len(self.groups) > GROUPS_FEW:
                self._forget_unused()
            self._round = list(self.groups)
            self._look_at_audiences(now_ms)
        some = self._round[-AT_ONCE:]
        del self._round[-AT_ONCE:]
        tables = self._yard.glide
        holds_any = tables is not None and len(tables.book.leases.items) > 0
        for name in some:
            readers = self.groups.get(name)
            if readers is None:
                continue
            self._forget_gone(readers)
            queue = self._yard.queues.get(name)
            if queue is None:
                continue
            self._unstage(queue, now_ms)
            if holds_any and queue.leased.items:
                reclaim_lost(self._yard, queue, readers, STALLS_MAX, now_ms)
        if self._round:
            self._yard.arm(self, now_ms + 1)
        elif self.groups or self._audiences:
            self._yard.arm(self, now_ms + ROUND_MS)

    def _look_at_audiences(self, now_ms: i64) -> None:
        for name in list(self._audiences):
            queue = self._yard.queues.get(name)
            audience = None if queue is None else queue.audience
            if queue is None or audience is None:
                self._audiences.discard(name)
                continue
            if name not in self.groups:
                self._unstage(queue, now_ms)
            if 0 <= now_ms - queue.pause_until_ms <= 2 * ROUND_MS:
                # The end of a pause is told to those who take jobs alone.
                audience.wake()

    def _forget_unused(self) -> None:
        """Forget groups of queues that are not there and that nobody reads: any name may be one."""
        for name, readers in list(self.groups.items()):
            if name not in self._yard.queues and not readers:
                del self.groups[name]

    def _unstage(self, queue: Queue, now_ms: i64) -> None:
        rules = queue.rules
        shelves = None if rules is None else rules.shelves
        if shelves is not None and shelves.staged_count > 0:
            unstage(self._yard, queue, now_ms - PATIENCE_MS, now_ms, MOVED_MAX)

    def _forget_gone(self, readers: dict[str, int]) -> None:
        for consumer, session_id in list(readers.items()):
            if not self._sessions.is_open(session_id):
                del readers[consumer]
