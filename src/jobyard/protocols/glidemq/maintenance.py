"""Maintenance of queues with consumer groups, for readers that do none themselves.

Workers of the glide-mq library promote jobs every few seconds; other readers of a stream do not. So
a job that has been due for longer than that is promoted here. Workers also reclaim the jobs of
workers that stopped sending heartbeats; here, jobs of a worker whose connection is gone are
reclaimed, so that they reach readers that do no such thing, and the other doors.
"""

from typing import Final, final

from mypy_extensions import i64, trait

from jobyard.engine.glidemq.add import GlideTables
from jobyard.engine.glidemq.finish import reclaim_lost
from jobyard.engine.glidemq.move import unstage
from jobyard.engine.jobs.finish import STALLS_MAX
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue

# How long a job waits for a worker to promote it: the interval at which workers check.
WAIT_MS: Final = 5000
ROUND_MS: Final = 1000
MOVED_MAX: Final = 1000
# Consumers remembered per group, and groups that may belong to queues that do not exist.
READERS_MAX: Final = 10_000
GROUPS_FEW: Final = 1024
# Queues checked together.
PROMOTED_AT_ONCE: Final = 512


@trait
class Register:
    """Reports which sessions are open."""

    def is_open(self, session_id: int) -> bool:
        """Return whether a session is still open."""
        raise NotImplementedError


@final
class Promoter(Alarm):
    """Checks the queues that have groups, once a second."""

    def __init__(self, yard: Yard, sessions: Register) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._sessions = sessions
        # By each queue whose consumer group a client created or read from: its consumers, and the
        # session through which each read last.
        self.groups: dict[str, dict[str, int]] = {}
        # Queues still to be checked in this round.
        self._round: list[str] = []
        # Queues that have subscriptions.
        self._subscribed: set[str] = set()
        for queue in yard.queues.values():
            if queue.subscriptions is not None:
                self.look_after(queue.name)

    def add(self, name: str) -> None:
        """Start maintaining a queue with workers."""
        self._begin()
        self.groups.setdefault(name, {})

    def look_after(self, name: str) -> None:
        """Start maintaining a queue with subscriptions, for as long as it has any."""
        self._begin()
        self._subscribed.add(name)

    def _begin(self) -> None:
        if not self.groups and not self._subscribed:
            self._yard.arm(self, self._yard.now_ms + ROUND_MS)

    def note_reader(self, name: str, consumer: str, session_id: int) -> None:
        """Record that a consumer reads from the group of a queue."""
        readers = self.groups.get(name)
        if readers is None:
            self.add(name)
            readers = self.groups[name]
        elif len(readers) >= READERS_MAX and consumer not in readers:
            # Consumers that still read are added again with their next read.
            readers.clear()
        readers[consumer] = session_id

    def remove(self, name: str) -> bool:
        """Stop maintaining a queue; return whether it was maintained."""
        return self.groups.pop(name, None) is not None

    def ring(self, now_ms: i64) -> None:
        """Promote jobs that waited too long, and reclaim jobs without a worker.

        Checks a part of the queues at a time: there may be very many.
        """
        if not self._round:
            if len(self.groups) > GROUPS_FEW:
                self._forget_unused()
            self._round = list(self.groups)
            self._look_at_audiences(now_ms)
        some = self._round[-PROMOTED_AT_ONCE:]
        del self._round[-PROMOTED_AT_ONCE:]
        tables = self._yard.glide
        holds_any = isinstance(tables, GlideTables) and len(tables.lease_set.leases.items) > 0
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
        elif self.groups or self._subscribed:
            self._yard.arm(self, now_ms + ROUND_MS)

    def _look_at_audiences(self, now_ms: i64) -> None:
        for name in list(self._subscribed):
            queue = self._yard.queues.get(name)
            subscriptions = None if queue is None else queue.subscriptions
            if queue is None or subscriptions is None:
                self._subscribed.discard(name)
                continue
            if name not in self.groups:
                self._unstage(queue, now_ms)
            if 0 <= now_ms - queue.pause_until_ms <= 2 * ROUND_MS:
                # Only clients that take jobs are notified when a pause ends.
                subscriptions.wake()

    def _forget_unused(self) -> None:
        """Forget groups without queue and readers: clients may create them under any name."""
        for name, readers in list(self.groups.items()):
            if name not in self._yard.queues and not readers:
                del self.groups[name]

    def _unstage(self, queue: Queue, now_ms: i64) -> None:
        rules = queue.rules
        ready_lists = None if rules is None else rules.ready_lists
        if ready_lists is not None and ready_lists.staged_count > 0:
            unstage(self._yard, queue, now_ms - WAIT_MS, now_ms, MOVED_MAX)

    def _forget_gone(self, readers: dict[str, int]) -> None:
        for consumer, session_id in list(readers.items()):
            if not self._sessions.is_open(session_id):
                del readers[consumer]
