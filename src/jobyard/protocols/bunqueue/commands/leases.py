"""Commands for a job while it runs: progress, heartbeats, lock extension.

Heartbeats and locks are in memory only, as leases are; progress is in the journal. A heartbeat
without a duration never shortens a lock.
"""

import math
from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs.finish import touch
from jobyard.engine.jobs.take import lease_ms
from jobyard.engine.state import bus
from jobyard.errors import Refused, YardFull
from jobyard.model.details_codec import FieldWriter as ChangedFields
from jobyard.model.details_codec import Tag, size_of
from jobyard.model.job import Job
from jobyard.model.lease import Lease, Proof
from jobyard.model.throttle.settings import DAY_MS
from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.jobs import named_job
from jobyard.protocols.bunqueue.commands.query import refuse_unless_active
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.ids import find_job, token_number
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession

PROGRESS_MAX: Final = 100
# Jobs in one command: more than any connection runs.
IDS_MAX: Final = 10_000

# More than a record takes in addition to the job's details and the new fields.
_RECORD_ROOM: Final = 1024

NOT_ALIVE: Final = "Job not found or not active (or invalid token)"
NOT_LOCKED: Final = "Lock not found or invalid token"


# -- progress ----------------------------------------------------------------------------------


def progress(session: BunqueueSession, request: Request) -> Answer:
    """Set the progress of a running job; the message stays unless a new one is given."""
    fields = request.fields
    now_ms = request.now_ms
    job = named_job(session, fields)
    refuse_unless_active(job)
    shown = _progress_text(fields.value(b"progress"))
    message = "" if job.details is None else job.details.message
    if fields.has(b"message"):
        message = push_options.text(fields, b"message")
    changes = ChangedFields()
    changes.text(Tag.PROGRESS, f"{shown}\0{message}")
    ensure_room(session, job, len(message), now_ms)
    session.yard.note(job, changes.done(), is_needed=True)
    lease = job.lease
    assert lease is not None
    _note_seen(session, lease, now_ms)
    if session.yard.bus.is_on:
        session.yard.bus.publish(bus.Event(bus.EventName.PROGRESS, job.queue, job, now_ms))
    return {}


def ensure_room(session: BunqueueSession, job: Job | None, size: i64, now_ms: i64) -> None:
    """Refuse a change if the disk is full; a change of a job may use the reserved space."""
    journal = session.yard.journal
    if not journal.is_on:
        return
    if job is None:
        is_admitted = journal.admit(_RECORD_ROOM + size, now_ms)
    else:
        details = job.details
        needed = _RECORD_ROOM + size + (0 if details is None else size_of(details))
        is_admitted = journal.admit_change(needed, now_ms)
    if not is_admitted:
        raise YardFull


def _progress_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused("progress must be a number")
    if not math.isfinite(value):
        raise Refused("progress must be a finite number")
    if not 0 <= value <= PROGRESS_MAX:
        raise Refused(f"progress must be between 0 and {PROGRESS_MAX}")
    whole = int(value)
    return str(whole) if whole == value else str(value)


# -- heartbeats --------------------------------------------------------------------------------


def job_heartbeat(session: BunqueueSession, request: Request) -> Answer:
    """Record a heartbeat of a job; with the lock's token it also renews the lock."""
    fields = request.fields
    name = fields.content(b"id")
    job = None if name is None else find_job(session.yard, name)
    duration_ms: i64 = push_options.number(fields, b"duration", 0, 1, DAY_MS)
    token = fields.content(b"token")
    if job is None or not _beat(session, job, token, duration_ms, request.now_ms):
        raise Refused(NOT_ALIVE)
    return {"data": {"ok": True}}


def job_heartbeats(session: BunqueueSession, request: Request) -> Answer:
    """Record heartbeats of many jobs; jobs that do not run are skipped."""
    fields = request.fields
    ids = _ids(request)
    tokens = fields.value(b"tokens")
    alive = 0
    for i, name in enumerate(ids):
        job = find_job(session.yard, name.encode())
        if job is not None and _beat(session, job, _token_at(tokens, i), 0, request.now_ms):
            alive += 1
    return {"data": {"ok": True, "count": alive}}


def _beat(
    session: BunqueueSession, job: Job, token: bytes | None, duration_ms: i64, now_ms: i64
) -> bool:
    lease = job.lease
    if lease is None or lease.terms.proof not in (Proof.DOOR, Proof.TOKEN):
        return False
    if not token:
        _note_seen(session, lease, now_ms)
        return True
    if lease.terms.proof != Proof.TOKEN or token_number(session.yard, token) != lease.key:
        return False
    if duration_ms > 0:
        _renew(session, lease, duration_ms, now_ms)
    else:
        left_ms = lease.until_ms - now_ms
        _renew(session, lease, max(lease.terms.ttl_ms, left_ms), now_ms)
    return True


def _note_seen(session: BunqueueSession, lease: Lease, now_ms: i64) -> None:
    """Record that a job is running, without a token: a lock that has a token is not renewed."""
    terms = lease.terms
    if terms.proof != Proof.DOOR:
        lease.beat_ms = now_ms
    else:
        touch(session.yard, lease, lease_ms(lease.job, terms), now_ms)


def _renew(session: BunqueueSession, lease: Lease, ttl_ms: i64, now_ms: i64) -> None:
    touch(session.yard, lease, ttl_ms, now_ms)
    lease.is_renewed = True


# -- lock extension ----------------------------------------------------------------------------


def extend_lock(session: BunqueueSession, request: Request) -> Answer:
    """Set a lock to expire after a given time from now."""
    fields = request.fields
    name = fields.content(b"id")
    job = None if name is None else find_job(session.yard, name)
    duration_ms = push_options.checked("duration", fields.value(b"duration"), 1, DAY_MS)
    token = fields.content(b"token")
    if job is None or not _extend(session, job, token, duration_ms, request.now_ms):
        raise Refused(NOT_LOCKED)
    return {}


def extend_locks(session: BunqueueSession, request: Request) -> Answer:
    """Extend many locks, each by its own duration; answer how many were extended."""
    fields = request.fields
    ids = _ids(request)
    tokens = fields.value(b"tokens")
    given = fields.value(b"durations")
    if not isinstance(given, list) or len(given) != len(ids):
        raise Refused("durations length must match ids length")
    # All are checked before the first lock is changed.
    durations_ms = [int(push_options.checked("durations", one, 1, DAY_MS)) for one in given]
    extended = 0
    for i, name in enumerate(ids):
        job = find_job(session.yard, name.encode())
        token = _token_at(tokens, i)
        if job is not None and _extend(session, job, token, durations_ms[i], request.now_ms):
            extended += 1
    return {"count": extended}


def _extend(
    session: BunqueueSession, job: Job, token: bytes | None, duration_ms: i64, now_ms: i64
) -> bool:
    lease = job.lease
    if lease is None or lease.terms.proof != Proof.TOKEN:
        return False
    # As in the original, a request without a token is accepted; a wrong token is refused.
    if token is not None and token_number(session.yard, token) != lease.key:
        return False
    _renew(session, lease, duration_ms, now_ms)
    return True


def _ids(request: Request) -> list[str]:
    if request.fields.count(b"ids") > IDS_MAX:
        raise Refused(f"ids must have at most {IDS_MAX} entries")
    ids = request.fields.texts(b"ids")
    if ids is None:
        raise Refused("ids must be an array of strings")
    return ids


def _token_at(tokens: object, place: int) -> bytes | None:
    """Return the token at an index; None if the list is too short or not a list."""
    if not isinstance(tokens, list) or place >= len(tokens):
        return None
    token = tokens[place]
    return token.encode() if isinstance(token, str) else None


LEASE_COMMANDS: Final[dict[bytes, Command]] = {
    b"Progress": progress,
    b"JobHeartbeat": job_heartbeat,
    b"JobHeartbeatB": job_heartbeats,
    b"ExtendLock": extend_lock,
    b"ExtendLocks": extend_locks,
}
