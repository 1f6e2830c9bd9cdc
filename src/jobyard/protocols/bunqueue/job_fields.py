"""Encoding of jobs, leases and events for bunqueue clients.

A job has some fifty fields, most of which are the same for all jobs of one policy. Those are
encoded once per policy and copied; only fields that differ are written one by one. Times are sent
as floats: the clients decode 64-bit integers to BigInt, which their arithmetic does not accept.
"""

from typing import Final

from librt.strings import BytesWriter, write_f64_be
from mypy_extensions import i64

from jobyard.engine.state.bus import Event, EventName
from jobyard.journal.damage import CORRUPT_RESULT, CORRUPT_TEXT
from jobyard.model.details import JobDetails
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.job import BLOCKED, DEAD, DONE, LEASED, MSGPACK, RAW, READY, Job
from jobyard.model.job import DELAYED as IS_DELAYED
from jobyard.model.lease import Lease
from jobyard.model.members import MemberState
from jobyard.model.policy import (
    BACKOFF_EXPONENTIAL,
    BACKOFF_FIXED,
    BACKOFF_PLAIN,
    CHILD_CONTINUES_PARENT,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    DURABLE,
    PLAIN,
    REMOVE_DEAD,
    REMOVE_DONE,
    Policy,
)
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.ids import (
    has_own_name,
    id_text,
    token_bytes,
    write_uuid,
)
from jobyard.protocols.bunqueue.progress import progress_message, progress_number
from jobyard.wire.msgpack.read import read_fields
from jobyard.wire.msgpack.write import (
    Raw,
    begin_frame,
    end_frame,
    write_array,
    write_ascii,
    write_float,
    write_int,
    write_map,
    write_nil,
    write_text,
    write_value,
)
from jobyard.wire.payload import to_msgpack

# Attempts shown for a job of a family without an attempt limit.
ATTEMPTS_SHOWN: Final = 1000

# The rare fields of a job that has no details.
PLAIN_PARTS: Final[dict[str, object]] = {
    "progress": 0,
    "progressMessage": None,
    "childrenCompleted": 0,
    "stallCount": 0,
    "deduplicationExtend": False,
    "deduplicationReplace": False,
    "deduplicationTtl": None,
    "debounceId": None,
    "debounceTtl": None,
    "uniqueKey": None,
    "customId": None,
    "parentId": None,
    "groupId": None,
    "dependsOn": [],
    "childrenIds": [],
    "tags": [],
    "stacktrace": None,
    "repeat": None,
}

_RARE_FIELDS: Final[i64] = len(PLAIN_PARTS)

# Policies whose encoded fields are cached.
SHAPES_MAX: Final = 4096

# Fields that `_write_own` writes.
_OWN_FIELDS: Final = 11

_BACKOFF_NAMES: Final = {BACKOFF_FIXED: "fixed", BACKOFF_EXPONENTIAL: "exponential"}


def _or_none(number: i64, none: i64) -> int | None:
    return None if number == none else int(number)


def _attempts_shown(policy: Policy) -> int:
    """Return the attempts shown for a policy without a limit: one for glide-mq, else many."""
    return ATTEMPTS_SHOWN if policy is PLAIN else 1


def policy_fields(policy: Policy, *, is_lifo: bool) -> dict[str, object]:
    """Return the fields that depend on the policy, and `lifo`, which each job may override."""
    kind = policy.backoff_kind
    config: dict[str, object] | None = None
    if kind != BACKOFF_PLAIN:
        config = {"type": _BACKOFF_NAMES[kind], "delay": policy.backoff_ms}
    failure = policy.child_failure
    return {
        "name": policy.name,
        "maxAttempts": policy.max_attempts or _attempts_shown(policy),
        "backoff": policy.backoff_ms,
        "backoffConfig": config,
        "stackTraceLimit": policy.stack_limit,
        "lifo": is_lifo,
        "removeOnComplete": policy.flags & REMOVE_DONE != 0,
        "removeOnFail": policy.flags & REMOVE_DEAD != 0,
        "durable": policy.flags & DURABLE != 0,
        "failParentOnFailure": failure == CHILD_FAILS_PARENT,
        "removeDependencyOnFailure": failure == CHILD_REMOVED,
        "continueParentOnFailure": failure == CHILD_CONTINUES_PARENT,
        "ignoreDependencyOnFailure": failure == CHILD_IGNORED,
        "ttl": _or_none(policy.ttl_ms, 0),
        "timeout": _or_none(policy.timeout_ms, 0),
        "stallTimeout": _or_none(policy.stall_ms, 0),
        "keepLogs": _or_none(policy.logs_kept, -1),
        "sizeLimit": _or_none(policy.size_limit, -1),
    }


def _inner(fields: dict[str, object]) -> bytes:
    """Encode the fields of a map without its header."""
    out = BytesWriter()
    for key, value in fields.items():
        write_text(out, key)
        write_value(out, value)
    return out.getvalue()


_POLICY_FIELDS: Final = 18


def _policy_bytes(door: BunqueueDoor, job: Job, *, is_plain: bool) -> bytes:
    """Return the encoded policy fields; for a plain job followed by the default rare fields."""
    shapes = door.plain_shapes if is_plain else door.shapes
    is_lifo = job.stamp < 0
    key = 2 * job.policy.number
    if is_lifo:
        key += 1
    data = shapes.get(key)
    if data is None:
        data = _inner(policy_fields(job.policy, is_lifo=is_lifo))
        if is_plain:
            data += _inner(PLAIN_PARTS)
        if len(shapes) > SHAPES_MAX:
            shapes.clear()
        shapes[key] = data
    return data


def shown_priority(job: Job) -> i64:
    """Return the priority as clients see it: in a group lower goes first, elsewhere higher."""
    details = job.details
    return job.rank if details is not None and details.group_id else -job.rank


def created_ms(door: BunqueueDoor, job: Job) -> i64:
    """Return the wall time of a job's put."""
    return job.own_ms if job.family == BUNQUEUE else door.wall_ms(job.created_ms)


def write_job(
    out: BytesWriter,
    door: BunqueueDoor,
    job: Job,
    body: bytes | None,
    more: dict[str, object] | None,
) -> None:
    """Write a whole job, with `more` fields if given; a body of None is damaged and sent as nil."""
    details = job.details
    parts: dict[str, object] | None = None if details is None else _rare_parts(job, details)
    count: i64 = _OWN_FIELDS + _POLICY_FIELDS + _RARE_FIELDS
    if more is not None:
        count += len(more)
    write_map(out, count)
    _write_own(out, door, job, body)
    out.write(_policy_bytes(door, job, is_plain=parts is None))
    if parts is not None:
        out.write(_inner(parts))
    if more is not None:
        out.write(_inner(more))


def _write_own(out: BytesWriter, door: BunqueueDoor, job: Job, body: bytes | None) -> None:
    details = job.details
    if details is not None and has_own_name(job):
        out.write(b"\xa2id")
        write_text(out, details.custom_id)
    else:
        # Header of a text of 36 bytes: d9 24.
        out.write(b"\xa2id\xd9\x24")
        write_uuid(out, job)
    out.write(b"\xa5queue")
    write_text(out, job.queue.name)
    out.write(b"\xa4data")
    if body is None:
        write_nil(out)
    else:
        out.write(body if job.codec == MSGPACK else to_msgpack(i64(job.codec), body))
    out.write(b"\xa8priority")
    write_int(out, shown_priority(job))
    # cb, the header of a float64, is written together with the key.
    out.write(b"\xa9createdAt\xcb")
    write_f64_be(out, float(created_ms(door, job)))
    out.write(b"\xa5runAt\xcb")
    write_f64_be(out, float(door.wall_ms(job.due_ms)))
    out.write(b"\xa8attempts")
    write_int(out, i64(job.attempts))
    lease = job.lease
    started_ms: i64 = 0
    beat_ms: i64 = job.created_ms
    ended_ms: i64 = 0
    if lease is not None:
        started_ms = lease.started_ms
        beat_ms = lease.beat_ms
    elif details is not None and details.outcome is not None:
        started_ms = details.outcome.started_ms
        ended_ms = details.outcome.ended_ms
    out.write(b"\xadlastHeartbeat\xcb")
    write_f64_be(out, float(door.wall_ms(beat_ms)))
    out.write(b"\xa9startedAt")
    _write_time(out, door, started_ms)
    out.write(b"\xabcompletedAt")
    _write_time(out, door, ended_ms)
    out.write(b"\xa8timeline")
    _write_timeline(out, door, job)


def _write_timeline(out: BytesWriter, door: BunqueueDoor, job: Job) -> None:
    if job.details is not None:
        write_value(out, timeline(door, job))
        return
    lease = job.lease
    out.append(0x91 if lease is None else 0x92)
    if job.delay_ms > 0:
        out.write(b"\x82\xa5state\xa7delayed\xa9timestamp\xcb")
    else:
        out.write(b"\x82\xa5state\xa7waiting\xa9timestamp\xcb")
    write_f64_be(out, float(created_ms(door, job)))
    if lease is not None:
        out.write(b"\x82\xa5state\xa6active\xa9timestamp\xcb")
        write_f64_be(out, float(door.wall_ms(lease.started_ms)))


def _write_time(out: BytesWriter, door: BunqueueDoor, at_ms: i64) -> None:
    if at_ms == 0:
        write_nil(out)
    else:
        write_float(out, float(door.wall_ms(at_ms)))


def _rare_parts(job: Job, details: JobDetails) -> dict[str, object]:
    parts = dict(PLAIN_PARTS)
    parts["progress"] = 100 if job.state == DONE else progress_number(details)
    parts["progressMessage"] = progress_message(details)
    parts["stallCount"] = job.stalls()
    parts["uniqueKey"] = details.unique_key or None
    parts["customId"] = details.custom_id if has_own_name(job) else None
    parts["groupId"] = details.group_id or None
    if details.unique_key:
        parts["deduplicationTtl"] = _or_none(details.key_ttl_ms, 0)
        parts["deduplicationExtend"] = details.key_mode == 1
        parts["deduplicationReplace"] = details.key_mode == 2
    if details.stack:
        parts["stacktrace"] = details.stack.split("\n")
    if details.members is not None:
        parts["childrenCompleted"] = sum(
            1 for one in details.members if one.state != MemberState.OPEN
        )
    if details.protocol_fields:
        marks = read_fields(details.protocol_fields, 0, len(details.protocol_fields))
        if marks is not None:
            for key in ("tags", "dependsOn", "childrenIds", "parentId", "repeat"):
                raw = marks.raw(key.encode())
                if raw is not None:
                    parts[key] = Raw(raw)
            for key in ("debounceId", "debounceTtl"):
                raw = marks.raw(key.encode())
                if raw is not None:
                    parts[key] = Raw(raw)
    return parts


def timeline(door: BunqueueDoor, job: Job) -> list[object]:
    """Return the known state changes of a job, at most the last 20."""
    details = job.details
    failures = [] if details is None or details.failures is None else details.failures
    first = "waiting"
    if details is not None and details.members:
        first = "waiting-children"
    elif job.delay_ms > 0 and not failures:
        # After a failure the delay is the wait for the next run.
        first = "delayed"
    stations: list[object] = [{"state": first, "timestamp": float(created_ms(door, job))}]
    for one in failures:
        failed_ms = float(door.wall_ms(one.failed_ms))
        stations.append(_station(door, "active", one.started_ms))
        failed: dict[str, object] = {"state": "failed", "timestamp": failed_ms}
        failed["error"] = one.error
        failed["attempt"] = one.attempt
        stations.append(failed)
        if one is not failures[-1] or job.state != DEAD:
            again: dict[str, object] = {"state": "waiting", "timestamp": failed_ms}
            again["attempt"] = one.attempt + 1
            stations.append(again)
    lease = job.lease
    if lease is not None:
        stations.append(_station(door, "active", lease.started_ms))
    if job.state == DONE:
        outcome = job.outcome()
        if outcome.started_ms > 0:
            stations.append(_station(door, "active", outcome.started_ms))
        stations.append(_station(door, "completed", outcome.ended_ms))
    return stations[-20:]


def _station(door: BunqueueDoor, state: str, at_ms: i64) -> dict[str, object]:
    return {"state": state, "timestamp": float(door.wall_ms(at_ms))}


def state_text(job: Job) -> str:
    """Return the state of a job in the words of the protocol."""
    state = job.state
    if state == READY:
        return "waiting"
    if state == IS_DELAYED:
        return "delayed"
    if state == LEASED:
        return "active"
    if state == DONE:
        return "completed"
    if state == DEAD:
        return "failed"
    return "waiting-children" if state == BLOCKED else "unknown"


def result_of(job: Job, result: bytes | None) -> Raw | None:
    """Return the result of a job, or None; results of glide-mq jobs are stored as text."""
    if not result:
        return None
    return Raw(to_msgpack(RAW, result) if job.family == GLIDE else result)


def job_value(door: BunqueueDoor, job: Job) -> Raw:
    """Return a job as GetJob shows it: with its state, result and last error."""
    details = job.details
    more: dict[str, object] = {"state": state_text(job)}
    failed: object = None
    result: object = None
    if details is not None:
        if details.failures:
            failed = details.failures[-1].error
        outcome = details.outcome
        if outcome is not None:
            if outcome.error:
                failed = outcome.error
            kept = door.yard.bodies.fetch_result(job)
            result = result_of(job, kept)
            if kept is None:
                failed = CORRUPT_RESULT
    body = door.yard.bodies.fetch(job)
    if body is None:
        # Must not look like a job without data.
        more["corrupt"] = True
        failed = CORRUPT_TEXT
    more["returnvalue"] = result
    more["failedReason"] = failed
    out = BytesWriter()
    write_job(out, door, job, body, more)
    return Raw(out.getvalue())


# -- leases ------------------------------------------------------------------------------------


def write_lease(
    out: BytesWriter, door: BunqueueDoor, lease: Lease | None, *, with_token: bool
) -> None:
    """Write the fields of an answer to PULL."""
    out.write(b"\xa3job")
    if lease is None:
        write_nil(out)
    else:
        write_job(out, door, lease.job, lease.body, None)
    if with_token:
        write_ascii(out, b"token")
        if lease is not None:
            write_ascii(out, token_bytes(door.yard, lease.key))
        else:
            write_nil(out)


def write_leases(
    out: BytesWriter, door: BunqueueDoor, leases: list[Lease], *, with_tokens: bool
) -> None:
    """Write the fields of an answer to PULLB."""
    write_ascii(out, b"jobs")
    write_array(out, len(leases))
    for lease in leases:
        write_job(out, door, lease.job, lease.body, None)
    if with_tokens:
        write_ascii(out, b"tokens")
        write_array(out, len(leases))
        for lease in leases:
            write_ascii(out, token_bytes(door.yard, lease.key))


# -- events ------------------------------------------------------------------------------------


def event_fields(door: BunqueueDoor, event: Event) -> dict[str, object]:
    """Return an event as streams and webhooks show it."""
    job = event.job
    fields: dict[str, object] = {
        "eventType": event.kind,
        "queue": event.queue.name,
        "jobId": "" if job is None else id_text(job),
        "timestamp": float(door.wall_ms(event.at_ms)),
    }
    if event.kind == EventName.COMPLETED:
        if job is not None and event.result:
            fields["data"] = result_of(job, event.result)
    elif event.kind == EventName.FAILED:
        fields["error"] = event.error
        fields["terminal"] = event.is_final
        body = None if job is None else door.yard.bodies.fetch(job)
        if job is not None and body is not None:
            fields["data"] = Raw(body if job.codec == MSGPACK else to_msgpack(i64(job.codec), body))
    elif event.kind == EventName.PROGRESS and job is not None and job.details is not None:
        progress = progress_number(job.details)
        fields["progress"] = progress
        fields["data"] = {"progress": progress, "message": progress_message(job.details)}
    elif event.kind == EventName.DELAYED:
        fields["delay"] = event.delay_ms
    if event.before:
        fields["prev"] = event.before
    return fields


def write_event(out: BytesWriter, door: BunqueueDoor, event: Event) -> None:
    """Write the frame of an event."""
    frame = begin_frame(out)
    write_value(out, {"type": "event", "event": event_fields(door, event)})
    end_frame(out, frame)
