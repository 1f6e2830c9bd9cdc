"""The verbs of glide-mq for jobs that no worker runs: promote, reorder, remove, revive."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import is_own, state_of
from jobyard.engine.glidemq.finish import defer, delay_fields, is_delay_apart, is_held
from jobyard.engine.jobs import flows
from jobyard.engine.jobs.finish import end_run
from jobyard.engine.jobs.move import erase, publish_event, revive
from jobyard.engine.jobs.put import first_list
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import make_expired_dead, offer
from jobyard.engine.state import bus
from jobyard.engine.state.placement import advance
from jobyard.engine.state.yard import Yard
from jobyard.engine.subscriptions.subscriptions import is_subscribed
from jobyard.errors import NotFound, NotHeld, StorageFull
from jobyard.journal.format.record import Cause
from jobyard.model.details import FailureReason
from jobyard.model.details_codec import FieldWriter, Tag, glide_field, overlay_field
from jobyard.model.family import counts_attempts
from jobyard.model.glidemq.fields import GlideFlag, GlidePart
from jobyard.model.job import DEAD, DELAYED, READY, Job
from jobyard.model.policy import LIFO
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import OrderingGroup, ordering_of
from jobyard.model.throttle.ready_lists import ReadyList, ReadyLists
from jobyard.model.transition import Transition

# The most jobs with an expired delay that are staged for each job to promote.
_LOOKED: Final = 10


def promote_due(yard: Yard, queue: Queue, now_ms: i64, most: i64) -> i64:
    """Move staged jobs to the ready list that workers read, best first; return how many."""
    yard.now_ms = max(yard.now_ms, now_ms)
    _come_due(yard, queue, now_ms, most * _LOOKED)
    rules = queue.rules
    ready_lists = None if rules is None else rules.ready_lists
    promoted: i64 = 0
    if ready_lists is not None and ready_lists.staged_count > 0:
        promoted = _promote_best(yard, ready_lists, now_ms, most)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return promoted


def _promote_best(yard: Yard, ready_lists: ReadyLists, now_ms: i64, most: i64) -> i64:
    """Promote the best staged jobs; those that wait in their ordering groups come last."""
    promoted: i64 = 0
    staged = ready_lists.staged.items
    try:
        while staged and promoted < most:
            best = staged[0]
            assert isinstance(best, Job)
            _promote_staged(yard, best, now_ms)
            promoted += 1
        for job in _staged_in_orderings(ready_lists, most - promoted):
            _promote_staged(yard, job, now_ms)
            promoted += 1
    except StorageFull:
        if promoted == 0:
            raise
    return promoted


def _come_due(yard: Yard, queue: Queue, now_ms: i64, most: i64) -> None:
    """Stage up to `most` jobs whose delay is over; timers stage the rest."""
    delayed = queue.delayed.items
    while most > 0 and delayed and delayed[0].sort_key <= now_ms:
        job = delayed[0]
        assert isinstance(job, Job)
        yard.delay_over(job)
        most -= 1


def unstage(yard: Yard, queue: Queue, before_ms: i64, now_ms: i64, most: i64) -> i64:
    """Move jobs that were staged before a time to the stream; return how many.

    So a client that reads only the stream gets them even if no worker promotes them.
    """
    yard.now_ms = max(yard.now_ms, now_ms)
    rules = queue.rules
    ready_lists = None if rules is None else rules.ready_lists
    moved: i64 = 0
    for job in [] if ready_lists is None else _some_staged(ready_lists, 2 * most):
        if job.due_ms > before_ms or moved == most:
            continue
        move = Transition(job, Cause.PROMOTED, READY)
        move.stamp = yard.stamp(now_ms)
        move.ready_list = ReadyList.STREAM
        try:
            yard.move(job, move, now_ms)
        except StorageFull:
            break
        publish_event(yard, bus.EventName.WAITING, job, "delayed", now_ms)
        moved += 1
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return moved


def _some_staged(ready_lists: ReadyLists, most: i64) -> list[Job]:
    """Return up to `most` staged jobs, best first; those in their ordering groups come last.

    The first items of a heap are not its best ones, but include the very best: later calls get the
    rest.
    """
    found: list[Job] = []
    for item in ready_lists.staged.items[:most]:
        assert isinstance(item, Job)
        found.append(item)
    found.sort(key=_place_of)
    return found + _staged_in_orderings(ready_lists, most - len(found))


def _staged_in_orderings(ready_lists: ReadyLists, most: i64) -> list[Job]:
    """Return up to `most` staged jobs that wait in their ordering groups."""
    found: list[Job] = []
    most = min(most, ready_lists.staged_count - len(ready_lists.staged.items))
    if most <= 0:
        return found
    for ordering in ready_lists.orderings.values():
        for item in ordering.waiting.items:
            assert isinstance(item, Job)
            if item.ready_list == ReadyList.STAGED and len(found) < most:
                found.append(item)
        if len(found) == most:
            break
    return found


def _place_of(job: Job) -> tuple[int, int]:
    return (job.sort_key, job.stamp)


def _promote_staged(yard: Yard, job: Job, now_ms: i64) -> None:
    ttl_ms = job.policy.ttl_ms
    if 0 < ttl_ms <= now_ms - job.created_ms:
        make_expired_dead(yard, job, now_ms)
        return
    move_to_list(yard, job, now_ms)


def move_to_list(yard: Yard, job: Job, now_ms: i64, changed_fields: bytes = b"") -> None:
    """Move a job to the end of its ready list for workers; other families go to the stream."""
    move = Transition(job, Cause.PROMOTED, READY)
    move.changed_fields = changed_fields
    move.due_ms = min(job.due_ms, now_ms)
    move.stamp = yard.new_place(job, now_ms)
    if not is_own(job):
        move.ready_list = ReadyList.STREAM
    elif job.policy.flags & LIFO:
        move.ready_list = ReadyList.LIFO
        move.stamp = -move.stamp
    else:
        # Subscriptions see only the stream.
        is_listed = job.rank > 0 and not is_subscribed(job.queue)
        move.ready_list = ReadyList.PROMOTED if is_listed else ReadyList.STREAM
    yard.move(job, move, now_ms)
    publish_event(yard, bus.EventName.WAITING, job, "delayed", now_ms)


def next_due(queue: Queue) -> i64:
    """Return when the next job or ordering group becomes due, 0 for now, or -1 for never."""
    rules = queue.rules
    ready_lists = None if rules is None else rules.ready_lists
    soonest: i64 = -1
    if ready_lists is not None:
        if ready_lists.staged_count > 0:
            return 0
        if ready_lists.shut.items:
            soonest = ready_lists.shut.items[0].sort_key
    if queue.delayed.items:
        due_ms = queue.delayed.items[0].sort_key
        soonest = due_ms if soonest < 0 else min(soonest, due_ms)
    subscriptions = queue.subscriptions
    if subscriptions is not None and subscriptions.due.items:
        due_ms = subscriptions.due.items[0].sort_key
        soonest = due_ms if soonest < 0 else min(soonest, due_ms)
    return soonest


# -- one job -----------------------------------------------------------------------------------


def promote_job(yard: Yard, job: Job, now_ms: i64) -> None:
    """Move a delayed job to its ready list before its time; NotFound for any other."""
    if state_of(job) != "delayed":
        raise NotFound
    yard.now_ms = max(yard.now_ms, now_ms)
    # Clients see it as a job without delay.
    changed_fields = b""
    if is_own(job):
        job.ensure_details()
        changed_fields = delay_fields(0)
    move_to_list(yard, job, now_ms, changed_fields)
    offer(yard, job.queue, now_ms)


def set_priority(yard: Yard, job: Job, priority: i64, now_ms: i64) -> None:
    """Change the priority of a waiting job: above 0 it is staged, with 0 it is in the stream.

    NotFound if it does not wait, was promoted already, or is in the LIFO list.
    """
    if job.state not in (READY, DELAYED) or job.ready_list in (ReadyList.PROMOTED, ReadyList.LIFO):
        raise NotFound
    if job.rank == priority:
        return
    yard.now_ms = max(yard.now_ms, now_ms)
    move = Transition(job, Cause.RANKED, i64(job.state))
    move.rank = priority
    if (
        job.state == READY
        and is_own(job)
        and (job.ready_list == ReadyList.STREAM or job.delay_ms == 0)
    ):
        move.ready_list = ReadyList.STAGED if priority > 0 else ReadyList.STREAM
        move.stamp = yard.stamp(now_ms)
    yard.move(job, move, now_ms)
    offer(yard, job.queue, now_ms)


def set_delay(yard: Yard, job: Job, delay_ms: i64, now_ms: i64) -> None:
    """Change the delay of a waiting job; NotFound as in `set_priority`."""
    if job.state not in (READY, DELAYED) or job.ready_list in (ReadyList.PROMOTED, ReadyList.LIFO):
        raise NotFound
    if delay_ms == 0 and job.state == READY and job.delay_ms == 0:
        return
    yard.now_ms = max(yard.now_ms, now_ms)
    move = Transition(job, Cause.DUE_SET, DELAYED if delay_ms > 0 else READY)
    move.due_ms = now_ms + delay_ms
    move.ready_list = ReadyList.STREAM
    if delay_ms == 0 and is_own(job):
        move.ready_list = first_list(job.rank, job.policy)
    if delay_ms == 0:
        move.stamp = yard.new_place(job, now_ms)
        if move.ready_list == ReadyList.LIFO:
            move.stamp = -move.stamp
    if is_delay_apart(job):
        move.changed_fields = delay_fields(delay_ms)
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
        # It may have run, and then it held up more than its ordering group.
        offer(yard, queue, now_ms)
    drop_if_idle(yard, queue)


def revoke(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Fail a waiting job with "revoked"; any other is only marked as revoked, and False."""
    part = copy_part(job)
    part.flags |= GlideFlag.REVOKED
    fields = FieldWriter()
    glide_field(fields, part)
    job.ensure_details()
    if job.state not in (READY, DELAYED):
        yard.note(job, fields.done())
        return False
    yard.now_ms = max(yard.now_ms, now_ms)
    if job.state == DELAYED and job.due_ms <= now_ms:
        # Its delay ended first, and a replay must see the same.
        yard.delay_over(job)
    move = Transition(job, Cause.FAILED, DEAD)
    if counts_attempts(job.family):
        fields.numbers(Tag.REASON, (FailureReason.EXPLICIT,), b"revoked")
    move.changed_fields = fields.done()
    flows.make_room(yard, job, len("revoked"))
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.FAILED, job.queue, job, now_ms)
        event.error = "revoked"
        event.is_final = True
        event.is_dead = True
        yard.bus.publish(event)
    if yard.names.dependents.count > 0:
        flows.fail(yard, job, "revoked", now_ms)
    if job.queue.first_link is not None:
        offer(yard, job.queue, now_ms)
    return True


def set_fields(yard: Yard, job: Job, changes: dict[bytes, bytes | None]) -> None:
    """Set fields that mean nothing to the yard, or remove them."""
    fields = FieldWriter()
    for name, value in changes.items():
        overlay_field(fields, name, value)
    yard.note(job, fields.done())


def set_labels(yard: Yard, job: Job, part: GlidePart) -> None:
    """Replace the glide-mq fields of a job; `part` is a changed copy."""
    fields = FieldWriter()
    glide_field(fields, part)
    yard.note(job, fields.done())


def copy_part(job: Job) -> GlidePart:
    """Return a copy of the glide-mq fields of a job, without its overlay, to change and set."""
    details = job.details
    return GlidePart() if details is None or details.glide is None else details.glide.copy()


# -- many jobs ---------------------------------------------------------------------------------


def retry(yard: Yard, job: Job, now_ms: i64) -> None:
    """Bring back a job that failed; it is staged."""
    yard.now_ms = max(yard.now_ms, now_ms)
    revive(yard, job, now_ms, ReadyList.STAGED if is_own(job) else ReadyList.STREAM)


# -- ordering groups ---------------------------------------------------------------------------


def close_ordering(yard: Yard, ordering: OrderingGroup, until_ms: i64) -> None:
    """Close an ordering group until a time: no job starts or continues, listed ones wait too."""
    ordering.closed_until_ms = max(ordering.closed_until_ms, until_ms)
    for job in list(ordering.standing):
        yard.unindex_ready(job)
        yard.index_ready(job)
    if ordering.waiting.items:
        # It may already have been closed for longer.
        first = ordering.waiting.items[0]
        assert isinstance(first, Job)
        advance(yard, first.queue, ordering, yard.now_ms)


def hold_back(yard: Yard, job: Job, entry: str, until_ms: i64, now_ms: i64) -> None:
    """Give a job back to the head of its ordering group, which is closed until a time."""
    if not is_held(job, entry):
        raise NotHeld
    yard.now_ms = max(yard.now_ms, now_ms)
    ordering = ordering_of(job.details)
    if ordering is None:
        defer(yard, job, entry, max(until_ms - now_ms, 0), now_ms)
        return
    close_ordering(yard, ordering, until_ms)
    # It keeps its stamp, and so comes before the jobs that wait behind it.
    end = Transition(job, Cause.RELEASED, READY)
    end.due_ms = now_ms
    end_run(yard, job, end, now_ms)
