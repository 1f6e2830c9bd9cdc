"""Jobs of one queue that share an ordering key: started in order, with limits on number and rate.

A started job keeps its slot until it is done, dead or gone, whatever happens in between. Of the
others, one is in its ready list while the group is open (`next_job`); the rest wait here.

Knows nothing of the yard: the code that moves jobs updates the counters outside this class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.model.job import DELAYED, READY, Job
from jobyard.model.throttle.ordering_throttle import OrderingThrottle

if TYPE_CHECKING:
    from jobyard.model.details import JobDetails
    from jobyard.model.glidemq.fields import GlidePart
    from jobyard.model.throttle.ready_lists import ReadyLists

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
    ordering = details.glide.ordering
    assert ordering is None or isinstance(ordering, OrderingGroup)
    return ordering


def rejoin(job: Job, details: JobDetails) -> None:
    """Return a job that has not started to its ordering group, if it has one."""
    ordering = ordering_of(details)
    if ordering is not None and job.deliveries == 0:
        ordering.rejoin(job, part_of(job))


def find_ordering(ready_lists: ReadyLists | None, name: str) -> OrderingGroup | None:
    """Return the ordering group of a key, if a queue has it."""
    ordering = None if ready_lists is None else ready_lists.orderings.get(name)
    assert ordering is None or isinstance(ordering, OrderingGroup)
    return ordering


def ensure_ordering(ready_lists: ReadyLists, name: str) -> OrderingGroup:
    """Return an ordering group of a queue, making it on first use."""
    ordering = find_ordering(ready_lists, name)
    if ordering is None:
        ordering = OrderingGroup(name)
        ready_lists.orderings[name] = ordering
    return ordering


def _has_to_start(job: Job) -> bool:
    # A job that waits for its children holds up no others: they may be in the same group.
    return job.deliveries == 0 and job.state in (READY, DELAYED)


@final
class OrderingGroup(OrderingThrottle):
    """The jobs of one key, in order, with what limits them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.next_job: Job | None = None
        # The next job, and started jobs that may continue.
        self.standing: list[Job] = []
        # Jobs by order; those before the head need not start anymore.
        self._line: list[Job] = []
        self._head: i64 = 0

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
                self.set_limits(part.limits)
        self.rejoin(job, part)

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
