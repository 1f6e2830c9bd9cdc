"""The functions by which workers hold back the jobs of one ordering key for a time."""

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import finish as glide_finish
from jobyard.engine.glidemq import move as glide_move
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.placement import reopen
from jobyard.model.job import LEASED
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import Lane
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions.work import job_at
from jobyard.protocols.glidemq.groups.workers import check_group
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.fields import lane_named
from jobyard.protocols.glidemq.keyspace.views.job import number


def promote_rate_limited(call: Fcall) -> None:
    """Look at lanes that time held up until now, and tell how many came free.

    Who takes jobs looks at them too; who is told when the next is due waits for it in vain without.
    """
    place = call.place(0, key_parts.RATELIMITED)
    call.same_queue(1, key_parts.STREAM, place)
    call.number(0, TIME_MAX, "timestamp")
    queue = call.yard.queues.get(place.queue_name)
    rules = None if queue is None else queue.rules
    shelves = None if rules is None else rules.shelves
    count: i64 = 0
    if queue is not None and shelves is not None:
        count = len(shelves.shut.items)
        reopen(call.yard, queue, call.now_ms)
        count -= len(shelves.shut.items)
        if queue.first_link is not None:
            offer(call.yard, queue, call.now_ms)
    call.answer_number(count)


def rate_limit_group(call: Fcall) -> None:
    """Hold back the lane of a job that runs, and give the job back or let it fail."""
    place = call.place(0, key_parts.JOB)
    call.same_queue(1, key_parts.STREAM, place)
    check_group(call.arg(2))
    wait_ms = call.number(3, TIME_MAX // 2, "duration")
    call.number(4, TIME_MAX, "timestamp")
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    extra = job.extra
    part = None if extra is None else extra.glide
    if part is None or part.lane is None:
        call.answer("error:no_group")
        return
    entry = call.text(1)
    if job.state != LEASED or not glide_finish.is_held(job, entry):
        call.answer("error:not_active")
        return
    queue = job.queue
    job_id = bytes_of(glide_add.id_of(job))
    key = part.lane_key
    until_ms = _until(part.lane, call.now_ms + wait_ms, is_replaced=call.arg(8) == b"replace")
    if call.arg(6) == b"fail":
        glide_move.close_lane(call.yard, part.lane, until_ms)
        why = "group rate limited"
        glide_finish.fail(call.yard, job, entry, why, 0, 0, glide_finish.Keep(), call.now_ms)
    else:
        glide_move.hold_back(call.yard, job, entry, until_ms, call.now_ms)
    _tell(call, queue, job_id, key, wait_ms, until_ms)
    call.answer(str(int(until_ms + call.yard.journal.wall_offset_ms)))


def rate_limit_group_external(call: Fcall) -> None:
    """Hold back a lane for a time."""
    place = call.place(0, key_parts.RATELIMITED)
    call.same_queue(1, key_parts.EVENTS, place)
    key = call.text(0)
    if not key:
        raise Wrong("ERR an ordering key must not be empty")
    wait_ms = call.number(1, TIME_MAX // 2, "duration")
    ts = call.number(2, TIME_MAX, "timestamp")
    queue = call.yard.queues.get(place.queue_name)
    lane = None if queue is None else lane_named(queue, key)
    if queue is None or lane is None:
        # Nobody has such a key: there is nothing to hold back.
        call.answer_number(ts + wait_ms)
        return
    until_ms = _until(lane, call.now_ms + wait_ms, is_replaced=call.arg(3) == b"replace")
    glide_move.close_lane(call.yard, lane, until_ms)
    _tell(call, queue, b"", key, wait_ms, until_ms)
    call.answer_number(until_ms + call.yard.journal.wall_offset_ms)


def _until(lane: Lane, until_ms: i64, *, is_replaced: bool) -> i64:
    """Return until when a lane is to be closed; the longer time counts, or the new one."""
    if is_replaced:
        lane.closed_until_ms = 0
        return until_ms
    return max(lane.closed_until_ms, until_ms)


def _tell(call: Fcall, queue: Queue, job_id: bytes, key: str, wait_ms: i64, until_ms: i64) -> None:
    offset_ms = call.yard.journal.wall_offset_ms
    more = [
        b"groupKey",
        bytes_of(key),
        b"duration",
        number(wait_ms),
        b"resumeAt",
        number(until_ms + offset_ms),
    ]
    call.events.tell(queue, b"group-rate-limited", job_id, more, call.now_ms)
