"""Recounts of every index by which a yard finds its jobs, for jobs of every family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.engine.jobs.listing import ALL_STATES, jobs_in
from jobyard.engine.state.names import glide_key
from jobyard.model.family import GLIDE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.members import MemberState
from jobyard.model.throttle.ordering_group import find_ordering, ordering_of, part_of
from jobyard.model.throttle.ready_lists import ReadyList, ReadyLists
from sim.bunqueue.memory import found_by_name
from sim.checkers import check_heap
from sim.state import Violation

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.model.throttle.settings import Group, Rules


def check_indexes(yard: Yard) -> None:
    """Check that every job is in the index of its state and that every count is right."""
    jobs = list(yard.jobs.all())
    states = [int(job.state) for job in jobs]
    told = {
        READY: int(yard.ready_count),
        DELAYED: int(yard.delayed_count),
        LEASED: int(yard.leased_count),
        DEAD: int(yard.dead_count),
        DONE: int(yard.done_count),
        BLOCKED: int(yard.blocked_count),
    }
    counted = {state: states.count(state) for state in told}
    if told != counted:
        raise Violation("counters", f"counted {counted}, the yard has {told}")
    for queue in yard.queues.values():
        _check_queue(queue, [job for job in jobs if job.queue is queue])
    if any(yard.queues.get(job.queue.name) is not job.queue for job in jobs):
        raise Violation("queues", "a job is in a queue that does not exist")
    _check_names(yard, jobs)
    _check_members(yard, jobs)
    _check_policies(yard, jobs)
    check_heap(yard.timers, "timers")


def _numbers(items: list[object]) -> list[int]:
    return sorted(int(item.id) for item in items if isinstance(item, Job))


def _check_queue(queue: Queue, jobs: list[Job]) -> None:
    ready = _numbers(list(queue.ready.items))
    if queue.rules is not None:
        for group in queue.rules.groups.values():
            ready += _numbers(list(group.ready.items))
            _check_group(queue.rules, group, jobs)
        if queue.rules.ready_lists is not None:
            ready += _check_ready_lists(queue.rules.ready_lists, jobs)
    found = {
        READY: sorted(ready),
        DELAYED: _numbers(list(queue.delayed.items)),
        LEASED: _numbers(list(queue.leased.items)),
        BLOCKED: _numbers(list(queue.blocked.items)),
        DEAD: sorted(int(one.job.id) for one in queue.dead.live()),  # type: ignore[attr-defined]
        DONE: sorted(int(one.job.id) for one in queue.done.live()),  # type: ignore[attr-defined]
    }
    for state, numbers in found.items():
        wanted = sorted(int(job.id) for job in jobs if job.state == state)
        if numbers != wanted:
            raise Violation("ready lists", f"{queue.name}, state {state}: {numbers}, not {wanted}")
    held = len(ready) - len(queue.ready.items)
    if held != int(queue.held_count):
        raise Violation("counters", f"{queue.name} counts {queue.held_count} held jobs, not {held}")
    check_heap(queue.ready, queue.name)
    check_heap(queue.delayed, queue.name)
    if queue.delayed.items and (queue.pos < 0 or queue.sort_key > queue.delayed.items[0].sort_key):
        raise Violation("timers", f"{queue.name} has delayed jobs and no timer for them")
    for ordering in (queue.dead, queue.done):
        order = [int(one.key) for one in ordering.live()]
        if order != sorted(order):
            raise Violation("order", f"{queue.name}: endings {order}")


def _check_ready_lists(ready_lists: ReadyLists, jobs: list[Job]) -> list[int]:
    """Check ordering groups, and that they block no job in vain; return jobs outside the stream."""
    held: list[object] = []
    for heap in (ready_lists.staged, ready_lists.promoted, ready_lists.lifo):
        check_heap(heap, "a ready list")
        held += heap.items
    for name in ready_lists.orderings:
        ordering = find_ordering(ready_lists, name)
        assert ordering is not None
        check_heap(ordering.waiting, name)
        held += ordering.waiting.items
        own = [job for job in jobs if ordering_of(job.details) is ordering]
        started = sum(job.deliveries > 0 and job.state not in {DEAD, DONE} for job in own)
        if (len(own), started) != (int(ordering.jobs_count), int(ordering.slots_used)):
            told = (int(ordering.jobs_count), int(ordering.slots_used))
            raise Violation("groups", f"{name}: {len(own)} jobs, {started} started, not {told}")
        running = sum(job.state == LEASED for job in own)
        if running != int(ordering.running):
            raise Violation("groups", f"{name}: {running} run, not {ordering.running}")
        standing = [job for job in own if part_of(job).is_standing]
        fresh = [job for job in standing if job.deliveries == 0]
        if len(fresh) > 1 or any(job.state != READY for job in standing):
            raise Violation("groups", f"{name}: {_numbers(list(standing))} are in ready lists")
        if len(standing) > len(fresh) and int(ordering.free_to_go_on()) < 0:
            raise Violation("groups", f"{name}: {_numbers(list(standing))} ready, {running} run")
        idle = [job for job in own if job.state == READY and not part_of(job).is_standing]
        is_free = started < max(int(ordering.limits.concurrency), 1) and ordering.pos < 0
        if idle and not fresh and is_free and not ordering.limits.is_sequential():
            raise Violation("groups", f"{name}: {_numbers(list(idle))} wait for nothing")
    staged = sum(1 for job in jobs if job.state == READY and job.ready_list == ReadyList.STAGED)
    if staged != int(ready_lists.staged_count):
        raise Violation("counters", f"{ready_lists.staged_count} staged jobs counted, not {staged}")
    return _numbers(held)


def _check_group(rules: Rules, group: Group, jobs: list[Job]) -> None:
    check_heap(group.ready, group.name)
    turns = rules.ring.count(group)
    if turns != (1 if group.ready.items else 0):
        raise Violation("groups", f"{group.name} is in the ring {turns} times")
    own = [job for job in jobs if job.details is not None and job.details.group is group]
    leased = sum(1 for job in own if job.state == LEASED)
    if (len(own), leased) != (int(group.jobs_count), int(group.leased_count)):
        raise Violation("groups", f"{group.name} has {len(own)} jobs, {leased} leased")


def _check_names(yard: Yard, jobs: list[Job]) -> None:
    custom: dict[str, int] = {}
    for job in jobs:
        name = "" if job.details is None else job.details.custom_id
        if name and job.family == GLIDE:
            name = glide_key(job.queue, name)
        if name in custom:
            raise Violation("names", f"two jobs are called {name}")
        if name:
            custom[name] = int(job.id)
    found = found_by_name(yard)
    if found != custom:
        raise Violation("names", f"custom ids {found}, not {custom}")


def check_graves(yard: Yard) -> None:
    """Check that removed jobs that are not freed yet cannot be found."""
    for grave in yard.condemned.values():
        for job in jobs_in(grave, ALL_STATES):
            if yard.jobs.get(job.id) is not None:
                raise Violation("state", f"job {job.id} of an obliterated queue was found")


def check_results(yard: Yard) -> None:
    """Check that the results of jobs can be read back, on a disk that fails no read."""
    for job in yard.jobs.all():
        if job.state == DONE and yard.bodies.fetch_result(job) is None:
            raise Violation("result", f"the result of job {job.id} cannot be read back")


def _check_members(yard: Yard, jobs: list[Job]) -> None:
    waiting: dict[int, list[int]] = {}
    for job in jobs:
        details = job.details
        if details is None or job.state in {DEAD, DONE}:
            continue
        awaited = [
            int(one.child_id) for one in details.members or () if one.state == MemberState.OPEN
        ]
        if job.family != GLIDE and bool(awaited) != (job.state == BLOCKED):
            raise Violation("members", f"job {job.id}, state {job.state}, waits for {awaited}")
        for number in awaited:
            waiting.setdefault(number, []).append(int(job.id))
            child = yard.jobs.get(number)
            if child is not None and child.state == DONE:
                raise Violation("members", f"job {job.id} waits for {number}, which is done")
    told = {c: sorted(int(job.id) for job in w) for c, w in yard.names.dependents.items()}
    if told != {child: sorted(ids) for child, ids in waiting.items()}:
        raise Violation("members", f"waiting {told}, not {waiting}")


def _check_policies(yard: Yard, jobs: list[Job]) -> None:
    # Jobs of emptied queues count until they are freed.
    left = [job for grave in yard.condemned.values() for job in jobs_in(grave, ALL_STATES)]
    for policy in yard.policies.values():
        count = sum(1 for job in [*jobs, *left] if job.policy is policy)
        if count != int(policy.jobs_count):
            raise Violation("counters", f"policy {policy.number}: {policy.jobs_count}, not {count}")
