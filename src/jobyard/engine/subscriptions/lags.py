"""Count in slices the entries that subscriptions have not read yet: there may be very many."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.subscriptions.subscriptions import subscriptions_of
from jobyard.model.glidemq.subscriptions import Subscription, is_entry
from jobyard.model.queue import Queue

# Entries that are looked at in one unit of work.
_PER_UNIT: Final = 4


def _cursor_of(subscription: Subscription) -> int:
    return subscription.cursor


@final
class LagTask(Task):
    """Iterates over the entries once for all subscriptions, from the lowest cursor on."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.is_reading = True
        self._queue = queue
        self._subscriptions = subscriptions_of(queue)
        # By cursor, and the number of entries between each cursor and the next.
        self._behind = sorted(self._subscriptions.by_name.values(), key=_cursor_of)
        self._cursors = [int(one.cursor) for one in self._behind]
        self._counts = [0] * len(self._behind)
        self._at: i64 = 0
        # The entry that was looked at last.
        self._stamp: i64 = self._cursors[0] if self._cursors else 0

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  set by Task
        """Look at some entries."""
        subscriptions = self._subscriptions
        if not self._behind or self._queue.subscriptions is not subscriptions:
            return 0
        stamps, jobs = subscriptions.entries_after(self._stamp, most * _PER_UNIT)
        for at in range(len(stamps)):
            self._stamp = stamps[at]
            if is_entry(jobs[at], stamps[at]):
                self._count()
        done: i64 = len(stamps) // _PER_UNIT
        return max(done, most) if len(stamps) == most * _PER_UNIT else min(done, most - 1)

    def _count(self) -> None:
        at = self._at
        while at + 1 < len(self._cursors) and self._cursors[at + 1] < self._stamp:
            at += 1
        self._at = at
        self._counts[at] += 1

    def by_subscription(self) -> list[tuple[Subscription, int]]:
        """Return the live subscriptions with their lags, in the order of their creation."""
        found: dict[bytes, int] = {}
        lag = 0
        for at in range(len(self._behind) - 1, -1, -1):
            lag += self._counts[at]
            found[self._behind[at].name] = lag
        subscriptions = self._queue.subscriptions
        if subscriptions is not self._subscriptions:
            return []
        return [
            (one, found[one.name] + int(one.ready.count))
            for one in subscriptions.by_name.values()
            if one.name in found
        ]
