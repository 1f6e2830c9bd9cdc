"""Removes all jobs of a queue at once, however many, and frees them in slices afterwards.

At one moment the queue changes its lines for empty ones, and one entry in the journal says that all
jobs of its number are gone; no door finds them any more, by queue, by id or by name. What is left
of them stands in a queue of its own that has no name in the yard, and is removed bit by bit with a
record for each. A restart finds the entry and does the rest.

Jobs that run, that wait for others or that others wait for go first, one by one: their ends are
told to others. If these are more than a turn should see, so many that they take several.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import REMOVAL_UNITS
from jobyard.engine.jobs.lease_events import hold_tidings, send_tidings
from jobyard.engine.jobs.listing import ALL_STATES, FEW, jobs_in
from jobyard.engine.jobs.move import erase
from jobyard.engine.state.names import Names
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.journal.format.record import REMOVED
from jobyard.model.details import Outcome
from jobyard.model.entry import CONDEMNED
from jobyard.model.index.append_list import Line
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.item_set import Bag
from jobyard.model.index.jobs_by_seq import Roster
from jobyard.model.job import GONE, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import Rules

# Above every id.
_ALL: Final = 1 << 62
# Jobs that are waited for, which are looked at for one unit of work.
_AWAITED_PER_UNIT: Final = 16
# Entries of a roster that are forgotten for one unit of work.
_UNLOADED_PER_UNIT: Final = 64


@final
class Obliteration(Task):
    """Removes all jobs of a queue."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        # Which part of those that are waited for is looked at next, and how many there had been
        # when the first part was.
        self._part: i64 = 0
        self._awaited_count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Remove some of those whose end matters to others; then all the rest at once."""
        yard = self._yard
        queue = self._queue
        hold_tidings(yard)
        try:
            is_through = self._remove(_ALL if self._is_small() else most, now_ms)
            if is_through and queue.jobs_count() * REMOVAL_UNITS <= yard.tasks.units_per_turn:
                for job in reversed(jobs_in(queue, ALL_STATES)):
                    if job.state != GONE:
                        erase(yard, job, now_ms)
            elif is_through:
                condemn(yard, queue)
        finally:
            send_tidings(yard, now_ms)
        return 0 if is_through else most

    def _is_small(self) -> bool:
        """Tell whether those whose end matters to others can all be removed in one turn."""
        queue = self._queue
        awaited = self._yard.names.dependents.count
        found = len(queue.blocked.items) + len(queue.leased.items)
        found += min(awaited, queue.jobs_count()) + awaited // _AWAITED_PER_UNIT
        return found <= FEW

    def _remove(self, most: i64, now_ms: i64) -> bool:
        """Remove some whose end matters to others; True if there are no more of them.

        Those that wait for others go first: nobody needs to tell them of the others' end.
        """
        queue = self._queue
        names = self._yard.names
        done: i64 = 0
        while done < most:
            if queue.blocked.items:
                done += self._erase(queue.blocked.items[-1], now_ms)
            elif queue.leased.items:
                done += self._erase(queue.leased.items[-1], now_ms)
            elif self._part < names.dependents.parts_count():
                if self._part == 0:
                    self._awaited_count = names.awaited_count
                done += self._remove_awaited(names.dependents.keys_in(self._part), now_ms)
                self._part += 1
            elif names.awaited_count == self._awaited_count:
                return True
            else:
                done += self._remove_later(names, now_ms)
        return False

    def _remove_later(self, names: Names, now_ms: i64) -> i64:
        """Remove those that others began to wait for while the parts were looked at."""
        late = names.awaited_count - self._awaited_count
        if late > len(names.lately_awaited):
            self._part = 0
            return 1
        self._awaited_count = names.awaited_count
        return self._remove_awaited(list(names.lately_awaited)[-late:], now_ms)

    def _remove_awaited(self, child_ids: list[int], now_ms: i64) -> i64:
        """Remove jobs of the queue that others wait for; return the units of work."""
        done: i64 = 1 + len(child_ids) // _AWAITED_PER_UNIT
        for child_id in child_ids:
            child = self._yard.jobs.get(child_id)
            if child is not None and child.queue is self._queue:
                done += self._erase(child, now_ms)
        return done

    def _erase(self, item: Item, now_ms: i64) -> i64:
        assert isinstance(item, Job)
        if item.state != GONE and item.id >= item.queue.gone_before:
            erase(self._yard, item, now_ms)
        return REMOVAL_UNITS


def condemn(yard: Yard, queue: Queue) -> None:
    """Let all jobs of a queue be gone at once; none of them runs or is waited for."""
    if queue.jobs_count() == 0:
        return
    journal = yard.journal
    if journal.is_on:
        journal.set_entry(CONDEMNED, str(int(queue.number)).encode(), b"")
    grave = Queue(queue.name)
    grave.gone_before = _ALL
    queue.gone_before = journal.next_id
    grave.frees_before = journal.next_id
    grave.next_seq = queue.next_seq
    grave.seq_limit = queue.seq_limit
    grave.number = queue.number
    grave.segment = queue.segment
    grave.is_synced = queue.is_synced
    grave.endings = queue.endings
    queue.number = 0
    queue.segment = 0
    roster = queue.roster
    _change_lines(queue, grave)
    _count(yard, grave, -1)
    if journal.is_on:
        yard.condemned[int(grave.number)] = grave
    yard.tasks.follow(Freeing(yard, grave, roster))


def _count(yard: Yard, grave: Queue, by: i64) -> None:
    """Let jobs count in the totals of the yard, or count no more."""
    yard.jobs.count += by * grave.jobs_count()
    yard.ready_count += by * (len(grave.ready.items) + grave.held_count)
    yard.urgent_count += by * grave.urgent_count
    yard.ahead_count += by * grave.ahead_count
    yard.delayed_count += by * len(grave.delayed.items)
    yard.dead_count += by * grave.dead.live_count
    yard.done_count += by * grave.done.live_count


def _change_lines(queue: Queue, grave: Queue) -> None:
    grave.ready, queue.ready = queue.ready, Heap()
    grave.delayed, queue.delayed = queue.delayed, Heap()
    grave.dead, queue.dead = queue.dead, Line()
    grave.done, queue.done = queue.done, Line()
    grave.leased, queue.leased = queue.leased, Bag()
    grave.blocked, queue.blocked = queue.blocked, Bag()
    grave.keys, queue.keys = queue.keys, None
    grave.chosen, queue.chosen = queue.chosen, None
    grave.perishable_count, queue.perishable_count = queue.perishable_count, 0
    grave.urgent_count, queue.urgent_count = queue.urgent_count, 0
    grave.ahead_count, queue.ahead_count = queue.ahead_count, 0
    grave.held_count, queue.held_count = queue.held_count, 0
    queue.finished_count += grave.jobs_count()
    queue.roster = None
    rules = queue.rules
    if rules is not None:
        grave.rules = rules
        queue.rules = _rules_without_jobs(rules)


def _rules_without_jobs(rules: Rules) -> Rules:
    """Return what stays of the rules of a queue when its jobs go: all that was set."""
    left = Rules()
    left.settings = rules.settings
    left.bucket = rules.bucket
    for group in rules.groups.values():
        if not group.is_plain() or group.closed_until_ms != 0:
            kept = left.group(group.name)
            kept.fill(group.encode(), 0)
            kept.bucket = group.bucket
            kept.closed_until_ms = group.closed_until_ms
            kept.default_concurrency = group.default_concurrency
            kept.default_bucket = group.default_bucket
    return left


@final
class Freeing(Task):
    """Removes what is left of jobs that are gone for everybody else."""

    def __init__(self, yard: Yard, grave: Queue, roster: Roster | None) -> None:
        super().__init__()
        self._yard = yard
        self._grave = grave
        # Nobody looks there for a job any more.
        self._roster = roster

    def step(self, most: i64, now_ms: i64) -> i64:
        """Free some."""
        done = self._unload(most)
        grave = self._grave
        while done < most:
            job = _last_job(grave)
            if job is None:
                self._end()
                break
            job.queue = grave
            self._free(job, now_ms)
            done += REMOVAL_UNITS
        return done

    def _unload(self, most: i64) -> i64:
        """Free some of the roster, until nothing is left of it."""
        done: i64 = 0
        while self._roster is not None and done < most:
            count = self._roster.unload()
            if count == 0:
                self._roster = None
            done += count // _UNLOADED_PER_UNIT
        return done

    def _free(self, job: Job, now_ms: i64) -> None:
        """Remove a job that counts nowhere any more."""
        yard = self._yard
        _count(yard, self._grave, 1)
        erase(yard, job, now_ms)
        _count(yard, self._grave, -1)

    def _end(self) -> None:
        """Let the number of the queue go too."""
        number = int(self._grave.number)
        yard = self._yard
        if yard.condemned.pop(number, None) is None:
            return
        yard.journal.retire_queue(self._grave)
        if yard.journal.is_on:
            yard.journal.drop_entry(CONDEMNED, str(number).encode())


def _last_job(grave: Queue) -> Job | None:
    """Return a job of those left; from the end of its line, where its leaving moves no other."""
    item: Item | None = None
    if grave.ready.items:
        item = grave.ready.items[len(grave.ready.items) - 1]
    elif grave.delayed.items:
        item = grave.delayed.items[len(grave.delayed.items) - 1]
    elif grave.held_count > 0:
        item = _held_job(grave)
    elif grave.leased.items:
        item = grave.leased.items[len(grave.leased.items) - 1]
    elif grave.blocked.items:
        item = grave.blocked.items[len(grave.blocked.items) - 1]
    else:
        item = grave.dead.first() or grave.done.first()
        return item.job if isinstance(item, Outcome) else None
    return item if isinstance(item, Job) else None


def _held_job(grave: Queue) -> Item | None:
    rules = grave.rules
    assert rules is not None
    if rules.ring:
        items = rules.ring[len(rules.ring) - 1].ready.items
        return items[len(items) - 1]
    shelves = rules.shelves
    assert shelves is not None
    for heap in (shelves.staged, shelves.promoted, shelves.stack):
        if heap.items:
            return heap.items[len(heap.items) - 1]
    for lane in shelves.lanes.values():
        if lane.waiting.items:
            return lane.waiting.items[len(lane.waiting.items) - 1]
    return None


# -- after a restart -------------------------------------------------------------------------------


def forget_condemned(yard: Yard) -> list[Job]:
    """Let jobs be gone whose queue was emptied at once before they were freed; return them.

    Called before they stand in any index.
    """
    numbers: set[int] = set()
    for entry in yard.journal.entries.values():
        if entry.kind == CONDEMNED and not entry.is_gone:
            numbers.add(int(entry.key))
    if not numbers:
        return []
    found = [job for job in yard.jobs.all() if int(job.queue.number) in numbers]
    for job in found:
        yard.apply_gone(job)
    return found


def free_condemned(yard: Yard, jobs: list[Job], now_ms: i64) -> None:
    """Append that each of them is gone: nothing is left to be done."""
    journal = yard.journal
    for job in jobs:
        journal.append_gone(job, REMOVED, now_ms)
    for job in jobs:
        journal.history.tell_until(job.queue.number, journal.next_record())
    for entry in journal.entries.values():
        if entry.kind == CONDEMNED:
            journal.drop_entry(CONDEMNED, entry.key)
