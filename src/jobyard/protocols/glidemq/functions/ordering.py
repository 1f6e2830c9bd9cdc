"""Functions that hold back the jobs of one ordering key for a time."""

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import finish as glide_finish
from jobyard.engine.glidemq import move as glide_move
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.placement import reopen
from jobyard.model.job import LEASED
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import OrderingGroup, ordering_of
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions.work import job_at
from jobyard.protocols.glidemq.groups.workers import check_group
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.fields import ordering_named
from jobyard.protocols.glidemq.keyspace.views.job import number


def promote_rate_limited(call: Fcall) -> None:
    """Reopen ordering groups whose rate limit has passed; answer how many.

    Clients that take jobs reopen them too; but a client that was told when the next job is due
    would otherwise wait for it in vain.
    """
    place = call.place(0, key_parts.KeyPart.RATELIMITED)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.number(0, TIME_MAX, "timestamp")
    queue = call.yard.queues.get(place.queue_name)
    rules = None if queue is None else queue.rules
    ready_lists = None if rules is None else rules.ready_lists
    count: i64 = 0
    if queue is not None and ready_lists is not None:
        count = len(ready_lists.shut.items)
        reopen(call.yard, queue, call.now_ms)
        count -= len(ready_lists.shut.items)
        if queue.first_link is not None:
            offer(call.yard, queue, call.now_ms)
    call.answer_number(count)


def rate_limit_group(call: Fcall) -> None:
    """Hold back the ordering group of a running job, and release the job or fail it."""
    place = call.place(0, key_parts.KeyPart.JOB)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    check_group(call.arg(2))
    wait_ms = call.number(3, TIME_MAX // 2, "duration")
    call.number(4, TIME_MAX, "timestamp")
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    ordering = ordering_of(job.details)
    if ordering is None:
        call.answer("error:no_group")
        return
    entry = call.text(1)
    if job.state != LEASED or not glide_finish.is_held(job, entry):
        call.answer("error:not_active")
        return
    queue = job.queue
    job_id = bytes_of(glide_add.id_of(job))
    key = ordering.name
    until_ms = _until(ordering, call.now_ms + wait_ms, is_replaced=call.arg(8) == b"replace")
    if call.arg(6) == b"fail":
        glide_move.close_ordering(call.yard, ordering, until_ms)
        why = "group rate limited"
        glide_finish.fail(call.yard, job, entry, why, 0, 0, glide_finish.Keep(), call.now_ms)
    else:
        glide_move.hold_back(call.yard, job, entry, until_ms, call.now_ms)
    _publish_limit(call, queue, job_id, key, wait_ms, until_ms)
    call.answer(str(int(until_ms + call.yard.journal.wall_offset_ms)))


def rate_limit_group_external(call: Fcall) -> None:
    """Hold back an ordering group for a time."""
    place = call.place(0, key_parts.KeyPart.RATELIMITED)
    call.same_queue(1, key_parts.KeyPart.EVENTS, place)
    key = call.text(0)
    if not key:
        raise Wrong("ERR an ordering key must not be empty")
    wait_ms = call.number(1, TIME_MAX // 2, "duration")
    ts = call.number(2, TIME_MAX, "timestamp")
    queue = call.yard.queues.get(place.queue_name)
    ordering = None if queue is None else ordering_named(queue, key)
    if queue is None or ordering is None:
        # No job has this key: there is nothing to hold back.
        call.answer_number(ts + wait_ms)
        return
    until_ms = _until(ordering, call.now_ms + wait_ms, is_replaced=call.arg(3) == b"replace")
    glide_move.close_ordering(call.yard, ordering, until_ms)
    _publish_limit(call, queue, b"", key, wait_ms, until_ms)
    call.answer_number(until_ms + call.yard.journal.wall_offset_ms)


def _until(ordering: OrderingGroup, until_ms: i64, *, is_replaced: bool) -> i64:
    """Return until when an ordering group is closed: the later time, or the new one."""
    if is_replaced:
        ordering.closed_until_ms = 0
        return until_ms
    return max(ordering.closed_until_ms, until_ms)


def _publish_limit(
    call: Fcall, queue: Queue, job_id: bytes, key: str, wait_ms: i64, until_ms: i64
) -> None:
    offset_ms = call.yard.journal.wall_offset_ms
    more = [
        b"groupKey",
        bytes_of(key),
        b"duration",
        number(wait_ms),
        b"resumeAt",
        number(until_ms + offset_ms),
    ]
    call.events.publish(queue, b"group-rate-limited", job_id, more, call.now_ms)
