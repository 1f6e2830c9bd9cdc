"""The jobs of one queue in the order they came, for listing and paging.

Made when somebody first lists the queue and kept from then on; queues nobody lists pay nothing. A
job that is gone stays as a dead entry until they outnumber a quarter of the living.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.model.job import DONE, GONE, Job

if TYPE_CHECKING:
    from jobyard.model.listing import Listing, Listings


def weight_of(job: Job) -> i64:
    """Return the size of a job as its writer sees it: data and meta."""
    extra = job.extra
    if extra is None or extra.remark is None:
        return i64(job.size)
    return i64(job.size) + len(extra.remark.meta)


def _stamp_of(job: Job) -> i64:
    """Return the place in line of a job, without the sign by which the last come are first."""
    return job.stamp if job.stamp >= 0 else -job.stamp


def _is_straight(jobs: list[Job]) -> bool:
    last: i64 = -1
    for job in jobs:
        stamp = _stamp_of(job)
        if stamp <= last:
            return False
        last = stamp
    return True


@final
class Roster:
    """Jobs by rising seq, some of them gone."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs: list[Job] = jobs
        self._gone_count: i64 = 0
        # Before this stand only jobs that are gone or were done when they were passed.
        self._head: i64 = 0
        # Its jobs in other orders, once somebody has asked for one.
        self.listings: Listings | None = None
        # Whether places in line rise with seqs: they do until a job moves.
        self.is_straight: bool = _is_straight(jobs)
        # Whether a job may wait for a signal; False once none was found.
        self.may_wait_for_signals: bool = True
        # The weight of all jobs that are not done.
        self.bytes: i64 = 0
        for job in jobs:
            if job.state not in (DONE, GONE):
                self.bytes += weight_of(job)

    def add(self, job: Job) -> None:
        """Add the newest job."""
        self._jobs.append(job)
        self.bytes += weight_of(job)

    def note_gone(self, job: Job) -> None:
        """Count one entry as dead."""
        self.bytes -= weight_of(job)
        self._gone_count += 1
        living: i64 = len(self._jobs) - self._gone_count
        if self._gone_count > living // 4 + 64:
            self._jobs = [job for job in self._jobs if job.state != GONE]
            self._gone_count = 0
            self._head = 0
            if self.listings is not None:
                self.listings.let_go()

    def note_moved(self, job: Job) -> None:
        """Take note that a job has another place among the others, or is about to."""
        self.is_straight = False
        if self.listings is not None:
            self.listings.note(job)

    def find(self, seq: i64) -> Job | None:
        """Return the job with this seq."""
        jobs = self._jobs
        at = self._place(seq)
        if at == len(jobs):
            return None
        job = jobs[at]
        return job if job.key == seq and job.state != GONE else None

    def after(self, seq: i64, limit: i64) -> list[Job]:
        """Return up to `limit` jobs with a greater seq, in order; jobs that are done stay out."""
        found: list[Job] = []
        jobs = self._jobs
        count: i64 = len(jobs)
        at = self._place(seq + 1)
        while at < count and len(found) < limit:
            job = jobs[at]
            if job.state not in (DONE, GONE):
                found.append(job)
            at += 1
        return found

    def walk(self, seq: i64, limit: i64) -> list[Job]:
        """Return up to `limit` jobs with a greater seq, in order, those that are done included."""
        found: list[Job] = []
        jobs = self._jobs
        count: i64 = len(jobs)
        if count == 0 or jobs[count - 1].key <= seq:
            return found
        at = self._place(seq + 1)
        while at < count and len(found) < limit:
            if jobs[at].state != GONE:
                found.append(jobs[at])
            at += 1
        return found

    def oldest(self) -> Job | None:
        """Return the oldest job that is not done."""
        jobs = self._jobs
        count: i64 = len(jobs)
        head = self._head
        while head < count and jobs[head].state in (DONE, GONE):
            head += 1
        self._head = head
        return jobs[head] if head < count else None

    def length(self) -> i64:
        """Return how many jobs are gone through from the oldest that is not done to the newest."""
        self.oldest()
        return len(self._jobs) - self._head

    def between(
        self, low: i64, high: i64, count: i64, listing: Listing, *, is_reversed: bool
    ) -> list[Job]:
        """Return up to `count` jobs of a listing by places in line from `low` to `high`.

        All of them if it is negative. They must rise with the seqs.
        """
        found: list[Job] = []
        jobs = self._jobs
        self.oldest()
        first = max(self._stamped(low), self._head)
        last = self._stamped(high + 1) - 1
        step: i64 = -1 if is_reversed else 1
        at = last if is_reversed else first
        while first <= at <= last and (count < 0 or len(found) < count):
            if listing.has(jobs[at]):
                found.append(jobs[at])
            at += step
        return found

    def _stamped(self, stamp: i64) -> i64:
        """Return where the first job stands whose place in line is at least `stamp`."""
        jobs = self._jobs
        low: i64 = 0
        high: i64 = len(jobs)
        while low < high:
            middle: i64 = (low + high) >> 1
            if _stamp_of(jobs[middle]) < stamp:
                low = middle + 1
            else:
                high = middle
        return low

    def _place(self, seq: i64) -> i64:
        """Return where the first job stands whose seq is at least `seq`."""
        jobs = self._jobs
        low: i64 = 0
        high: i64 = len(jobs)
        while low < high:
            middle: i64 = (low + high) >> 1
            if jobs[middle].key < seq:
                low = middle + 1
            else:
                high = middle
        return low

    def page(
        self, states: frozenset[int], offset: int, limit: int, *, oldest_first: bool
    ) -> list[Job]:
        """Return jobs in any of `states`, skipping `offset` of them."""
        found: list[Job] = []
        jobs = self._jobs
        count: i64 = len(jobs)
        at: i64 = 0 if oldest_first else count - 1
        step: i64 = 1 if oldest_first else -1
        while 0 <= at < count and len(found) < limit:
            job = jobs[at]
            if int(job.state) in states:
                if offset > 0:
                    offset -= 1
                else:
                    found.append(job)
            at += step
        return found
