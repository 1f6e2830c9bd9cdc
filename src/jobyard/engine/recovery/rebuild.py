"""Builds every index of a yard from the states of its jobs.

Called once, at the end of a replay. Heaps are filled in any order and heapified at the end.
"""

from typing import TYPE_CHECKING

from mypy_extensions import i64

from jobyard.engine.jobs.listing import is_long, jobs_by_seq_of
from jobyard.engine.state.placement import (
    count_ahead,
    enter_ready_list,
    settle_orderings,
    use_slot,
    wait_in_ordering,
)
from jobyard.engine.state.yard import Yard, come_due
from jobyard.model.details import Outcome
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, READY, Job
from jobyard.model.limits import URGENT_RANK
from jobyard.model.throttle.ordering_group import ordering_of, part_of
from jobyard.model.throttle.ready_lists import ReadyList

if TYPE_CHECKING:
    from jobyard.model.queue import Queue


def settle(yard: Yard, now_ms: i64) -> None:
    """Put every job into the index of its state."""
    yard.now_ms = now_ms
    yard.is_replaying = False
    yard.boot_stamp = yard.last_stamp
    resting: list[Outcome] = []
    last: Queue | None = None
    for job in yard.jobs.all():
        queue = job.queue
        if queue is not last:
            yard.queues[queue.name] = queue
            last = queue
        state = job.state
        if job.details is not None or job.policy.ttl_ms > 0:
            _recall(yard, job)
        if state in (DEAD, DONE):
            resting.append(job.outcome())
        elif state == BLOCKED or (state == DELAYED and job.due_ms > now_ms):
            _settle_waiting(yard, job)
        else:
            _settle_ready(yard, job)
    resting.sort(key=_ending_of)
    for outcome in resting:
        yard.enter_ended(outcome.job, outcome)
    for queue in yard.queues.values():
        _settle_queue(yard, queue, now_ms)


def _settle_queue(yard: Yard, queue: "Queue", now_ms: i64) -> None:
    queue.ready.heapify()
    queue.delayed.heapify()
    if queue.rules is not None:
        settle_orderings(yard, queue, now_ms)
    if queue.delayed.items:
        yard.arm(queue, queue.delayed.items[0].sort_key)
    if is_long(queue):
        jobs_by_seq_of(queue)


def _recall(yard: Yard, job: Job) -> None:
    yard.names.recall(job)
    if job.details is not None and job.details.durable_lease is not None:
        yard.durably_leased.append(job)


def _settle_waiting(yard: Yard, job: Job) -> None:
    if job.state == BLOCKED:
        job.queue.blocked.add(job)
        yard.blocked_count += 1
    else:
        job.sort_key = job.due_ms
        job.queue.delayed.items.append(job)
        yard.delayed_count += 1
    if job.details is not None:
        use_slot(job, job.details, 1)


def _settle_ready(yard: Yard, job: Job) -> None:
    if job.state == DELAYED:
        come_due(job)
    details = job.details
    if details is not None and details.group is not None:
        yard.index_ready(job)
        return
    queue = job.queue
    job.state = READY
    yard.ready_count += 1
    ordering = ordering_of(details)
    if ordering is not None:
        wait_in_ordering(job, part_of(job), ordering)
        return
    if job.ready_list != ReadyList.STREAM:
        enter_ready_list(yard, job)
        return
    job.sort_key = job.rank
    queue.ready.items.append(job)
    if job.rank < URGENT_RANK:
        queue.urgent_count += 1
        yard.urgent_count += 1
        if job.rank < 0:
            count_ahead(yard, queue, 1)


def _ending_of(outcome: Outcome) -> int:
    return outcome.key
