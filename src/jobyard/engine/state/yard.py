"""All tables of the yard, and what each record does to them.

`apply_*` cannot fail, decides nothing and is called from two places only: a verb that has just
appended the record, and recovery that has just read it. While replaying, jobs get their state but
stand in no heap; `settling` builds all heaps and counters once, at the end.

Invariant: a job stands in exactly the index its state names (see `model.job`), and every counter
equals a recount of the jobs.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i16, i64, u8

from jobyard.engine.state.bus import Bus
from jobyard.engine.state.counters import Counters
from jobyard.engine.state.history_watch import Onlookers
from jobyard.engine.state.job_waits import Waits
from jobyard.engine.state.names import Names
from jobyard.engine.state.placement import (
    advance,
    count_ahead,
    leave_line,
    line_up,
    rejoin,
    stand,
    step_down,
    use_slot,
)
from jobyard.engine.state.tasks import Tasks
from jobyard.engine.state.unexpected import Errors
from jobyard.errors import YardFull
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.record import (
    BURIED,
    CORRUPT,
    DUE_SET,
    EXPIRED,
    HANDED_BACK,
    KICKED,
    RELEASED,
    REMOVED,
    REVIVED,
    STALLED,
)
from jobyard.journal.journal import Journal
from jobyard.model.details import Extra, Outcome, absorb
from jobyard.model.family import (
    DEAD_PERISH,
    NEW_PLACE,
    PLACE_IS_ENTRY,
    READY_LISTS,
    traits,
)
from jobyard.model.glidemq.fields import SUSPENDED
from jobyard.model.glidemq.stored_values import SideTable
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.job_table import Pages
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.limits import NEVER_MS, URGENT_RANK
from jobyard.model.queue import Book, Holder, Lease, Queue
from jobyard.model.throttle.ordering_group import lane_of, part_of
from jobyard.model.throttle.ready_lists import STAGED, STREAM
from jobyard.model.topic.router import Routers
from jobyard.model.transition import End

if TYPE_CHECKING:
    from jobyard.engine.glidemq.add import GlideTables
    from jobyard.engine.jobs.schedule import Crons
    from jobyard.engine.state.timers import Keeper
    from jobyard.model.index.minute_counter import Meters
    from jobyard.model.policy import Policy
    from jobyard.model.topic.log import LogTopic

# A stamp is milliseconds << 20 | n: it orders jobs over restarts, and leaves room for a million
# stamps a millisecond.
STAMP_SHIFT: Final = 20

# Policies nobody has any more are forgotten once there are this many.
POLICIES_MAX: Final = 4096


@final
class Yard:
    """Everything that is remembered while the server runs."""

    def __init__(self, journal: Journal, bodies: Bodies) -> None:  # noqa: PLR0915  all tables
        self.journal = journal
        self.bodies = bodies
        self.jobs = Pages()
        self.queues: dict[str, Queue] = {}
        # Where jobs stand that are gone and not freed yet, by the number of their queue.
        self.condemned: dict[int, Queue] = {}
        self.logs: dict[str, LogTopic] = {}
        # The same, by their numbers in the journal.
        self.log_numbers: dict[int, LogTopic] = {}
        self.routers = Routers()
        self.side = SideTable()
        # Those whose turn it is to let go of text in memory.
        self.cooling: list[str] = []
        self.timers = Heap()
        self.names = Names(self.timers)
        self.bus = Bus()
        self.onlookers = Onlookers()
        self.waits = Waits()
        self.tasks = Tasks(journal)
        self.keeper: Keeper | None = None
        # None until there is a cron, or a door whose jobs may repeat themselves.
        self.crons: Crons | None = None
        # By the name of the queue; counted since this process began.
        self.meters: dict[str, Meters] = {}
        # Leases whose holders are told of their end when a verb of many ends is through; else None.
        self.ended: list[Lease] | None = None
        # By the node that claims jobs; only those that hold any.
        self.nodes: dict[str, Book] = {}
        # None until the door of glide-mq needs it.
        self.glide: GlideTables | None = None
        self.policies: dict[bytes, Policy] = {}
        self.policies_max: i64 = POLICIES_MAX
        self.next_policy: i64 = 1
        self.now_ms: i64 = 0
        self.last_stamp: i64 = 0
        # The last of the boots before this one.
        self.boot_stamp: i64 = 0
        self.leases_issued: i64 = 0
        self.numbers_issued: i64 = 0
        self.is_replaying: bool = False
        # Jobs that replay found with a lease that outlives the boot.
        self.kept: list[Job] = []
        self.ready_count: i64 = 0
        self.urgent_count: i64 = 0
        self.ahead_count: i64 = 0
        self.delayed_count: i64 = 0
        self.leased_count: i64 = 0
        self.dead_count: i64 = 0
        self.done_count: i64 = 0
        self.blocked_count: i64 = 0
        self.counters = Counters()
        self.errors = Errors()

    def changes(self) -> i64:
        """Return a number that grows with every record and every move of a job."""
        return self.journal.records_count + self.errors.moves_count

    # -- numbers ------------------------------------------------------------------------------

    def stamp(self, now_ms: i64) -> i64:
        """Draw the next place in line: greater than every one before, also after a restart."""
        stamp = now_ms << STAMP_SHIFT
        if stamp <= self.last_stamp:
            stamp = self.last_stamp + 1
        self.last_stamp = stamp
        return stamp

    def new_place(self, job: Job, now_ms: i64) -> i64:
        """Return the place in line of a job that comes to stand there anew.

        The last of those put LIFO stays first, so what was one of them keeps the place it has. A
        job of beanstalk or of a topic keeps it for ever: what comes back goes before what was put
        later, and its time is part of the id that bunqueue has for it. One of glide-mq never does:
        its place is the name of its entry, and no name is given twice.
        """
        rules = traits(job.family)
        if rules & PLACE_IS_ENTRY:
            return self.stamp(now_ms)
        return job.stamp if job.stamp < 0 or not rules & NEW_PLACE else self.stamp(now_ms)

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

    def apply_put(self, job: Job, state: i64, *, is_known: bool = False) -> None:
        """Add a job; if `is_known`, whoever does it notes its name, and for whom it waits."""
        self.jobs.add(job)
        policy = job.policy
        policy.jobs_count += 1
        if not self.is_replaying:
            if job.extra is not None or policy.ttl_ms > 0:
                self.names.enter(job, is_known=is_known)
            roster = job.queue.roster
            if roster is not None:
                roster.add(job)
        self._enter(job, state, job.created_ms)

    def apply_taken(self, job: Job, lease: Lease | None) -> None:
        """Hand a job over; without a lease, on replay, it is at once ready again."""
        self._leave(job)
        job.deliveries += 1
        job.shelf = STREAM
        if job.extra is not None:
            self._forget_kept(job, job.extra)
        if lease is None:
            self._enter(job, READY, job.due_ms)
            return
        self._hold(job, lease)
        if job.extra is not None:
            self._advance(job, job.extra, lease.started_ms)

    def resume(self, job: Job, lease: Lease) -> None:
        """Hand a ready job over again to who held it before a restart; no record says so."""
        self._leave(job)
        self._hold(job, lease)

    def _hold(self, job: Job, lease: Lease) -> None:
        job.lease = lease
        job.state = LEASED
        job.queue.leased.add(job)
        self.leased_count += 1
        book = lease.book
        book.leases.push(lease)
        self.arm(book, lease.sort_key)
        extra = job.extra
        if extra is not None:
            if extra.group is not None:
                extra.group.leased_count += 1
            use_slot(job, extra, 1)

    def apply_end(self, job: Job, end: End, now_ms: i64) -> None:
        """End a run of a job, which stays in the yard."""
        self._leave(job)
        why = end.why
        if why == RELEASED:
            job.tally().releases += 1
        elif why == EXPIRED:
            job.tally().timeouts += 1
        elif why == STALLED:
            job.tally().stalls += 1
        elif why in (BURIED, CORRUPT):
            job.tally().buries += 1
        elif why == HANDED_BACK:
            job.tally().releases += 1
        if why == RELEASED or end.state == DELAYED:
            job.delay_ms = end.due_ms - now_ms
        self._change(job, end, now_ms)

    def _forget_kept(self, job: Job, extra: Extra) -> None:
        """Forget what was noted of a lease: it is over, whether or not a record says so."""
        if extra.kept is None:
            return
        extra.kept = None
        trail = i64(job.trail)
        if trail != 0 and not self.is_replaying:
            # Where it is, it weighs less.
            ledger = self.journal.ledger
            ledger.trail(job, ledger.segments[trail])

    def apply_move(self, job: Job, move: End, now_ms: i64) -> None:
        """Move a job that no one runs to another state, or within its own."""
        if job.state == BLOCKED and job.extra is not None and not self.is_replaying:
            rejoin(job, job.extra)
        self._leave(job)
        why = move.why
        if why == KICKED:
            job.tally().kicks += 1
        elif why == CORRUPT:
            job.tally().buries += 1
        elif why == REVIVED:
            job.tally().kicks += 1
            job.tally().stalls = 0
        elif why == DUE_SET:
            job.delay_ms = move.due_ms - now_ms
        self._change(job, move, now_ms)

    def _change(self, job: Job, change: End, now_ms: i64) -> None:
        """Let a job that has left its state enter another, or the same at another place."""
        job.rank = change.rank
        job.attempts = i16(change.attempts)
        job.due_ms = change.due_ms
        job.stamp = change.stamp
        job.shelf = STREAM
        if change.state == READY:
            job.shelf = u8(change.shelf)
            self._note_moved(job)
        if job.extra is not None:
            self._forget_kept(job, job.extra)
        self._enter(job, change.state, now_ms)
        if job.extra is not None:
            self._advance(job, job.extra, now_ms)

    def apply_news(self, job: Job, news: bytes) -> None:
        """Take on what a record says of the rare parts of a job."""
        extra = job.more()
        absorb(extra, news, 0, len(news), 0)
        if self.journal.is_on:
            self.journal.ledger.trail(job, self.journal.hot)

    def move(self, job: Job, move: End, now_ms: i64) -> None:
        """Record and make a move."""
        if move.state == DEAD and job.state != DEAD:
            self.counters.of(job).dead += 1
        if self.journal.is_on:
            self.journal.append_move(job, move, now_ms)
        self.apply_move(job, move, now_ms)
        if job.extra is not None:
            self.apply_news(job, move.news)

    def note(self, job: Job, news: bytes, *, is_needed: bool = False) -> None:
        """Record and take on news of a job that change neither its state nor its place.

        A full disk keeps its last room for the ends of jobs: YardFull, unless these belong to one.
        """
        if self.journal.is_on:
            if not is_needed and not self.journal.has_room(len(news)):
                raise YardFull
            self.journal.append_note(job, news)
        self.apply_news(job, news)

    def drop(self, job: Job, now_ms: i64) -> None:
        """Record and make the removal of a job; nobody is told."""
        if self.journal.is_on:
            self.journal.append_gone(job, REMOVED, now_ms)
        self.apply_gone(job)

    def apply_gone(self, job: Job) -> None:
        """Remove a job for good."""
        self._leave(job)
        job.state = GONE
        self.jobs.remove(job.id)
        self.bodies.drop(job)
        policy = job.policy
        policy.jobs_count -= 1
        if not self.is_replaying:
            if job.extra is not None or policy.ttl_ms > 0:
                self.names.leave(job)
                if job.extra is not None:
                    self._advance(job, job.extra, self.now_ms)
            roster = job.queue.roster
            if roster is not None:
                roster.note_gone(job)

    # -- the index a state names --------------------------------------------------------------

    def _enter(self, job: Job, state: i64, now_ms: i64) -> None:
        self.errors.moves_count += 1
        if state in (DEAD, DONE):
            queue = job.queue
            queue.endings += 1
            self.rest(job, state, queue.endings, now_ms)
            if not self.is_replaying:
                self.stand_at_rest(job, job.outcome())
            return
        if self.is_replaying:
            job.state = u8(state)
            return
        if job.policy.ttl_ms > 0 and state != BLOCKED:
            self.names.begin_ttl(job)
        if state == READY:
            self._make_ready(job)
        elif state == DELAYED:
            job.state = DELAYED
            job.sort_key = job.due_ms
            job.queue.delayed.push(job)
            self.delayed_count += 1
            self._note_moved(job)
            self.arm(job.queue, job.due_ms)
            if job.extra is not None:
                use_slot(job, job.extra, 1)
        else:
            assert state == BLOCKED
            job.state = BLOCKED
            job.queue.blocked.add(job)
            self.blocked_count += 1
            if job.extra is not None:
                use_slot(job, job.extra, 1)
                roster = job.queue.roster
                part = job.extra.glide
                if roster is not None and part is not None and part.flags & SUSPENDED:
                    roster.may_wait_for_signals = True

    def _advance(self, job: Job, extra: Extra, now_ms: i64) -> None:
        """Let others of its lane take the place that a job left."""
        lane = lane_of(extra)
        if lane is not None and not self.is_replaying:
            advance(self, job.queue, lane, now_ms)

    def _make_ready(self, job: Job) -> None:
        queue = job.queue
        job.state = READY
        job.sort_key = job.rank
        self.ready_count += 1
        if queue.audience is not None and job.shelf == STREAM:
            queue.audience.came(job)
        extra = job.extra
        if extra is not None and extra.group is not None:
            rules = queue.rules
            assert rules is not None
            group = extra.group
            if not group.ready.items:
                rules.ring.append(group)
            group.ready.push(job)
            queue.held_count += 1
            if job.rank > 0:
                count_ahead(self, queue, 1)
            return
        if traits(job.family) & READY_LISTS and (job.shelf != STREAM or lane_of(extra) is not None):
            self._make_shelved(job, extra)
            return
        queue.ready.push(job)
        if job.rank < URGENT_RANK:
            queue.urgent_count += 1
            self.urgent_count += 1
            if job.rank < 0:
                count_ahead(self, queue, 1)

    def _make_shelved(self, job: Job, extra: Extra | None) -> None:
        lane = lane_of(extra)
        if lane is None:
            stand(self, job)
            return
        line_up(job, part_of(job), lane)
        advance(self, job.queue, lane, self.now_ms)

    def delay_over(self, job: Job) -> None:
        """Make a delayed job ready because its time has come; no record says so."""
        self._leave(job)
        come_due(job)
        self._make_ready(job)

    def step_aside(self, job: Job) -> None:
        """Take a ready job out of its line for a moment; nothing else may happen meanwhile."""
        self._leave_ready(job)

    def step_back(self, job: Job) -> None:
        """Put a job back into its line that stepped aside."""
        self._make_ready(job)

    def rest(self, job: Job, state: i64, ending: i64, ended_ms: i64) -> None:
        """Mark a job dead or done with its number among the queue's endings."""
        job.state = u8(state)
        job.shelf = STREAM
        job.more().outcome = Outcome(ending, job, ended_ms)

    def stand_at_rest(self, job: Job, outcome: Outcome) -> None:
        """Put a job that is dead or done into its line."""
        self.names.rest(job)
        if job.state == DEAD:
            job.queue.dead.append(outcome)
            self.dead_count += 1
            if traits(job.family) & DEAD_PERISH:
                job.queue.perishable_count += 1
        else:
            job.queue.done.append(outcome)
            self.done_count += 1
            if job.queue.roster is not None:
                job.queue.roster.bytes -= i64(job.size)
        if self.keeper is not None:
            self.keeper.rested(job)

    def _leave(self, job: Job) -> None:
        self.errors.moves_count += 1
        state = job.state
        if state in (DEAD, DONE):
            self._leave_rest(job)
            return
        if self.is_replaying:
            return
        queue = job.queue
        if state == LEASED:
            lease = job.lease
            assert lease is not None
            lease.book.leases.remove(lease)
            job.lease = None
            queue.leased.remove(job)
            self.leased_count -= 1
            extra = job.extra
            if extra is not None:
                if extra.group is not None:
                    extra.group.leased_count -= 1
                use_slot(job, extra, -1)
        elif state == READY:
            self._leave_ready(job)
        else:
            self._leave_waiting(job)

    def _note_moved(self, job: Job) -> None:
        roster = job.queue.roster
        if roster is not None:
            roster.note_moved(job)

    def _leave_waiting(self, job: Job) -> None:
        self._note_moved(job)
        if job.state == DELAYED:
            job.queue.delayed.remove(job)
            self.delayed_count -= 1
        else:
            assert job.state == BLOCKED
            job.queue.blocked.remove(job)
            self.blocked_count -= 1
        if job.extra is not None:
            use_slot(job, job.extra, -1)

    def _leave_rest(self, job: Job) -> None:
        outcome = job.outcome()
        self.bodies.drop_result(outcome)
        if not self.is_replaying:
            if job.state == DEAD:
                job.queue.dead.remove(outcome)
                self.dead_count -= 1
                if traits(job.family) & DEAD_PERISH:
                    job.queue.perishable_count -= 1
            else:
                job.queue.done.remove(outcome)
                self.done_count -= 1
                if job.queue.roster is not None:
                    job.queue.roster.bytes += i64(job.size)
            self.names.come_back(job)
        job.more().outcome = None

    def _leave_ready(self, job: Job) -> None:
        queue = job.queue
        self.ready_count -= 1
        extra = job.extra
        if extra is not None and extra.group is not None:
            group = extra.group
            group.ready.remove(job)
            queue.held_count -= 1
            if job.rank > 0:
                count_ahead(self, queue, -1)
            if not group.ready.items:
                rules = queue.rules
                assert rules is not None
                rules.ring.remove(group)
            return
        if traits(job.family) & READY_LISTS:
            lane = lane_of(extra)
            if lane is not None:
                leave_line(self, job, part_of(job), lane)
                return
            if job.shelf != STREAM:
                step_down(self, job)
                return
        queue.ready.remove(job)
        if job.rank < URGENT_RANK:
            queue.urgent_count -= 1
            self.urgent_count -= 1
            if job.rank < 0:
                count_ahead(self, queue, -1)

    def next_timer_ms(self) -> i64:
        """Return when the next timer is due, or NEVER_MS."""
        items = self.timers.items
        return items[0].sort_key if items else NEVER_MS


def abs_stamp(stamp: i64) -> i64:
    """Return a stamp without the sign by which the last come are first."""
    return stamp if stamp >= 0 else -stamp


def come_due(job: Job) -> None:
    """Give a job its place in line when its delay is over."""
    rules = traits(job.family)
    if rules & NEW_PLACE:
        job.stamp = due_stamp(job)
    if rules & READY_LISTS:
        job.shelf = STAGED


def due_stamp(job: Job) -> i64:
    """Return the place in line of a job that was delayed: by when it was due, then by age.

    One put LIFO stands where it would without the delay.
    """
    if job.stamp < 0:
        return job.stamp
    return (job.due_ms << STAMP_SHIFT) | (job.id & ((1 << STAMP_SHIFT) - 1))
