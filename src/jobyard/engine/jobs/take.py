"""The verbs by which a holder takes a job from a queue, now or when one is ready.

A taken job is leased: it belongs to one lease set until a verb of `finish.py` ends its run. Several
queues are searched for the least (rank, stamp); waiters are served first come first served per
queue. If many wait and many jobs arrive, they are served over turns; a client that comes meanwhile
gets none of the jobs that are owed to earlier waiters.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs import dead_letters
from jobyard.engine.jobs.durable_leases import ensure_room, keep_lease
from jobyard.engine.jobs.low_watermarks import remember_floors
from jobyard.engine.state import bus
from jobyard.engine.state.admission import list_head, next_open_ms, open_head, passed
from jobyard.engine.state.placement import enter_ready_list, leave_ready_list, reopen
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.errors import NotFound, StorageFull
from jobyard.journal.damage import CORRUPT_TEXT
from jobyard.journal.format.record import Cause
from jobyard.model.details import FailureReason, JobDetails
from jobyard.model.details_codec import FieldWriter, Tag
from jobyard.model.family import (
    LEASE_OF_TOPIC,
    LOCK_DURATION,
    OWN_TTR,
    PLACE_IS_ENTRY,
    TTL_IS_DEATH,
    traits,
)
from jobyard.model.job import DEAD, DELAYED, READY, Job
from jobyard.model.lease import Lease, LeaseSet, Proof, Terms
from jobyard.model.limits import FULL_WAIT_MS, NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import ordering_of
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.throttle.settings import DEFAULTS
from jobyard.model.topic.config import LEASE_MS_DEFAULT, TopicConfig
from jobyard.model.transition import Transition
from jobyard.model.waiter import Waiter, WaiterLink

# How long a job of another family is leased to a beanstalk client, which cannot set the time.
FOREIGN_TTR_MS: Final = 30_000

# Cost of giving a job to a waiter, reply included, in units of work.
SERVE_UNITS: Final = 4

# Used where a single queue is given.
_NO_QUEUES: Final[list[Queue]] = []


def head_of(queue: Queue, now_ms: i64) -> Job | None:
    """Return the job that would leave the queue next."""
    if queue.pause_until_ms > now_ms:
        return None
    if queue.rules is not None:
        return open_head(queue, queue.rules, now_ms)
    ready = queue.ready.items
    if not ready:
        return None
    job = ready[0]
    assert isinstance(job, Job)
    return job


def best_job(queues: list[Queue], now_ms: i64) -> Job | None:
    """Return the job with the least (rank, stamp) that may leave any of the queues."""
    best: Job | None = None
    for queue in queues:
        head = head_of(queue, now_ms)
        if head is None:
            continue
        if best is None or (
            head.sort_key < best.sort_key
            or (head.sort_key == best.sort_key and head.stamp < best.stamp)
        ):
            best = head
    return best


def take(
    yard: Yard, queues: list[Queue], lease_set: LeaseSet, terms: Terms, now_ms: i64
) -> Lease | None:
    """Lease the first ready job of the open queues to the holder of `lease_set`."""
    return _take_first(yard, _open_queues(yard, queues, now_ms), None, 0, lease_set, terms, now_ms)


def _take_first(
    yard: Yard,
    queues: list[Queue],
    one_queue: Queue | None,
    ready_list: i64,
    lease_set: LeaseSet,
    terms: Terms,
    now_ms: i64,
) -> Lease | None:
    """Lease the first ready job of some queues, or of one ready list of one queue."""
    skipped: list[Job] | None = None
    try:
        while True:
            job = (
                best_job(queues, now_ms)
                if one_queue is None
                else _head_on(one_queue, ready_list, now_ms)
            )
            if job is None:
                return None
            if _must_go(yard, job, now_ms):
                skipped = _pass_over(yard, job, skipped, now_ms)
                continue
            if job.queue.rules is not None:
                passed(job, job.queue.rules, now_ms)
            if one_queue is not None:
                _renew_entry_after_restart(yard, job, now_ms)
            lease = _lease(yard, job, lease_set, terms, now_ms)
            if lease is not None:
                return lease
    finally:
        if skipped is not None:
            for job in skipped:
                yard.index_ready(job)


def _open_queues(yard: Yard, queues: list[Queue], now_ms: i64) -> list[Queue]:
    """Return the queues with jobs for a new client, not only jobs owed to earlier waiters."""
    is_owed = False
    for queue in queues:
        if queue.rules is not None:
            reopen(yard, queue, now_ms)
        if queue.is_serving:
            is_owed = True
    if not is_owed:
        return queues
    return [queue for queue in queues if not queue.is_serving or queue.has_spare()]


def take_one(
    yard: Yard, queue: Queue, lease_set: LeaseSet, terms: Terms, now_ms: i64
) -> Lease | None:
    """Lease the first ready job of one queue to the holder of `lease_set`."""
    if queue.is_serving and not queue.has_spare():
        return None
    if queue.rules is not None:
        reopen(yard, queue, now_ms)
    while True:
        job = head_of(queue, now_ms)
        if job is None:
            return None
        if _must_go(yard, job, now_ms):
            return take(yard, [queue], lease_set, terms, now_ms)
        if queue.rules is not None:
            passed(job, queue.rules, now_ms)
        lease = _lease(yard, job, lease_set, terms, now_ms)
        if lease is not None:
            return lease


def take_from(
    yard: Yard, queue: Queue, ready_list: i64, lease_set: LeaseSet, terms: Terms, now_ms: i64
) -> Lease | None:
    """Lease the first ready job of one ready list of a queue to the holder of `lease_set`."""
    if queue.pause_until_ms > now_ms or (queue.is_serving and not queue.has_spare()):
        return None
    if queue.rules is not None:
        reopen(yard, queue, now_ms)
    return _take_first(yard, _NO_QUEUES, queue, ready_list, lease_set, terms, now_ms)


def _head_on(queue: Queue, ready_list: i64, now_ms: i64) -> Job | None:
    rules = queue.rules
    if rules is not None:
        return list_head(queue, rules, ready_list, now_ms)
    return head_of(queue, now_ms) if ready_list == ReadyList.STREAM else None


def _renew_entry_after_restart(yard: Yard, job: Job, now_ms: i64) -> None:
    """Give a redelivered job a new entry id after a restart.

    The previous consumer can then no longer acknowledge it by the old id. The job stays in its
    ready list: other jobs of its ordering group may come first.
    """
    is_named = traits(job.family) & PLACE_IS_ENTRY != 0 and job.deliveries > 0
    if not is_named or abs_stamp(job.stamp) > yard.boot_stamp:
        return
    move = Transition(job, Cause.RANKED, READY)
    move.stamp = yard.stamp(now_ms)
    try:
        if yard.journal.is_on:
            yard.journal.append_move(job, move, now_ms)
    except StorageFull:
        # It keeps its old id: there is no room to store another.
        return
    leave_ready_list(yard, job)
    job.stamp = move.stamp
    enter_ready_list(yard, job)
    if job.queue.jobs_by_seq is not None:
        job.queue.jobs_by_seq.note_moved(job)
    if job.details is not None:
        yard.apply_changes(job, b"")


def _must_go(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Return whether a job must not be taken: its time is over, or it was taken too often."""
    ttl_ms = job.policy.ttl_ms
    if ttl_ms > 0 and now_ms >= job.created_ms + ttl_ms:
        return True
    config = job.queue.config
    if config is None:
        return False
    return _is_old(job, config, now_ms) or (
        dead_letters.is_spent(job, config) and dead_letters.may_send(yard, job)
    )


def _is_old(job: Job, config: TopicConfig, now_ms: i64) -> bool:
    return 0 < config.ttl_ms <= now_ms - job.created_ms


def _pass_over(yard: Yard, job: Job, skipped: list[Job] | None, now_ms: i64) -> list[Job] | None:
    """Remove a job that must not be taken, or step over it if it cannot be removed now.

    An expired job that other jobs wait for is left to its alarm, which is due and notifies them:
    that may serve clients, which cannot be done from within serving, and may fail on a full disk.
    """
    ttl_ms = job.policy.ttl_ms
    config = job.queue.config
    is_old = config is not None and _is_old(job, config, now_ms)
    if is_old or (ttl_ms > 0 and now_ms >= job.created_ms + ttl_ms):
        if traits(job.family) & TTL_IS_DEATH and not is_old:
            if _made_dead(yard, job, now_ms):
                return skipped
        elif not yard.names.dependents.has(int(job.id)):
            drop_job(yard, job, now_ms)
            if is_old:
                _raise_floor(yard, job)
            return skipped
    elif dead_letters.send_spent(yard, job, now_ms) or _put_off(yard, job, now_ms):
        return skipped
    yard.unindex_ready(job)
    if skipped is None:
        return [job]
    skipped.append(job)
    return skipped


def _put_off(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Delay a job that cannot become a dead letter yet; False on a full disk."""
    move = Transition(job, Cause.DUE_SET, DELAYED)
    move.due_ms = now_ms + FULL_WAIT_MS
    try:
        if yard.bodies.fetch(job) is None:
            _make_damaged_dead(yard, job, now_ms)
        else:
            yard.move(job, move, now_ms)
    except StorageFull:
        return False
    return True


def drop_job(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job and publish the event; jobs that wait for it are not notified."""
    before = job.state
    lease = job.lease
    counts = yard.counters.of(job)
    yard.drop(job, now_ms)
    counts.removed += 1
    job.queue.finished_count += 1
    if yard.bus.is_on and yard.bus.hears(job.queue):
        event = bus.Event(bus.EventName.REMOVED, job.queue, job, now_ms)
        event.before = "delayed" if before == DELAYED else "waiting"
        yard.bus.publish(event)
    if lease is not None and lease.lease_set.is_watched:
        notify_holder(yard, lease, now_ms)


def _made_dead(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Make an expired job dead; False on a full disk."""
    try:
        make_expired_dead(yard, job, now_ms)
    except StorageFull:
        return False
    return True


def make_expired_dead(yard: Yard, job: Job, now_ms: i64) -> None:
    """Make an expired glide-mq job dead; its parent keeps waiting."""
    if job.state == DELAYED and job.due_ms <= now_ms:
        # Its delay ended first, and a replay must see the same.
        yard.delay_over(job)
    move = Transition(job, Cause.FAILED, DEAD)
    fields = FieldWriter()
    fields.numbers(Tag.REASON, (FailureReason.TTL_OVER,), b"expired")
    move.changed_fields = fields.done()
    job.ensure_details()
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.FAILED, job.queue, job, now_ms)
        event.error = "expired"
        event.reason = FailureReason.TTL_OVER
        event.is_final = True
        event.is_dead = True
        yard.bus.publish(event)


def _raise_floor(yard: Yard, job: Job) -> None:
    """Raise the TTL floor of a topic past an expired job."""
    queue = job.queue
    topic_state = queue.topic_state
    if topic_state is not None and job.key >= topic_state.ttl_floor:
        topic_state.ttl_floor = job.key + 1
        remember_floors(yard, queue)


def notify_holder(yard: Yard, lease: Lease, now_ms: i64) -> None:
    """Notify a holder that a lease of its watched set ended, now or when the batch is done."""
    if yard.ended is not None:
        yard.ended.append(lease)
    else:
        lease.lease_set.holder.lease_ended(lease, now_ms)


def take_job(yard: Yard, job_id: i64, lease_set: LeaseSet, terms: Terms, now_ms: i64) -> Lease:
    """Lease a given job that waits for no other, even if it is delayed or dead, or paused."""
    job = yard.jobs.get(job_id)
    if job is None or job.state not in (READY, DELAYED, DEAD):
        raise NotFound
    config = job.queue.config
    if (
        config is not None
        and dead_letters.is_spent(job, config)
        and dead_letters.send_spent(yard, job, now_ms)
    ):
        raise NotFound
    if job.state == DEAD and job.details is not None and job.details.open_count() > 0:
        # It still waits for others: if it is kicked, it waits again or records their outcomes.
        raise NotFound
    lease = _lease(yard, job, lease_set, terms, now_ms)
    if lease is None:
        raise NotFound
    return lease


def _lease(yard: Yard, job: Job, lease_set: LeaseSet, terms: Terms, now_ms: i64) -> Lease | None:
    """Lease a job, or bury it and return None when its body cannot be read back.

    YardFull changes nothing: there was no room for a durable lease.
    """
    body = job.body
    if body is None:
        body = yard.bodies.fetch(job)
        if body is None:
            _make_damaged_dead(yard, job, now_ms)
            return None
    if terms.is_durable:
        ensure_room(yard, job, terms.label)
    yard.leases_issued += 1
    is_own = terms.proof == Proof.CONNECTION and traits(job.family) & OWN_TTR != 0
    ttl_ms: i64 = job.own_ms if is_own else lease_ms(job, terms)
    lease = Lease(yard.leases_issued, job, lease_set, now_ms, ttl_ms, terms, body)
    timeout_ms = job.policy.timeout_ms
    if timeout_ms > 0:
        lease.sort_key = min(lease.sort_key, now_ms + timeout_ms)
    if yard.journal.is_on:
        yard.journal.append_lease(lease)
    yard.counters.at(i64(job.family), terms.door).taken += 1
    yard.apply_taken(job, lease)
    if terms.proof != Proof.LISTED:
        job.queue.taken_stamp = job.stamp
    details = job.details
    if details is not None:
        details.last_lease = 0
        _look_behind(yard, job.queue, details, now_ms)
    if terms.is_durable or lease.taken_from == DEAD:
        _take_note(yard, lease)
    if yard.bus.is_wide:
        # Listeners of a single queue do not use this event.
        yard.bus.publish(bus.Event(bus.EventName.PULLED, job.queue, job, now_ms))
    return lease


def _take_note(yard: Yard, lease: Lease) -> None:
    if lease.taken_from == DEAD:
        _left_dead(yard, lease.job)
    if lease.terms.is_durable:
        keep_lease(yard, lease)


def _left_dead(yard: Yard, job: Job) -> None:
    if job.queue.jobs_by_seq is not None:
        job.queue.jobs_by_seq.note_moved(job)
    if job.trail != 0:
        # It has fewer live bytes without its outcome; a full disk may have taken no lease record.
        live_bytes = yard.journal.live_bytes
        live_bytes.trail(job, live_bytes.segments[i64(job.trail)])


def _look_behind(yard: Yard, queue: Queue, details: JobDetails, now_ms: i64) -> None:
    """Schedule an offer of the next job of an ordering group, which may be ready now.

    At the next tick, since this may be called while waiters are served.
    """
    if queue.first_link is not None and ordering_of(details) is not None:
        yard.arm(queue, now_ms)


def lease_ms(job: Job, terms: Terms) -> i64:
    """Return how long a lease lasts: set by the taker's door, else the job, else its queue."""
    if terms.proof == Proof.CONNECTION:
        return ttr_ms(job)
    if terms.ttl_ms > 0:
        return terms.ttl_ms
    if traits(job.family) & OWN_TTR:
        return job.own_ms
    rules = job.queue.rules
    settings = DEFAULTS if rules is None else rules.settings
    if not settings.stalls_on:
        return NEVER_MS // 2
    stall_ms = job.policy.stall_ms
    return (stall_ms if stall_ms > 0 else settings.stall_ms) + settings.stall_grace_ms


def ttr_ms(job: Job) -> i64:
    """Return how long a beanstalk client may work on a job."""
    if traits(job.family) & OWN_TTR:
        return job.own_ms
    if traits(job.family) & LEASE_OF_TOPIC:
        config = job.queue.config
        return LEASE_MS_DEFAULT if config is None else config.lease_ms
    wished_ms = job.policy.stall_ms if traits(job.family) & LOCK_DURATION else job.policy.timeout_ms
    return wished_ms if wished_ms > 0 else FOREIGN_TTR_MS


def _make_damaged_dead(yard: Yard, job: Job, now_ms: i64) -> None:
    """Bury a job whose body is damaged on disk: it stays visible, but is never delivered."""
    if job.state == DEAD:
        return
    move = Transition(job, Cause.CORRUPT, DEAD)
    fields = FieldWriter()
    fields.numbers(Tag.REASON, (FailureReason.DAMAGED,), CORRUPT_TEXT.encode())
    move.changed_fields = fields.done()
    job.ensure_details()
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.FAILED, job.queue, job, now_ms)
        event.error = CORRUPT_TEXT
        event.reason = FailureReason.DAMAGED
        event.is_final = True
        event.is_dead = True
        yard.bus.publish(event)


def wait(
    yard: Yard, queues: list[Queue], lease_set: LeaseSet, terms: Terms, until_ms: i64, soon_ms: i64
) -> Waiter:
    """Wait at every queue until served, until `until_ms`, or until `soon_ms`."""
    waiter = Waiter(yard.new_number(), lease_set, terms, until_ms, soon_ms)
    for queue in queues:
        queue.link(waiter)
        if queue.rules is not None:
            arm_gate(yard, queue, yard.now_ms)
    yard.timers.push(waiter)
    return waiter


def cancel_wait(yard: Yard, waiter: Waiter) -> None:
    """Remove a waiter from every queue."""
    yard.disarm(waiter)
    for link in waiter.links:
        link.queue.unlink(link)
    waiter.links.clear()


def offer(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Give ready jobs to the waiters of a queue, as long as there are both.

    If there are many, the first are served now and the others in the turns that follow.
    """
    if queue.is_serving:
        return
    if yard.txns.held_offers is not None:
        yard.txns.held_offers.append(queue)
        return
    if _serve(yard, queue, yard.tasks.served_at_once, now_ms):
        queue.is_serving = True
        yard.tasks.follow(WaiterServing(yard, queue))


def _serve(yard: Yard, queue: Queue, most: i64, now_ms: i64) -> bool:
    """Give out about `most` jobs; True if there may be more jobs and more waiters."""
    try:
        return _serve_waiters(yard, queue, most, now_ms)
    except StorageFull:
        # A job that must not be taken could not be removed. The command that made a job ready has
        # succeeded all the same, so the waiters are served later.
        yard.arm(queue, now_ms + FULL_WAIT_MS)
        return False


def _serve_waiters(yard: Yard, queue: Queue, most: i64, now_ms: i64) -> bool:
    up_to = yard.leases_issued + most
    sighted: i64 = 0
    while True:
        link = queue.first_link
        if link is None or (not queue.ready.items and queue.held_count == 0):
            return False
        if yard.leases_issued + sighted >= up_to:
            return True
        waiter = link.waiter
        lease: Lease | None = None
        if waiter.is_stream_only:
            sighted += 1
            if not _offer_stream(yard, queue, link, now_ms):
                return False
            continue
        if not waiter.is_notify_only:
            lease = take_one(yard, queue, waiter.target, waiter.terms, now_ms)
        elif head_of(queue, now_ms) is not None:
            sighted += 1
            cancel_wait(yard, waiter)
            waiter.lease_set.holder.sighted(waiter, now_ms)
            continue
        if lease is None:
            if queue.rules is not None:
                arm_gate(yard, queue, now_ms)
            return False
        cancel_wait(yard, waiter)
        waiter.lease_set.holder.given(waiter, lease)


@final
class WaiterServing(Task):
    """Serves a long queue of waiters, in order."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue

    def step(self, most: i64, now_ms: i64) -> i64:
        """Serve some of them."""
        queue = self._queue
        # Cleared while serving, or the waiters' own takes would be refused.
        queue.is_serving = False
        count = max(1, most // SERVE_UNITS)
        queue.is_serving = _serve(self._yard, queue, count, now_ms)
        return most if queue.is_serving else 0


def _offer_stream(yard: Yard, queue: Queue, link: WaiterLink | None, now_ms: i64) -> bool:
    """Serve the first waiter that can be served; the first of them all is stream-only.

    That one must not hide a job in another ready list from the waiters behind it.
    """
    while link is not None:
        waiter = link.waiter
        lease: Lease | None = None
        if waiter.is_stream_only:
            lease = take_from(yard, queue, ReadyList.STREAM, waiter.target, waiter.terms, now_ms)
        elif waiter.is_notify_only:
            if head_of(queue, now_ms) is None:
                break
            cancel_wait(yard, waiter)
            waiter.lease_set.holder.sighted(waiter, now_ms)
            return True
        else:
            lease = take_one(yard, queue, waiter.target, waiter.terms, now_ms)
            if lease is None:
                break
        if lease is not None:
            cancel_wait(yard, waiter)
            waiter.lease_set.holder.given(waiter, lease)
            return True
        link = link.after
    if queue.rules is not None:
        arm_gate(yard, queue, now_ms)
    return False


def arm_gate(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Arm the queue for the time when a rate limit lets the next job pass."""
    rules = queue.rules
    assert rules is not None
    at_ms = next_open_ms(queue, rules, now_ms)
    if at_ms < NEVER_MS:
        yard.arm(queue, max(at_ms, now_ms + 1))
