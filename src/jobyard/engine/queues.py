"""The verbs for queues: they come with their first user or job and go with their last."""

from mypy_extensions import i64

from jobyard.engine.take import offer
from jobyard.engine.yard import Yard
from jobyard.model.queue import Queue


def open_queue(yard: Yard, name: str) -> Queue:
    """Return the queue of that name, making it if need be."""
    queue = yard.queues.get(name)
    if queue is None:
        queue = Queue(name)
        yard.queues[name] = queue
    return queue


def hold_user(queue: Queue) -> None:
    """Count a connection that puts here."""
    queue.users_count += 1


def drop_user(yard: Yard, queue: Queue) -> None:
    """Count one such connection less."""
    queue.users_count -= 1
    drop_if_idle(yard, queue)


def hold_watch(queue: Queue) -> None:
    """Count a connection that takes from here."""
    queue.watchers_count += 1


def drop_watch(yard: Yard, queue: Queue) -> None:
    """Count one such connection less."""
    queue.watchers_count -= 1
    drop_if_idle(yard, queue)


def drop_if_idle(yard: Yard, queue: Queue) -> None:
    """Let a queue go that nobody refers to and that holds nothing; its counters go with it."""
    if (
        queue.users_count > 0
        or queue.watchers_count > 0
        or queue.is_pinned
        or queue.jobs_count() > 0
    ):
        return
    yard.disarm(queue)
    yard.journal.ledger.forget_queue(queue)
    del yard.queues[queue.name]


def pause(yard: Yard, queue: Queue, length_ms: i64, now_ms: i64) -> None:
    """Let no job leave the queue for a time; a new pause replaces the old, zero ends it."""
    queue.pause_ms = length_ms
    queue.pause_until_ms = now_ms + length_ms
    queue.pauses_count += 1
    if length_ms == 0:
        offer(yard, queue, now_ms)
    else:
        yard.arm(queue, queue.pause_until_ms)
