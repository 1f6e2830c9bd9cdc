"""The limits of an ordering group, and what counts towards them: slots, token bucket, window.

The level of the bucket and the progress of the window are not stored: after a restart the bucket is
empty and the window closed, so that a restart never lets more jobs through.

Knows no job, so that the fields of a job may refer to its group; `OrderingGroup` has the jobs.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.limits import NEVER_MS

# Greater limits are cut to this; products with a second of milliseconds stay within 64 bits.
ORDERING_LIMIT_MAX: Final = 1 << 52


@final
class OrderingLimits:
    """How many jobs of an ordering group may run at once, and how fast; 0 for no limit."""

    def __init__(
        self, concurrency: i64, rate_most: i64, rate_ms: i64, capacity: i64, refill: i64
    ) -> None:
        self.concurrency: i64 = min(max(concurrency, 0), ORDERING_LIMIT_MAX)
        self.rate_most: i64 = min(max(rate_most, 0), ORDERING_LIMIT_MAX)
        self.rate_ms: i64 = min(max(rate_ms, 0), ORDERING_LIMIT_MAX)
        # Of the token bucket, in thousandths of a token, and its refill per second.
        self.capacity: i64 = min(max(capacity, 0), ORDERING_LIMIT_MAX)
        self.refill: i64 = min(max(refill, 0), ORDERING_LIMIT_MAX)

    def equals(self, other: OrderingLimits) -> bool:
        """Return whether two are the same."""
        return (
            self.concurrency == other.concurrency
            and self.rate_most == other.rate_most
            and self.rate_ms == other.rate_ms
            and self.capacity == other.capacity
            and self.refill == other.refill
        )

    def is_sequential(self) -> bool:
        """Return whether jobs run one by one in put order, with no other limit."""
        return self.concurrency <= 1 and self.rate_most == 0 and self.capacity == 0


NO_LIMITS: Final = OrderingLimits(0, 0, 0, 0, 0)


class OrderingThrottle(Item):
    """The limits of the jobs of one key. In a heap, `sort_key` is when time may open the group."""

    def __init__(self, name: str) -> None:
        super().__init__(0, NEVER_MS, 0)
        self.name: str = name
        self.limits: OrderingLimits = NO_LIMITS
        # The order of the newest job, whose limits apply to the group.
        self.last_order: i64 = 0
        # In any state.
        self.jobs_count: i64 = 0
        # Jobs that have started and not ended.
        self.slots_used: i64 = 0
        # Those of them that are running now.
        self.running: i64 = 0
        # Ready, but not in a ready list: by order.
        self.waiting = Heap()
        # A worker closed the group until then.
        self.closed_until_ms: i64 = 0
        self._tokens: i64 = 0
        self._filled_ms: i64 = 0
        self._remainder: i64 = 0
        self._window_ms: i64 = 0
        self._window_count: i64 = 0

    def set_limits(self, limits: OrderingLimits) -> None:
        """Apply the limits of the newest job; a bucket that is new starts full."""
        old = self.limits
        self.limits = limits
        if limits.capacity > 0 and old.capacity == 0:
            self._tokens = limits.capacity
        self._tokens = min(self._tokens, limits.capacity)

    def may_start_ms(self, cost: i64, now_ms: i64) -> i64:
        """Return when time lets a job of this cost start: now, or later."""
        limits = self.limits
        at_ms = max(now_ms, self.closed_until_ms)
        if limits.capacity > 0:
            self._fill(now_ms)
            missing = min(cost, limits.capacity) - self._tokens
            if missing > 0:
                if limits.refill == 0:
                    return NEVER_MS
                wait_ms = (missing * 1000 - self._remainder + limits.refill - 1) // limits.refill
                at_ms = max(at_ms, self._filled_ms + wait_ms)
        if limits.rate_most > 0 and limits.rate_ms > 0:
            end_ms = self._window_ms + limits.rate_ms
            if self._window_count >= limits.rate_most and now_ms < end_ms:
                at_ms = max(at_ms, end_ms)
        return at_ms

    def start(self, cost: i64, now_ms: i64) -> None:
        """Count a starting job."""
        limits = self.limits
        if limits.capacity > 0:
            self._tokens -= min(cost, limits.capacity)
        if limits.rate_most > 0:
            if now_ms >= self._window_ms + limits.rate_ms:
                self._window_ms = now_ms
                self._window_count = 0
            self._window_count += 1

    def begin(self, now_ms: i64) -> None:
        """Start after a restart with an empty bucket and a closed window."""
        self._tokens = 0
        self._filled_ms = now_ms
        self._window_ms = now_ms
        self._window_count = self.limits.rate_most

    def tokens(self, now_ms: i64) -> i64:
        """Return the level of the bucket."""
        self._fill(now_ms)
        return self._tokens

    def remainder(self) -> i64:
        """Return what flowed into the bucket below a thousandth of a token."""
        return self._remainder

    def window(self) -> tuple[i64, i64]:
        """Return when the window began, and how many jobs have started since."""
        return self._window_ms, self._window_count

    def _fill(self, now_ms: i64) -> None:
        limits = self.limits
        passed_ms = now_ms - self._filled_ms
        if passed_ms <= 0 or limits.refill == 0:
            return
        self._filled_ms = now_ms
        missing = limits.capacity - self._tokens
        # More time than fills the bucket does not count; so the product stays within 64 bits.
        if passed_ms > missing * 1000 // limits.refill:
            self._tokens = limits.capacity
            self._remainder = 0
            return
        flow = passed_ms * limits.refill + self._remainder
        self._tokens += flow // 1000
        self._remainder = flow % 1000
        if self._tokens >= limits.capacity:
            self._tokens = limits.capacity
            self._remainder = 0
