"""Leases that outlive the server: what is noted of one, and how it is taken up again.

A lease ends with the boot, and no record of it is waited for. Where a queue is configured so, a
claim notes its lease among the rare parts of the job: who holds it, under which name, until when.
The note goes with the end of the run, whatever ends it, and needs no record for that. After a start
the jobs that have one are leased again; a deadline that is past rings as any other does.

A claim that cannot be noted, on a disk without room, is refused.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.placement import advance
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.record import LEASE_SIZE, NOTE_SIZE, STATE_SIZE
from jobyard.model.details import Fields, KeptLease, kept_field, size_of
from jobyard.model.family import TOPICS
from jobyard.model.job import READY, Job
from jobyard.model.queue import NODE, Book, Lease, Terms
from jobyard.model.throttle.ordering_group import lane_of

# What the note of a lease holds beside the name of who holds it.
_NOTE_ROOM: Final = 128


def lease_name(yard: Yard, lease: Lease) -> str:
    """Return what a client calls a lease; no other of any boot is called so."""
    kept = kept_of(lease.job)
    if kept is not None:
        return kept.name
    return f"lease_{int(yard.journal.epoch):x}{int(lease.key):012x}"


def kept_of(job: Job) -> KeptLease | None:
    """Return what is noted of the lease on a job."""
    extra = job.extra
    return None if extra is None else extra.kept


def keep_lease(yard: Yard, lease: Lease) -> None:
    """Note a lease as it is now, for the next start to find."""
    if not yard.journal.is_on:
        return
    name = lease_name(yard, lease)
    kept = KeptLease(name, lease.terms.label, lease.started_ms, lease.until_ms, lease.ttl_ms)
    fields = Fields()
    kept_field(fields, kept)
    yard.note(lease.job, fields.done(), is_needed=True)


def see_to_room(yard: Yard, job: Job, label: str) -> None:
    """Make room for a claim and the note of it; YardFull changes nothing."""
    journal = yard.journal
    if not journal.is_on:
        return
    extra = job.extra
    weight: i64 = 0 if extra is None else size_of(extra)
    size: i64 = 2 * (STATE_SIZE + weight) + LEASE_SIZE + NOTE_SIZE + _NOTE_ROOM + 4 * len(label)
    if not journal.has_room_aside(size, journal.segment_size):
        raise YardFull
    try:
        journal.make_room(size)
    except StorageFull:
        journal.note_full()
        raise YardFull from None


def resume(yard: Yard, job: Job, book: Book, now_ms: i64) -> None:
    """Lease a job again to the holder it had; no longer than it was asked for."""
    kept = kept_of(job)
    assert kept is not None
    assert job.state == READY
    terms = Terms(TOPICS, NODE, kept.ttl_ms, kept.node)
    yard.leases_issued += 1
    lease = Lease(
        yard.leases_issued, job, book, kept.started_ms, kept.ttl_ms, terms, job.body or b""
    )
    kept.until_ms = min(kept.until_ms, now_ms + kept.ttl_ms)
    lease.until_ms = kept.until_ms
    lease.sort_key = kept.until_ms
    timeout_ms = job.policy.timeout_ms
    if timeout_ms > 0:
        lease.sort_key = min(lease.sort_key, kept.started_ms + timeout_ms)
    yard.resume(job, lease)
    lane = lane_of(job.extra)
    if lane is not None:
        # Another may stand on its shelf that waited while this one ran.
        advance(yard, job.queue, lane, now_ms)
