"""The verbs of glide-mq for jobs that no one runs: promoted, reordered, removed, revived."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import state_of
from jobyard.engine.glidemq.finish import defer, delay_news, is_delay_apart, is_held
from jobyard.engine.jobs import flows
from jobyard.engine.jobs.finish import end_run
from jobyard.engine.jobs.move import erase, revive, tell
from jobyard.engine.jobs.put import first_shelf
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.subscriptions import is_subscribed
from jobyard.engine.jobs.take import lay_expired, offer
from jobyard.engine.state import bus
from jobyard.engine.state.placement import advance
from jobyard.engine.state.yard import Yard
from jobyard.errors import NotFound, NotHeld, StorageFull
from jobyard.journal.format.record import DUE_SET, FAILED, RANKED, RELEASED
from jobyard.journal.format.record import PROMOTED as BY_PROMOTION
from jobyard.model.details import EXPLICIT, REASON, Fields, glide_field, overlay_field
from jobyard.model.family import GLIDE, counts_attempts
from jobyard.model.glidemq.fields import REVOKED, GlidePart
from jobyard.model.job import DEAD, DELAYED, READY, Job
from jobyard.model.policy import LIFO
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import Lane, lane_of
from jobyard.model.throttle.ready_lists import PROMOTED, STACK, STAGED, STREAM, Shelves
from jobyard.model.transition import End

# Jobs whose delay is over that are looked at for each that is to be promoted, at most.
_LOOKED: Final = 10


def promote_due(yard: Yard, queue: Queue, now_ms: i64, most: i64) -> i64:
    """Let staged jobs go to the shelf where workers find them, best first; return how many."""
    yard.now_ms = max(yard.now_ms, now_ms)
    _come_due(yard, queue, now_ms, most * _LOOKED)
    rules = queue.rules
    shelves = None if rules is None else rules.shelves
    promoted: i64 = 0
    if shelves is not None and shelves.staged_count > 0:
        promoted = _promote_best(yard, shelves, now_ms, most)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return promoted


def _promote_best(yard: Yard, shelves: Shelves, now_ms: i64, most: i64) -> i64:
    """Promote the best of the staged jobs; those that wait in their lanes come after all others."""
    promoted: i64 = 0
    staged = shelves.staged.items
    try:
        while staged and promoted < most:
            best = staged[0]
            assert isinstance(best, Job)
            _promote_staged(yard, best, now_ms)
            promoted += 1
        for job in _staged_in_lanes(shelves, most - promoted):
            _promote_staged(yard, job, now_ms)
            promoted += 1
    except StorageFull:
        if promoted == 0:
            raise
    return promoted


def _come_due(yard: Yard, queue: Queue, now_ms: i64, most: i64) -> None:
    """Let jobs be staged whose delay is over; for what is left the timers see to that."""
    delayed = queue.delayed.items
    while most > 0 and delayed and delayed[0].sort_key <= now_ms:
        job = delayed[0]
        assert isinstance(job, Job)
        yard.delay_over(job)
        most -= 1


def unstage(yard: Yard, queue: Queue, before_ms: i64, now_ms: i64, most: i64) -> i64:
    """Let jobs that have been staged since before a time go to the stream; return how many.

    So one who reads nothing but the stream gets them where no worker promotes them.
    """
    yard.now_ms = max(yard.now_ms, now_ms)
    rules = queue.rules
    shelves = None if rules is None else rules.shelves
    moved: i64 = 0
    for job in [] if shelves is None else _some_staged(shelves, 2 * most):
        if job.due_ms > before_ms or moved == most:
            continue
        move = End(job, BY_PROMOTION, READY)
        move.stamp = yard.stamp(now_ms)
        move.shelf = STREAM
        try:
            yard.move(job, move, now_ms)
        except StorageFull:
            break
        tell(yard, bus.WAITING, job, "delayed", now_ms)
        moved += 1
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return moved


def _some_staged(shelves: Shelves, most: i64) -> list[Job]:
    """Return up to `most` staged jobs, best first; those in their lanes come after all others.

    The first in a heap are not the best of all, but the best is among them: what is left comes up.
    """
    found: list[Job] = []
    for item in shelves.staged.items[:most]:
        assert isinstance(item, Job)
        found.append(item)
    found.sort(key=_place_of)
    return found + _staged_in_lanes(shelves, most - len(found))


def _staged_in_lanes(shelves: Shelves, most: i64) -> list[Job]:
    """Return up to `most` staged jobs that wait in their lanes."""
    found: list[Job] = []
    most = min(most, shelves.staged_count - len(shelves.staged.items))
    if most <= 0:
        return found
    for lane in shelves.lanes.values():
        for item in lane.waiting.items:
            assert isinstance(item, Job)
            if item.shelf == STAGED and len(found) < most:
                found.append(item)
        if len(found) == most:
            break
    return found


def _place_of(job: Job) -> tuple[int, int]:
    return (job.sort_key, job.stamp)


def _promote_staged(yard: Yard, job: Job, now_ms: i64) -> None:
    ttl_ms = job.policy.ttl_ms
    if 0 < ttl_ms <= now_ms - job.created_ms:
        lay_expired(yard, job, now_ms)
        return
    move_to_shelf(yard, job, now_ms)


def move_to_shelf(yard: Yard, job: Job, now_ms: i64, news: bytes = b"") -> None:
    """Let a job stand where workers find it, as the last there; those of others in the stream."""
    move = End(job, BY_PROMOTION, READY)
    move.news = news
    move.due_ms = min(job.due_ms, now_ms)
    move.stamp = yard.new_place(job, now_ms)
    if job.family != GLIDE:
        move.shelf = STREAM
    elif job.policy.flags & LIFO:
        move.shelf = STACK
        move.stamp = -move.stamp
    else:
        # Who subscribed sees the stream alone.
        is_listed = job.rank > 0 and not is_subscribed(job.queue)
        move.shelf = PROMOTED if is_listed else STREAM
    yard.move(job, move, now_ms)
    tell(yard, bus.WAITING, job, "delayed", now_ms)


def next_due(queue: Queue) -> i64:
    """Return when the next job may be promoted or its lane opens, 0 for now, or -1 for never."""
    rules = queue.rules
    shelves = None if rules is None else rules.shelves
    soonest: i64 = -1
    if shelves is not None:
        if shelves.staged_count > 0:
            return 0
        if shelves.shut.items:
            soonest = shelves.shut.items[0].sort_key
    if queue.delayed.items:
        due_ms = queue.delayed.items[0].sort_key
        soonest = due_ms if soonest < 0 else min(soonest, due_ms)
    audience = queue.audience
    if audience is not None and audience.due.items:
        due_ms = audience.due.items[0].sort_key
        soonest = due_ms if soonest < 0 else min(soonest, due_ms)
    return soonest


# -- one job -----------------------------------------------------------------------------------


def promote_job(yard: Yard, job: Job, now_ms: i64) -> None:
    """Let a delayed job go to its shelf before its time; NotFound for any other."""
    if state_of(job) != "delayed":
        raise NotFound
    yard.now_ms = max(yard.now_ms, now_ms)
    # It is told as one that was to come at once.
    news = b""
    if job.family == GLIDE:
        job.more()
        news = delay_news(0)
    move_to_shelf(yard, job, now_ms, news)
    offer(yard, job.queue, now_ms)


def set_priority(yard: Yard, job: Job, priority: i64, now_ms: i64) -> None:
    """Give a job that waits another priority: with one it is staged, without one in the stream.

    NotFound for one that does not wait, or was promoted or stacked already.
    """
    if job.state not in (READY, DELAYED) or job.shelf in (PROMOTED, STACK):
        raise NotFound
    if job.rank == priority:
        return
    yard.now_ms = max(yard.now_ms, now_ms)
    move = End(job, RANKED, i64(job.state))
    move.rank = priority
    if job.state == READY and job.family == GLIDE and (job.shelf == STREAM or job.delay_ms == 0):
        move.shelf = STAGED if priority > 0 else STREAM
        move.stamp = yard.stamp(now_ms)
    yard.move(job, move, now_ms)
    offer(yard, job.queue, now_ms)


def set_delay(yard: Yard, job: Job, delay_ms: i64, now_ms: i64) -> None:
    """Let a job that waits be due after another delay; NotFound as for another priority."""
    if job.state not in (READY, DELAYED) or job.shelf in (PROMOTED, STACK):
        raise NotFound
    if delay_ms == 0 and job.state == READY and job.delay_ms == 0:
        return
    yard.now_ms = max(yard.now_ms, now_ms)
    move = End(job, DUE_SET, DELAYED if delay_ms > 0 else READY)
    move.due_ms = now_ms + delay_ms
    move.shelf = STREAM
    if delay_ms == 0 and job.family == GLIDE:
        move.shelf = first_shelf(job.rank, job.policy)
    if delay_ms == 0:
        move.stamp = yard.new_place(job, now_ms)
        if move.shelf == STACK:
            move.stamp = -move.stamp
    if is_delay_apart(job):
        move.news = delay_news(delay_ms)
    yard.move(job, move, now_ms)
    offer(yard, job.queue, now_ms)


def remove(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job, even one that runs at this door; NotFound for one that runs at another."""
    lease = job.lease
    if lease is not None and not lease.terms.is_entry():
        raise NotFound
    queue = job.queue
    yard.now_ms = max(yard.now_ms, now_ms)
    erase(yard, job, now_ms)
    if queue.first_link is not None:
        # It may have run, and what it held up is not only its lane.
        offer(yard, queue, now_ms)
    drop_if_idle(yard, queue)


def revoke(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Let a job that waits fail, "revoked"; False for any other, which is only marked so."""
    part = copy_part(job)
    part.flags |= REVOKED
    fields = Fields()
    glide_field(fields, part)
    job.more()
    if job.state not in (READY, DELAYED):
        yard.note(job, fields.done())
        return False
    yard.now_ms = max(yard.now_ms, now_ms)
    if job.state == DELAYED and job.due_ms <= now_ms:
        # Its delay ended first, as a replay will find.
        yard.delay_over(job)
    move = End(job, FAILED, DEAD)
    if counts_attempts(job.family):
        fields.numbers(REASON, (EXPLICIT,), b"revoked")
    move.news = fields.done()
    flows.make_room(yard, job, len("revoked"))
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.FAILED, job.queue, job, now_ms)
        event.error = "revoked"
        event.is_final = True
        event.is_dead = True
        yard.bus.tell(event)
    if yard.names.dependents.count > 0:
        flows.fail(yard, job, "revoked", now_ms)
    if job.queue.first_link is not None:
        offer(yard, job.queue, now_ms)
    return True


def set_fields(yard: Yard, job: Job, changes: dict[bytes, bytes | None]) -> None:
    """Set fields that mean nothing to the yard, or take them away."""
    fields = Fields()
    for name, value in changes.items():
        overlay_field(fields, name, value)
    yard.note(job, fields.done())


def set_labels(yard: Yard, job: Job, part: GlidePart) -> None:
    """Replace what is remembered of a job's parents and schedule; `part` is a copy, changed."""
    fields = Fields()
    glide_field(fields, part)
    yard.note(job, fields.done())


def copy_part(job: Job) -> GlidePart:
    """Return the rare parts of a job, to be changed and set; without its overlay."""
    extra = job.extra
    return GlidePart() if extra is None or extra.glide is None else extra.glide.copy()


# -- many jobs ---------------------------------------------------------------------------------


def retry(yard: Yard, job: Job, now_ms: i64) -> None:
    """Bring back a job that failed; it is staged."""
    yard.now_ms = max(yard.now_ms, now_ms)
    revive(yard, job, now_ms, STAGED if job.family == GLIDE else STREAM)


# -- lanes -------------------------------------------------------------------------------------


def close_lane(yard: Yard, lane: Lane, until_ms: i64) -> None:
    """Let no job of a lane start or go on before a time; what stands on a shelf waits too."""
    lane.closed_until_ms = max(lane.closed_until_ms, until_ms)
    for job in list(lane.standing):
        yard.step_aside(job)
        yard.step_back(job)
    if lane.waiting.items:
        # It may have been closed for longer before.
        first = lane.waiting.items[0]
        assert isinstance(first, Job)
        advance(yard, first.queue, lane, yard.now_ms)


def hold_back(yard: Yard, job: Job, entry: str, until_ms: i64, now_ms: i64) -> None:
    """Give a job back to the head of its lane, which is closed until a time."""
    if not is_held(job, entry):
        raise NotHeld
    yard.now_ms = max(yard.now_ms, now_ms)
    lane = lane_of(job.extra)
    if lane is None:
        defer(yard, job, entry, max(until_ms - now_ms, 0), now_ms)
        return
    close_lane(yard, lane, until_ms)
    # With its old place: it goes before those that wait behind it.
    end = End(job, RELEASED, READY)
    end.due_ms = now_ms
    end_run(yard, job, end, now_ms)
