"""The verbs by which a run of a job ends: finished, given back, buried, run out of time.

A lease is ended only by its own holder, by its deadline, or by the holder's leaving.
"""

from mypy_extensions import i64

from jobyard.engine.queues import drop_if_idle
from jobyard.engine.take import offer
from jobyard.engine.yard import Yard
from jobyard.errors import NotFound, NotHeld
from jobyard.journal.record import BURIED, EXPIRED, FINISHED, LET_GO, RELEASED
from jobyard.model.job import DEAD, DELAYED, GONE, READY, Job
from jobyard.model.queue import Book, Lease


def held(yard: Yard, job_id: i64, book: Book) -> Job:
    """Return a job that is leased to the holder of `book`."""
    job = yard.jobs.get(job_id)
    if job is None:
        raise NotFound
    lease = job.lease
    if lease is None or lease.book is not book:
        raise NotHeld
    return job


def finish(yard: Yard, job: Job, now_ms: i64) -> None:
    """End the run of a held job well: it is gone."""
    journal = yard.journal
    if journal.is_on:
        journal.append_end(job, FINISHED, GONE, job.rank, job.due_ms, now_ms, waited=True)
    yard.apply_gone(job)
    queue = job.queue
    queue.finished_count += 1
    if queue.users_count == 0:
        drop_if_idle(yard, queue)


def release(yard: Yard, job: Job, rank: i64, delay_ms: i64, now_ms: i64) -> None:
    """Give a held job back, ready now or after a delay, with a new rank that is remembered."""
    state = DELAYED if delay_ms > 0 else READY
    _end(yard, job, RELEASED, state, rank, now_ms + delay_ms, now_ms, waited=True)


def bury(yard: Yard, job: Job, rank: i64, now_ms: i64) -> None:
    """Lay a held job aside at the end of the dead line until someone kicks it."""
    _end(yard, job, BURIED, DEAD, rank, job.due_ms, now_ms, waited=True)


def touch(yard: Yard, lease: Lease, now_ms: i64) -> None:
    """Start the time of a lease anew. Nothing is recorded: leases do not outlive the boot."""
    lease.sort_key = now_ms + lease.ttl_ms
    lease.book.leases.moved(lease)
    yard.arm(lease.book, lease.book.soonest_ms())


def expire(yard: Yard, lease: Lease, now_ms: i64) -> None:
    """End a lease whose time is over."""
    yard.timeouts_count += 1
    job = lease.job
    _end(yard, job, EXPIRED, READY, job.rank, now_ms, now_ms, waited=False)


def drop_holder(yard: Yard, book: Book, now_ms: i64) -> None:
    """Give back every job of a holder that left; nothing is counted against them."""
    yard.disarm(book)
    leases = book.leases.items
    while leases:
        lease = leases[0]
        assert isinstance(lease, Lease)
        job = lease.job
        _end(yard, job, LET_GO, READY, job.rank, now_ms, now_ms, waited=False)


def _end(  # noqa: PLR0913  the fields of the record
    yard: Yard,
    job: Job,
    why: i64,
    state: i64,
    rank: i64,
    due_ms: i64,
    now_ms: i64,
    *,
    waited: bool,
) -> None:
    if yard.journal.is_on:
        yard.journal.append_end(job, why, state, rank, due_ms, now_ms, waited=waited)
    yard.apply_end(job, why, state, rank, due_ms, now_ms)
    if state == READY and job.queue.first_link is not None:
        offer(yard, job.queue, now_ms)
