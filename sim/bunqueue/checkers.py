"""Recounts of everything a yard finds its jobs by, for jobs of every family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.model.extra import OPEN
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY, Job
from sim.checkers import check_heap
from sim.state import Violation

if TYPE_CHECKING:
    from jobyard.engine.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.model.rules import Group, Rules


def check_indexes(yard: Yard) -> None:
    """See that every job stands in the index its state names and every count is right."""
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
        raise Violation("queues", "a job stands in a queue that is not there")
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
            raise Violation("shelves", f"{queue.name}, state {state}: {numbers}, not {wanted}")
    held = len(ready) - len(queue.ready.items)
    if held != int(queue.held_count):
        raise Violation("counters", f"{queue.name} counts {queue.held_count} held jobs, not {held}")
    check_heap(queue.ready, queue.name)
    check_heap(queue.delayed, queue.name)
    if queue.delayed.items and (queue.pos < 0 or queue.sort_key > queue.delayed.items[0].sort_key):
        raise Violation("timers", f"{queue.name} has delayed jobs and no timer for them")
    for lane in (queue.dead, queue.done):
        order = [int(one.key) for one in lane.live()]
        if order != sorted(order):
            raise Violation("order", f"{queue.name}: endings {order}")


def _check_group(rules: Rules, group: Group, jobs: list[Job]) -> None:
    check_heap(group.ready, group.name)
    turns = rules.ring.count(group)
    if turns != (1 if group.ready.items else 0):
        raise Violation("groups", f"{group.name} stands {turns} times in the ring")
    own = [job for job in jobs if job.extra is not None and job.extra.group is group]
    leased = sum(1 for job in own if job.state == LEASED)
    if (len(own), leased) != (int(group.jobs_count), int(group.leased_count)):
        raise Violation("groups", f"{group.name} has {len(own)} jobs, {leased} leased")


def _check_names(yard: Yard, jobs: list[Job]) -> None:
    custom: dict[str, int] = {}
    for job in jobs:
        name = "" if job.extra is None else job.extra.custom_id
        if name in custom:
            raise Violation("names", f"two jobs are called {name}")
        if name:
            custom[name] = int(job.id)
    found = {name: int(job.id) for name, job in yard.names.custom.items()}
    if found != custom:
        raise Violation("names", f"custom ids {found}, not {custom}")


def _check_members(yard: Yard, jobs: list[Job]) -> None:
    waiting: dict[int, list[int]] = {}
    for job in jobs:
        extra = job.extra
        if extra is None or job.state in {DEAD, DONE}:
            continue
        awaited = [int(one.child_id) for one in extra.members or () if one.state == OPEN]
        if bool(awaited) != (job.state == BLOCKED):
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
    for policy in yard.policies.values():
        count = sum(1 for job in jobs if job.policy is policy)
        if count != int(policy.jobs_count):
            raise Violation("counters", f"policy {policy.number}: {policy.jobs_count}, not {count}")
