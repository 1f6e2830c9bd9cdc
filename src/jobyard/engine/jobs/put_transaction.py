"""The put transaction: the steps by which new jobs enter, whichever protocol puts them.

    check        what its links refuse, and whether its queue may hold the job
    reserve      memory, and room in the journal for everything that follows
    evict        the oldest jobs of a topic that is full
    deduplicate  return an existing job with the same id or key, or replace it
    enter        the job itself: its id, its record, its place in the queue
    link         parents and children, as its protocol defines
    offer        the job to clients that wait

A protocol describes a job as a `NewJob` and its links to other jobs as `Links`. Every refusal comes
before the first eviction, and all records of one transaction are in one batch.
"""

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.put import (
    NewJob,
    check_capacity,
    enter,
    make_job,
    make_room,
    make_room_in_parts,
    publish_duplicate,
    reserve_and_evict,
    reserve_and_evict_all,
    room_for,
)
from jobyard.engine.jobs.take import offer
from jobyard.engine.jobs.unique_keys import claim, room_to_claim
from jobyard.engine.state.yard import Yard
from jobyard.model.ahead import EncodedAhead
from jobyard.model.details import JobDetails
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.policy import DURABLE
from jobyard.model.queue import Queue

__all__ = [
    "Links",
    "commit",
    "enter_all",
    "put_new_job",
    "reserve",
    "reserve_all",
    "reserve_in_parts",
    "room_of",
]


@mypyc_attr(allow_interpreted_subclasses=True)
class Links:
    """The links of a new job, defined by its protocol. The methods are called in this order."""

    def check(self, queue: Queue, now_ms: i64) -> None:
        """Refuse a job that may not enter, and find the jobs it is linked to."""

    def room(self) -> i64:
        """Return the most journal bytes that the links take."""
        return 0

    def same_named(self) -> Job | None:
        """Return the job that has the id of the new one."""
        return None

    def entering(self) -> None:
        """Check the linked jobs again: one may have been evicted. The job enters now."""

    def entered(self, job: Job, before: i64, now_ms: i64) -> None:
        """Link the job; `before` is the id of a same-named job that others wait for, or 0."""


def put_new_job(yard: Yard, queue: Queue, new_job: NewJob, links: Links | None, now_ms: i64) -> Job:
    """Put one job; return it, or the existing job that it duplicates.

    YardFull, TopicFull and refusals of `links` change nothing.
    """
    size: i64 = len(new_job.body)
    if links is None:
        reserve(yard, queue, 1, size, room_for(queue, new_job), now_ms)
    else:
        if queue.config is not None:
            check_capacity(queue, 1, size)
        links.check(queue, now_ms)
        reserve(yard, queue, 1, size, room_of(queue, new_job, links, now_ms), now_ms)
    job = commit(yard, queue, new_job, links, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


# -- reserve and evict -------------------------------------------------------------------------


def room_of(queue: Queue, new_job: NewJob, links: Links | None, now_ms: i64) -> i64:
    """Return the most journal bytes that the transaction of one job takes."""
    room = room_for(queue, new_job)
    if new_job.details is not None:
        room += room_to_claim(queue, new_job.details, now_ms)
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
    """Reserve `room` bytes, and evict for `count` jobs with bodies of `size` bytes.

    For `may_exceed` see `reserve_and_evict`.
    """
    if queue.config is not None:
        reserve_and_evict(yard, queue, count, size, room, now_ms, may_exceed=may_exceed)
    else:
        make_room(yard, room, now_ms)


def reserve_in_parts(
    yard: Yard, queue: Queue, count: i64, size: i64, room: i64, now_ms: i64
) -> None:
    """Refuse jobs that enter in several batches if there is no room for all of them.

    Each batch reserves its room again when it enters.
    """
    if queue.config is not None:
        check_capacity(queue, count, size)
    make_room_in_parts(yard, room, now_ms)


def reserve_all(
    yard: Yard,
    different: list[Queue],
    queues: list[Queue],
    new_jobs: list[NewJob],
    room: i64,
    now_ms: i64,
) -> None:
    """Reserve room for new jobs, each in the queue of its index; `different` lists queues once.

    A refusal by any queue changes nothing in the others.
    """
    topics = [queue for queue in different if queue.config is not None]
    if topics:
        reserve_and_evict_all(yard, topics, queues, new_jobs, room, now_ms)
    else:
        make_room(yard, room, now_ms)


# -- enter a write -----------------------------------------------------------------------------


def enter_all(
    yard: Yard, queue: Queue, jobs: list[Job], ahead: EncodedAhead | None, now_ms: i64
) -> None:
    """Add all jobs of one write to a queue, with consecutive seqs; room was reserved for them.

    The next seq of the queue is what `free_seqs` returned for that many. `ahead` holds the records
    of the jobs if they were encoded before. Clients that wait are not served yet.
    """
    for job in jobs:
        enter(yard, job, now_ms, ahead)
    topic_state = queue.topic_state
    if topic_state is not None:
        topic_state.last_write_ms = now_ms


# -- deduplicate, enter and link ---------------------------------------------------------------


def commit(yard: Yard, queue: Queue, new_job: NewJob, links: Links | None, now_ms: i64) -> Job:
    """Add a job for which room was reserved; return it, or the existing job that it duplicates.

    Clients that wait are not served yet: more jobs may have to enter in the same batch.
    """
    details = new_job.details
    if details is None:
        return enter(yard, make_job(queue, new_job), now_ms)
    before = _awaited_same_named(yard, details)
    owner = _existing(yard, queue, details, links, now_ms)
    if owner is not None:
        if links is not None:
            _promise_alike(yard, owner, new_job)
        return owner
    if links is not None:
        links.entering()
    job = enter(yard, make_job(queue, new_job), now_ms)
    if links is not None:
        links.entered(job, before, now_ms)
    return job


def _awaited_same_named(yard: Yard, details: JobDetails) -> i64:
    """Return the id of the job with the same name for which others wait, or 0."""
    if not details.custom_id or yard.names.dependents.count == 0:
        return 0
    same = yard.names.named(details.custom_id)
    return same.id if same is not None and yard.names.dependents.has(int(same.id)) else 0


def _existing(
    yard: Yard, queue: Queue, details: JobDetails, links: Links | None, now_ms: i64
) -> Job | None:
    """Return the job that a new one duplicates, by id or key; if none, remove what it replaces.

    Nothing is removed unless the new job enters: an id is not freed if the key is taken.
    """
    same = None if links is None else links.same_named()
    if same is not None and same.state not in (DEAD, DONE):
        publish_duplicate(yard, same, now_ms)
        return same
    owner = claim(yard, queue, details, now_ms)
    if owner is None and same is not None:
        erase(yard, same, now_ms)
    return owner


def _promise_alike(yard: Yard, owner: Job, new_job: NewJob) -> None:
    """Hold the reply until the existing job is as durable as the new one would be."""
    if new_job.policy.flags & DURABLE or owner.policy.flags & DURABLE or owner.queue.is_synced:
        yard.journal.raise_to(owner.batch)
