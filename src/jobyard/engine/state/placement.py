"""Where a ready job of glide-mq comes to stand: on its shelf, or behind others of its lane.

Called by the yard alone, for jobs that have a lane or another shelf than the stream; what holds for
all jobs stays there. A lane that time held up is looked at again by whoever takes or offers jobs.

Invariant: of the jobs of a lane that have not started, at most one stands on a shelf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from jobyard.engine.state.names import shelves_of
from jobyard.model.job import LEASED, Job
from jobyard.model.limits import NEVER_MS, URGENT_RANK
from jobyard.model.throttle.ordering_group import Lane, lane_of, part_of
from jobyard.model.throttle.ready_lists import STAGED, STREAM

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.details import Extra
    from jobyard.model.glidemq.fields import GlidePart
    from jobyard.model.queue import Queue


def stand(yard: Yard, job: Job) -> None:
    """Put a ready job on its shelf."""
    queue = job.queue
    job.sort_key = job.rank
    if job.shelf == STREAM:
        queue.ready.push(job)
        if job.rank < URGENT_RANK:
            queue.urgent_count += 1
            yard.urgent_count += 1
            if job.rank < 0:
                count_ahead(yard, queue, 1)
        return
    shelves = shelves_of(queue)
    shelves.heap(i64(job.shelf)).push(job)
    queue.held_count += 1
    if job.shelf == STAGED:
        shelves.staged_count += 1


def count_ahead(yard: Yard, queue: Queue, by: i64) -> None:
    """Count ready jobs with a priority: a rank below 0; in a group, where they rise, above."""
    queue.ahead_count += by
    yard.ahead_count += by


def step_down(yard: Yard, job: Job) -> None:
    """Take a ready job off its shelf."""
    queue = job.queue
    if job.shelf == STREAM:
        queue.ready.remove(job)
        if job.rank < URGENT_RANK:
            queue.urgent_count -= 1
            yard.urgent_count -= 1
            if job.rank < 0:
                count_ahead(yard, queue, -1)
        return
    shelves = shelves_of(queue)
    shelves.heap(i64(job.shelf)).remove(job)
    queue.held_count -= 1
    if job.shelf == STAGED:
        shelves.staged_count -= 1
    _note_moved(job)


def _note_moved(job: Job) -> None:
    roster = job.queue.roster
    if roster is not None:
        roster.note_moved(job)


def use_slot(job: Job, extra: Extra, count: i64) -> None:
    """Count a job of a lane that has started and runs, waits, or is to run again."""
    lane = lane_of(extra)
    if lane is not None and job.deliveries > 0:
        lane.slots_used += count
        if job.state == LEASED:
            lane.running += count


def rejoin(job: Job, extra: Extra) -> None:
    """Let a job that waited for others, and has not started, have its place in its lane again."""
    part = extra.glide
    if part is not None and part.lane is not None and job.deliveries == 0:
        part.lane.rejoin(job, part)


def line_up(job: Job, part: GlidePart, lane: Lane) -> None:
    """Let a ready job wait in its lane."""
    lane.wait(job, part)
    job.queue.held_count += 1
    _count_apart(job, 1)
    if job.deliveries > 0:
        lane.slots_used += 1


def leave_line(yard: Yard, job: Job, part: GlidePart, lane: Lane) -> None:
    """Take a ready job out of its lane, wherever it stands."""
    if job.deliveries > 0:
        lane.slots_used -= 1
    if part.is_standing:
        part.is_standing = False
        lane.standing.remove(job)
        if lane.front is job:
            lane.front = None
        step_down(yard, job)
        return
    lane.waiting.remove(job)
    job.queue.held_count -= 1
    _count_apart(job, -1)
    if job.shelf != STREAM:
        _note_moved(job)


def _count_apart(job: Job, change: i64) -> None:
    """Count a job that waits in its lane and has another shelf than the stream."""
    if job.shelf == STREAM:
        return
    shelves = shelves_of(job.queue)
    if job.shelf == STAGED:
        shelves.staged_count += change
    else:
        shelves.listed_apart += change


def advance(yard: Yard, queue: Queue, lane: Lane, now_ms: i64) -> None:
    """Bring to their shelves those of a lane who may start, or may go on."""
    shelves = shelves_of(queue)
    shelves.open_lane(lane)
    _make_way(yard, lane)
    waiting = lane.waiting.items
    while waiting:
        job = waiting[0]
        assert isinstance(job, Job)
        part = part_of(job)
        opens_ms = lane.closed_until_ms
        if job.deliveries > 0 and lane.free_to_go_on() <= 0:
            return
        if job.deliveries == 0:
            if lane.front is not None or lane.is_held_by_others(job):
                return
            opens_ms = lane.may_start_ms(part.due_cost(), now_ms)
        if opens_ms > now_ms:
            if opens_ms < NEVER_MS:
                shelves.shut_lane(lane, opens_ms)
            return
        lane.waiting.remove(job)
        queue.held_count -= 1
        _count_apart(job, -1)
        if job.deliveries == 0:
            lane.front = job
        part.is_standing = True
        lane.standing.append(job)
        stand(yard, job)


def _make_way(yard: Yard, lane: Lane) -> None:
    """Let those wait again before whom others go: one was taken by its name, or came back."""
    front = lane.front
    if front is not None and lane.is_held_by_others(front):
        _wait_again(yard, front, lane)
    if lane.free_to_go_on() < 0:
        # One is enough for one that was taken; where the limit was lowered, others follow it.
        last = lane.last_to_go_on()
        if last is not None:
            _wait_again(yard, last, lane)


def _wait_again(yard: Yard, job: Job, lane: Lane) -> None:
    part = part_of(job)
    leave_line(yard, job, part, lane)
    line_up(job, part, lane)


def is_waiting_in_lane(job: Job) -> bool:
    """Tell whether a ready job waits for others of its lane, or for the lane to open."""
    return lane_of(job.extra) is not None and not part_of(job).is_standing


def reopen(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Look again at the lanes of a queue that time held up until now."""
    rules = queue.rules
    shelves = None if rules is None else rules.shelves
    if shelves is None:
        return
    shut = shelves.shut.items
    while shut and shut[0].sort_key <= now_ms:
        lane = shut[0]
        assert isinstance(lane, Lane)
        advance(yard, queue, lane, now_ms)


def settle_lanes(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Bring up the lanes of a queue whose jobs a restart brought back."""
    rules = queue.rules
    if rules is None or rules.shelves is None:
        return
    for lane in rules.shelves.lanes.values():
        lane.begin(now_ms)
        lane.waiting.heapify()
        advance(yard, queue, lane, now_ms)
