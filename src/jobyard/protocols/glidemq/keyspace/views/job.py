"""A job as the hash that clients read: every field comes from the job itself, none is stored twice.

Fields that do not apply to a job are left out, not empty. A field that the yard does not know is
shown as the client wrote it. A field that reflects the job's state can be overwritten by a client,
too: that changes nothing but the field, and is shown until the state changes.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.state.yard import Yard
from jobyard.errors import BodyDamaged
from jobyard.journal.damage import CORRUPT_RESULT, CORRUPT_TEXT
from jobyard.model.details import FailureReason, JobDetails
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.glidemq.fields import GlideFlag, GlidePart
from jobyard.model.job import DEAD, DONE, LEASED, Job
from jobyard.model.members import MemberState
from jobyard.model.policy import LIFO, Policy
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.wire.payload import to_json

# Priorities of other doors are ranks of any size; here they are the upper bits of a score.
RANK_SHOWN_MAX: Final = 2047

# Prefix of the name of a field that reflects the job's state, where a client overwrote it.
NOTE_MARK: Final = b"\1"


def job_fields(
    yard: Yard,
    job: Job,
    *,
    with_data: bool = True,
    with_result: bool = True,
    with_flow: bool = True,
) -> list[bytes]:
    """Return fields and values of a job, one after the other.

    Callers that need a single field can leave out the children: there may be many.
    """
    found = _given_fields(yard, job, with_data=with_data)
    details = job.details
    part: GlidePart | None = None
    if details is not None:
        part = details.glide
        if part is not None:
            _add_part(found, part)
        if with_flow:
            _add_flow(found, details)
        _add_course(yard, found, job, details, with_result=with_result)
    if job.policy.flags & LIFO and job.family == GLIDE:
        found += (b"lifo", b"1")
    _add_times(yard, found, job)
    found += (b"state", glide_add.state_of(job).encode())
    if part is not None and part.overlay is not None:
        _lay_over(found, job, part.overlay)
    return found


def shown_state(job: Job) -> bytes:
    """Return the state of a job as shown: the real one, or what a client wrote."""
    return _overlaid(job, b"state") or glide_add.state_of(job).encode()


def _overlaid(job: Job, name: bytes) -> bytes | None:
    """Return what a client wrote into a field, if it is still valid."""
    details = job.details
    part = None if details is None else details.glide
    if part is None or part.overlay is None:
        return None
    note = part.overlay.get(NOTE_MARK + name)
    if note is not None and note.startswith(standing(job)):
        return note[len(standing(job)) :]
    return part.overlay.get(name)


def standing(job: Job) -> bytes:
    """Return a fingerprint of a job's state: any change to the job changes it."""
    stamp = int(job.stamp)
    return f"{job.state}.{job.ready_list}.{job.attempts}.{job.deliveries}.{stamp}\0".encode()


def field_of(yard: Yard, job: Job, name: bytes) -> bytes | None:
    """Return one field of a job."""
    if name == b"state":
        return shown_state(job)
    if name == b"data":
        return data_of(yard, job)
    fields = job_fields(
        yard,
        job,
        with_data=False,
        with_result=name == b"returnvalue",
        with_flow=name.startswith(b"dep"),
    )
    for at in range(0, len(fields), 2):
        if fields[at] == name:
            return fields[at + 1]
    return None


def _given_fields(yard: Yard, job: Job, *, with_data: bool) -> list[bytes]:
    """Return what was given when the job was put."""
    policy = job.policy
    return [
        b"id",
        bytes_of(glide_add.id_of(job)),
        b"name",
        bytes_of(policy.name),
        b"data",
        data_of(yard, job) if with_data else b"",
        b"opts",
        glide_add.opts_of(job),
        b"timestamp",
        number(timestamp_of(yard, job)),
        b"attemptsMade",
        number(i64(job.attempts)),
        b"delay",
        number(_delay_of(job)),
        b"priority",
        number(priority_of(job)),
        b"maxAttempts",
        number(_max_attempts(job, policy)),
    ]


def data_of(yard: Yard, job: Job) -> bytes:
    """Return the data of a job: as it was given, or as JSON if it came in by another door.

    Raises BodyDamaged if it cannot be read: an empty text would be taken for the data.
    """
    body = job.body
    if body is None:
        body = yard.bodies.fetch(job)
    if body is None:
        raise BodyDamaged(CORRUPT_TEXT)
    return body if job.family == GLIDE else to_json(i64(job.codec), body)


def timestamp_of(yard: Yard, job: Job) -> i64:
    """Return when the job was put, by the producer's clock if that is known."""
    if job.family == GLIDE:
        return job.own_ms
    return job.created_ms + yard.journal.wall_offset_ms


def priority_of(job: Job) -> i64:
    """Return the priority of a job as this door counts it: from 0 on."""
    return job.rank if job.family == GLIDE else min(max(job.rank, 0), RANK_SHOWN_MAX)


def _delay_of(job: Job) -> i64:
    """Return the delay that was requested; the backoff after a failure is not such a delay.

    Where a backoff has replaced the requested delay, that delay is a field of the overlay.
    """
    details = job.details
    if details is not None and details.failures is not None and job.family == GLIDE:
        return 0
    return max(job.delay_ms, 0)


def _max_attempts(job: Job, policy: Policy) -> i64:
    return policy.max_attempts if job.family in (GLIDE, BUNQUEUE) else 0


def _add_part(found: list[bytes], part: GlidePart) -> None:
    if part.ordering_key:
        key = bytes_of(part.ordering_key)
        # Older clients call a key without further limits an ordering key; newer clients call every
        # key a group key.
        if part.limits.is_sequential():
            found += (b"orderingKey", key)
        found += (b"orderingSeq", number(part.order))
        found += (b"groupKey", key)
    if part.cost > 0:
        found += (b"cost", number(part.cost))
    for name, text in (
        (b"parentId", part.parent_id),
        (b"parentQueue", part.parent_queue),
        (b"parentIds", part.parent_ids),
        (b"parentQueues", part.parent_queues),
        (b"schedulerName", part.scheduler),
    ):
        if text:
            found += (name, bytes_of(text))
    if part.flags & GlideFlag.REVOKED:
        found += (b"revoked", b"1")


def _add_flow(found: list[bytes], details: JobDetails) -> None:
    """Add which of its children are done."""
    members = details.members
    if members is None:
        return
    done = [
        member.label
        for member in members
        if member.state not in (MemberState.OPEN, MemberState.DROPPED)
    ]
    if done:
        found += (b"depsCompleted", number(len(done)))
        for label in done:
            found += (b"depdone:" + bytes_of(label), b"1")


def _add_course(
    yard: Yard, found: list[bytes], job: Job, details: JobDetails, *, with_result: bool
) -> None:
    """Add the history of the job since it was put."""
    if details.progress:
        found += (b"progress", bytes_of(details.progress))
    stalls = job.stalls()
    if stalls > 0:
        found += (b"stalledCount", number(stalls))
    reason = _failed_reason(job, details)
    if reason is not None:
        found += (b"failedReason", bytes_of(reason))
    outcome = details.outcome
    if outcome is not None and job.state in (DEAD, DONE):
        if job.state == DONE and outcome.reason != FailureReason.RESULT_LOST:
            found += (b"returnvalue", _result_of(yard, job) if with_result else b"null")
        found += (b"finishedOn", number(outcome.ended_ms + yard.journal.wall_offset_ms))
    if job.attempts > 0 and b'"fallbacks"' in glide_add.opts_of(job):
        # One for each retry.
        retries = i64(job.attempts) - (1 if job.state == DEAD else 0)
        if retries > 0:
            found += (b"fallbackIndex", number(retries))


def _result_of(yard: Yard, job: Job) -> bytes:
    result = yard.bodies.fetch_result(job)
    if result is None:
        raise BodyDamaged(CORRUPT_RESULT)
    if job.family != GLIDE and result:
        result = to_json(job.outcome().codec, result)
    return result or b"null"


def _failed_reason(job: Job, details: JobDetails) -> str | None:
    """Return the last failure of a job, or why a job that is done has no result."""
    outcome = details.outcome
    if outcome is not None and (job.state == DEAD or outcome.reason == FailureReason.RESULT_LOST):
        return outcome.error
    failures = details.failures
    if failures is not None and job.attempts > 0:
        # It stays when the job is retried, even if that succeeds.
        return failures[-1].error
    return None


def _add_times(yard: Yard, found: list[bytes], job: Job) -> None:
    offset_ms = yard.journal.wall_offset_ms
    ttl_ms = job.policy.ttl_ms
    if ttl_ms > 0:
        found += (b"expireAt", number(timestamp_of(yard, job) + ttl_ms))
    lease = job.lease
    if job.state == LEASED and lease is not None:
        found += (b"processedOn", number(lease.started_ms + offset_ms))
        found += (b"lastActive", number(lease.beat_ms + offset_ms))
        return
    details = job.details
    if details is None:
        return
    started_ms: i64 = 0
    if details.outcome is not None:
        started_ms = details.outcome.started_ms
    if started_ms == 0 and details.failures is not None:
        started_ms = details.failures[-1].started_ms
    if started_ms > 0:
        began = number(started_ms + offset_ms)
        # Heartbeats are not kept after a run: its start is shown as the last one.
        found += (b"processedOn", began, b"lastActive", began)


def _lay_over(found: list[bytes], job: Job, overlay: dict[bytes, bytes]) -> None:
    """Show what a client wrote instead of the real values."""
    left: dict[bytes, bytes] = {}
    now = standing(job)
    for name, value in overlay.items():
        if not name.startswith(NOTE_MARK):
            left.setdefault(name, value)
        elif value.startswith(now):
            left[name[len(NOTE_MARK) :]] = value[len(now) :]
    for at in range(0, len(found), 2):
        if found[at] in left:
            found[at + 1] = left.pop(found[at])
    for name, value in left.items():
        found += (name, value)


def number(value: i64) -> bytes:
    """Return a number as text."""
    return str(int(value)).encode()
