"""Which jobs of a queue are in which states: counted, gathered, and listed page by page.

Changes nothing but the roster, which the first long listing makes. Knows no protocol and no words
for states.

Invariant: a page costs what it holds and what stands before it in the queue, never a sort of the
whole queue.
"""

import heapq
from typing import Final, final

from mypy_extensions import i64

from jobyard.model.details import Outcome
from jobyard.model.index.append_list import Line
from jobyard.model.index.item import Item
from jobyard.model.index.jobs_by_seq import Roster
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import Shelves

ALL_STATES: Final = frozenset((READY, DELAYED, LEASED, DEAD, DONE, BLOCKED))

# Up to this many jobs are gathered and put in order; more are looked up in the roster.
FEW: Final = 4096


@final
class Choice:
    """Which jobs of a queue are asked for: all in some states, maybe prioritized ready ones too."""

    def __init__(self, states: frozenset[int], *, with_prioritized: bool = False) -> None:
        self.states: frozenset[int] = states
        self.with_prioritized: bool = with_prioritized and READY not in states

    def has(self, job: Job) -> bool:
        """Tell whether a job is asked for."""
        if int(job.state) in self.states:
            return True
        return self.with_prioritized and job.state == READY and is_prioritized(job)

    def count(self, queue: Queue) -> i64:
        """Return how many jobs of a queue are asked for."""
        count: i64 = queue.ahead_count if self.with_prioritized else 0
        for state in self.states:
            count += count_of(queue, state)
        return count

    def jobs(self, queue: Queue) -> list[Job]:
        """Return the jobs of a queue that are asked for, in no order."""
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
            if rules.shelves is not None:
                _add_shelved(found, rules.shelves)
    if DELAYED in states:
        _add(found, queue.delayed.items)
    if LEASED in states:
        _add(found, queue.leased.items)
    if BLOCKED in states:
        _add(found, queue.blocked.items)
    if DEAD in states:
        _add_resting(found, queue.dead)
    if DONE in states:
        _add_resting(found, queue.done)
    return found


def _add_shelved(found: list[Job], shelves: Shelves) -> None:
    _add(found, shelves.staged.items)
    _add(found, shelves.promoted.items)
    _add(found, shelves.stack.items)
    for lane in shelves.lanes.values():
        _add(found, lane.waiting.items)


def _add(found: list[Job], items: list[Item]) -> None:
    for item in items:
        assert isinstance(item, Job)
        found.append(item)


def _add_resting(found: list[Job], line: Line) -> None:
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
    """Tell whether a job has a priority: a rank below 0; in a group, where they count up, above."""
    extra = job.extra
    return job.rank > 0 if extra is not None and extra.group is not None else job.rank < 0


def _walk_ahead(items: list[Item], found: list[Job]) -> None:
    """Add the items of a heap below rank 0 to `found`; others are not seen.

    Nothing ahead stands beneath an item that is not, so whole branches are left out.
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
        # The branch is done: on to the next one, up past all that have no second half left.
        while slot & 1 == 0 or slot + 1 >= size:
            if slot == 0:
                return
            slot = (slot - 1) >> 1
        slot += 1


def page(
    queue: Queue,
    choice: Choice,
    offset: i64,
    limit: i64,
    *,
    oldest_first: bool,
) -> list[Job]:
    """Return up to `limit` of the chosen jobs in the order they came, without the first."""
    count = choice.count(queue)
    if count <= FEW:
        return select(choice.jobs(queue), offset, limit, oldest_first=oldest_first)
    if offset >= count:
        return []
    # As many as there are: so the search ends with the last of them.
    limit = min(limit, count - offset)
    roster = roster_of(queue)
    if not choice.with_prioritized:
        return roster.page(choice.states, offset, limit, oldest_first=oldest_first)
    return _sifted_page(roster, choice, offset, limit, oldest_first=oldest_first)


def _sifted_page(
    roster: Roster, choice: Choice, offset: i64, limit: i64, *, oldest_first: bool
) -> list[Job]:
    """Return a page of jobs of which some can be told only one by one."""
    states = choice.states | frozenset((READY,))
    found: list[Job] = []
    seen = 0
    # Doubled each time, since every step walks past all that was seen.
    step = 1024
    while len(found) < offset + limit:
        jobs = roster.page(states, seen, step, oldest_first=oldest_first)
        if not jobs:
            break
        found.extend(job for job in jobs if choice.has(job))
        seen += len(jobs)
        step *= 2
    return found[offset : offset + limit]


def select(jobs: list[Job], offset: i64, limit: i64, *, oldest_first: bool) -> list[Job]:
    """Return the page of jobs that stand in no order."""
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
    """Return the seq of a job, to put jobs in order by."""
    return job.key


def roster_of(queue: Queue) -> Roster:
    """Return the jobs of a queue by seq, which are put in order the first time.

    A queue that has become long has one: so that is never much work.
    """
    roster = queue.roster
    if roster is None:
        roster = Roster(sorted(jobs_in(queue, ALL_STATES), key=seq_of))
        queue.roster = roster
    return roster


def is_long(queue: Queue) -> bool:
    """Tell whether a queue holds so many jobs that it has a roster, asked for or not."""
    return queue.jobs_count() > FEW
