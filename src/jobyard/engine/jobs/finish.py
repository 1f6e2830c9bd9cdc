"""The verbs that end a run of a job: finish, fail, give back, bury, expire.

A lease is ended only at its own door, by its deadline, or because its holder leaves. What happens
to the job then depends on the family of the job, never on the door of the lease.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs import dead_letters, flows, schedule
from jobyard.engine.jobs.dead_letters import LetterReason
from jobyard.engine.jobs.move import erase, is_revoked
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.retention import trim_dead
from jobyard.engine.jobs.take import notify_holder, offer
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard
from jobyard.errors import NotFound, NotHeld, ResultTooLarge, StorageFull, YardFull
from jobyard.journal.format.record import Cause
from jobyard.model.details import Failure, FailureReason
from jobyard.model.details_codec import (
    FieldWriter,
    Tag,
    error_field,
    failure_field,
    overlay_field,
    result_field,
)
from jobyard.model.family import (
    DEAD_LETTERS,
    DEAD_PERISH,
    EXACT_BACKOFF,
    FREE_STALLS,
    ONE_ATTEMPT,
    PLACE_IS_ENTRY,
    READY_LISTS,
    SHOWS_FIRST_DELAY,
    TAKER_SETS_RANK,
    counts_attempts,
    traits,
)
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, READY, Job
from jobyard.model.lease import Lease, LeaseSet, Proof
from jobyard.model.policy import REMOVE_DEAD, REMOVE_DONE, backoff_ms, exact_backoff_ms
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.throttle.settings import DEFAULTS
from jobyard.model.transition import Transition

# Values of `keep` for a done job: as requested when it was put, or not kept; any other keeps it.
KEEP_AS_ASKED: Final = -1
KEEP_NOT: Final = 0

# The error of a done job whose result could not be stored.
NOT_KEPT: Final = "result not kept: storage full"
# The largest size of the changed fields of a done job, without its result.
_NEWS_SIZE: Final = 64

# Done jobs that a queue keeps; beyond this the oldest are removed.
DONE_KEPT_MAX: Final = 100_000

# Failed attempts are counted up to here: the largest value of the field.
ATTEMPTS_COUNTED: Final = (1 << 15) - 1

# How often a glide-mq job may stall if no worker sets a limit.
STALLS_MAX: Final = 1


def held(yard: Yard, job_id: i64, lease_set: LeaseSet) -> Job:
    """Return a job that is leased to the holder of `lease_set`."""
    job = yard.jobs.get(job_id)
    if job is None:
        raise NotFound
    lease = job.lease
    if lease is None or lease.lease_set is not lease_set:
        raise NotHeld
    return job


def finish(yard: Yard, job: Job, now_ms: i64) -> None:
    """End the run of a held job successfully, without a result."""
    must_notify = yard.bus.is_on or yard.names.dependents.count > 0 or yard.waits.by_id
    if must_notify or counts_attempts(job.family):
        complete(yard, job, b"", 0, KEEP_AS_ASKED, now_ms)
        return
    # The fast path: there is nothing to notify.
    if yard.journal.is_on:
        yard.journal.append_end(job, Transition(job, Cause.FINISHED, GONE), now_ms, waited=True)
    yard.counters.of(job).finished += 1
    _remove_ended(yard, job, Cause.FINISHED, now_ms)


def complete(yard: Yard, job: Job, result: bytes, codec: i64, keep: i64, now_ms: i64) -> None:
    """End the run of a held job with a result, which is kept with it unless the job is removed.

    ResultTooLarge and YardFull change nothing.
    """
    _check_size(yard, len(result))
    is_kept = _is_kept(job, keep)
    end = Transition(job, Cause.FINISHED, DONE if is_kept else GONE)
    lease = job.lease
    started_ms: i64 = 0
    if lease is not None:
        started_ms = lease.started_ms
    if is_kept and yard.journal.is_on:
        end.changed_fields = _done_fields(yard, job, started_ms, result, codec)
    if yard.names.dependents.count > 0:
        flows.make_room_for_result(yard, job, len(result), is_kept=is_kept)
    after = None
    if job.details is not None:
        after = schedule.hold_successor(yard, job, len(result), now_ms)
    if yard.bus.is_on:
        yard.bus.publish_completed(job.queue, job, result, codec, now_ms)
    _end_well(yard, job, end, started_ms, now_ms)
    is_kept = job.state == DONE
    if after is not None:
        schedule.put_successor(yard, job.queue, after, now_ms)
    if is_kept and not yard.journal.is_on:
        _keep_in_memory(yard, job, started_ms, result, codec)
    if yard.names.dependents.count > 0:
        flows.settle(yard, job, result, now_ms)
    yard.waits.ended(job, result)
    if is_kept and job.queue.done.live_count > DONE_KEPT_MAX:
        _trim_done(yard, job, now_ms)


def _check_size(yard: Yard, size: i64) -> None:
    most = yard.bodies.result_size_max
    if size > most:
        raise ResultTooLarge(f"result is larger than {most} bytes")


def _is_kept(job: Job, keep: i64) -> bool:
    if not counts_attempts(job.family) or keep == KEEP_NOT:
        return False
    return keep != KEEP_AS_ASKED or job.policy.flags & REMOVE_DONE == 0


def _end_well(yard: Yard, job: Job, end: Transition, started_ms: i64, now_ms: i64) -> None:
    """End a run; if there is no room for the result, the job is kept without it.

    It is removed only if not even the reserved room is enough for that.
    """
    journal = yard.journal
    if end.state == GONE:
        _end(yard, job, end, now_ms, waited=True)
        return
    if _is_ended(yard, job, end, now_ms):
        if journal.is_full and job.outcome().reason == FailureReason.RESULT_LOST:
            journal.results_lost += 1
        return
    journal.note_full()
    end.changed_fields = _lost_fields(started_ms)
    if _is_ended(yard, job, end, now_ms):
        journal.results_lost += 1
        return
    _end(yard, job, Transition(job, Cause.FINISHED, GONE), now_ms, waited=True)
    journal.done_lost += 1


def _keep_in_memory(yard: Yard, job: Job, started_ms: i64, result: bytes, codec: i64) -> None:
    """Keep the result of a job without a journal, as long as there is room."""
    outcome = job.outcome()
    outcome.started_ms = started_ms
    if yard.bodies.admits(len(result)):
        outcome.set_result(codec, result)
        yard.bodies.hold_result(job)
    else:
        outcome.reason = FailureReason.RESULT_LOST
        outcome.error = NOT_KEPT
        yard.journal.results_lost += 1


def _is_ended(yard: Yard, job: Job, end: Transition, now_ms: i64) -> bool:
    """End a run if there is room to keep the job; return whether it ended."""
    if yard.journal.is_full and not _may_stay(yard, job, len(end.changed_fields)):
        return False
    try:
        _end(yard, job, end, now_ms, waited=True)
    except StorageFull:
        return False
    return True


def _may_stay(yard: Yard, job: Job, fields_size: i64) -> bool:
    journal = yard.journal
    return journal.has_room_aside(journal.end_size(job, fields_size), journal.segment_size)


def _done_fields(yard: Yard, job: Job, started_ms: i64, result: bytes, codec: i64) -> bytes:
    """Return the changed fields of a done job, with its result unless a full disk has no room.

    Ends of jobs may use one segment of the reserved room, and results half of that.
    """
    journal = yard.journal
    if result and journal.is_full:
        size = journal.end_size(job, len(result) + _NEWS_SIZE)
        if not journal.has_room_aside(size, journal.segment_size // 2):
            return _lost_fields(started_ms)
    fields = FieldWriter()
    if started_ms > 0:
        # Unknown for a run that was ended late: then the field is left out.
        fields.number(Tag.STARTED, started_ms)
    if result:
        result_field(fields, codec, result)
    return fields.done()


def _lost_fields(started_ms: i64) -> bytes:
    fields = FieldWriter()
    if started_ms > 0:
        fields.number(Tag.STARTED, started_ms)
    fields.numbers(Tag.REASON, (FailureReason.RESULT_LOST,), NOT_KEPT.encode())
    return fields.done()


def _trim_done(yard: Yard, newest: Job, now_ms: i64) -> None:
    outcome = newest.queue.done.first()
    assert isinstance(outcome, flows.Outcome)
    yard.drop(outcome.job, now_ms)


def fail(  # noqa: PLR0913  the options of a failure
    yard: Yard,
    job: Job,
    error: str,
    now_ms: i64,
    *,
    stack: str = "",
    reason: i64 = FailureReason.EXPLICIT,
    delay_ms: i64 = -1,
    is_final: bool = False,
    is_removed: bool = False,
    limit: i64 = -1,
    why: i64 = Cause.FAILED,
) -> None:
    """End the run of a held job as failed: retried later, or dead after the last attempt.

    `limit` is the number of attempts if the worker sets it instead of the policy; `why` is the
    cause that is counted.
    """
    policy = job.policy
    attempts: i64 = min(i64(job.attempts) + 1, ATTEMPTS_COUNTED)
    is_final = is_final or is_revoked(job)
    is_last = is_final or _is_last(job, attempts, limit)
    if is_last and _is_dead_letter(yard, job, LetterReason.FAILED, error, now_ms):
        return
    if is_last:
        end = Transition(job, why, GONE if is_removed or policy.flags & REMOVE_DEAD else DEAD)
    else:
        wait_ms = delay_ms if delay_ms >= 0 else _backoff(job, attempts)
        end = Transition(job, why, DELAYED if wait_ms > 0 else READY)
        end.due_ms = now_ms + wait_ms
        if wait_ms == 0:
            end.stamp = yard.new_place(job, now_ms)
            end.ready_list = (
                ReadyList.STAGED if traits(job.family) & READY_LISTS else ReadyList.STREAM
            )
    end.attempts = attempts
    lease = job.lease
    started_ms = lease.started_ms if lease is not None else now_ms
    fields = FieldWriter()
    if counts_attempts(job.family):
        if traits(job.family) & SHOWS_FIRST_DELAY and job.delay_ms > 0:
            _keep_delay(fields, job)
        failure_field(fields, Failure(attempts, started_ms, now_ms, reason, error))
        if stack:
            fields.text(Tag.STACK, stack)
        if end.state == DEAD:
            if reason == FailureReason.EXPLICIT and not is_final:
                reason = FailureReason.ATTEMPTS_USED
            fields.numbers(Tag.REASON, (reason,), error.encode())
            fields.numbers(Tag.STARTED, (started_ms,), b"")
        end.changed_fields = fields.done()
    if yard.bus.is_on:
        _publish_failed(yard, job, end, error, reason, now_ms)
    _finish_failed(yard, job, end, error, now_ms)


def _keep_delay(fields: FieldWriter, job: Job) -> None:
    """Store the requested delay at the first failure of a glide-mq job.

    From then on its delay is the backoff before the next attempt.
    """
    details = job.details
    if details is not None:
        part = details.glide
        is_noted = part is not None and part.overlay is not None and b"delay" in part.overlay
        if is_noted or details.failures is not None:
            return
    overlay_field(fields, b"delay", str(int(job.delay_ms)).encode())


def _is_last(job: Job, attempts: i64, limit: i64) -> bool:
    """Return whether a job has no attempt left."""
    if limit < 0:
        limit = job.policy.max_attempts
    if traits(job.family) & ONE_ATTEMPT:
        limit = max(limit, 1)
    return 0 < limit <= attempts


def _backoff(job: Job, attempts: i64) -> i64:
    if traits(job.family) & EXACT_BACKOFF:
        return exact_backoff_ms(job.policy, attempts)
    return backoff_ms(job.policy, job.id, attempts)


def _publish_failed(
    yard: Yard, job: Job, end: Transition, error: str, reason: i64, now_ms: i64
) -> None:
    event = bus.Event(bus.EventName.FAILED, job.queue, job, now_ms)
    event.error = error
    event.reason = reason
    event.is_final = end.state in (DEAD, GONE)
    event.is_dead = end.state == DEAD
    if end.state == DELAYED:
        event.delay_ms = end.due_ms - now_ms
    yard.bus.publish(event)


def _finish_failed(yard: Yard, job: Job, end: Transition, error: str, now_ms: i64) -> None:
    is_last = end.state in (DEAD, GONE)
    if is_last and yard.names.dependents.count > 0:
        flows.make_room(yard, job, len(error))
    _end(yard, job, end, now_ms, waited=end.why != Cause.STALLED)
    if is_last:
        if yard.names.dependents.count > 0:
            flows.fail(yard, job, error, now_ms)
        if job.state == DEAD and traits(job.family) & DEAD_PERISH:
            trim_dead(yard, job.queue, 1, now_ms)
    elif yard.bus.is_on:
        event = bus.Event(bus.EventName.RETRIED, job.queue, job, now_ms)
        event.before = "failed"
        yard.bus.publish(event)


def hand_back(yard: Yard, job: Job, rank: i64, delay_ms: i64, now_ms: i64) -> bool:
    """Release a held job as a beanstalk client does; False if it is dead or gone.

    If its family counts attempts, this counts as one, maybe the last, and its rank stays.
    """
    if not counts_attempts(job.family):
        if not traits(job.family) & TAKER_SETS_RANK:
            rank = job.rank
        release(yard, job, rank, delay_ms, now_ms)
    else:
        fail(yard, job, "released", now_ms, delay_ms=delay_ms, why=Cause.HANDED_BACK)
    return job.state not in (DEAD, GONE)


def release(
    yard: Yard, job: Job, rank: i64, delay_ms: i64, now_ms: i64, *, error: str = ""
) -> None:
    """Give a held job back, ready now or after a delay, with a new rank and an error to store."""
    end = Transition(job, Cause.RELEASED, DELAYED if delay_ms > 0 else READY)
    end.rank = rank
    end.due_ms = now_ms + delay_ms
    end.changed_fields = error_field(yard.bodies.kept_error(error))
    _renew_entry_from_other_door(yard, job, end, now_ms)
    _end(yard, job, end, now_ms, waited=True)


def bury(yard: Yard, job: Job, rank: i64, now_ms: i64, *, error: str = "") -> None:
    """Make a held job dead, last among the dead jobs, until it is kicked."""
    if counts_attempts(job.family):
        fail(
            yard,
            job,
            error or "buried",
            now_ms,
            reason=FailureReason.BURIED,
            is_final=True,
            why=Cause.BURIED,
        )
        return
    if _is_dead_letter(yard, job, LetterReason.GIVEN_UP, error, now_ms):
        return
    end = Transition(job, Cause.BURIED, DEAD)
    end.changed_fields = error_field(yard.bodies.kept_error(error))
    if traits(job.family) & TAKER_SETS_RANK:
        end.rank = rank
    if yard.bus.is_on:
        _publish_failed(yard, job, end, error or "buried", FailureReason.BURIED, now_ms)
    _end(yard, job, end, now_ms, waited=True)


def _is_dead_letter(yard: Yard, job: Job, reason: str, error: str, now_ms: i64) -> bool:
    """Turn a held job into a dead letter if its queue has these; return whether that was done."""
    queue = job.queue
    if not traits(job.family) & DEAD_LETTERS:
        return False
    if queue.config is None or queue.config.dead_letter is None:
        return False
    lease = job.lease
    if not dead_letters.send(yard, job, reason, error, now_ms):
        return False
    if queue.rules is not None and queue.first_link is not None:
        offer(yard, queue, now_ms)
    if lease is not None and lease.lease_set.is_watched:
        notify_holder(yard, lease, now_ms)
    return True


def park(yard: Yard, job: Job, now_ms: i64) -> None:
    """End a run for now: the job is ready again when the jobs it waits for have ended."""
    _end(yard, job, Transition(job, Cause.PARKED, BLOCKED), now_ms, waited=True)
    if yard.bus.is_on:
        yard.bus.publish(bus.Event(bus.EventName.WAITING_CHILDREN, job.queue, job, now_ms))


def touch(yard: Yard, lease: Lease, ttl_ms: i64, now_ms: i64) -> None:
    """Restart the time of a lease. Nothing is recorded: most leases do not survive a restart."""
    lease.ttl_ms = ttl_ms
    lease.until_ms = now_ms + ttl_ms
    lease.beat_ms = now_ms
    lease.sort_key = lease.until_ms
    timeout_ms = lease.job.policy.timeout_ms
    if timeout_ms > 0:
        lease.sort_key = min(lease.sort_key, lease.started_ms + timeout_ms)
    lease.lease_set.leases.moved(lease)
    yard.arm(lease.lease_set, lease.lease_set.soonest_ms())


def expire(yard: Yard, lease: Lease, now_ms: i64) -> None:
    """End a lease whose time is over."""
    job = lease.job
    timeout_ms = job.policy.timeout_ms
    if not counts_attempts(job.family):
        end = Transition(job, Cause.EXPIRED, READY)
        end.due_ms = now_ms
        _end(yard, job, end, now_ms, waited=False)
    elif timeout_ms > 0 and now_ms >= lease.started_ms + timeout_ms:
        fail(yard, job, "Job timeout exceeded", now_ms, reason=FailureReason.TIMED_OUT)
    elif traits(job.family) & FREE_STALLS:
        stall(yard, job, STALLS_MAX, now_ms)
    else:
        _stall(yard, lease, now_ms)


def stall(yard: Yard, job: Job, most: i64, now_ms: i64) -> bool:
    """End the run of a stalled glide-mq job; False if it stalled more than `most` times.

    It does not count as an attempt, and the job moves to the end of the stream.
    """
    is_last = job.stalls() + 1 > most
    end = Transition(job, Cause.STALLED, DEAD if is_last else READY)
    error = "job stalled more than maxStalledCount"
    if is_last:
        fields = FieldWriter()
        fields.numbers(Tag.REASON, (FailureReason.STALLED,), error.encode())
        end.changed_fields = fields.done()
    else:
        end.due_ms = now_ms
        end.stamp = yard.stamp(now_ms)
    if yard.bus.is_on:
        if is_last:
            _publish_failed(yard, job, end, error, FailureReason.STALLED, now_ms)
        else:
            yard.bus.publish(bus.Event(bus.EventName.STALLED, job.queue, job, now_ms))
    _finish_failed(yard, job, end, error, now_ms)
    return not is_last


def _stall(yard: Yard, lease: Lease, now_ms: i64) -> None:
    """End the run of a job whose holder sent no heartbeat for too long."""
    job = lease.job
    policy = job.policy
    rules = job.queue.rules
    settings = rules.settings if rules is not None else DEFAULTS
    attempts: i64 = min(i64(job.attempts) + 1, ATTEMPTS_COUNTED)
    stalls: i64 = job.stalls() + 1
    is_out = counts_attempts(job.family) and 0 < policy.max_attempts <= attempts
    is_last = is_out or stalls >= settings.stalls_max
    if is_last:
        end = Transition(job, Cause.STALLED, GONE if policy.flags & REMOVE_DEAD else DEAD)
    else:
        end = Transition(job, Cause.STALLED, READY)
        end.due_ms = now_ms
    end.attempts = attempts
    error = "Job stalled"
    reason: i64 = FailureReason.ATTEMPTS_USED if is_out else FailureReason.STALLED
    fields = FieldWriter()
    failure_field(fields, Failure(attempts, lease.started_ms, now_ms, FailureReason.STALLED, error))
    if end.state == DEAD:
        fields.numbers(Tag.REASON, (reason,), error.encode())
        fields.numbers(Tag.STARTED, (lease.started_ms,), b"")
    end.changed_fields = fields.done()
    if yard.bus.is_on:
        yard.bus.publish(bus.Event(bus.EventName.STALLED, job.queue, job, now_ms))
        if is_last:
            _publish_failed(yard, job, end, error, reason, now_ms)
    _finish_failed(yard, job, end, error, now_ms)


def hand_over(yard: Yard, lease: Lease, lease_set: LeaseSet) -> None:
    """Move a lease to another lease set."""
    lease.lease_set.leases.remove(lease)
    lease.lease_set = lease_set
    lease_set.leases.push(lease)
    yard.arm(lease_set, lease.sort_key)


def give_back(yard: Yard, job: Job, now_ms: i64) -> None:
    """End a run as if it had not begun."""
    if schedule.is_run(yard, job) and _erased(yard, job, now_ms):
        return
    end = Transition(job, Cause.HOLDER_LEFT, READY)
    end.due_ms = now_ms
    _renew_entry_from_other_door(yard, job, end, now_ms)
    _end(yard, job, end, now_ms, waited=False)


def untake(yard: Yard, leases: list[Lease], now_ms: i64) -> None:
    """Give back jobs whose takers never received them."""
    for lease in leases:
        if lease.job.lease is lease:
            give_back(yard, lease.job, now_ms)


def _renew_entry_from_other_door(yard: Yard, job: Job, end: Transition, now_ms: i64) -> None:
    """Give a job that returns from another door a new entry id for glide-mq.

    A glide-mq consumer that had it before can then no longer acknowledge it by the old id.
    """
    if not traits(job.family) & PLACE_IS_ENTRY or job.deliveries < 2:
        return
    lease = job.lease
    if lease is not None and not lease.terms.is_entry():
        end.stamp = yard.new_place(job, now_ms)


def _erased(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Remove the run of a schedule that was lost with its worker: the next slot puts another."""
    try:
        erase(yard, job, now_ms)
    except (YardFull, StorageFull):
        return False
    offer(yard, job.queue, now_ms)
    drop_if_idle(yard, job.queue)
    return True


def end_run(yard: Yard, job: Job, end: Transition, now_ms: i64) -> None:
    """End a run with a given transition; the job stays in the yard."""
    _end(yard, job, end, now_ms, waited=True)


def _end(yard: Yard, job: Job, end: Transition, now_ms: i64, *, waited: bool) -> None:
    journal = yard.journal
    queue = job.queue
    if journal.is_on:
        journal.append_end(job, end, now_ms, waited=waited)
    yard.counters.ends(job, end)
    if end.state == GONE:
        _remove_ended(yard, job, end.why, now_ms)
        return
    lease = job.lease
    yard.apply_end(job, end, now_ms)
    if (
        lease is not None
        and lease.terms.proof == Proof.TOKEN
        and end.why in (Cause.STALLED, Cause.HOLDER_LEFT)
    ):
        # A holder that lost the job may still finish it until another takes it; a holder that
        # ended the run itself may not end it twice.
        job.ensure_details().last_lease = lease.key if end.state == READY else 0
    elif job.details is not None:
        job.details.last_lease = 0
    if end.changed_fields:
        yard.apply_changes(job, end.changed_fields)
    if end.state == DONE:
        yard.bodies.rest(job)
        if journal.is_on:
            yard.bodies.hold_result(job)
    if queue.first_link is not None and (end.state == READY or queue.rules is not None):
        offer(yard, queue, now_ms)
    if lease is not None and lease.lease_set.is_watched:
        notify_holder(yard, lease, now_ms)


def _remove_ended(yard: Yard, job: Job, why: i64, now_ms: i64) -> None:
    queue = job.queue
    lease = job.lease
    yard.apply_gone(job)
    queue.finished_count += 1
    if yard.keeper is not None:
        yard.keeper.left(job, why, now_ms)
    if queue.users_count == 0:
        drop_if_idle(yard, queue)
    if queue.rules is not None and queue.first_link is not None:
        offer(yard, queue, now_ms)
    if lease is not None and lease.lease_set.is_watched:
        notify_holder(yard, lease, now_ms)
