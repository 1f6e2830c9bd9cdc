"""All tables of the yard, and what each record does to them.

`apply_*` cannot fail, decides nothing and is called from two places only: a verb that has just
appended the record, and recovery that has just read it. During a replay, jobs get their state but
are in no heap; `recovery.rebuild` builds all heaps and counters once, at the end.

Invariant: a job is in exactly the index that its state names (see `model.job`), and every counter
equals a recount of the jobs.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i16, i64, u8

from jobyard.engine.state.bus import Bus
from jobyard.engine.state.counters import Counters
from jobyard.engine.state.history_watch import HistoryWatchers
from jobyard.engine.state.job_waits import JobWaits
from jobyard.engine.state.names import Names
from jobyard.engine.state.placement import (
    advance,
    count_ahead,
    enter_ready_list,
    leave_ordering,
    leave_ready_list,
    use_slot,
    wait_in_ordering,
)
from jobyard.engine.state.tasks import Tasks
from jobyard.engine.state.unexpected import UnexpectedErrors
from jobyard.errors import YardFull
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.record import Cause
from jobyard.journal.journal import Journal
from jobyard.model.details import JobDetails, Outcome
from jobyard.model.details_codec import absorb
from jobyard.model.family import (
    DEAD_PERISH,
    NEW_PLACE,
    PLACE_IS_ENTRY,
    READY_LISTS,
    traits,
)
from jobyard.model.glidemq.fields import GlideFlag
from jobyard.model.glidemq.stored_values import StoredValues
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.job_table import JobTable
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.lease import Holder, Lease, LeaseSet
from jobyard.model.limits import NEVER_MS, URGENT_RANK
from jobyard.model.throttle.ordering_group import ordering_of, part_of, rejoin
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.topic.cursor import TopicCursors
from jobyard.model.topic.router import Routers
from jobyard.model.topic.txn import Txns
from jobyard.model.transition import Transition

if TYPE_CHECKING:
    from jobyard.engine.state.extension import Extension
    from jobyard.engine.state.timers import Alarm, EndObserver
    from jobyard.model.index.minute_counter import MinuteCounters
    from jobyard.model.policy import Policy
    from jobyard.model.queue import Queue
    from jobyard.model.topic.key_table import KeyTable
    from jobyard.model.topic.log import LogTopic

# A stamp is milliseconds << 20 | n: it orders jobs over restarts, and leaves room for a million
# stamps a millisecond.
STAMP_SHIFT: Final = 20

# Policies that no job has are removed once there are this many.
POLICIES_MAX: Final = 4096


@final
class Yard:
    """The whole state of the server in memory."""

    def __init__(self, journal: Journal, bodies: Bodies) -> None:  # noqa: PLR0915  all tables
        self.journal = journal
        self.bodies = bodies
        self.jobs = JobTable()
        self.queues: dict[str, Queue] = {}
        # Queues with jobs that are removed and not freed yet, by number.
        self.condemned: dict[int, Queue] = {}
        self.logs: dict[str, LogTopic] = {}
        # The same logs, by their numbers in the journal.
        self.log_numbers: dict[int, LogTopic] = {}
        # The keys of the records of topics, by their numbers in the journal.
        self.key_tables: dict[int, KeyTable] = {}
        self.routers = Routers()
        self.txns = Txns()
        self.cursors = TopicCursors()
        self.stored_values = StoredValues()
        # Names of logs that have text in memory to free.
        self.cooling: list[str] = []
        self.timers = Heap()
        self.names = Names(self.timers)
        self.bus = Bus()
        self.watchers = HistoryWatchers()
        self.waits = JobWaits()
        self.tasks = Tasks(journal)
        self.keeper: EndObserver | None = None
        # None until there is a cron, or a door whose jobs can repeat.
        self.crons: Alarm | None = None
        # By queue name; counted since this process started.
        self.minute_counters: dict[str, MinuteCounters] = {}
        # Leases whose holders are notified of the end after a verb that ends many; otherwise None.
        self.ended: list[Lease] | None = None
        # By the node that claims jobs; only nodes that hold some.
        self.nodes: dict[str, LeaseSet] = {}
        # None until the door of glide-mq needs it.
        self.glide: Extension | None = None
        self.policies: dict[bytes, Policy] = {}
        self.policies_max: i64 = POLICIES_MAX
        self.next_policy: i64 = 1
        self.now_ms: i64 = 0
        self.last_stamp: i64 = 0
        # The last stamp of earlier boots.
        self.boot_stamp: i64 = 0
        self.leases_issued: i64 = 0
        self.numbers_issued: i64 = 0
        self.is_replaying: bool = False
        # Jobs with a durable lease, found by replay.
        self.durably_leased: list[Job] = []
        self.ready_count: i64 = 0
        self.urgent_count: i64 = 0
        self.ahead_count: i64 = 0
        self.delayed_count: i64 = 0
        self.leased_count: i64 = 0
        self.dead_count: i64 = 0
        self.done_count: i64 = 0
        self.blocked_count: i64 = 0
        self.counters = Counters()
        self.errors = UnexpectedErrors()

    def changes(self) -> i64:
        """Return a number that grows with every record and every move of a job."""
        return self.journal.records_count + self.errors.moves_count

    # -- numbers ------------------------------------------------------------------------------

    def stamp(self, now_ms: i64) -> i64:
        """Return a new stamp: greater than every one before, even after a restart."""
        stamp = now_ms << STAMP_SHIFT
        if stamp <= self.last_stamp:
            stamp = self.last_stamp + 1
        self.last_stamp = stamp
        return stamp

    def new_place(self, job: Job, now_ms: i64) -> i64:
        """Return the stamp of a job that becomes ready again.

        A LIFO job keeps its stamp, so that the last one put stays first. A job of beanstalk or of a
        topic keeps it forever: a job that comes back goes before jobs put later, and the stamp's
        time is part of the job's id in bunqueue. A glide-mq job never keeps it: the stamp is its
        stream entry id, and no id is used twice.
        """
        rules = traits(job.family)
        if rules & PLACE_IS_ENTRY:
            return self.stamp(now_ms)
        return job.stamp if job.stamp < 0 or not rules & NEW_PLACE else self.stamp(now_ms)

    def new_lease_set(self, holder: Holder) -> LeaseSet:
        """Create the lease set of a new holder."""
        return LeaseSet(self.new_number(), holder)

    def new_number(self) -> i64:
        """Return a new number for a holder or waiter."""
        self.numbers_issued += 1
        return self.numbers_issued

    # -- timers -------------------------------------------------------------------------------

    def arm(self, item: Item, at_ms: i64) -> None:
        """Ensure that `item` fires at `at_ms` or earlier."""
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
        """Add a job; if `is_known`, the caller adds its custom id and what it waits for."""
        self.jobs.add(job)
        policy = job.policy
        policy.jobs_count += 1
        if not self.is_replaying:
            details = job.details
            if details is not None or policy.ttl_ms > 0:
                self.names.enter(job, is_known=is_known)
                if details is not None and details.members is not None:
                    self.bodies.count_values(details)
            jobs_by_seq = job.queue.jobs_by_seq
            if jobs_by_seq is not None:
                jobs_by_seq.add(job)
        self._enter(job, state, job.created_ms)

    def apply_taken(self, job: Job, lease: Lease | None) -> None:
        """Lease a job; without a lease, on replay, it is ready again at once."""
        self._leave(job)
        job.deliveries += 1
        job.ready_list = ReadyList.STREAM
        if job.details is not None:
            self._forget_durable_lease(job, job.details)
        if lease is None:
            self._enter(job, READY, job.due_ms)
            return
        self._hold(job, lease)
        if job.details is not None:
            self._advance(job, job.details, lease.started_ms)

    def resume(self, job: Job, lease: Lease) -> None:
        """Lease a ready job to the holder it had before a restart; there is no record of this."""
        self._leave(job)
        self._hold(job, lease)

    def _hold(self, job: Job, lease: Lease) -> None:
        job.lease = lease
        job.state = LEASED
        job.queue.leased.add(job)
        self.leased_count += 1
        lease_set = lease.lease_set
        lease_set.leases.push(lease)
        self.arm(lease_set, lease.sort_key)
        details = job.details
        if details is not None:
            if details.group is not None:
                details.group.leased_count += 1
            use_slot(job, details, 1)

    def apply_end(self, job: Job, end: Transition, now_ms: i64) -> None:
        """End a run of a job, which stays in the yard."""
        self._leave(job)
        why = end.why
        if why == Cause.RELEASED:
            job.counters().releases += 1
        elif why == Cause.EXPIRED:
            job.counters().timeouts += 1
        elif why == Cause.STALLED:
            job.counters().stalls += 1
        elif why in (Cause.BURIED, Cause.CORRUPT):
            job.counters().buries += 1
        elif why == Cause.HANDED_BACK:
            job.counters().releases += 1
        if why == Cause.RELEASED or end.state == DELAYED:
            job.delay_ms = end.due_ms - now_ms
        self._change(job, end, now_ms)

    def _forget_durable_lease(self, job: Job, details: JobDetails) -> None:
        """Forget a durable lease: it has ended, whether there is a record of that or not."""
        if details.durable_lease is None:
            return
        details.durable_lease = None
        trail = i64(job.trail)
        if trail != 0 and not self.is_replaying:
            # The job's details are smaller now; count them again.
            live_bytes = self.journal.live_bytes
            live_bytes.trail(job, live_bytes.segments[trail])

    def apply_move(self, job: Job, move: Transition, now_ms: i64) -> None:
        """Move a job that is not leased to another state, or within its own."""
        if job.state == BLOCKED and job.details is not None and not self.is_replaying:
            rejoin(job, job.details)
        self._leave(job)
        why = move.why
        if why == Cause.KICKED:
            job.counters().kicks += 1
        elif why == Cause.CORRUPT:
            job.counters().buries += 1
        elif why == Cause.REVIVED:
            job.counters().kicks += 1
            job.counters().stalls = 0
        elif why == Cause.DUE_SET:
            job.delay_ms = move.due_ms - now_ms
        self._change(job, move, now_ms)

    def _change(self, job: Job, change: Transition, now_ms: i64) -> None:
        """Put a job that has left its state into another, or into the same at another position."""
        job.rank = change.rank
        job.attempts = i16(change.attempts)
        job.due_ms = change.due_ms
        job.stamp = change.stamp
        job.ready_list = ReadyList.STREAM
        if change.state == READY:
            job.ready_list = u8(change.ready_list)
            self._note_moved(job)
        if job.details is not None:
            self._forget_durable_lease(job, job.details)
        self._enter(job, change.state, now_ms)
        if job.details is not None:
            self._advance(job, job.details, now_ms)

    def apply_changes(self, job: Job, changed_fields: bytes) -> None:
        """Apply changes of a job's details."""
        details = job.ensure_details()
        absorb(details, changed_fields, 0, len(changed_fields), 0)
        if details.members is not None or details.last_error:
            self.bodies.count_values(details)
        if self.journal.is_on:
            self.journal.live_bytes.trail(job, self.journal.hot)

    def move(self, job: Job, move: Transition, now_ms: i64) -> None:
        """Append and apply a move."""
        if self.journal.is_on:
            self.journal.append_move(job, move, now_ms)
        if move.state == DEAD and job.state != DEAD:
            self.counters.of(job).dead += 1
        self.apply_move(job, move, now_ms)
        if job.details is not None:
            self.apply_changes(job, move.changed_fields)

    def note(self, job: Job, changed_fields: bytes, *, is_needed: bool = False) -> None:
        """Append and apply changes of a job that affect neither its state nor its position.

        On a full disk the last room is for the ends of jobs: YardFull, unless `is_needed` for one.
        """
        if self.journal.is_on:
            if not is_needed and not self.journal.has_room(len(changed_fields)):
                raise YardFull
            self.journal.append_note(job, changed_fields)
        self.apply_changes(job, changed_fields)

    def drop(self, job: Job, now_ms: i64) -> None:
        """Append and apply the removal of a job; no event is sent."""
        if self.journal.is_on:
            self.journal.append_gone(job, Cause.REMOVED, now_ms)
        self.apply_gone(job)

    def apply_gone(self, job: Job) -> None:
        """Remove a job for good."""
        self._leave(job)
        job.state = GONE
        self.jobs.remove(job.id)
        self.bodies.drop(job)
        if job.details is not None and job.details.values_counted > 0:
            self.bodies.drop_values(job.details)
        policy = job.policy
        policy.jobs_count -= 1
        if not self.is_replaying:
            if job.details is not None or policy.ttl_ms > 0:
                self.names.leave(job)
                if job.details is not None:
                    self._advance(job, job.details, self.now_ms)
            jobs_by_seq = job.queue.jobs_by_seq
            if jobs_by_seq is not None:
                jobs_by_seq.note_gone(job)

    # -- the index a state names --------------------------------------------------------------

    def _enter(self, job: Job, state: i64, now_ms: i64) -> None:
        self.errors.moves_count += 1
        if state in (DEAD, DONE):
            queue = job.queue
            queue.endings += 1
            self.rest(job, state, queue.endings, now_ms)
            if not self.is_replaying:
                self.enter_ended(job, job.outcome())
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
            if job.details is not None:
                use_slot(job, job.details, 1)
        else:
            assert state == BLOCKED
            job.state = BLOCKED
            job.queue.blocked.add(job)
            self.blocked_count += 1
            if job.details is not None:
                use_slot(job, job.details, 1)
                jobs_by_seq = job.queue.jobs_by_seq
                part = job.details.glide
                if (
                    jobs_by_seq is not None
                    and part is not None
                    and part.flags & GlideFlag.SUSPENDED
                ):
                    jobs_by_seq.may_wait_for_signals = True

    def _advance(self, job: Job, details: JobDetails, now_ms: i64) -> None:
        """Advance the ordering group of a job that has changed state."""
        ordering = ordering_of(details)
        if ordering is not None and not self.is_replaying:
            advance(self, job.queue, ordering, now_ms)

    def _make_ready(self, job: Job) -> None:
        queue = job.queue
        job.state = READY
        job.sort_key = job.rank
        self.ready_count += 1
        if queue.subscriptions is not None and job.ready_list == ReadyList.STREAM:
            queue.subscriptions.came(job)
        details = job.details
        if details is not None and details.group is not None:
            rules = queue.rules
            assert rules is not None
            group = details.group
            if not group.ready.items:
                rules.ring.append(group)
            group.ready.push(job)
            queue.held_count += 1
            if job.rank > 0:
                count_ahead(self, queue, 1)
            return
        is_apart = details is not None and ordering_of(details) is not None
        if (is_apart or job.ready_list != ReadyList.STREAM) and traits(job.family) & READY_LISTS:
            self._make_listed(job, details)
            return
        queue.ready.push(job)
        if job.rank < URGENT_RANK:
            queue.urgent_count += 1
            self.urgent_count += 1
            if job.rank < 0:
                count_ahead(self, queue, 1)

    def _make_listed(self, job: Job, details: JobDetails | None) -> None:
        ordering = ordering_of(details)
        if ordering is None:
            enter_ready_list(self, job)
            return
        wait_in_ordering(job, part_of(job), ordering)
        advance(self, job.queue, ordering, self.now_ms)

    def delay_over(self, job: Job) -> None:
        """Make a delayed job ready because it is due; there is no record of this."""
        self._leave(job)
        come_due(job)
        self._make_ready(job)

    def unindex_ready(self, job: Job) -> None:
        """Take a ready job out of its index for a moment; nothing else may happen meanwhile."""
        self._leave_ready(job)

    def index_ready(self, job: Job) -> None:
        """Put a job back into its index after `unindex_ready`."""
        self._make_ready(job)

    def rest(self, job: Job, state: i64, ending: i64, ended_ms: i64) -> None:
        """Mark a job dead or done, with its number among the ended jobs of the queue."""
        job.state = u8(state)
        job.ready_list = ReadyList.STREAM
        job.ensure_details().outcome = Outcome(ending, job, ended_ms)

    def enter_ended(self, job: Job, outcome: Outcome) -> None:
        """Put a job that is dead or done into its list."""
        self.names.rest(job)
        if job.state == DEAD:
            job.queue.dead.append(outcome)
            self.dead_count += 1
            if traits(job.family) & DEAD_PERISH:
                job.queue.perishable_count += 1
        else:
            job.queue.done.append(outcome)
            self.done_count += 1
            if job.queue.jobs_by_seq is not None:
                job.queue.jobs_by_seq.bytes -= i64(job.size)
        if self.keeper is not None:
            self.keeper.rested(job)

    def _leave(self, job: Job) -> None:
        self.errors.moves_count += 1
        state = job.state
        if state in (DEAD, DONE):
            self._leave_ended(job)
            return
        if self.is_replaying:
            return
        queue = job.queue
        if state == LEASED:
            lease = job.lease
            assert lease is not None
            lease.lease_set.leases.remove(lease)
            job.lease = None
            queue.leased.remove(job)
            self.leased_count -= 1
            details = job.details
            if details is not None:
                if details.group is not None:
                    details.group.leased_count -= 1
                use_slot(job, details, -1)
        elif state == READY:
            self._leave_ready(job)
        else:
            self._leave_waiting(job)

    def _note_moved(self, job: Job) -> None:
        jobs_by_seq = job.queue.jobs_by_seq
        if jobs_by_seq is not None:
            jobs_by_seq.note_moved(job)

    def _leave_waiting(self, job: Job) -> None:
        self._note_moved(job)
        if job.state == DELAYED:
            job.queue.delayed.remove(job)
            self.delayed_count -= 1
        else:
            assert job.state == BLOCKED
            job.queue.blocked.remove(job)
            self.blocked_count -= 1
        if job.details is not None:
            use_slot(job, job.details, -1)

    def _leave_ended(self, job: Job) -> None:
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
                if job.queue.jobs_by_seq is not None:
                    job.queue.jobs_by_seq.bytes += i64(job.size)
            self.names.come_back(job)
        job.ensure_details().outcome = None

    def _leave_ready(self, job: Job) -> None:
        queue = job.queue
        self.ready_count -= 1
        details = job.details
        if details is not None and details.group is not None:
            group = details.group
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
            ordering = ordering_of(details)
            if ordering is not None:
                leave_ordering(self, job, part_of(job), ordering)
                return
            if job.ready_list != ReadyList.STREAM:
                leave_ready_list(self, job)
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
    """Return a stamp without its sign, which is negative for LIFO jobs."""
    return stamp if stamp >= 0 else -stamp


def come_due(job: Job) -> None:
    """Set the stamp and the ready list of a job whose delay is over."""
    rules = traits(job.family)
    if rules & NEW_PLACE:
        job.stamp = due_stamp(job)
    if rules & READY_LISTS:
        job.ready_list = ReadyList.STAGED


def due_stamp(job: Job) -> i64:
    """Return the stamp of a job that was delayed, which orders by due time, then by age.

    A LIFO job keeps the stamp that it has without the delay.
    """
    if job.stamp < 0:
        return job.stamp
    return (job.due_ms << STAMP_SHIFT) | (job.id & ((1 << STAMP_SHIFT) - 1))
