"""The verb by which a job comes into the yard."""

from mypy_extensions import i64

from jobyard.engine.take import offer
from jobyard.engine.yard import Yard
from jobyard.errors import YardFull
from jobyard.journal.ledger import queue_bytes
from jobyard.model.job import DELAYED, READY, Job
from jobyard.model.queue import Queue


def put(  # noqa: PLR0913, PLR0917  the fields of a put are the protocol's
    yard: Yard,
    queue: Queue,
    family: int,
    codec: int,
    rank: i64,
    delay_ms: i64,
    own_ms: i64,
    body: bytes,
    now_ms: i64,
) -> Job:
    """Add a job to a queue, or hand it to the first who waits there; YardFull changes nothing."""
    journal = yard.journal
    size: i64 = len(body)
    if not yard.bodies.admits(size):
        raise YardFull
    if journal.is_on:
        # A name is at most four bytes a character.
        name_size: i64 = 0 if queue.number != 0 else 4 * queue_bytes(queue)
        if not journal.admit(size + name_size, now_ms):
            raise YardFull
    job_id = journal.next_id
    journal.next_id = job_id + 1
    seq = queue.next_seq
    queue.next_seq = seq + 1
    job = Job(
        job_id,
        queue,
        seq,
        yard.stamp(now_ms),
        rank,
        now_ms,
        delay_ms,
        own_ms,
        body,
        size,
        family,
        codec,
    )
    if journal.is_on:
        if queue.number == 0:
            journal.append_queue(queue, queue.name.encode())
        journal.append_put(job, body)
    yard.bodies.keep(job)
    yard.apply_put(job, DELAYED if delay_ms > 0 else READY)
    queue.total_count += 1
    yard.puts_count += 1
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job
