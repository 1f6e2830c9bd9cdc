"""Remove all jobs of a queue at once, however many, and free them in slices afterwards.

At one moment the queue swaps its lists for empty ones, and one entry in the journal says that all
jobs of its number are gone; no door finds them any longer, by queue, by id or by name. Their
remains are kept in a separate queue that has no name in the yard, and are removed bit by bit with a
record for each. A restart finds the entry and does the rest.

Jobs that run, that wait for others or that others wait for go first, one by one, because their ends
affect others. If there are too many of these for one turn, their removal takes several turns.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import REMOVAL_UNITS
from jobyard.engine.jobs.lease_events import defer_lease_events, send_lease_events
from jobyard.engine.jobs.listing import ALL_STATES, SORTED_AT_ONCE, jobs_in
from jobyard.engine.jobs.move import erase
from jobyard.engine.state.names import Names
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.journal.format.record import Cause
from jobyard.model.details import Outcome
from jobyard.model.entry import EntryKind
from jobyard.model.index.append_list import AppendList
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.item_set import ItemSet
from jobyard.model.index.jobs_by_seq import JobsBySeq
from jobyard.model.job import GONE, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import Rules

# Above every id.
_ALL: Final = 1 << 62
# Awaited jobs that are looked at for one unit of work.
_AWAITED_PER_UNIT: Final = 16
# Entries of the jobs by seq that are freed for one unit of work.
_UNLOADED_PER_UNIT: Final = 64


@final
class Obliteration(Task):
    """Removes all jobs of a queue."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        # Removes what else belongs to the queue; also if the client has disconnected.
        self.then: Callable[[i64], None] | None = None
        # The next part of the awaited jobs to look at, and the yard's running count of awaited
        # jobs when the first part was looked at.
        self._part: i64 = 0
        self._awaited_count: i64 = 0
        # Jobs of the part looked at last that are still to be removed.
        self._awaited: list[int] = []

    def step(self, most: i64, now_ms: i64) -> i64:
        """Remove some jobs whose end affects others; then all the rest at once."""
        yard = self._yard
        queue = self._queue
        defer_lease_events(yard)
        try:
            is_through = self._remove(_ALL if self._is_small() else most, now_ms)
            if is_through and queue.jobs_count() * REMOVAL_UNITS <= yard.tasks.units_per_turn:
                for job in reversed(jobs_in(queue, ALL_STATES)):
                    if job.state != GONE:
                        erase(yard, job, now_ms)
            elif is_through:
                condemn(yard, queue)
        finally:
            send_lease_events(yard, now_ms)
        if not is_through:
            return most
        then = self.then
        if then is not None:
            self.then = None
            then(now_ms)
        return 0

    def _is_small(self) -> bool:
        """Return whether one turn can remove all jobs whose end affects others."""
        queue = self._queue
        awaited = self._yard.names.dependents.count
        found = len(queue.blocked.items) + len(queue.leased.items)
        found += min(awaited, queue.jobs_count()) + awaited // _AWAITED_PER_UNIT
        return found <= SORTED_AT_ONCE

    def _remove(self, most: i64, now_ms: i64) -> bool:
        """Remove some jobs whose end affects others; True if none are left.

        Jobs that wait for others go first, so that they need not be notified of those ends.
        """
        queue = self._queue
        names = self._yard.names
        done: i64 = 0
        while done < most:
            if queue.blocked.items:
                done += self._erase(queue.blocked.items[-1], now_ms)
            elif queue.leased.items:
                done += self._erase(queue.leased.items[-1], now_ms)
            elif self._awaited:
                done += self._remove_awaited(most - done, now_ms)
            elif self._part < names.dependents.parts_count():
                if self._part == 0:
                    self._awaited_count = names.awaited_count
                done += self._find_awaited(names.dependents.keys_in(self._part))
                self._part += 1
            elif names.awaited_count == self._awaited_count:
                return True
            else:
                done += self._find_later(names)
        return False

    def _find_later(self, names: Names) -> i64:
        """Note jobs that others began to wait for while the parts were looked at."""
        late = names.awaited_count - self._awaited_count
        if late > len(names.lately_awaited):
            self._part = 0
            return 1
        self._awaited_count = names.awaited_count
        return self._find_awaited(list(names.lately_awaited)[-late:])

    def _find_awaited(self, child_ids: list[int]) -> i64:
        """Note jobs that others wait for; return the units of work."""
        self._awaited = child_ids
        return 1 + len(child_ids) // _AWAITED_PER_UNIT

    def _remove_awaited(self, most: i64, now_ms: i64) -> i64:
        """Remove some of the noted jobs, if they are of this queue; return the units of work."""
        done: i64 = 0
        while self._awaited and done < most:
            child = self._yard.jobs.get(self._awaited.pop())
            if child is not None and child.queue is self._queue:
                done += self._erase(child, now_ms)
        return done

    def _erase(self, item: Item, now_ms: i64) -> i64:
        assert isinstance(item, Job)
        if item.state != GONE and item.id >= item.queue.gone_before:
            erase(self._yard, item, now_ms)
        return REMOVAL_UNITS


def condemn(yard: Yard, queue: Queue) -> None:
    """Make all jobs of a queue gone at once; none of them may run or be awaited."""
    if queue.jobs_count() == 0:
        return
    journal = yard.journal
    if journal.is_on:
        journal.set_entry(EntryKind.CONDEMNED, str(int(queue.number)).encode(), b"")
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
    jobs_by_seq = queue.jobs_by_seq
    _change_lines(queue, grave)
    _count(yard, grave, -1)
    if journal.is_on:
        yard.condemned[int(grave.number)] = grave
    yard.tasks.follow(JobFreeing(yard, grave, jobs_by_seq))


def _count(yard: Yard, grave: Queue, by: i64) -> None:
    """Add the jobs of a grave to the totals of the yard (`by` 1), or subtract them (-1)."""
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
    grave.dead, queue.dead = queue.dead, AppendList()
    grave.done, queue.done = queue.done, AppendList()
    grave.leased, queue.leased = queue.leased, ItemSet()
    grave.blocked, queue.blocked = queue.blocked, ItemSet()
    grave.keys, queue.keys = queue.keys, None
    grave.chosen, queue.chosen = queue.chosen, None
    grave.perishable_count, queue.perishable_count = queue.perishable_count, 0
    grave.urgent_count, queue.urgent_count = queue.urgent_count, 0
    grave.ahead_count, queue.ahead_count = queue.ahead_count, 0
    grave.held_count, queue.held_count = queue.held_count, 0
    queue.finished_count += grave.jobs_count()
    queue.jobs_by_seq = None
    rules = queue.rules
    if rules is not None:
        grave.rules = rules
        queue.rules = _rules_without_jobs(rules)


def _rules_without_jobs(rules: Rules) -> Rules:
    """Return the rules that a queue keeps when its jobs go: everything that was set."""
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
class JobFreeing(Task):
    """Frees the remains of jobs that no client can see any longer."""

    def __init__(self, yard: Yard, grave: Queue, jobs_by_seq: JobsBySeq | None) -> None:
        super().__init__()
        self._yard = yard
        self._grave = grave
        # No longer used to look up jobs.
        self._jobs_by_seq = jobs_by_seq

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
        """Free some of the jobs by seq, until nothing is left of them."""
        done: i64 = 0
        while self._jobs_by_seq is not None and done < most:
            count = self._jobs_by_seq.unload()
            if count == 0:
                self._jobs_by_seq = None
            done += count // _UNLOADED_PER_UNIT
        return done

    def _free(self, job: Job, now_ms: i64) -> None:
        """Remove a job that is no longer in the totals."""
        yard = self._yard
        _count(yard, self._grave, 1)
        erase(yard, job, now_ms)
        _count(yard, self._grave, -1)

    def _end(self) -> None:
        """Release the number of the queue too."""
        number = int(self._grave.number)
        yard = self._yard
        if yard.condemned.pop(number, None) is None:
            return
        yard.journal.retire_queue(self._grave)
        if yard.journal.is_on:
            yard.journal.drop_entry(EntryKind.CONDEMNED, str(number).encode())


def _last_job(grave: Queue) -> Job | None:
    """Return a remaining job, from the end of its list, where its removal moves no other."""
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
    ready_lists = rules.ready_lists
    assert ready_lists is not None
    for heap in (ready_lists.staged, ready_lists.promoted, ready_lists.lifo):
        if heap.items:
            return heap.items[len(heap.items) - 1]
    for ordering in ready_lists.orderings.values():
        if ordering.waiting.items:
            return ordering.waiting.items[len(ordering.waiting.items) - 1]
    return None


# -- after a restart -------------------------------------------------------------------------------


def forget_condemned(yard: Yard) -> list[Job]:
    """Make jobs gone that were obliterated but not freed before the restart; return them.

    Called before they are in any index.
    """
    numbers: set[int] = set()
    for entry in yard.journal.entries.values():
        if entry.kind == EntryKind.CONDEMNED and not entry.is_gone:
            numbers.add(int(entry.key))
    if not numbers:
        return []
    found = [job for job in yard.jobs.all() if int(job.queue.number) in numbers]
    for job in found:
        yard.apply_gone(job)
    return found


def free_condemned(yard: Yard, jobs: list[Job], now_ms: i64) -> None:
    """Append a record that each of them is gone, and drop the entries: nothing is left to do."""
    journal = yard.journal
    for job in jobs:
        journal.append_gone(job, Cause.REMOVED, now_ms)
    for job in jobs:
        journal.history.keep_name_until(job.queue.number, journal.next_record())
    for entry in journal.entries.values():
        if entry.kind == EntryKind.CONDEMNED:
            journal.drop_entry(EntryKind.CONDEMNED, entry.key)
