"""A job as the hash that clients read: every field from the job itself, none stored twice.

Fields that mean nothing for a job are left out, not empty. What a client wrote into a field that
the yard knows nothing of is shown as written. What it wrote into one that says how the job stands
is a note: it moves nothing, and is shown for as long as the job stands as it did then.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.state.yard import Yard
from jobyard.errors import BodyDamaged
from jobyard.journal.damage import CORRUPT, CORRUPT_RESULT
from jobyard.model.details import DROPPED, OPEN, RESULT_LOST, Extra
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.glidemq.fields import REVOKED, GlidePart
from jobyard.model.job import DEAD, DONE, LEASED, Job
from jobyard.model.policy import LIFO, Policy
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.wire.payload import to_json

# Priorities of other doors are ranks of any size; here they are the upper bits of a score.
RANK_SHOWN_MAX: Final = 2047

# Before the name of a field that says how a job stands, where a client wrote into it.
NOTE: Final = b"\1"


def job_fields(
    yard: Yard,
    job: Job,
    *,
    with_data: bool = True,
    with_result: bool = True,
    with_flow: bool = True,
) -> list[bytes]:
    """Return fields and values of a job, one after the other.

    What is told of its children is left out for who asks for one field: they may be many.
    """
    found = _given_fields(yard, job, with_data=with_data)
    extra = job.extra
    part: GlidePart | None = None
    if extra is not None:
        part = extra.glide
        if part is not None:
            _add_part(found, part)
        if with_flow:
            _add_flow(found, extra)
        _add_course(yard, found, job, extra, with_result=with_result)
    if job.policy.flags & LIFO and job.family == GLIDE:
        found += (b"lifo", b"1")
    _add_times(yard, found, job)
    found += (b"state", glide_add.state_of(job).encode())
    if part is not None and part.overlay is not None:
        _lay_over(found, job, part.overlay)
    return found


def shown_state(job: Job) -> bytes:
    """Return the state of a job as it is shown: as it is, or as a client noted it."""
    return _overlaid(job, b"state") or glide_add.state_of(job).encode()


def _overlaid(job: Job, name: bytes) -> bytes | None:
    """Return what a client wrote into a field, if it is to be shown."""
    extra = job.extra
    part = None if extra is None else extra.glide
    if part is None or part.overlay is None:
        return None
    note = part.overlay.get(NOTE + name)
    if note is not None and note.startswith(standing(job)):
        return note[len(standing(job)) :]
    return part.overlay.get(name)


def standing(job: Job) -> bytes:
    """Return how a job stands: whatever happens to it, this is another then."""
    stamp = int(job.stamp)
    return f"{job.state}.{job.shelf}.{job.attempts}.{job.deliveries}.{stamp}\0".encode()


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
    """Return the data of a job: as it was given, or as JSON where another door took it in.

    BodyDamaged if it cannot be read back: an empty text would be taken for the data.
    """
    body = job.body
    if body is None:
        body = yard.bodies.fetch(job)
    if body is None:
        raise BodyDamaged(CORRUPT)
    return body if job.family == GLIDE else to_json(i64(job.codec), body)


def timestamp_of(yard: Yard, job: Job) -> i64:
    """Return when the job was put, by the clock of who put it if that is known."""
    if job.family == GLIDE:
        return job.own_ms
    return job.created_ms + yard.journal.wall_offset_ms


def priority_of(job: Job) -> i64:
    """Return the priority of a job as this door counts it: from 0 on."""
    return job.rank if job.family == GLIDE else min(max(job.rank, 0), RANK_SHOWN_MAX)


def _delay_of(job: Job) -> i64:
    """Return the delay as it was asked for; how long it waits after a failure is no such thing.

    Where another has taken its place, the one asked for is a field of the overlay.
    """
    extra = job.extra
    if extra is not None and extra.failures is not None and job.family == GLIDE:
        return 0
    return max(job.delay_ms, 0)


def _max_attempts(job: Job, policy: Policy) -> i64:
    return policy.max_attempts if job.family in (GLIDE, BUNQUEUE) else 0


def _add_part(found: list[bytes], part: GlidePart) -> None:
    if part.lane_key:
        key = bytes_of(part.lane_key)
        # Older clients know a key without further limits as an ordering key, newer ones any key
        # as that of a group.
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
    if part.flags & REVOKED:
        found += (b"revoked", b"1")


def _add_flow(found: list[bytes], extra: Extra) -> None:
    """Add which of those it waits for are done."""
    members = extra.members
    if members is None:
        return
    done = [member.label for member in members if member.state not in (OPEN, DROPPED)]
    if done:
        found += (b"depsCompleted", number(len(done)))
        for label in done:
            found += (b"depdone:" + bytes_of(label), b"1")


def _add_course(
    yard: Yard, found: list[bytes], job: Job, extra: Extra, *, with_result: bool
) -> None:
    """Add what happened to the job since it was put."""
    if extra.progress:
        found += (b"progress", bytes_of(extra.progress))
    stalls = job.stalls()
    if stalls > 0:
        found += (b"stalledCount", number(stalls))
    reason = _failed_reason(job, extra)
    if reason is not None:
        found += (b"failedReason", bytes_of(reason))
    outcome = extra.outcome
    if outcome is not None and job.state in (DEAD, DONE):
        if job.state == DONE and outcome.reason != RESULT_LOST:
            found += (b"returnvalue", _result_of(yard, job) if with_result else b"null")
        found += (b"finishedOn", number(outcome.ended_ms + yard.journal.wall_offset_ms))
    if job.attempts > 0 and b'"fallbacks"' in glide_add.opts_of(job):
        # One for each time it was tried again.
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


def _failed_reason(job: Job, extra: Extra) -> str | None:
    """Return why a job failed last, or why one that is done has no result."""
    outcome = extra.outcome
    if outcome is not None and (job.state == DEAD or outcome.reason == RESULT_LOST):
        return outcome.error
    failures = extra.failures
    if failures is not None and job.attempts > 0:
        # It stays when the job is tried again, and when that goes well.
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
    extra = job.extra
    if extra is None:
        return
    started_ms: i64 = 0
    if extra.outcome is not None:
        started_ms = extra.outcome.started_ms
    if started_ms == 0 and extra.failures is not None:
        started_ms = extra.failures[-1].started_ms
    if started_ms > 0:
        began = number(started_ms + offset_ms)
        # Signs of life are not remembered, but that there was one is.
        found += (b"processedOn", began, b"lastActive", began)


def _lay_over(found: list[bytes], job: Job, overlay: dict[bytes, bytes]) -> None:
    """Show what a client wrote in place of what is known."""
    left: dict[bytes, bytes] = {}
    now = standing(job)
    for name, value in overlay.items():
        if not name.startswith(NOTE):
            left.setdefault(name, value)
        elif value.startswith(now):
            left[name[len(NOTE) :]] = value[len(now) :]
    for at in range(0, len(found), 2):
        if found[at] in left:
            found[at + 1] = left.pop(found[at])
    for name, value in left.items():
        found += (name, value)


def number(value: i64) -> bytes:
    """Return a number as text."""
    return str(int(value)).encode()
