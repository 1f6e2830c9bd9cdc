"""Places ready jobs of glide-mq: in their ready list, or waiting in their ordering group.

Called by the yard alone, for jobs that have an ordering group or another ready list than the
stream; what applies to all jobs is in the yard. An ordering group that is closed until some time is
checked again when jobs are taken or offered.

Invariant: of the jobs of an ordering group that have not started, at most one is in a ready list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from jobyard.engine.state.names import ready_lists_of
from jobyard.model.job import LEASED, Job
from jobyard.model.limits import NEVER_MS, URGENT_RANK
from jobyard.model.throttle.ordering_group import OrderingGroup, ordering_of, part_of
from jobyard.model.throttle.ready_lists import ReadyList

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.details import JobDetails
    from jobyard.model.glidemq.fields import GlidePart
    from jobyard.model.queue import Queue


def enter_ready_list(yard: Yard, job: Job) -> None:
    """Put a ready job into its ready list."""
    queue = job.queue
    job.sort_key = job.rank
    if job.ready_list == ReadyList.STREAM:
        queue.ready.push(job)
        if job.rank < URGENT_RANK:
            queue.urgent_count += 1
            yard.urgent_count += 1
            if job.rank < 0:
                count_ahead(yard, queue, 1)
        return
    ready_lists = ready_lists_of(queue)
    ready_lists.heap(i64(job.ready_list)).push(job)
    queue.held_count += 1
    if job.ready_list == ReadyList.STAGED:
        ready_lists.staged_count += 1


def count_ahead(yard: Yard, queue: Queue, by: i64) -> None:
    """Count ready jobs with a priority: a rank below 0, or above 0 for jobs of a group."""
    queue.ahead_count += by
    yard.ahead_count += by


def leave_ready_list(yard: Yard, job: Job) -> None:
    """Take a ready job out of its ready list."""
    queue = job.queue
    if job.ready_list == ReadyList.STREAM:
        queue.ready.remove(job)
        if job.rank < URGENT_RANK:
            queue.urgent_count -= 1
            yard.urgent_count -= 1
            if job.rank < 0:
                count_ahead(yard, queue, -1)
        return
    ready_lists = ready_lists_of(queue)
    ready_lists.heap(i64(job.ready_list)).remove(job)
    queue.held_count -= 1
    if job.ready_list == ReadyList.STAGED:
        ready_lists.staged_count -= 1
    _note_moved(job)


def _note_moved(job: Job) -> None:
    jobs_by_seq = job.queue.jobs_by_seq
    if jobs_by_seq is not None:
        jobs_by_seq.note_moved(job)


def use_slot(job: Job, details: JobDetails, count: i64) -> None:
    """Count a started job of an ordering group that runs, waits, or will run again."""
    ordering = ordering_of(details)
    if ordering is not None and job.deliveries > 0:
        ordering.slots_used += count
        if job.state == LEASED:
            ordering.running += count


def wait_in_ordering(job: Job, part: GlidePart, ordering: OrderingGroup) -> None:
    """Make a ready job wait in its ordering group."""
    ordering.wait(job, part)
    job.queue.held_count += 1
    _count_apart(job, 1)
    if job.deliveries > 0:
        ordering.slots_used += 1


def leave_ordering(yard: Yard, job: Job, part: GlidePart, ordering: OrderingGroup) -> None:
    """Take a ready job out of its ordering group, whether it waits or is in a ready list."""
    if job.deliveries > 0:
        ordering.slots_used -= 1
    if part.is_standing:
        part.is_standing = False
        ordering.standing.remove(job)
        if ordering.next_job is job:
            ordering.next_job = None
        leave_ready_list(yard, job)
        return
    ordering.waiting.remove(job)
    job.queue.held_count -= 1
    _count_apart(job, -1)
    if job.ready_list != ReadyList.STREAM:
        _note_moved(job)


def _count_apart(job: Job, change: i64) -> None:
    """Count a job that waits in its ordering group and has another ready list than the stream."""
    if job.ready_list == ReadyList.STREAM:
        return
    ready_lists = ready_lists_of(job.queue)
    if job.ready_list == ReadyList.STAGED:
        ready_lists.staged_count += change
    else:
        ready_lists.listed_apart += change


def advance(yard: Yard, queue: Queue, ordering: OrderingGroup, now_ms: i64) -> None:
    """Move the jobs of an ordering group that may start or continue into their ready lists."""
    ready_lists = ready_lists_of(queue)
    ready_lists.open_ordering(ordering)
    _return_preceded(yard, ordering)
    waiting = ordering.waiting.items
    while waiting:
        job = waiting[0]
        assert isinstance(job, Job)
        part = part_of(job)
        opens_ms = ordering.closed_until_ms
        if job.deliveries > 0 and ordering.free_to_go_on() <= 0:
            return
        if job.deliveries == 0:
            if ordering.next_job is not None or ordering.is_held_by_others(job):
                return
            opens_ms = ordering.may_start_ms(part.due_cost(), now_ms)
        if opens_ms > now_ms:
            if opens_ms < NEVER_MS:
                ready_lists.shut_ordering(ordering, opens_ms)
            return
        ordering.waiting.remove(job)
        queue.held_count -= 1
        _count_apart(job, -1)
        if job.deliveries == 0:
            ordering.next_job = job
        part.is_standing = True
        ordering.standing.append(job)
        enter_ready_list(yard, job)


def _return_preceded(yard: Yard, ordering: OrderingGroup) -> None:
    """Make jobs wait again that others now precede: one was taken by id, or came back."""
    front = ordering.next_job
    if front is not None and ordering.is_held_by_others(front):
        _wait_again(yard, front, ordering)
    if ordering.free_to_go_on() < 0:
        # One is enough if one was taken; if the limit was lowered, others follow later.
        last = ordering.last_to_go_on()
        if last is not None:
            _wait_again(yard, last, ordering)


def _wait_again(yard: Yard, job: Job, ordering: OrderingGroup) -> None:
    part = part_of(job)
    leave_ordering(yard, job, part, ordering)
    wait_in_ordering(job, part, ordering)


def is_waiting_in_ordering(job: Job) -> bool:
    """Return whether a ready job waits in its ordering group and is in no ready list."""
    return ordering_of(job.details) is not None and not part_of(job).is_standing


def reopen(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Advance the ordering groups of a queue that were closed until now."""
    rules = queue.rules
    ready_lists = None if rules is None else rules.ready_lists
    if ready_lists is None:
        return
    shut = ready_lists.shut.items
    while shut and shut[0].sort_key <= now_ms:
        ordering = shut[0]
        assert isinstance(ordering, OrderingGroup)
        advance(yard, queue, ordering, now_ms)


def settle_orderings(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Start the ordering groups of a queue after a restart."""
    rules = queue.rules
    if rules is None or rules.ready_lists is None:
        return
    for ordering in rules.ready_lists.orderings.values():
        assert isinstance(ordering, OrderingGroup)
        ordering.begin(now_ms)
        ordering.waiting.heapify()
        advance(yard, queue, ordering, now_ms)
