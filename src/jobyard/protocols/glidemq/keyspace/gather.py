"""Looks for what a command reads of many jobs, in slices that anything may happen between.

What is found is remembered as it stood then, job by job, with its number: an answer of many parts
is written later. Who comes while it is looked for may be found or not; who was there all the time
is found once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.glidemq.add import id_bytes
from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.state.tasks import Task
from jobyard.model.details import Outcome
from jobyard.model.index.sorted_view import FIRST, LAST, Listing, Stretch
from jobyard.model.job import Job
from jobyard.model.queue import Lease
from jobyard.wire.glob import is_match

if TYPE_CHECKING:
    from jobyard.model.index.append_list import Line
    from jobyard.model.index.item import Item
    from jobyard.model.queue import Queue
    from jobyard.protocols.glidemq.events import Events
    from jobyard.protocols.glidemq.keyspace.key import ScoreRange

# Jobs that are looked at in one unit of work: they are only passed over, or remembered.
PER_UNIT: Final = 4
# Jobs that are looked at in any case.
_LEAST: Final = 32
# Jobs that are let go of in one unit of work, and those that are not worth a task.
FREED_PER_UNIT: Final = 16
FREED_AT_ONCE: Final = 500


def job_of(item: Item) -> Job:
    """Return the job that was found, by itself, by how it ended or by who has it."""
    if isinstance(item, Job):
        return item
    if isinstance(item, Lease):
        return item.job
    assert isinstance(item, Outcome)
    return item.job


@mypyc_attr(allow_interpreted_subclasses=True)
class Gather(Task):
    """Finds some of the jobs that are asked for: so many, behind the first few."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading = True
        self.items: list[Item] = []
        # The number of each: the id of its entry, or its score.
        self.places: array[int] = array("q")
        self.count: i64 = 0
        # Of which ids, and of which name; empty for all.
        self.pattern: bytes = b""
        self.name: str | None = None
        self._skipped: i64 = 0
        self._most: i64 = LAST
        self._is_counting: bool = False

    def limit(self, start: i64, most: i64) -> None:
        """Find no more than so many, without the first."""
        self._skipped = start
        self._most = most

    def only_count(self) -> None:
        """Count what is found."""
        self._is_counting = True

    def take(self, item: Item, place: i64) -> bool:
        """Remember one; False if it is enough."""
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
        """Return how many jobs to look at with so many units: no more than are wanted, or few."""
        wanted = self._skipped + self._most - self.count
        return min(most * PER_UNIT, max(wanted, _LEAST))

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Look on."""
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
        """Look at about `most` units' worth of jobs; return what it took, -1 if that was all."""
        raise NotImplementedError

    def abandon(self) -> Task | None:
        """Return the work of freeing what was found."""
        return free_found([self.items])


@final
class FoundFreeing(Task):
    """Lets go of what was found but is not wanted any more.

    Each of a million jobs is somewhere else in memory, so that takes longer than a turn may.
    """

    def __init__(self, lists: list[list[Item]]) -> None:
        super().__init__()
        self._lists = lists

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Let some go."""
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
    """Return the work of letting go of what was found, if that is much."""
    count = sum([len(items) for items in lists])
    return FoundFreeing(lists) if count > FREED_AT_ONCE else None


@mypyc_attr(allow_interpreted_subclasses=True)
class ListingGather(Gather):
    """Jobs that stand in a listing, by number from `low` to `high`."""

    def __init__(self, queue: Queue, low: i64, high: i64, *, is_reversed: bool) -> None:
        super().__init__()
        self._queue = queue
        self._is_reversed: bool = is_reversed
        self._bound: i64 = low if is_reversed else high
        # Behind which entry to go on; at first, before all that have the number.
        self._place: i64 = high if is_reversed else low
        self._key: i64 = LAST if is_reversed else FIRST

    def listing(self) -> Listing:
        """Return the listing as it is now."""
        raise NotImplementedError

    def length(self) -> i64:
        """Return how many jobs belong to it."""
        raise NotImplementedError

    def look(self, most: i64) -> i64:
        """Bring the listing up to date, then look at some of its jobs."""
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
        """Remember a stretch of jobs; return what it took, -1 if that was all."""
        self._place, self._key = stretch.place, stretch.key
        for at in range(len(stretch.jobs)):
            if not self.take(stretch.jobs[at], stretch.places[at]):
                return -1
        return -1 if stretch.is_last else used + stretch.looked // PER_UNIT + 1


def catch_up(queue: Queue, listing: Listing, length: i64, most: i64) -> i64:
    """Bring a listing up to date, or nearer to it; return what it took, `most` if it may not be."""
    used = listing.look_at_news(most)
    roster = roster_of(queue)
    while used < most:
        newest = roster.walk(listing.seen_seq(), min(most - used, 512))
        if not newest:
            break
        listing.take_in(newest)
        used += len(newest)
    if used < most:
        used += listing.sweep(length, (most - used) * PER_UNIT) // PER_UNIT
    return min(used, most)


@final
class ListingRefresh(Task):
    """Brings a listing up to date, for a command that looks something up in it."""

    def __init__(self, queue: Queue, listing: Listing, length: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._queue = queue
        self._listing = listing
        self._length: i64 = length

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Take in what came."""
        return catch_up(self._queue, self._listing, self._length, most)


@final
class LineGather(Gather):
    """Jobs at rest by when they ended, as `Outcome`s; those of a range of scores only if asked."""

    def __init__(
        self, line: Line, left_out: set[Item], offset_ms: i64, *, is_reversed: bool
    ) -> None:
        super().__init__()
        self._line = line
        self._left_out = left_out
        self._is_reversed: bool = is_reversed
        self._key: i64 = LAST if is_reversed else FIRST
        self._within: ScoreRange | None = None
        # Whether the first outside of the range is the end.
        self.stops_outside: bool = False
        # From steady time to that of clocks on the wall.
        self._offset_ms: i64 = offset_ms

    def within(self, scores: ScoreRange) -> None:
        """Find only those whose ends lie in a range."""
        self._within = scores

    def look(self, most: i64) -> i64:
        """Look at some of them."""
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
class RosterGather(Gather):
    """Jobs of a queue that were there when it began and are of a kind, in the order they came."""

    def __init__(self, queue: Queue, is_wanted: Callable[[Job], bool]) -> None:
        super().__init__()
        self._queue = queue
        self._is_wanted: Callable[[Job], bool] = is_wanted
        self._seq: i64 = 0
        self._before: i64 = queue.next_seq

    def look(self, most: i64) -> i64:
        """Look at some of all jobs of the queue."""
        jobs = roster_of(self._queue).walk(self._seq, most * PER_UNIT)
        if not jobs:
            return -1
        self._seq = jobs[len(jobs) - 1].key
        for job in jobs:
            if job.key >= self._before:
                return -1
            if self._is_wanted(job) and not self.take(job, 0):
                return -1
        return len(jobs) // PER_UNIT + 1


# What it takes to change a job, in jobs looked at.
CHANGE_UNITS: Final = 4


@final
class Treat(Task):
    """Does something to every job that was found, the last found first unless told otherwise.

    Anything may have happened to a job since: the deed looks, and says whether it was done.
    """

    def __init__(self, events: Events, found: Gather, deed: Callable[[Job, i64], bool]) -> None:
        super().__init__()
        self._events = events
        self._found = found
        self._deed: Callable[[Job, i64], bool] = deed
        self._is_found: bool = False
        # What is to be done once all were treated, even if nobody is there to be told.
        self.then: Callable[[i64], None] | None = None
        self.oldest_first: bool = False
        self.is_quiet: bool = True
        # How many are to be treated at most, of those that were found.
        self.most: i64 = LAST
        self._at: i64 = 0
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Find some, or treat some."""
        done: i64 = 0
        if not self._is_found:
            done = self._found.step(most, now_ms)
            if done >= most:
                return done
            self._is_found = True
            if self.oldest_first:
                self._found.items.reverse()
        # Of what is done here its own event tells, if anything does.
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
            # One whose queue was emptied since is gone already.
            if job.id >= job.queue.gone_before and self._deed(job, now_ms):
                self.count += 1
                done += CHANGE_UNITS
        if not items or self.count >= self.most:
            if self.then is not None:
                self.then(now_ms)
            return min(done, most - 1)
        return done
