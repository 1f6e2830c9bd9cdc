"""Remove or move many jobs of one queue, in slices; anything may happen between two slices.

Affects jobs that were there at the start and are still selected when their turn comes; jobs that
arrive meanwhile stay. A small selection is gathered at once. For a large one, all jobs of the yard
are visited by id: a heap changes between two slices, ids do not. Ended jobs (done or dead) are
visited by the numbers of their ends, which rise as well.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, trait

from jobyard.engine.jobs.listing import SORTED_AT_ONCE, JobSelection
from jobyard.engine.jobs.move import erase, kick_some, promote, remove, revive
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.retention import has_room
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import YardFull
from jobyard.model.details import Outcome
from jobyard.model.index.append_list import AppendList
from jobyard.model.job import Job
from jobyard.model.queue import Queue

# Cost of removing a job, in units of work; looking at a job costs one.
REMOVAL_UNITS: Final = 4


PAGE_UNITS: Final = 16

# Returns whether a job is affected.
Means = Callable[[Job], bool]


@final
class YardWalk:
    """Iterates over the jobs that were in the yard at the start, one page of ids at a time."""

    def __init__(self, yard: Yard, *, is_reversed: bool) -> None:
        self._jobs = yard.jobs
        self._before: i64 = yard.journal.next_id
        self._is_reversed: bool = is_reversed
        self._pages: list[int] = yard.jobs.numbers()
        if not is_reversed:
            self._pages.reverse()

    def next(self) -> list[Job] | None:
        """Return the next jobs, the first one last; None at the end."""
        if not self._pages:
            return None
        before = self._before
        found = [job for job in self._jobs.on_page(self._pages.pop()) if job.id < before]
        if not self._is_reversed:
            found.reverse()
        return found


@final
class RemovalTask(Task):
    """Removes the selected jobs of a queue, filtered by `means` if given.

    Removes all of them, or the oldest up to a limit. Removing from the end of a heap is cheapest,
    so without a limit the newest go first.
    """

    def __init__(
        self,
        yard: Yard,
        queue: Queue,
        choice: JobSelection,
        means: Means | None = None,
        limit: i64 = -1,
    ) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        self._choice = choice
        self._means: Means | None = means
        self._limit: i64 = limit
        self._walk: YardWalk | None = None
        self._found: list[Job] = []
        is_reversed = limit < 0
        if choice.count(queue) > SORTED_AT_ONCE:
            self._walk = YardWalk(yard, is_reversed=is_reversed)
        else:
            self._found = choice.jobs(queue)
            if not is_reversed:
                self._found.sort(key=_seq_of, reverse=True)
        self.count: i64 = 0
        # Called with each removed job.
        self.on_removed: Callable[[Job], None] | None = None

    def step(self, most: i64, now_ms: i64) -> i64:
        """Remove some."""
        if self._yard.queues.get(self._queue.name) is not self._queue:
            # Another command emptied the queue, and it was dropped.
            return 0
        done: i64 = 0
        before = self.count
        while done < most and self.count != self._limit:
            if not self._found:
                more = None if self._walk is None else self._walk.next()
                if more is None:
                    break
                self._found = more
                done += PAGE_UNITS
                continue
            job = self._found.pop()
            done += 1
            if self._is_meant(job):
                erase(self._yard, job, now_ms)
                self.count += 1
                done += REMOVAL_UNITS
                if self.on_removed is not None:
                    self.on_removed(job)
        if self.count > before:
            if self._queue.rules is not None:
                # A removed job may have held up others.
                offer(self._yard, self._queue, now_ms)
            drop_if_idle(self._yard, self._queue)
        return done

    def _is_meant(self, job: Job) -> bool:
        """Return whether to remove a job; the removal of another may have moved it."""
        queue = self._queue
        if job.queue is not queue or job.id < queue.gone_before or not self._choice.has(job):
            return False
        return self._means is None or self._means(job)


@final
class PromotionTask(Task):
    """Makes delayed jobs ready, in the order of their due times."""

    def __init__(self, yard: Yard, queue: Queue, most: i64) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        self._most: i64 = min(most, len(queue.delayed.items))
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Promote some."""
        done: i64 = 0
        delayed = self._queue.delayed.items
        while done < most and self.count < self._most and delayed:
            job = delayed[0]
            assert isinstance(job, Job)
            if not has_room(self._yard, job, now_ms):
                raise YardFull
            promote(self._yard, job, now_ms)
            self.count += 1
            done += REMOVAL_UNITS
        return done


@final
class KickTask(Task):
    """Makes dead jobs ready, oldest first; delayed ones if no job is dead at the start."""

    def __init__(self, yard: Yard, queue: Queue, bound: i64) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        self._are_dead: bool = queue.dead.live_count > 0
        count = queue.dead.live_count if self._are_dead else i64(len(queue.delayed.items))
        self._left: i64 = min(bound, count)
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Kick some."""
        wanted = min(self._left, most // REMOVAL_UNITS + 1)
        kicked = kick_some(self._yard, self._queue, wanted, now_ms, are_dead=self._are_dead)
        self.count += kicked
        # Fewer than wanted: other commands took the rest, or the disk is full.
        self._left = self._left - kicked if kicked == wanted else 0
        done = kicked * REMOVAL_UNITS
        return min(done, most - 1) if self._left == 0 else max(done, most)


# Returns whether an ended job is affected.
EndedFilter = Callable[[Outcome], bool]


@final
class EndedJobsWalk:
    """Iterates over the ended jobs that were there at the start, in the order of their ends."""

    def __init__(self, line: AppendList) -> None:
        self._line = line
        self._last: i64 = line.items[len(line.items) - 1].key if line.items else 0
        self._cursor: i64 = 0

    def next(self, most: i64) -> list[Outcome]:
        """Return the next ones, looking at up to `most`; all were seen once `is_through`."""
        items = self._line.items
        low: i64 = 0
        high: i64 = len(items)
        while low < high:
            middle: i64 = (low + high) >> 1
            if items[middle].key <= self._cursor:
                low = middle + 1
            else:
                high = middle
        found: list[Outcome] = []
        looked: i64 = 0
        while low < len(items) and looked < most and items[low].key <= self._last:
            item = items[low]
            assert isinstance(item, Outcome)
            self._cursor = item.key
            if item.pos == 0:
                found.append(item)
            low += 1
            looked += 1
        return found

    def is_through(self) -> bool:
        """Return whether all were returned."""
        return self._cursor >= self._last


@trait
class EndedJobAction:
    """What to do with each ended job."""

    def do(self, outcome: Outcome, now_ms: i64) -> bool:
        """Apply the action to one job; False stops the task."""
        raise NotImplementedError

    def units(self) -> i64:
        """Return the cost of the last action, in units of work."""
        return REMOVAL_UNITS


@final
class ReviveEnded(EndedJobAction):
    """Brings back as many jobs as there is room for; YardFull if there is none at all."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._has_done: bool = False

    def do(self, outcome: Outcome, now_ms: i64) -> bool:
        """Bring one back."""
        if not has_room(self._yard, outcome.job, now_ms):
            if not self._has_done:
                raise YardFull
            return False
        self._has_done = True
        revive(self._yard, outcome.job, now_ms)
        return True


@final
class RemoveEnded(EndedJobAction):
    """Removes jobs."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    def do(self, outcome: Outcome, now_ms: i64) -> bool:
        """Remove one."""
        remove(self._yard, outcome.job, now_ms)
        return True


@final
class EndedJobsTask(Task):
    """Applies an action to ended jobs that match `means`, after skipping `offset` of them."""

    def __init__(
        self, line: AppendList, means: EndedFilter, offset: i64, limit: i64, act: EndedJobAction
    ) -> None:
        super().__init__()
        self._walk = EndedJobsWalk(line)
        self._found: list[Outcome] = []
        self._means: EndedFilter = means
        self._offset: i64 = offset
        self._limit: i64 = limit
        self._act = act
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Process some."""
        done: i64 = 0
        while done < most and self.count < self._limit:
            if not self._found:
                if self._walk.is_through():
                    break
                self._found = self._walk.next(most)
                self._found.reverse()
                done += 1
                continue
            outcome = self._found.pop()
            done += 1
            job = outcome.job
            if outcome.pos != 0 or job.id < job.queue.gone_before or not self._means(outcome):
                # It is gone, alone or with all jobs of its queue.
                continue
            if self._offset > 0:
                self._offset -= 1
                continue
            if not self._act.do(outcome, now_ms):
                self._limit = self.count
                break
            self.count += 1
            done += self._act.units()
        return done


def _seq_of(job: Job) -> int:
    return job.key
