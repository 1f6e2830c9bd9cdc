"""How workers of glide-mq take jobs: from the stream, from the lists, now or when one is ready.

A lease of this door has no deadline and belongs to no connection: it ends by a verb of the job, or
when it is reclaimed because its worker sent no heartbeat for too long. A restart ends it too.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import entry_of, is_own, tables_of
from jobyard.engine.jobs.move import is_revoked
from jobyard.engine.jobs.take import arm_gate, make_expired_dead, take_from, take_job
from jobyard.engine.state.placement import is_waiting_in_ordering, reopen
from jobyard.engine.state.yard import Yard
from jobyard.errors import NotHeld
from jobyard.model.job import READY, Job
from jobyard.model.lease import Lease, LeaseSet, Proof
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.waiter import Waiter

# Results of `activate`.
ACTIVE: Final = 0
IS_REVOKED: Final = 1
IS_EXPIRED: Final = 2
# Another consumer has it, or it must not run now.
IS_BUSY: Final = 3


def take_stream(yard: Yard, queue: Queue, consumer: str, count: i64, now_ms: i64) -> list[Lease]:
    """Lease up to `count` jobs of the stream to a consumer."""
    return _take(yard, queue, ReadyList.STREAM, consumer, count, now_ms)


def take_list(
    yard: Yard, queue: Queue, ready_list: i64, count: i64, now_ms: i64, consumer: str = ""
) -> list[Lease]:
    """Lease up to `count` jobs of another ready list."""
    return _take(yard, queue, ready_list, consumer, count, now_ms)


def take_lists(yard: Yard, queue: Queue, count: i64, now_ms: i64) -> list[Lease]:
    """Lease up to `count` promoted jobs; if there are none, jobs of the LIFO list."""
    while True:
        dead_count = queue.dead.live_count
        leases = _take(yard, queue, ReadyList.PROMOTED, "", count, now_ms)
        if not leases:
            leases = _take(yard, queue, ReadyList.LIFO, "", count, now_ms)
        if leases or queue.dead.live_count == dead_count:
            return leases


def take_next(yard: Yard, queue: Queue, consumer: str, now_ms: i64) -> Lease | None:
    """Lease the next job for a worker: a promoted one, else a LIFO one, else from the stream."""
    tables = tables_of(yard)
    rules = queue.rules
    if rules is None or rules.ready_lists is None:
        terms = tables.terms(consumer, is_list=False)
        return take_from(yard, queue, ReadyList.STREAM, tables.lease_set, terms, now_ms)
    while True:
        dead_count = queue.dead.live_count
        for ready_list in (ReadyList.PROMOTED, ReadyList.LIFO, ReadyList.STREAM):
            is_list = ready_list != ReadyList.STREAM
            terms = tables.terms("" if is_list else consumer, is_list=is_list)
            lease = take_from(yard, queue, ready_list, tables.lease_set, terms, now_ms)
            if lease is not None:
                return lease
        if queue.dead.live_count == dead_count:
            return None
        # An expired job may have held up another of its ordering group, in an earlier ready list.


def _take(
    yard: Yard, queue: Queue, ready_list: i64, consumer: str, count: i64, now_ms: i64
) -> list[Lease]:
    tables = tables_of(yard)
    terms = tables.terms(consumer, is_list=ready_list != ReadyList.STREAM)
    leases: list[Lease] = []
    while count > 0:
        lease = take_from(yard, queue, ready_list, tables.lease_set, terms, now_ms)
        if lease is None:
            break
        leases.append(lease)
        count -= 1
    return leases


def wait_stream(
    yard: Yard, queues: list[Queue], consumer: str, lease_set: LeaseSet, until_ms: i64, now_ms: i64
) -> Waiter:
    """Wait for a job of some streams; notify the holder of `lease_set`, which does not hold it.

    There must be none to take now.
    """
    tables = tables_of(yard)
    terms = tables.terms(consumer, is_list=False)
    waiter = Waiter(yard.new_number(), lease_set, terms, until_ms, NEVER_MS)
    waiter.is_stream_only = True
    waiter.target = tables.lease_set
    for queue in queues:
        queue.link(waiter)
        rules = queue.rules
        if rules is not None:
            reopen(yard, queue, now_ms)
            arm_gate(yard, queue, now_ms)
    yard.timers.push(waiter)
    return waiter


def hand_to(yard: Yard, job: Job, consumer: str, now_ms: i64) -> None:
    """Transfer a job that was taken at this door to another consumer; NotHeld if it was not."""
    lease = job.lease
    if lease is None or not lease.terms.is_entry():
        raise NotHeld
    lease.terms = tables_of(yard).terms(consumer, is_list=lease.terms.proof == Proof.LISTED)
    lease.beat_ms = now_ms


def beat(job: Job, now_ms: i64) -> None:
    """Note a heartbeat of the worker of a job; nothing is written to the journal."""
    lease = job.lease
    if lease is not None and lease.terms.is_entry():
        lease.beat_ms = now_ms


def activate(yard: Yard, job: Job, entry: str, consumer: str, now_ms: i64) -> int:
    """Start a job that a worker took, or take again one that the worker was given and lost.

    A job of a list has no entry; its worker passes "". A job that waits for others of its ordering
    group is refused even if it ran before: it may have been dead and revived since.
    """
    lease = job.lease
    if lease is None:
        # Without an entry the worker had it from a list, so it was taken at least once.
        was_given = entry == entry_of(job) if entry else job.deliveries > 0
        if job.state != READY or not was_given:
            return IS_BUSY
        if expire_if_over(yard, job, now_ms):
            return IS_EXPIRED
        reopen(yard, job.queue, now_ms)
        if is_waiting_in_ordering(job):
            return IS_BUSY
        tables = tables_of(yard)
        terms = tables.terms(consumer, is_list=not entry)
        lease = take_job(yard, job.id, tables.lease_set, terms, now_ms)
    elif lease.terms.proof != Proof.LISTED and (
        lease.terms.proof != Proof.ENTRY or entry != entry_of(job)
    ):
        return IS_BUSY
    lease.beat_ms = now_ms
    lease.is_renewed = True
    return IS_REVOKED if is_revoked(job) else ACTIVE


def expire_if_over(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Make a ready job of this door dead if it has expired; return whether it had."""
    ttl_ms = job.policy.ttl_ms
    if job.state != READY or not is_own(job) or not 0 < ttl_ms <= now_ms - job.created_ms:
        return False
    make_expired_dead(yard, job, now_ms)
    return True
