"""The verbs for jobs that no one runs: kicked awake, revived, reordered, changed, removed."""

from mypy_extensions import i64, u8

from jobyard.engine.jobs import dead_letters, flows
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import lay_expired, let_go, offer
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.errors import NotFound, StorageFull, YardFull
from jobyard.journal.format.record import (
    DUE_SET,
    FAILED,
    KICKED,
    PROMOTED,
    RANKED,
    REVIVED,
)
from jobyard.model.details import (
    DROPPED,
    KEY_DROPPED,
    OPEN,
    REASON,
    RETRIES,
    SETTLED,
    UNKNOWN,
    Extra,
    Fields,
    Member,
    Outcome,
    glide_field,
    member_field,
)
from jobyard.model.family import (
    DEAD_LETTERS,
    ORDERING_KEYS,
    TTL_IS_DEATH,
    counts_attempts,
    traits,
)
from jobyard.model.glidemq.fields import REVOKED
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.policy import REMOVE_DEAD
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import STREAM
from jobyard.model.transition import End


def kick(yard: Yard, queue: Queue, bound: i64, now_ms: i64) -> i64:
    """Make up to `bound` jobs ready: the dead, oldest first; if there are none the delayed."""
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
            # Those before it are awake, and may be waited for.
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


def _kick(yard: Yard, job: Job, now_ms: i64) -> None:
    move = End(job, KICKED, READY)
    move.due_ms = now_ms
    move.shelf = STREAM
    settled: list[int] = []
    fields = Fields()
    if is_revoked(job):
        _pardon(job, fields)
        move.news = fields.done()
    if counts_attempts(job.family):
        move.stamp = yard.new_place(job, now_ms)
        if yard.names.has_lost_key(job):
            fields.begin(KEY_DROPPED, 0)
        if job.state == DEAD:
            move.attempts = 0
            extra = job.more()
            settled = _settle_members(yard, extra, fields)
            if extra.open_count() > len(settled):
                move.state = BLOCKED
        move.news = fields.done()
    yard.move(job, move, now_ms)
    for child_id in settled:
        yard.names.stop_waiting(job, child_id)


def promote(yard: Yard, job: Job, now_ms: i64) -> None:
    """Make a delayed job ready before its time."""
    move = End(job, PROMOTED, READY)
    move.due_ms = now_ms
    move.stamp = yard.new_place(job, now_ms)
    move.shelf = STREAM
    yard.move(job, move, now_ms)
    tell(yard, bus.WAITING, job, "delayed", now_ms)
    offer(yard, job.queue, now_ms)


def revive(yard: Yard, job: Job, now_ms: i64, shelf: i64 = STREAM) -> None:
    """Bring a dead or done job back, with all its attempts before it."""
    before = "failed" if job.state == DEAD else "completed"
    if not counts_attempts(job.family):
        _kick(yard, job, now_ms)
    else:
        move = End(job, REVIVED, READY)
        move.due_ms = now_ms
        move.stamp = yard.new_place(job, now_ms)
        move.attempts = 0
        move.shelf = shelf
        extra = job.more()
        extra.last_lease = 0
        fields = Fields()
        fields.numbers(RETRIES, (extra.retries + 1, now_ms), b"")
        if is_revoked(job):
            _pardon(job, fields)
        if yard.names.has_lost_key(job):
            fields.begin(KEY_DROPPED, 0)
        settled = _settle_members(yard, extra, fields)
        if extra.open_count() > len(settled):
            move.state = BLOCKED
        move.news = fields.done()
        yard.move(job, move, now_ms)
        for child_id in settled:
            yard.names.stop_waiting(job, child_id)
        yard.bodies.wake(job)
    tell(yard, bus.RETRIED, job, before, now_ms)
    offer(yard, job.queue, now_ms)


def is_revoked(job: Job) -> bool:
    """Tell whether a job is not to run any more."""
    extra = job.extra
    return extra is not None and extra.glide is not None and extra.glide.flags & REVOKED != 0


def _pardon(job: Job, fields: Fields) -> None:
    """Write down that a job may run again: who brings it back wants that."""
    extra = job.more()
    assert extra.glide is not None
    part = extra.glide.copy()
    part.flags &= ~REVOKED
    glide_field(fields, part)


def _settle_members(yard: Yard, extra: Extra, fields: Fields) -> list[int]:
    """Write down what became of those a job at rest was not told of; return which are settled.

    In the record that brings the job back: a crash between the two would leave it waiting for ever.
    """
    settled: list[int] = []
    for member in extra.members or ():
        if member.state != OPEN:
            continue
        child = yard.jobs.get(member.child_id)
        if child is not None and child.state != DONE:
            continue
        news = Member(member.child_id, member.label)
        news.state = DROPPED if child is None else SETTLED
        news.value = b"" if child is None else yard.bodies.fetch_result(child) or b""
        member_field(fields, news)
        settled.append(int(member.child_id))
    return settled


def set_rank(yard: Yard, job: Job, rank: i64, now_ms: i64, *, is_lifo: bool | None = None) -> None:
    """Give a job that waits another rank, and let it go before or behind older ones of that."""
    move = End(job, RANKED, i64(job.state))
    move.rank = rank
    if is_lifo is not None:
        stamp = abs_stamp(job.stamp)
        move.stamp = -stamp if is_lifo else stamp
    yard.move(job, move, now_ms)


def set_due(yard: Yard, job: Job, delay_ms: i64, now_ms: i64) -> None:
    """Let a job that waits be ready after another delay."""
    move = End(job, DUE_SET, DELAYED if delay_ms > 0 else READY)
    move.due_ms = now_ms + delay_ms
    if delay_ms == 0:
        move.stamp = yard.new_place(job, now_ms)
    yard.move(job, move, now_ms)
    offer(yard, job.queue, now_ms)


def lay_aside(yard: Yard, job: Job, error: str, now_ms: i64) -> None:
    """Make a job dead that nobody runs."""
    if job.policy.flags & REMOVE_DEAD:
        remove(yard, job, now_ms)
        return
    if traits(job.family) & DEAD_LETTERS and dead_letters.send(yard, job, now_ms):
        return
    move = End(job, FAILED, DEAD)
    if counts_attempts(job.family):
        fields = Fields()
        fields.numbers(REASON, (UNKNOWN,), error.encode())
        move.news = fields.done()
    flows.make_room(yard, job, len(error))
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.FAILED, job.queue, job, now_ms)
        event.error = error
        event.is_final = True
        event.is_dead = True
        yard.bus.tell(event)
    if yard.names.dependents.count > 0:
        flows.fail(yard, job, error, now_ms)
    serve_lane(yard, job, now_ms)


def set_body(yard: Yard, job: Job, body: bytes, codec: u8, now_ms: i64) -> None:
    """Give a job another body, and note how that is written."""
    journal = yard.journal
    if not yard.bodies.admits(len(body)):
        raise YardFull
    if journal.is_on and not journal.admit(journal.body_room(job, body), now_ms):
        raise YardFull
    yard.bodies.drop(job)
    roster = job.queue.roster
    if roster is not None and job.state != DONE:
        roster.bytes += len(body) - i64(job.size)
    job.codec = codec
    if journal.is_on:
        journal.append_body(job, body)
    else:
        job.size = len(body)
    yard.bodies.renew(job, body)


def remove(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job that nobody holds."""
    if job.state == LEASED:
        raise NotFound
    erase(yard, job, now_ms)
    serve_lane(yard, job, now_ms)
    drop_if_idle(yard, job.queue)


def serve_lane(yard: Yard, job: Job, now_ms: i64) -> None:
    """Serve those who wait with a job that one of its lane held up."""
    if traits(job.family) & ORDERING_KEYS and job.queue.first_link is not None:
        offer(yard, job.queue, now_ms)


def erase(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job, even one that is held; an unfinished one settles as if it had failed.

    Who waits is not served with what it held up: others may have to go with it.
    """
    is_unfinished = job.state not in (DEAD, DONE)
    if is_unfinished and yard.names.dependents.count > 0:
        flows.make_room(yard, job, 64)
    let_go(yard, job, now_ms)
    if is_unfinished and yard.names.dependents.count > 0:
        flows.fail(yard, job, "removed", now_ms)


def expire_ttl(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job whose time to live is over; one that runs is let run."""
    if job.state in (READY, DELAYED):
        if traits(job.family) & TTL_IS_DEATH:
            lay_expired(yard, job, now_ms)
            serve_lane(yard, job, now_ms)
            return
        erase(yard, job, now_ms)
        drop_if_idle(yard, job.queue)


def tell(yard: Yard, kind: str, job: Job, before: str, now_ms: i64) -> None:
    """Tell those who listen what happened to a job, and in which state it was before."""
    if yard.bus.is_on and job.state != GONE:
        event = bus.Event(kind, job.queue, job, now_ms)
        event.before = before
        yard.bus.tell(event)
