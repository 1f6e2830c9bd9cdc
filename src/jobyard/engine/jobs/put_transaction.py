"""The put transaction: the steps by which new jobs enter, whichever protocol asks for them.

    evict        the oldest jobs of a topic that is full
    reserve      memory, and room in the journal for everything that follows
    deduplicate  another job stands for the new one, or makes way for it
    enter        the job itself: its id, its record, its place in line
    link         parents and children, as its protocol tells
    offer        the job to clients that wait

A protocol describes a job as a `Wish` and its ties as `Links`. Every refusal comes before the first
record, and all records of one transaction are in one batch.
"""

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.put import (
    Wish,
    check_way,
    enter,
    make_room,
    make_room_in_parts,
    make_way,
    make_way_for,
    room_for,
    tell_duplicate,
)
from jobyard.engine.jobs.take import offer
from jobyard.engine.jobs.unique_keys import claim, room_to_claim
from jobyard.engine.state.yard import Yard
from jobyard.model.details import Extra
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.policy import DURABLE
from jobyard.model.queue import Queue

__all__ = ["Links", "commit", "put_wish", "reserve", "reserve_all", "reserve_in_parts", "room_of"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Links:
    """What a protocol knows of a new job and others. The methods are called in this order."""

    def check(self, queue: Queue, now_ms: i64) -> None:
        """Refuse a job that may not enter, and find those it is tied to."""

    def room(self) -> i64:
        """Return the most bytes of the journal that the ties take."""
        return 0

    def namesake(self) -> Job | None:
        """Return the job that has the id of the new one."""
        return None

    def entering(self) -> None:
        """Look again at those the job is tied to: no other job stands for it, so it enters now."""

    def entered(self, job: Job, before: i64, now_ms: i64) -> None:
        """Tie the job to others; `before` is the id of a namesake that others wait for, or 0."""


def put_wish(yard: Yard, queue: Queue, wish: Wish, links: Links | None, now_ms: i64) -> Job:
    """Put one job; return it, or the job that stands for it.

    YardFull, TopicFull and what `links` refuse leave no job behind.
    """
    room = room_for(queue, wish)
    if links is None:
        reserve(yard, queue, 1, len(wish.body), room, now_ms)
    else:
        if queue.config is not None:
            # Before the ties are looked for: one of those jobs may have to go.
            make_way(yard, queue, 1, len(wish.body), room, now_ms)
        links.check(queue, now_ms)
        make_room(yard, room_of(queue, wish, links, now_ms), now_ms)
    job = commit(yard, queue, wish, links, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


# -- evict and reserve -------------------------------------------------------------------------


def room_of(queue: Queue, wish: Wish, links: Links | None, now_ms: i64) -> i64:
    """Return the most bytes of the journal that the transaction of one job takes."""
    room = room_for(queue, wish)
    if wish.extra is not None:
        room += room_to_claim(queue, wish.extra, now_ms)
    if links is not None:
        room += links.room()
    return room


def reserve(
    yard: Yard,
    queue: Queue,
    count: i64,
    size: i64,
    room: i64,
    now_ms: i64,
    *,
    may_exceed: bool = False,
) -> None:
    """Evict for `count` jobs with bodies of `size` bytes, and reserve `room` bytes.

    As `make_way` with `may_exceed`.
    """
    if queue.config is not None:
        make_way(yard, queue, count, size, room, now_ms, may_exceed=may_exceed)
    make_room(yard, room, now_ms)


def reserve_in_parts(
    yard: Yard, queue: Queue, count: i64, size: i64, room: i64, now_ms: i64
) -> None:
    """Refuse jobs that enter in several batches if there is no room for all of them.

    Each batch is reserved again when it is due.
    """
    if queue.config is not None:
        check_way(queue, count, size)
    make_room_in_parts(yard, room, now_ms)


def reserve_all(
    yard: Yard,
    different: list[Queue],
    queues: list[Queue],
    wishes: list[Wish],
    room: i64,
    now_ms: i64,
) -> None:
    """Reserve for jobs of `different` queues, of each wish in the queue of the same index."""
    for queue in different:
        if queue.config is not None:
            of_queue = [wishes[at] for at in range(len(wishes)) if queues[at] is queue]
            make_way_for(yard, queue, of_queue, now_ms)
    make_room(yard, room, now_ms)


# -- deduplicate, enter and link ---------------------------------------------------------------


def commit(yard: Yard, queue: Queue, wish: Wish, links: Links | None, now_ms: i64) -> Job:
    """Let a job enter for which room was reserved; return it, or the job that stands for it.

    Clients that wait are not served yet: more jobs may have to enter in the same batch.
    """
    extra = wish.extra
    if extra is None:
        return enter(yard, queue, wish, now_ms)
    before = _awaited_namesake(yard, extra)
    owner = _stand_in(yard, queue, extra, links, now_ms)
    if owner is not None:
        if links is not None:
            _promise_alike(yard, owner, wish)
        return owner
    if links is not None:
        links.entering()
    job = enter(yard, queue, wish, now_ms)
    if links is not None:
        links.entered(job, before, now_ms)
    return job


def _awaited_namesake(yard: Yard, extra: Extra) -> i64:
    """Return the id of the job with the same name for which others wait, or 0."""
    if not extra.custom_id or yard.names.dependents.count == 0:
        return 0
    same = yard.names.named(extra.custom_id)
    return same.id if same is not None and yard.names.dependents.has(int(same.id)) else 0


def _stand_in(
    yard: Yard, queue: Queue, extra: Extra, links: Links | None, now_ms: i64
) -> Job | None:
    """Return the job that stands for a new one, by its id or its key; else the others make way.

    Nothing goes unless the new job enters: an id is not freed for a key that is taken.
    """
    same = None if links is None else links.namesake()
    if same is not None and same.state not in (DEAD, DONE):
        tell_duplicate(yard, same, now_ms)
        return same
    owner = claim(yard, queue, extra, now_ms)
    if owner is None and same is not None:
        erase(yard, same, now_ms)
    return owner


def _promise_alike(yard: Yard, owner: Job, wish: Wish) -> None:
    """Let the answer wait until the job that stands for another is as safe as that would be."""
    if wish.policy.flags & DURABLE or owner.policy.flags & DURABLE or owner.queue.is_synced:
        yard.journal.raise_to(owner.batch)
