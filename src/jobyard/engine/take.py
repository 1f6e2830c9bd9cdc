"""The verbs by which a job leaves a queue for a holder, now or when one comes.

A job taken is leased: it belongs to one book until its run ends by a verb of `end`. Several queues
are searched for the least (rank, stamp); who waits is served first come first served per queue.
"""

from mypy_extensions import i64

from jobyard.engine.yard import Yard
from jobyard.errors import NotFound
from jobyard.journal.record import CORRUPT
from jobyard.model.job import DEAD, DELAYED, READY, Job
from jobyard.model.queue import Book, Lease, Queue, Waiter


def is_open(queue: Queue, now_ms: i64) -> bool:
    """Tell whether jobs may leave the queue."""
    return queue.pause_until_ms <= now_ms


def best_queue(queues: list[Queue], now_ms: i64) -> Queue | None:
    """Return the open queue with the least (rank, stamp) at its head."""
    best: Queue | None = None
    for queue in queues:
        ready = queue.ready.items
        if not ready or queue.pause_until_ms > now_ms:
            continue
        if best is None:
            best = queue
            continue
        head = ready[0]
        least = best.ready.items[0]
        if head.sort_key < least.sort_key or (
            head.sort_key == least.sort_key and head.stamp < least.stamp
        ):
            best = queue
    return best


def take(yard: Yard, queues: list[Queue], book: Book, now_ms: i64) -> Lease | None:
    """Lease the first ready job of the open queues to the holder of `book`."""
    while True:
        queue = best_queue(queues, now_ms)
        if queue is None:
            return None
        job = queue.ready.items[0]
        assert isinstance(job, Job)
        lease = _lease(yard, job, book, now_ms)
        if lease is not None:
            return lease


def take_job(yard: Yard, job_id: i64, book: Book, now_ms: i64) -> Lease:
    """Lease one given job, whatever its queue and even if it is delayed, dead or paused."""
    job = yard.jobs.get(job_id)
    if job is None or job.state not in (READY, DELAYED, DEAD):
        raise NotFound
    lease = _lease(yard, job, book, now_ms)
    if lease is None:
        raise NotFound
    return lease


def _lease(yard: Yard, job: Job, book: Book, now_ms: i64) -> Lease | None:
    """Lease a job, or bury it and return None when its body cannot be read back."""
    body = job.body
    if body is None:
        body = yard.bodies.fetch(job)
        if body is None:
            _set_aside(yard, job, now_ms)
            return None
    yard.leases_issued += 1
    number = yard.leases_issued
    lease = Lease(number, job, book, now_ms, job.own_ms, body)
    if yard.journal.is_on:
        yard.journal.append_lease(job, number, now_ms, job.own_ms, book.key)
    yard.apply_taken(job, lease)
    return lease


def _set_aside(yard: Yard, job: Job, now_ms: i64) -> None:
    """Bury a job whose body is damaged on disk, so that it is seen and nobody gets wrong bytes."""
    if job.state == DEAD:
        return
    yard.journal.append_move(job, CORRUPT, DEAD, job.due_ms, now_ms)
    yard.apply_move(job, CORRUPT, DEAD, job.due_ms, now_ms)


def wait(yard: Yard, queues: list[Queue], book: Book, until_ms: i64, soon_ms: i64) -> Waiter:
    """Stand in line at every queue until served, until `until_ms`, or until `soon_ms`."""
    waiter = Waiter(yard.new_number(), book, until_ms, soon_ms)
    for queue in queues:
        queue.link(waiter)
    yard.timers.push(waiter)
    return waiter


def cancel_wait(yard: Yard, waiter: Waiter) -> None:
    """Leave every line."""
    yard.disarm(waiter)
    for link in waiter.links:
        link.queue.unlink(link)
    waiter.links.clear()


def offer(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Hand ready jobs to those who wait at the queue, for as long as there are both."""
    only = [queue]
    while True:
        link = queue.first_link
        if link is None or not queue.ready.items or not is_open(queue, now_ms):
            return
        waiter = link.waiter
        lease = take(yard, only, waiter.book, now_ms)
        if lease is None:
            return
        cancel_wait(yard, waiter)
        waiter.book.holder.given(lease)
