"""Jobs of one queue that share an ordering key: started in order, with limits on number and rate.

A started job keeps its slot until it is done, dead or gone, whatever happens in between. Of the
others, one is in its ready list while the group is open (`next_job`); the rest wait here. The level
of the bucket and the progress of the window are not stored: after a restart the bucket is empty and
the window closed, so that a restart never lets more jobs through.

Knows nothing of the yard: the code that moves jobs updates the counters outside this class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.model.glidemq.fields import NO_LIMITS, GlidePart, OrderingLimits
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.job import DELAYED, READY, Job
from jobyard.model.limits import NEVER_MS

if TYPE_CHECKING:
    from jobyard.model.details import JobDetails

# Started jobs sort before all others.
_STARTED: Final = -(1 << 60)

# Jobs that may have left the list before it is compacted.
_SLACK: Final = 64


def part_of(job: Job) -> GlidePart:
    """Return the glide-mq part of a job, which must have one."""
    details = job.details
    assert details is not None
    assert details.glide is not None
    return details.glide


def ordering_of(details: JobDetails | None) -> OrderingGroup | None:
    """Return the ordering group of a job from its details."""
    if details is None or details.glide is None:
        return None
    return details.glide.ordering


def _has_to_start(job: Job) -> bool:
    # A job that waits for its children holds up no others: they may be in the same group.
    return job.deliveries == 0 and job.state in (READY, DELAYED)


@final
class OrderingGroup(Item):
    """The jobs of one key. While it is in a heap, `sort_key` is when time may open it."""

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
        self.next_job: Job | None = None
        # The next job, and started jobs that may continue.
        self.standing: list[Job] = []
        # A worker closed the group until then.
        self.closed_until_ms: i64 = 0
        # Jobs by order; those before the head need not start anymore.
        self._line: list[Job] = []
        self._head: i64 = 0
        self._tokens: i64 = 0
        self._filled_ms: i64 = 0
        self._remainder: i64 = 0
        self._window_ms: i64 = 0
        self._window_count: i64 = 0

    # -- members of the group -----------------------------------------------------------------

    def add(self, job: Job, part: GlidePart) -> None:
        """Add a job; its limits apply if it is the newest."""
        self.jobs_count += 1
        if part.order > self.last_order:
            self.last_order = part.order
            if self.limits.equals(part.limits):
                # One object for all equal limits.
                part.limits = self.limits
            else:
                self._set_limits(part.limits)
        self.rejoin(job, part)

    def _set_limits(self, limits: OrderingLimits) -> None:
        old = self.limits
        self.limits = limits
        if limits.capacity > 0 and old.capacity == 0:
            self._tokens = limits.capacity
        self._tokens = min(self._tokens, limits.capacity)

    def rejoin(self, job: Job, part: GlidePart) -> None:
        """Add a job that has yet to start, in its place in the order."""
        line = self._line
        count: i64 = len(line)
        if count == 0 or part_of(line[count - 1]).order < part.order:
            line.append(job)
        else:
            low: i64 = self._head
            high: i64 = count
            while low < high:
                middle: i64 = (low + high) >> 1
                if part_of(line[middle]).order < part.order:
                    low = middle + 1
                else:
                    high = middle
            if low == count or line[low] is not job:
                line.insert(low, job)
        if count - self._head > 2 * self.jobs_count + _SLACK:
            self._line = [job for job in line if _has_to_start(job)]
            self._head = 0

    def next_to_start(self) -> Job | None:
        """Return the first in order that has not started, ready or delayed."""
        line = self._line
        count: i64 = len(line)
        head = self._head
        while head < count and not _has_to_start(line[head]):
            head += 1
        self._head = head
        if head == count:
            line.clear()
            self._head = 0
            return None
        if head > _SLACK and head > count // 2:
            del line[:head]
            self._head = 0
            return line[0]
        return line[head]

    def wait(self, job: Job, part: GlidePart) -> None:
        """Make a ready job wait behind others."""
        part.is_standing = False
        job.sort_key = part.order + (_STARTED if job.deliveries > 0 else 0)
        self.waiting.push(job)

    def is_parked(self, job: Job) -> bool:
        """Return whether a ready job waits because the group lets no job start or continue.

        Jobs behind one that may start are not parked: they wait as in any queue.
        """
        if part_of(job).is_standing:
            return False
        return self.next_job is None or job.deliveries > 0

    # -- when they may start ------------------------------------------------------------------

    def is_held_by_others(self, job: Job) -> bool:
        """Return whether other jobs keep one from starting: by their number, or by their order."""
        limits = self.limits
        if self.slots_used >= max(limits.concurrency, 1):
            return True
        return limits.is_sequential() and self.next_to_start() is not job

    def free_to_go_on(self) -> i64:
        """Return how many more started jobs may be in ready lists; below 0, too many are.

        All started jobs may, unless more have started than may run at once: one came back from dead
        while another had its slot, or was taken by its id, or the limit was lowered.
        """
        going_on: i64 = len(self.standing)
        if self.next_job is not None:
            going_on -= 1
        return max(self.limits.concurrency, 1) - self.running - going_on

    def last_to_go_on(self) -> Job | None:
        """Return the started job that entered its ready list last."""
        standing = self.standing
        at: i64 = len(standing) - 1
        if at >= 0 and standing[at] is self.next_job:
            at -= 1
        return standing[at] if at >= 0 else None

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
