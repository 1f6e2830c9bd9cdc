"""All tables of the yard, and what each record does to them.

`apply_*` cannot fail, decides nothing and is called from two places only: a verb that has just
appended the record, and recovery that has just read it. While replaying, jobs get their state but
stand in no heap; `settle` builds all heaps and counters once, at the end.

Invariant: a job stands in exactly the index its state names (see `model.job`), and every counter
equals a recount of the jobs.
"""

from typing import Final, final

from mypy_extensions import i64, u8

from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.record import BURIED, CORRUPT, EXPIRED, KICKED, RELEASED
from jobyard.model.heap import Heap
from jobyard.model.item import Item
from jobyard.model.job import DEAD, DELAYED, GONE, LEASED, READY, Extra, Job, Outcome
from jobyard.model.limits import NEVER_MS, URGENT_RANK
from jobyard.model.pages import Pages
from jobyard.model.queue import Book, Holder, Lease, Queue

# A stamp is milliseconds << 20 | n: it orders jobs over restarts, and leaves room for a million
# stamps a millisecond.
STAMP_SHIFT: Final = 20


@final
class Yard:
    """Everything that is remembered while the server runs."""

    def __init__(self, journal: Journal, bodies: Bodies) -> None:
        self.journal = journal
        self.bodies = bodies
        self.jobs = Pages()
        self.queues: dict[str, Queue] = {}
        self.timers = Heap()
        self.now_ms: i64 = 0
        self.last_stamp: i64 = 0
        self.leases_issued: i64 = 0
        self.numbers_issued: i64 = 0
        self.is_replaying: bool = False
        self.ready_count: i64 = 0
        self.urgent_count: i64 = 0
        self.delayed_count: i64 = 0
        self.leased_count: i64 = 0
        self.dead_count: i64 = 0
        # Since this process began.
        self.puts_count: i64 = 0
        self.timeouts_count: i64 = 0

    # -- numbers ------------------------------------------------------------------------------

    def stamp(self, now_ms: i64) -> i64:
        """Draw the next place in line: greater than every one before, also after a restart."""
        stamp = now_ms << STAMP_SHIFT
        if stamp <= self.last_stamp:
            stamp = self.last_stamp + 1
        self.last_stamp = stamp
        return stamp

    def new_book(self, holder: Holder) -> Book:
        """Open the book of a new holder."""
        return Book(self.new_number(), holder)

    def new_number(self) -> i64:
        """Draw a number for a holder or waiter."""
        self.numbers_issued += 1
        return self.numbers_issued

    # -- timers -------------------------------------------------------------------------------

    def arm(self, item: Item, at_ms: i64) -> None:
        """See that `item` fires at `at_ms` or earlier."""
        if item.pos < 0:
            item.sort_key = at_ms
            self.timers.push(item)
        elif at_ms < item.sort_key:
            item.sort_key = at_ms
            self.timers.moved(item)

    def disarm(self, item: Item) -> None:
        """Take an item out of the timers."""
        if item.pos >= 0:
            self.timers.remove(item)

    # -- what records do ----------------------------------------------------------------------

    def apply_put(self, job: Job, state: i64) -> None:
        """Add a job."""
        self.jobs.add(job)
        self._enter(job, state, job.created_ms)

    def apply_taken(self, job: Job, lease: Lease | None) -> None:
        """Hand a job over; without a lease, on replay, it is at once ready again."""
        self._leave(job)
        job.deliveries += 1
        if lease is None:
            self._enter(job, READY, job.due_ms)
            return
        job.lease = lease
        job.state = LEASED
        job.queue.leased_count += 1
        self.leased_count += 1
        book = lease.book
        book.leases.push(lease)
        self.arm(book, lease.sort_key)

    def apply_end(
        self, job: Job, why: i64, state: i64, rank: i64, due_ms: i64, now_ms: i64
    ) -> None:
        """End a run of a job, which stays in the yard in `state`."""
        self._leave(job)
        if why == RELEASED:
            job.tally().releases += 1
        elif why == EXPIRED:
            job.tally().timeouts += 1
        elif why in (BURIED, CORRUPT):
            job.tally().buries += 1
        job.rank = rank
        if why == RELEASED:
            job.delay_ms = due_ms - now_ms
        job.due_ms = due_ms
        self._enter(job, state, now_ms)

    def apply_move(self, job: Job, why: i64, state: i64, due_ms: i64, now_ms: i64) -> None:
        """Move a job that no one runs to another state."""
        self._leave(job)
        if why == KICKED:
            job.tally().kicks += 1
        elif why == CORRUPT:
            job.tally().buries += 1
        job.due_ms = due_ms
        self._enter(job, state, now_ms)

    def apply_gone(self, job: Job) -> None:
        """Remove a job for good."""
        self._leave(job)
        job.state = GONE
        self.jobs.remove(job.id)
        self.bodies.drop(job)

    # -- the index a state names --------------------------------------------------------------

    def _enter(self, job: Job, state: i64, now_ms: i64) -> None:
        if state == DEAD:
            self._bury(job, now_ms)
            return
        if self.is_replaying:
            job.state = u8(state)
            return
        if state == READY:
            self._make_ready(job)
        else:
            assert state == DELAYED
            job.state = DELAYED
            job.sort_key = job.due_ms
            job.queue.delayed.push(job)
            self.delayed_count += 1
            self.arm(job.queue, job.due_ms)

    def _make_ready(self, job: Job) -> None:
        queue = job.queue
        job.state = READY
        job.sort_key = job.rank
        queue.ready.push(job)
        self.ready_count += 1
        if job.rank < URGENT_RANK:
            queue.urgent_count += 1
            self.urgent_count += 1

    def delay_over(self, job: Job) -> None:
        """Make a delayed job ready because its time has come; no record says so."""
        self._leave(job)
        self._make_ready(job)

    def _bury(self, job: Job, now_ms: i64) -> None:
        queue = job.queue
        queue.endings += 1
        self.rest(job, queue.endings, now_ms)
        if not self.is_replaying:
            extra = job.extra
            assert extra is not None
            assert extra.outcome is not None
            queue.dead.append(extra.outcome)
            self.dead_count += 1

    def rest(self, job: Job, ending: i64, ended_ms: i64) -> None:
        """Mark a job dead with its number among the queue's endings."""
        job.state = DEAD
        extra = job.extra
        if extra is None:
            extra = Extra()
            job.extra = extra
        extra.outcome = Outcome(ending, job, ended_ms)

    def _leave(self, job: Job) -> None:
        state = job.state
        if state == DEAD:
            extra = job.extra
            assert extra is not None
            assert extra.outcome is not None
            if not self.is_replaying:
                job.queue.dead.remove(extra.outcome)
                self.dead_count -= 1
            extra.outcome = None
            return
        if self.is_replaying:
            return
        queue = job.queue
        if state == LEASED:
            lease = job.lease
            assert lease is not None
            lease.book.leases.remove(lease)
            job.lease = None
            queue.leased_count -= 1
            self.leased_count -= 1
        elif state == READY:
            queue.ready.remove(job)
            self.ready_count -= 1
            if job.rank < URGENT_RANK:
                queue.urgent_count -= 1
                self.urgent_count -= 1
        else:
            assert state == DELAYED
            queue.delayed.remove(job)
            self.delayed_count -= 1

    # -- after a replay -----------------------------------------------------------------------

    def settle(self, now_ms: i64) -> None:
        """Build every index from the states that replay left behind."""
        self.now_ms = now_ms
        self.is_replaying = False
        dead: list[Outcome] = []
        last: Queue | None = None
        for job in self.jobs.all():
            queue = job.queue
            if queue is not last:
                self.queues[queue.name] = queue
                last = queue
            state = job.state
            if state == DEAD:
                extra = job.extra
                assert extra is not None
                assert extra.outcome is not None
                dead.append(extra.outcome)
                continue
            if state == DELAYED and job.due_ms > now_ms:
                job.sort_key = job.due_ms
                queue.delayed.items.append(job)
                self.delayed_count += 1
                continue
            job.state = READY
            job.sort_key = job.rank
            queue.ready.items.append(job)
            self.ready_count += 1
            if job.rank < URGENT_RANK:
                queue.urgent_count += 1
                self.urgent_count += 1
        dead.sort(key=_ending_of)
        for outcome in dead:
            outcome.job.queue.dead.append(outcome)
            self.dead_count += 1
        for queue in self.queues.values():
            queue.ready.heapify()
            queue.delayed.heapify()
            if queue.delayed.items:
                self.arm(queue, queue.delayed.items[0].sort_key)

    def next_timer_ms(self) -> i64:
        """Return when the next timer is due, or NEVER_MS."""
        items = self.timers.items
        return items[0].sort_key if items else NEVER_MS


def _ending_of(outcome: Outcome) -> int:
    return outcome.key
