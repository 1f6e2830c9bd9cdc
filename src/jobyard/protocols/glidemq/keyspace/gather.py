"""Searches over many jobs, in slices between which anything may happen.

Each job found is remembered in the state of that moment, with its number: a reply of many parts is
written later. Jobs added during the search may be found or not; jobs that are there all the time
are found once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.glidemq.add import id_bytes
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.state.tasks import Task
from jobyard.model.details import Outcome
from jobyard.model.index.sorted_view import HIGHEST, LOWEST, SortedView, Stretch
from jobyard.model.job import Job
from jobyard.model.lease import Lease
from jobyard.wire.glob import is_match

if TYPE_CHECKING:
    from jobyard.model.index.append_list import AppendList
    from jobyard.model.index.item import Item
    from jobyard.model.queue import Queue
    from jobyard.protocols.glidemq.events import QueueEvents
    from jobyard.protocols.glidemq.keyspace.key import ScoreRange

# Jobs checked in one unit of work: they are only skipped, or remembered.
PER_UNIT: Final = 4
# Jobs that are always checked.
_LEAST: Final = 32
# Jobs freed in one unit of work, and how many are not worth a task.
FREED_PER_UNIT: Final = 16
FREED_AT_ONCE: Final = 500


def job_of(item: Item) -> Job:
    """Return the job that was found as itself, as its outcome or as its lease."""
    if isinstance(item, Job):
        return item
    if isinstance(item, Lease):
        return item.job
    assert isinstance(item, Outcome)
    return item.job


@mypyc_attr(allow_interpreted_subclasses=True)
class Gather(Task):
    """Finds jobs that match: at most a number of them, after the first few."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading = True
        self.items: list[Item] = []
        # The number of each: its entry id, or its score.
        self.places: array[int] = array("q")
        self.count: i64 = 0
        # Restricts job ids, and job names; empty for all.
        self.pattern: bytes = b""
        self.name: str | None = None
        self._skipped: i64 = 0
        self._most: i64 = HIGHEST
        self._is_counting: bool = False

    def limit(self, start: i64, most: i64) -> None:
        """Skip the first `start` and find at most `most`."""
        self._skipped = start
        self._most = most

    def only_count(self) -> None:
        """Only count what is found."""
        self._is_counting = True

    def take(self, item: Item, place: i64) -> bool:
        """Remember an item; return False if that is enough."""
        if self.count >= self._most:
            return False
        if self.name is not None and job_of(item).policy.name != self.name:
            return True
        if self.pattern and not is_match(self.pattern, id_bytes(job_of(item))):
            return True
        if self._skipped > 0:
            self._skipped -= 1
            return True
        self.count += 1
        if not self._is_counting:
            self.items.append(item)
            self.places.append(int(place))
        return self.count < self._most

    def span(self, most: i64) -> i64:
        """Return how many jobs to check with `most` units: no more than needed, but not too few."""
        wanted = self._skipped + self._most - self.count
        return min(most * PER_UNIT, max(wanted, _LEAST))

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Continue the search."""
        if self._most <= 0:
            return 0
        done: i64 = 0
        while done < most:
            used = self.look(most - done)
            if used < 0:
                return min(done, most - 1)
            done += max(used, 1)
        return done

    def look(self, most: i64) -> i64:
        """Check about `most` units' worth of jobs; return the cost, -1 at the end."""
        raise NotImplementedError

    def abandon(self) -> Task | None:
        """Return a task that frees what was found, if that is much."""
        return free_found([self.items])


@final
class FoundFreeing(Task):
    """Frees jobs that were found but are no longer needed.

    A million jobs are spread over memory, so freeing them takes longer than a turn may.
    """

    def __init__(self, lists: list[list[Item]]) -> None:
        super().__init__()
        self._lists = lists

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Free some."""
        done: i64 = 0
        while self._lists and done < most:
            items = self._lists[-1]
            if items:
                del items[-FREED_PER_UNIT:]
            else:
                self._lists.pop()
            done += 1
        return done


def free_found(lists: list[list[Item]]) -> FoundFreeing | None:
    """Return a task that frees what was found, if that is much."""
    count = sum([len(items) for items in lists])
    return FoundFreeing(lists) if count > FREED_AT_ONCE else None


@mypyc_attr(allow_interpreted_subclasses=True)
class SortedViewGather(Gather):
    """Jobs in a sorted view, by number from `low` to `high`."""

    def __init__(self, queue: Queue, low: i64, high: i64, *, is_reversed: bool) -> None:
        super().__init__()
        self._queue = queue
        self._is_reversed: bool = is_reversed
        self._bound: i64 = low if is_reversed else high
        # The entry after which to continue; at first, before all that have this number.
        self._place: i64 = high if is_reversed else low
        self._key: i64 = HIGHEST if is_reversed else LOWEST

    def listing(self) -> SortedView:
        """Return the sorted view in its current state."""
        raise NotImplementedError

    def length(self) -> i64:
        """Return how many jobs belong to it."""
        raise NotImplementedError

    def look(self, most: i64) -> i64:
        """Bring the sorted view up to date, then check some of its jobs."""
        listing = self.listing()
        used = catch_up(self._queue, listing, self.length(), most)
        if used >= most:
            return used
        stretch = listing.stretch(
            self._place,
            self._key,
            self._bound,
            self.span(most - used),
            is_reversed=self._is_reversed,
        )
        return self._take_all(stretch, used)

    def _take_all(self, stretch: Stretch, used: i64) -> i64:
        """Remember a stretch of jobs; return the cost, -1 at the end."""
        self._place, self._key = stretch.place, stretch.key
        for at in range(len(stretch.jobs)):
            if not self.take(stretch.jobs[at], stretch.places[at]):
                return -1
        return -1 if stretch.is_last else used + stretch.looked // PER_UNIT + 1


def catch_up(queue: Queue, listing: SortedView, length: i64, most: i64) -> i64:
    """Bring a sorted view closer to date; return the cost, `most` if work may be left."""
    used = listing.look_at_changes(most)
    jobs_by_seq = jobs_by_seq_of(queue)
    while used < most:
        newest = jobs_by_seq.walk(listing.seen_seq(), min(most - used, 512))
        if not newest:
            break
        listing.take_in(newest)
        used += len(newest)
    if used < most:
        used += listing.sweep(length, (most - used) * PER_UNIT) // PER_UNIT
    return min(used, most)


@final
class SortedViewRefresh(Task):
    """Brings a sorted view up to date, for a command that looks something up in it."""

    def __init__(self, queue: Queue, listing: SortedView, length: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._queue = queue
        self._listing = listing
        self._length: i64 = length

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Add the jobs that came since."""
        return catch_up(self._queue, self._listing, self._length, most)


@final
class AppendListGather(Gather):
    """Ended jobs by time of their end, as `Outcome`s; optionally only a range of scores."""

    def __init__(
        self, line: AppendList, left_out: set[Item], offset_ms: i64, *, is_reversed: bool
    ) -> None:
        super().__init__()
        self._line = line
        self._left_out = left_out
        self._is_reversed: bool = is_reversed
        self._key: i64 = HIGHEST if is_reversed else LOWEST
        self._within: ScoreRange | None = None
        # Whether the first one outside the range ends the search.
        self.stops_outside: bool = False
        # Offset from steady time to wall time.
        self._offset_ms: i64 = offset_ms

    def within(self, scores: ScoreRange) -> None:
        """Find only jobs whose end is in a range."""
        self._within = scores

    def look(self, most: i64) -> i64:
        """Check some of them."""
        items = self._line.after(self._key, self.span(most), is_reversed=self._is_reversed)
        if not items:
            return -1
        self._key = items[len(items) - 1].key
        for item in items:
            if item.pos != 0 or item in self._left_out:
                continue
            assert isinstance(item, Outcome)
            ended_ms = item.ended_ms + self._offset_ms
            if self._within is not None and not self._within.holds(float(ended_ms)):
                if self.stops_outside:
                    return -1
                continue
            if not self.take(item, ended_ms):
                return -1
        return len(items) // PER_UNIT + 1


@final
class JobsBySeqGather(Gather):
    """Jobs that existed at the start of the search and match, in the order they were added."""

    def __init__(self, queue: Queue, is_wanted: Callable[[Job], bool]) -> None:
        super().__init__()
        self._queue = queue
        self._is_wanted: Callable[[Job], bool] = is_wanted
        self._seq: i64 = 0
        self._before: i64 = queue.next_seq

    def look(self, most: i64) -> i64:
        """Check some of all jobs of the queue."""
        jobs = jobs_by_seq_of(self._queue).walk(self._seq, most * PER_UNIT)
        if not jobs:
            return -1
        self._seq = jobs[len(jobs) - 1].key
        for job in jobs:
            if job.key >= self._before:
                return -1
            if self._is_wanted(job) and not self.take(job, 0):
                return -1
        return len(jobs) // PER_UNIT + 1


# Cost of changing a job, in jobs checked.
CHANGE_UNITS: Final = 4


@final
class FoundTask(Task):
    """Does something to every job found, the last found first by default.

    Anything may have happened to a job since: `deed` checks it, and returns whether it acted.
    """

    def __init__(
        self, events: QueueEvents, found: Gather, deed: Callable[[Job, i64], bool]
    ) -> None:
        super().__init__()
        self._events = events
        self._found = found
        self._deed: Callable[[Job, i64], bool] = deed
        self._is_found: bool = False
        # Runs after the last job, even if the client is gone.
        self.then: Callable[[i64], None] | None = None
        self.oldest_first: bool = False
        self.is_quiet: bool = True
        # How many of the jobs found may be changed.
        self.most: i64 = HIGHEST
        self._at: i64 = 0
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Find some jobs, or change some."""
        done: i64 = 0
        if not self._is_found:
            done = self._found.step(most, now_ms)
            if done >= most:
                return done
            self._is_found = True
            if self.oldest_first:
                self._found.items.reverse()
        # The command emits an event of its own, if any.
        self._events.is_quiet = self.is_quiet
        try:
            done += self._treat(most - done, now_ms)
        finally:
            self._events.is_quiet = False
        return done

    def _treat(self, most: i64, now_ms: i64) -> i64:
        items = self._found.items
        done: i64 = 0
        while items and done < most and self.count < self.most:
            item = items.pop()
            job = job_of(item)
            done += 1
            # A job whose queue was obliterated since is gone already.
            if job.id >= job.queue.gone_before and self._deed(job, now_ms):
                self.count += 1
                done += CHANGE_UNITS
        if not items or self.count >= self.most:
            then = self.then
            if then is not None:
                # It may refer to this task, and cycles are collected only while they are young.
                self.then = None
                then(now_ms)
            return min(done, most - 1)
        return done
