"""Which jobs of a queue are in which states: counted, gathered, and listed page by page.

Changes nothing but the jobs by seq, which the first long listing builds. Knows no protocol and no
names of states.

Invariant: a page costs what it holds and what comes before it in the queue, never a sort of the
whole queue.
"""

import heapq
from typing import Final, final

from mypy_extensions import i64

from jobyard.model.details import Outcome
from jobyard.model.index.append_list import AppendList
from jobyard.model.index.item import Item
from jobyard.model.index.jobs_by_seq import JobsBySeq
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyLists

ALL_STATES: Final = frozenset((READY, DELAYED, LEASED, DEAD, DONE, BLOCKED))

# Up to this many jobs are gathered and sorted; more are looked up in the jobs by seq.
SORTED_AT_ONCE: Final = 4096


@final
class JobSelection:
    """Selects jobs of a queue: all in some states, and optionally prioritized ready ones."""

    def __init__(self, states: frozenset[int], *, with_prioritized: bool = False) -> None:
        self.states: frozenset[int] = states
        self.with_prioritized: bool = with_prioritized and READY not in states

    def has(self, job: Job) -> bool:
        """Return whether a job is selected."""
        if int(job.state) in self.states:
            return True
        return self.with_prioritized and job.state == READY and is_prioritized(job)

    def count(self, queue: Queue) -> i64:
        """Return how many jobs of a queue are selected."""
        count: i64 = queue.ahead_count if self.with_prioritized else 0
        for state in self.states:
            count += count_of(queue, state)
        return count

    def jobs(self, queue: Queue) -> list[Job]:
        """Return the selected jobs of a queue, in no order."""
        found = jobs_in(queue, self.states)
        if self.with_prioritized:
            found += prioritized_jobs(queue)
        return found


def count_of(queue: Queue, state: i64) -> i64:
    """Return how many jobs of a queue are in a state."""
    if state == READY:
        return len(queue.ready.items) + queue.held_count
    if state == DELAYED:
        return len(queue.delayed.items)
    if state == LEASED:
        return len(queue.leased.items)
    if state == DEAD:
        return queue.dead.live_count
    if state == DONE:
        return queue.done.live_count
    assert state == BLOCKED
    return len(queue.blocked.items)


def jobs_in(queue: Queue, states: frozenset[int]) -> list[Job]:
    """Return the jobs in any of `states`, in no order."""
    found: list[Job] = []
    if READY in states:
        _add(found, queue.ready.items)
        rules = queue.rules
        if rules is not None:
            for group in rules.ring:
                _add(found, group.ready.items)
            if rules.ready_lists is not None:
                _add_listed(found, rules.ready_lists)
    if DELAYED in states:
        _add(found, queue.delayed.items)
    if LEASED in states:
        _add(found, queue.leased.items)
    if BLOCKED in states:
        _add(found, queue.blocked.items)
    if DEAD in states:
        _add_ended(found, queue.dead)
    if DONE in states:
        _add_ended(found, queue.done)
    return found


def _add_listed(found: list[Job], ready_lists: ReadyLists) -> None:
    _add(found, ready_lists.staged.items)
    _add(found, ready_lists.promoted.items)
    _add(found, ready_lists.lifo.items)
    for ordering in ready_lists.orderings.values():
        _add(found, ordering.waiting.items)


def _add(found: list[Job], items: list[Item]) -> None:
    for item in items:
        assert isinstance(item, Job)
        found.append(item)


def _add_ended(found: list[Job], line: AppendList) -> None:
    for item in line.items:
        if item.pos == 0:
            assert isinstance(item, Outcome)
            found.append(item.job)


def prioritized_jobs(queue: Queue) -> list[Job]:
    """Return the ready jobs that were put with a priority, in no order."""
    found: list[Job] = []
    _walk_ahead(queue.ready.items, found)
    rules = queue.rules
    if rules is not None:
        for group in rules.ring:
            for item in group.ready.items:
                assert isinstance(item, Job)
                if is_prioritized(item):
                    found.append(item)
    return found


def is_prioritized(job: Job) -> bool:
    """Return whether a job has a priority: a rank below 0; in a group, a rank above 0."""
    details = job.details
    return job.rank > 0 if details is not None and details.group is not None else job.rank < 0


def _walk_ahead(items: list[Item], found: list[Job]) -> None:
    """Add the items of a heap below rank 0 to `found`.

    Below an item of another rank there are none, so whole branches are skipped.
    """
    size: i64 = len(items)
    slot: i64 = 0
    while slot < size:
        item = items[slot]
        if item.sort_key < 0:
            assert isinstance(item, Job)
            found.append(item)
            if 2 * slot + 1 < size:
                slot = 2 * slot + 1
                continue
        # The branch is done: on to the next one, up past nodes without another child left.
        while slot & 1 == 0 or slot + 1 >= size:
            if slot == 0:
                return
            slot = (slot - 1) >> 1
        slot += 1


def page(
    queue: Queue,
    choice: JobSelection,
    offset: i64,
    limit: i64,
    *,
    oldest_first: bool,
) -> list[Job]:
    """Return up to `limit` of the selected jobs by seq, after skipping `offset` of them."""
    count = choice.count(queue)
    if count <= SORTED_AT_ONCE:
        return select(choice.jobs(queue), offset, limit, oldest_first=oldest_first)
    if offset >= count:
        return []
    # No more than there are, so that the search ends with the last of them.
    limit = min(limit, count - offset)
    jobs_by_seq = jobs_by_seq_of(queue)
    if not choice.with_prioritized:
        return jobs_by_seq.page(choice.states, offset, limit, oldest_first=oldest_first)
    return _sifted_page(jobs_by_seq, choice, offset, limit, oldest_first=oldest_first)


def _sifted_page(
    jobs_by_seq: JobsBySeq, choice: JobSelection, offset: i64, limit: i64, *, oldest_first: bool
) -> list[Job]:
    """Return a page of a selection that needs a test of each job."""
    states = choice.states | frozenset((READY,))
    found: list[Job] = []
    seen = 0
    # Doubled each time, since every step walks past everything seen before.
    step = 1024
    while len(found) < offset + limit:
        jobs = jobs_by_seq.page(states, seen, step, oldest_first=oldest_first)
        if not jobs:
            break
        found.extend(job for job in jobs if choice.has(job))
        seen += len(jobs)
        step *= 2
    return found[offset : offset + limit]


def select(jobs: list[Job], offset: i64, limit: i64, *, oldest_first: bool) -> list[Job]:
    """Return a page of unsorted jobs, in order."""
    count: i64 = len(jobs)
    start = min(max(offset, 0), count)
    end = min(start + max(limit, 0), count)
    if start == end:
        return []
    if oldest_first:
        chosen = heapq.nsmallest(end, jobs, key=seq_of)
    else:
        chosen = heapq.nlargest(end, jobs, key=seq_of)
    return chosen[start:]


def seq_of(job: Job) -> int:
    """Return the seq of a job, as a sort key."""
    return job.key


def jobs_by_seq_of(queue: Queue) -> JobsBySeq:
    """Return the jobs of a queue by seq; build them the first time.

    A queue that has become long has them already, so that is never much work.
    """
    jobs_by_seq = queue.jobs_by_seq
    if jobs_by_seq is None:
        jobs_by_seq = JobsBySeq(sorted(jobs_in(queue, ALL_STATES), key=seq_of))
        queue.jobs_by_seq = jobs_by_seq
    return jobs_by_seq


def is_long(queue: Queue) -> bool:
    """Return whether a queue holds so many jobs that it must have its jobs by seq."""
    return queue.jobs_count() > SORTED_AT_ONCE
