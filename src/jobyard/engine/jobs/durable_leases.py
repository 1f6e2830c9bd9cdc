"""Durable leases, which survive a restart: how they are stored and resumed.

Other leases end with a restart, and no reply waits for their records. If a queue is configured so,
a claim stores its lease in the details of the job: the holder, the name of the lease, the deadline.
It is dropped with the end of the run, whatever ends it, without a record of its own. After a start
the jobs that have one are leased again; a deadline that has passed rings like any other.

A claim that cannot be stored because the disk is full is refused.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.placement import advance
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.record import LEASE_ROOM, NOTE_SIZE, STATE_SIZE
from jobyard.model.details import DurableLease
from jobyard.model.details_codec import FieldWriter, durable_lease_field, size_of
from jobyard.model.family import TOPICS
from jobyard.model.job import READY, Job
from jobyard.model.lease import Lease, LeaseSet, Proof, Terms
from jobyard.model.throttle.ordering_group import ordering_of

# The size of a stored lease without the name of its holder.
_NOTE_ROOM: Final = 128


def lease_name(yard: Yard, lease: Lease) -> str:
    """Return the name of a lease for clients; unique across restarts."""
    stored = durable_lease_of(lease.job)
    if stored is not None:
        return stored.name
    return f"lease_{int(yard.journal.epoch):x}{int(lease.key):012x}"


def durable_lease_of(job: Job) -> DurableLease | None:
    """Return the durable lease that is stored with a job."""
    details = job.details
    return None if details is None else details.durable_lease


def keep_lease(yard: Yard, lease: Lease) -> None:
    """Store a lease as it is now, for the next start."""
    if not yard.journal.is_on:
        return
    name = lease_name(yard, lease)
    stored = DurableLease(name, lease.terms.label, lease.started_ms, lease.until_ms, lease.ttl_ms)
    fields = FieldWriter()
    durable_lease_field(fields, stored)
    yard.note(lease.job, fields.done(), is_needed=True)


def ensure_room(yard: Yard, job: Job, label: str) -> None:
    """Reserve room for a claim and its durable lease; YardFull changes nothing."""
    journal = yard.journal
    if not journal.is_on:
        return
    details = job.details
    weight: i64 = 0 if details is None else size_of(details)
    size: i64 = 2 * (STATE_SIZE + weight) + LEASE_ROOM + NOTE_SIZE + _NOTE_ROOM + 4 * len(label)
    if not journal.has_room_aside(size, journal.segment_size):
        raise YardFull
    try:
        journal.make_room(size)
    except StorageFull:
        journal.note_full()
        raise YardFull from None


def resume(yard: Yard, job: Job, lease_set: LeaseSet, now_ms: i64) -> None:
    """Lease a job again to its holder, for no longer than was requested."""
    stored = durable_lease_of(job)
    assert stored is not None
    assert job.state == READY
    terms = Terms(TOPICS, Proof.NODE, stored.ttl_ms, stored.node)
    yard.leases_issued += 1
    lease = Lease(
        yard.leases_issued, job, lease_set, stored.started_ms, stored.ttl_ms, terms, job.body or b""
    )
    # Its rows of history go on under the number that its name ends with.
    lease.row_number = int(stored.name[-12:], 16)
    stored.until_ms = min(stored.until_ms, now_ms + stored.ttl_ms)
    lease.until_ms = stored.until_ms
    lease.sort_key = stored.until_ms
    timeout_ms = job.policy.timeout_ms
    if timeout_ms > 0:
        lease.sort_key = min(lease.sort_key, stored.started_ms + timeout_ms)
    yard.resume(job, lease)
    ordering = ordering_of(job.details)
    if ordering is not None:
        # Another job of its ordering group may be in the ready list instead.
        advance(yard, job.queue, ordering, now_ms)
