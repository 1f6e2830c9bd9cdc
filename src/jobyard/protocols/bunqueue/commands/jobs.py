"""PUSH, PULL, ACK and FAIL: the frequent commands. Batches: `push_batch.py`, `acks.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, KEEP_NOT, complete, fail
from jobyard.engine.jobs.put_transaction import put_new_job
from jobyard.engine.jobs.queues import hold_watch, open_queue
from jobyard.engine.jobs.take import take_one, wait
from jobyard.errors import Refused
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.job import DEAD, DONE, JSON, MSGPACK, Job
from jobyard.model.lease import Lease, Proof, Terms
from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.settings import DAY_MS, NO_LIMIT, Bucket
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.push_links import PushLinks
from jobyard.protocols.bunqueue.ids import find_job, id_bytes, token_number, write_uuid
from jobyard.protocols.bunqueue.request import Pull
from jobyard.wire.msgpack.write import write_text
from jobyard.wire.payload import to_json

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.protocols.bunqueue.observer import CommandObserver
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession
    from jobyard.wire.msgpack.read import MapFields

LOCK_MS_DEFAULT: Final = 30_000
PULL_WAIT_MAX: Final = 60_000
PULL_COUNT_MAX: Final = 1000


# -- PUSH --------------------------------------------------------------------------------------


def push(session: BunqueueSession, request: Request) -> None:
    """Add one job."""
    fields = request.fields
    now_ms = request.now_ms
    name = session.queue_name(fields)
    door = session.door
    new_job = push_options.read_new_job(door, fields, now_ms)
    refuse_if_draining(session)
    queue = open_queue(door.yard, name)
    details = new_job.details
    links = None if details is None else PushLinks(door.yard, new_job, details, fields)
    job = put_new_job(door.yard, queue, new_job, links, now_ms)
    out = session.out
    frame = session.begin_ok(request.req_id, 1)
    out.write(b"\xa2id")
    write_id(out, job)
    session.end_ok(frame, request.req_id)
    session.narrow(frame, job.batch)


def write_id(out: BytesWriter, job: Job) -> None:
    """Append the id of a new job, as its client sees it."""
    details = job.details
    if details is not None and details.custom_id:
        write_text(out, details.custom_id)
        return
    out.append(0xD9)
    out.append(36)
    write_uuid(out, job)


def refuse_if_draining(session: BunqueueSession) -> None:
    """Refuse new jobs while the server shuts down."""
    if session.door.is_draining:
        raise Refused("Server is shutting down")


# -- PULL --------------------------------------------------------------------------------------


def pull(session: BunqueueSession, request: Request, *, is_batch: bool) -> None:
    """Take one job or several, now or when they become ready."""
    fields = request.fields
    now_ms = request.now_ms
    yard = session.yard
    name = session.queue_name(fields)
    if fields.others_count == 0 and not is_batch and _pull_one(session, name, request):
        return
    count: i64 = 1
    if is_batch:
        count = push_options.number(fields, b"count", 1, 1, PULL_COUNT_MAX)
    timeout_ms: i64 = 0
    if fields.has(b"timeout"):
        timeout_ms = push_options.number(fields, b"timeout", 0, 0, PULL_WAIT_MAX)
    terms = session_terms(session, fields)
    one = Pull(request.req_id, count, is_batch=is_batch, is_owned=terms.proof == Proof.TOKEN)
    one.is_detached = fields.is_true(b"detach")
    queue = yard.queues.get(name)
    if fields.has(b"group") and not fields.is_nil(b"group"):
        limits = group_defaults(fields)
        if queue is not None:
            set_group_defaults(queue, limits, now_ms)
    if queue is not None:
        lease = take_one(yard, queue, session.lease_set, terms, now_ms)
        if lease is not None:
            leases = [lease]
            if count > 1:
                leases += take_more(session, queue, terms, count - 1, now_ms)
            session.answer_pull(one, leases)
            return
        _publish_held_up(session.door.observer, queue, now_ms)
    if timeout_ms == 0:
        session.answer_pull(one, [])
        return
    queue = open_queue(yard, name)
    hold_watch(queue)
    one.queue = queue
    waiter = wait(yard, [queue], session.lease_set, terms, now_ms + timeout_ms, NEVER_MS)
    session.pulls[waiter] = one


def _publish_held_up(observer: CommandObserver | None, queue: Queue, now_ms: i64) -> None:
    """Report to the observer that a limit of the queue held back a ready job."""
    rules = queue.rules
    if observer is None or rules is None or not (queue.ready.items or rules.ring):
        return
    if 0 <= rules.settings.concurrency <= len(queue.leased.items):
        observer.publish("concurrency:rejected", {"queue": queue.name})
    elif rules.bucket is not None and not rules.bucket.has_one(now_ms):
        observer.publish("ratelimit:rejected", {"queue": queue.name})


def _pull_one(session: BunqueueSession, name: str, request: Request) -> bool:
    """Answer a PULL without options if a job is ready."""
    yard = session.yard
    queue = yard.queues.get(name)
    if queue is None:
        return False
    lease = take_one(yard, queue, session.lease_set, session.plain_terms, request.now_ms)
    if lease is None:
        return False
    session.answer_lease(request.req_id, lease)
    return True


def session_terms(session: BunqueueSession, fields: MapFields) -> Terms:
    """Return the terms of a pull: with an owner a lock and a token, else those of the session."""
    owner = fields.text(b"owner")
    if not owner:
        return session.plain_terms
    ttl_ms = push_options.number(fields, b"lockTtl", LOCK_MS_DEFAULT, 1, DAY_MS)
    terms = session.owned_terms
    if terms is None or terms.label != owner or terms.ttl_ms != ttl_ms:
        terms = Terms(BUNQUEUE, Proof.TOKEN, ttl_ms, owner)
        session.owned_terms = terms
    return terms


def take_more(
    session: BunqueueSession, queue: Queue, terms: Terms, count: i64, now_ms: i64
) -> list[Lease]:
    """Take up to `count` more jobs on the same terms."""
    leases: list[Lease] = []
    while len(leases) < count:
        lease = take_one(session.yard, queue, session.lease_set, terms, now_ms)
        if lease is None:
            break
        leases.append(lease)
    return leases


def group_defaults(fields: MapFields) -> tuple[i64, i64, i64]:
    """Read the group limits of a pull: the concurrency, and jobs per duration in ms."""
    value = fields.value(b"group")
    if not isinstance(value, dict):
        raise Refused("group must be an object")
    concurrency: i64 = NO_LIMIT
    if value.get("concurrency") is not None:
        concurrency = push_options.checked("group.concurrency", value["concurrency"], 1, 1 << 31)
    limit = value.get("limit")
    most: i64 = NO_LIMIT
    per_ms: i64 = 0
    if limit is not None:
        if not isinstance(limit, dict):
            raise Refused("group.limit must be an object")
        most = push_options.checked("group.limit.max", limit.get("max"), 1, 1 << 31)
        per_ms = push_options.checked("group.limit.duration", limit.get("duration"), 1, DAY_MS)
    if value.get("affinity") is not None and not isinstance(value["affinity"], str | bool):
        raise Refused("group.affinity must be a string")
    return concurrency, most, per_ms


def set_group_defaults(queue: Queue, limits: tuple[i64, i64, i64], now_ms: i64) -> None:
    """Apply the group limits of a pull as defaults: limits set for a group take precedence."""
    rules = queue.rules
    if rules is None:
        return
    concurrency, most, per_ms = limits
    for group in rules.ring:
        group.default_concurrency = concurrency
        known = group.default_bucket
        if most < 0:
            group.default_bucket = None
        elif known is None or known.most != most or known.per_ms != per_ms:
            group.default_bucket = Bucket(most, per_ms)
            group.default_bucket.fill(now_ms)


# -- ACK and FAIL ------------------------------------------------------------------------------


def named_job(session: BunqueueSession, fields: MapFields) -> Job:
    """Return the job with the id that a command gives, or refuse."""
    name = fields.content(b"id")
    job = None if name is None else find_job(session.yard, name)
    if job is None:
        raise Refused("Job not found")
    return job


def check_lease(session: BunqueueSession, job: Job, name: bytes, token: bytes | None) -> None:
    """Refuse unless the client may end the run of a job."""
    lease = job.lease
    if lease is not None and lease.terms.proof == Proof.DOOR:
        return
    shown = name.decode("utf-8", "replace")
    if lease is None:
        details = job.details
        late: i64 = 0 if details is None else details.last_lease
        if late != 0 and token is not None and token_number(session.yard, token) == late:
            return
        raise Refused(f"Job not found or not in processing state: {shown}")
    if lease.terms.proof != Proof.TOKEN:
        raise Refused(f"Invalid or expired lock token for job {shown}")
    if not token:
        raise Refused(f"Lock token required for job {shown}")
    if token_number(session.yard, token) != lease.key:
        raise Refused(f"Invalid or expired lock token for job {shown}")


def ack(session: BunqueueSession, request: Request) -> None:
    """Finish one job."""
    fields = request.fields
    name = fields.content_at(fields.id)
    job = None if name is None else find_job(session.yard, name)
    if job is None or name is None:
        shown = "" if name is None else name.decode("utf-8", "replace")
        raise Refused(f"Job not found or not in processing state: {shown}")
    token: bytes | None = None
    keep: i64 = KEEP_AS_ASKED
    result = b""
    if fields.others_count > 0:
        token = fields.content(b"token")
        if fields.is_true(b"removeOnComplete"):
            keep = KEEP_NOT
        if not fields.is_nil(b"result"):
            result = fields.raw(b"result") or b""
    if job.state == DEAD or (job.state == DONE and fields.has(b"token")):
        session.answer(request.req_id, already_final())
        return
    check_lease(session, job, name, token)
    complete_run(session.yard, job, result, keep, request.now_ms)
    frame = session.begin_ok(request.req_id, 0)
    session.end_ok(frame, request.req_id)
    session.narrow(frame, job.batch)


def complete_run(yard: Yard, job: Job, result: bytes, keep: i64, now_ms: i64) -> None:
    """Complete a run; the result is stored in the encoding of the job's family."""
    if job.family == GLIDE:
        complete(yard, job, to_json(MSGPACK, result) if result else b"", JSON, keep, now_ms)
    else:
        complete(yard, job, result, MSGPACK, keep, now_ms)


def already_final() -> dict[str, object]:
    """Return the answer to an ACK or FAIL of a job that has already ended."""
    return {"data": {"applied": False, "reason": "already-finalized"}}


def fail_job(session: BunqueueSession, request: Request) -> dict[str, object]:
    """FAIL: retry a job later, or move it to the dead jobs."""
    fields = request.fields
    name = fields.content(b"id")
    job = None if name is None else find_job(session.yard, name)
    if job is None or name is None:
        shown = "" if name is None else name.decode("utf-8", "replace")
        raise Refused(f"Job not found or not in processing state: {shown}")
    if job.state == DEAD or (job.state == DONE and fields.has(b"token")):
        return already_final()
    check_lease(session, job, name, fields.content(b"token"))
    lines = fields.texts(b"stack") or []
    kept = lines[: int(job.policy.stack_limit)]
    fail(
        session.yard,
        job,
        fields.text(b"error") or "Unknown error",
        request.now_ms,
        stack="\n".join(line.strip()[:1024] for line in kept),
        is_final=fields.is_true(b"unrecoverable"),
        is_removed=fields.is_true(b"removeOnFail"),
    )
    return {}


def job_ids(jobs: list[Job]) -> list[object]:
    """Return the ids of jobs as clients see them."""
    return [id_bytes(job).decode() for job in jobs]
