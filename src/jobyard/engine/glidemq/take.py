"""How workers of glide-mq take jobs: from the stream, from the lists, now or when one comes.

A lease of this door has no deadline and belongs to no connection: it ends by a verb of the job, or
when it is reclaimed because its worker has been silent for too long. A restart ends it too.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import entry_of, tables_of
from jobyard.engine.jobs.move import is_revoked
from jobyard.engine.jobs.take import arm_gate, lay_expired, take_from, take_job
from jobyard.engine.state.placement import is_waiting_in_lane, reopen
from jobyard.engine.state.yard import Yard
from jobyard.errors import NotHeld
from jobyard.model.family import GLIDE
from jobyard.model.job import READY, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import ENTRY, LISTED, Book, Lease, Queue, Waiter
from jobyard.model.throttle.ready_lists import PROMOTED, STACK, STREAM

# What `activate` comes to.
ACTIVE: Final = 0
IS_REVOKED: Final = 1
IS_EXPIRED: Final = 2
# Somebody else has it, or it is not to run now.
IS_BUSY: Final = 3


def take_stream(yard: Yard, queue: Queue, consumer: str, count: i64, now_ms: i64) -> list[Lease]:
    """Lease up to `count` jobs of the stream to a consumer."""
    return _take(yard, queue, STREAM, consumer, count, now_ms)


def take_list(
    yard: Yard, queue: Queue, shelf: i64, count: i64, now_ms: i64, consumer: str = ""
) -> list[Lease]:
    """Lease up to `count` jobs of another shelf."""
    return _take(yard, queue, shelf, consumer, count, now_ms)


def take_lists(yard: Yard, queue: Queue, count: i64, now_ms: i64) -> list[Lease]:
    """Lease up to `count` jobs that were promoted; if there are none, of the last that came."""
    while True:
        dead_count = queue.dead.live_count
        leases = _take(yard, queue, PROMOTED, "", count, now_ms)
        if not leases:
            leases = _take(yard, queue, STACK, "", count, now_ms)
        if leases or queue.dead.live_count == dead_count:
            return leases


def take_next(yard: Yard, queue: Queue, consumer: str, now_ms: i64) -> Lease | None:
    """Lease the job a worker runs next: one with a priority, else the last, else the first."""
    tables = tables_of(yard)
    rules = queue.rules
    if rules is None or rules.shelves is None:
        terms = tables.terms(consumer, is_list=False)
        return take_from(yard, queue, STREAM, tables.book, terms, now_ms)
    while True:
        dead_count = queue.dead.live_count
        for shelf in (PROMOTED, STACK, STREAM):
            is_list = shelf != STREAM
            terms = tables.terms("" if is_list else consumer, is_list=is_list)
            lease = take_from(yard, queue, shelf, tables.book, terms, now_ms)
            if lease is not None:
                return lease
        if queue.dead.live_count == dead_count:
            return None
        # One that outlived its time may have held up another of its key, on a shelf before its own.


def _take(
    yard: Yard, queue: Queue, shelf: i64, consumer: str, count: i64, now_ms: i64
) -> list[Lease]:
    tables = tables_of(yard)
    terms = tables.terms(consumer, is_list=shelf != STREAM)
    leases: list[Lease] = []
    while count > 0:
        lease = take_from(yard, queue, shelf, tables.book, terms, now_ms)
        if lease is None:
            break
        leases.append(lease)
        count -= 1
    return leases


def wait_stream(
    yard: Yard, queues: list[Queue], consumer: str, book: Book, until_ms: i64, now_ms: i64
) -> Waiter:
    """Stand in line for a job of some streams; the holder of `book` is told, and does not hold it.

    There must be none to take now.
    """
    tables = tables_of(yard)
    terms = tables.terms(consumer, is_list=False)
    waiter = Waiter(yard.new_number(), book, terms, until_ms, NEVER_MS)
    waiter.is_stream_only = True
    waiter.target = tables.book
    for queue in queues:
        queue.link(waiter)
        rules = queue.rules
        if rules is not None:
            reopen(yard, queue, now_ms)
            arm_gate(yard, queue, now_ms)
    yard.timers.push(waiter)
    return waiter


def hand_to(yard: Yard, job: Job, consumer: str, now_ms: i64) -> None:
    """Let a job that was taken at this door be another consumer's; NotHeld if it was not."""
    lease = job.lease
    if lease is None or not lease.terms.is_entry():
        raise NotHeld
    lease.terms = tables_of(yard).terms(consumer, is_list=lease.terms.proof == LISTED)
    lease.beat_ms = now_ms


def beat(job: Job, now_ms: i64) -> None:
    """Take note that the worker of a job is alive. Nothing is recorded."""
    lease = job.lease
    if lease is not None and lease.terms.is_entry():
        lease.beat_ms = now_ms


def activate(yard: Yard, job: Job, entry: str, consumer: str, now_ms: i64) -> int:
    """Let a worker begin with a job it took, or take one that it was once given and lost.

    One of a list has no entry; its worker says "". One that waits for others of its lane is given
    to nobody, though it ran before: it may have come back from the dead since.
    """
    lease = job.lease
    if lease is None:
        # Who knows no entry had it from a list, so it was taken at least once.
        was_given = entry == entry_of(job) if entry else job.deliveries > 0
        if job.state != READY or not was_given:
            return IS_BUSY
        if expire_if_over(yard, job, now_ms):
            return IS_EXPIRED
        reopen(yard, job.queue, now_ms)
        if is_waiting_in_lane(job):
            return IS_BUSY
        tables = tables_of(yard)
        terms = tables.terms(consumer, is_list=not entry)
        lease = take_job(yard, job.id, tables.book, terms, now_ms)
    elif lease.terms.proof != LISTED and (lease.terms.proof != ENTRY or entry != entry_of(job)):
        return IS_BUSY
    lease.beat_ms = now_ms
    lease.is_renewed = True
    return IS_REVOKED if is_revoked(job) else ACTIVE


def expire_if_over(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Lay a ready job of this door aside whose time to live is over; tell whether it was."""
    ttl_ms = job.policy.ttl_ms
    if job.state != READY or job.family != GLIDE or not 0 < ttl_ms <= now_ms - job.created_ms:
        return False
    lay_expired(yard, job, now_ms)
    return True
