"""Verbs for jobs that no worker runs: kick, promote, revive, reorder, change, remove."""

from mypy_extensions import i64, u8

from jobyard.engine.jobs import dead_letters, flows
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import drop_job, make_expired_dead, offer
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.errors import NotFound, StorageFull, YardFull
from jobyard.journal.format.record import Cause
from jobyard.model.details import FailureReason, JobDetails, Outcome
from jobyard.model.details_codec import FieldWriter, Tag, glide_field, member_field
from jobyard.model.family import (
    DEAD_LETTERS,
    ORDERING_KEYS,
    TTL_IS_DEATH,
    counts_attempts,
    traits,
)
from jobyard.model.glidemq.fields import GlideFlag
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.members import Member, MemberState
from jobyard.model.policy import REMOVE_DEAD
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.transition import Transition


def kick(yard: Yard, queue: Queue, bound: i64, now_ms: i64) -> i64:
    """Make up to `bound` dead jobs ready, oldest first; delayed ones if no job is dead."""
    return kick_some(yard, queue, bound, now_ms, are_dead=queue.dead.live_count > 0)


def kick_some(yard: Yard, queue: Queue, bound: i64, now_ms: i64, *, are_dead: bool) -> i64:
    """Make up to `bound` dead jobs ready, oldest first, or delayed ones."""
    kicked: i64 = 0
    while kicked < bound:
        job = _first_dead(queue) if are_dead else _first_delayed(queue)
        if job is None:
            break
        try:
            _kick(yard, job, now_ms)
        except StorageFull:
            if kicked == 0:
                raise
            # Those before it are ready, and clients may wait for them.
            break
        kicked += 1
    if kicked > 0:
        offer(yard, queue, now_ms)
    return kicked


def _first_dead(queue: Queue) -> Job | None:
    outcome = queue.dead.first()
    return outcome.job if isinstance(outcome, Outcome) else None


def _first_delayed(queue: Queue) -> Job | None:
    job = queue.delayed.items[0] if queue.delayed.items else None
    return job if isinstance(job, Job) else None


def kick_job(yard: Yard, job_id: i64, now_ms: i64) -> Job:
    """Make one dead or delayed job ready."""
    job = yard.jobs.get(job_id)
    if job is None or job.state not in (DEAD, DELAYED):
        raise NotFound
    _kick(yard, job, now_ms)
    offer(yard, job.queue, now_ms)
    return job


def kick_dead(yard: Yard, job: Job, now_ms: i64) -> None:
    """Make a dead job ready; the caller offers it to waiting clients."""
    assert job.state == DEAD
    _kick(yard, job, now_ms)


def _kick(yard: Yard, job: Job, now_ms: i64) -> None:
    move = Transition(job, Cause.KICKED, READY)
    move.due_ms = now_ms
    move.ready_list = ReadyList.STREAM
    settled: list[int] = []
    fields = FieldWriter()
    if is_revoked(job):
        _pardon(job, fields)
        move.changed_fields = fields.done()
    if counts_attempts(job.family):
        move.stamp = yard.new_place(job, now_ms)
        if yard.names.has_lost_key(job):
            fields.begin(Tag.KEY_DROPPED, 0)
        if job.state == DEAD:
            move.attempts = 0
            details = job.ensure_details()
            settled = _settle_members(yard, details, fields)
            if details.open_count() > len(settled):
                move.state = BLOCKED
        move.changed_fields = fields.done()
    yard.move(job, move, now_ms)
    for child_id in settled:
        yard.names.stop_waiting(job, child_id)


def promote(yard: Yard, job: Job, now_ms: i64) -> None:
    """Make a delayed job ready before its time."""
    move = Transition(job, Cause.PROMOTED, READY)
    move.due_ms = now_ms
    move.stamp = yard.new_place(job, now_ms)
    move.ready_list = ReadyList.STREAM
    yard.move(job, move, now_ms)
    publish_event(yard, bus.EventName.WAITING, job, "delayed", now_ms)
    offer(yard, job.queue, now_ms)


def revive(yard: Yard, job: Job, now_ms: i64, ready_list: i64 = ReadyList.STREAM) -> None:
    """Bring a dead or done job back, with its attempts reset."""
    before = "failed" if job.state == DEAD else "completed"
    if not counts_attempts(job.family):
        _kick(yard, job, now_ms)
    else:
        move = Transition(job, Cause.REVIVED, READY)
        move.due_ms = now_ms
        move.stamp = yard.new_place(job, now_ms)
        move.attempts = 0
        move.ready_list = ready_list
        details = job.ensure_details()
        details.last_lease = 0
        fields = FieldWriter()
        fields.numbers(Tag.RETRIES, (details.retries + 1, now_ms), b"")
        if is_revoked(job):
            _pardon(job, fields)
        if yard.names.has_lost_key(job):
            fields.begin(Tag.KEY_DROPPED, 0)
        settled = _settle_members(yard, details, fields)
        if details.open_count() > len(settled):
            move.state = BLOCKED
        move.changed_fields = fields.done()
        yard.move(job, move, now_ms)
        for child_id in settled:
            yard.names.stop_waiting(job, child_id)
        yard.bodies.wake(job)
    publish_event(yard, bus.EventName.RETRIED, job, before, now_ms)
    offer(yard, job.queue, now_ms)


def is_revoked(job: Job) -> bool:
    """Return whether a job was revoked and must not run."""
    details = job.details
    return (
        details is not None
        and details.glide is not None
        and details.glide.flags & GlideFlag.REVOKED != 0
    )


def _pardon(job: Job, fields: FieldWriter) -> None:
    """Clear the revoked flag: a client that brings the job back wants it to run."""
    details = job.ensure_details()
    assert details.glide is not None
    part = details.glide.copy()
    part.flags &= ~GlideFlag.REVOKED
    glide_field(fields, part)


def _settle_members(yard: Yard, details: JobDetails, fields: FieldWriter) -> list[int]:
    """Write the outcomes of open members that have ended; return the ids of those members.

    They ended while the job was itself ended, so it was not notified. They belong in the record
    that brings the job back: a crash between two records would leave it waiting for ever.
    """
    settled: list[int] = []
    taken: i64 = 0
    for member in details.members or ():
        if member.state != MemberState.OPEN:
            continue
        child = yard.jobs.get(member.child_id)
        if child is not None and child.state != DONE:
            continue
        if child is None:
            after = Member(member.child_id, member.label)
            after.state = MemberState.DROPPED
        else:
            after = flows.settled_member(yard, child, member.label, taken)
            taken += len(after.value)
        member_field(fields, after)
        settled.append(int(member.child_id))
    return settled


def set_rank(yard: Yard, job: Job, rank: i64, now_ms: i64, *, is_lifo: bool | None = None) -> None:
    """Change the rank of a waiting job.

    `is_lifo` puts it before or behind older jobs of the same rank; None keeps its order.
    """
    move = Transition(job, Cause.RANKED, i64(job.state))
    move.rank = rank
    if is_lifo is not None:
        stamp = abs_stamp(job.stamp)
        move.stamp = -stamp if is_lifo else stamp
    yard.move(job, move, now_ms)


def set_due(yard: Yard, job: Job, delay_ms: i64, now_ms: i64) -> None:
    """Change the delay of a waiting job."""
    move = Transition(job, Cause.DUE_SET, DELAYED if delay_ms > 0 else READY)
    move.due_ms = now_ms + delay_ms
    if delay_ms == 0:
        move.stamp = yard.new_place(job, now_ms)
    yard.move(job, move, now_ms)
    offer(yard, job.queue, now_ms)


def make_dead(yard: Yard, job: Job, error: str, now_ms: i64) -> None:
    """Make a job dead that no worker runs."""
    if job.policy.flags & REMOVE_DEAD:
        remove(yard, job, now_ms)
        return
    if traits(job.family) & DEAD_LETTERS and dead_letters.send(
        yard, job, dead_letters.LetterReason.FAILED, error, now_ms
    ):
        return
    move = Transition(job, Cause.FAILED, DEAD)
    if counts_attempts(job.family):
        fields = FieldWriter()
        fields.numbers(Tag.REASON, (FailureReason.UNKNOWN,), error.encode())
        move.changed_fields = fields.done()
    flows.make_room(yard, job, len(error))
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.FAILED, job.queue, job, now_ms)
        event.error = error
        event.is_final = True
        event.is_dead = True
        yard.bus.publish(event)
    if yard.names.dependents.count > 0:
        flows.fail(yard, job, error, now_ms)
    serve_ordering(yard, job, now_ms)


def set_body(yard: Yard, job: Job, body: bytes, codec: u8, now_ms: i64) -> None:
    """Replace the body of a job and its codec."""
    journal = yard.journal
    if not yard.bodies.admits(len(body)):
        raise YardFull
    if journal.is_on and not journal.admit(journal.body_room(job, body), now_ms):
        raise YardFull
    yard.bodies.drop(job)
    jobs_by_seq = job.queue.jobs_by_seq
    if jobs_by_seq is not None and job.state != DONE:
        jobs_by_seq.bytes += len(body) - i64(job.size)
    job.codec = codec
    if journal.is_on:
        journal.append_body(job, body)
    else:
        job.size = len(body)
    yard.bodies.renew(job, body)


def remove(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job that has no holder."""
    if job.state == LEASED:
        raise NotFound
    erase(yard, job, now_ms)
    serve_ordering(yard, job, now_ms)
    drop_if_idle(yard, job.queue)


def serve_ordering(yard: Yard, job: Job, now_ms: i64) -> None:
    """Offer the next job of an ordering group, which `job` held up, to waiting clients."""
    if traits(job.family) & ORDERING_KEYS and job.queue.first_link is not None:
        offer(yard, job.queue, now_ms)


def erase(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job, even one that is held; an unfinished one counts as failed for its parents.

    Jobs that it held up are not offered to waiting clients: the caller may remove those too.
    """
    is_unfinished = job.state not in (DEAD, DONE)
    if is_unfinished and yard.names.dependents.count > 0:
        flows.make_room(yard, job, 64)
    drop_job(yard, job, now_ms)
    if is_unfinished and yard.names.dependents.count > 0:
        flows.fail(yard, job, "removed", now_ms)


def expire_ttl(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job whose time to live is over; a running one may finish."""
    if job.state in (READY, DELAYED):
        if traits(job.family) & TTL_IS_DEATH:
            make_expired_dead(yard, job, now_ms)
            serve_ordering(yard, job, now_ms)
            return
        erase(yard, job, now_ms)
        drop_if_idle(yard, job.queue)


def publish_event(yard: Yard, kind: str, job: Job, before: str, now_ms: i64) -> None:
    """Publish an event of a job, with the state it was in before."""
    if yard.bus.is_on and job.state != GONE:
        event = bus.Event(kind, job.queue, job, now_ms)
        event.before = before
        yard.bus.publish(event)
