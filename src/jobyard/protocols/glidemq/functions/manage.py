"""Functions that manage jobs: remove, clean, retry, revoke, reschedule, search."""

from math import inf
from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import move as glide_move
from jobyard.engine.glidemq import stored_values
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.yard import Yard
from jobyard.errors import NotFound, StorageFull
from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.index.sorted_view import HIGHEST, LOWEST
from jobyard.model.job import DEAD, DELAYED, DONE, READY, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.glidemq.answers import ARRAY, TextArray
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions.add import GLIDE_PRIORITY_MAX
from jobyard.protocols.glidemq.functions.work import job_at
from jobyard.protocols.glidemq.groups.workers import check_group
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.gather import (
    CHANGE_UNITS,
    AppendListGather,
    FoundTask,
    Gather,
    JobsBySeqGather,
    job_of,
)
from jobyard.protocols.glidemq.keyspace.key import ScoreRange
from jobyard.protocols.glidemq.keyspace.key_names import parse_key
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace, bytes_of, find_place
from jobyard.protocols.glidemq.keyspace.views.job import number
from jobyard.protocols.glidemq.keyspace.views.sets import ScheduledGather, scheduled_count
from jobyard.protocols.glidemq.keyspace.views.stream import ENTRY_MAX, StreamGather, stream_length
from jobyard.protocols.glidemq.long_commands import Pieces, begin
from jobyard.protocols.glidemq.number_text import NUMBER_MAX

SEARCH_MAX: Final = 1000
_SEARCHED: Final = (
    key_parts.KeyPart.STREAM,
    key_parts.KeyPart.SCHEDULED,
    key_parts.KeyPart.COMPLETED,
    key_parts.KeyPart.FAILED,
)


def _check_keys(call: Fcall, place: KeyPlace, parts: tuple[int, ...]) -> None:
    at: i64 = 1
    for part in parts:
        call.same_queue(at, part, place)
        at += 1


def _check_lists(call: Fcall, place: KeyPlace, at: i64) -> None:
    """Check that the keys from `at` on, if any, are those of the lists."""
    if call.keys_count > at:
        call.same_queue(at, key_parts.KeyPart.LIFO, place)
    if call.keys_count > at + 1:
        call.same_queue(at + 1, key_parts.KeyPart.PRIORITY, place)


def remove_job(call: Fcall) -> None:
    """Remove a job in any state."""
    place = call.place(0, key_parts.KeyPart.JOB)
    _check_keys(
        call,
        place,
        (
            key_parts.KeyPart.STREAM,
            key_parts.KeyPart.SCHEDULED,
            key_parts.KeyPart.COMPLETED,
            key_parts.KeyPart.FAILED,
            key_parts.KeyPart.EVENTS,
            key_parts.KeyPart.LOG,
        ),
    )
    _check_lists(call, place, 7)
    job = job_at(call, 0)
    if job is None:
        call.answer_number(0)
        return
    try:
        glide_move.remove(call.yard, job, call.now_ms)
    except NotFound:
        raise Wrong("ERR the job is running at another door") from None
    _drop_beside(call.yard, place, glide_add.id_bytes(job), call.now_ms)
    call.answer_number(1)


def _drop_beside(yard: Yard, place: KeyPlace, job_id: bytes, now_ms: i64) -> None:
    """Delete the stored keys of a job that was removed."""
    if yard.stored_values.keys.count == 0:
        return
    for family in (b"jstream:", b"signals:"):
        key = stored_values.find(yard, place.base + family + job_id, now_ms)
        if key is not None:
            stored_values.drop(yard, key)


def clean(call: Fcall) -> None:
    """Remove ended jobs that ended before a time, oldest first; answer with their ids."""
    place = find_place(parse_key(call.key(0)))
    if place.part not in (key_parts.KeyPart.COMPLETED, key_parts.KeyPart.FAILED):
        raise Wrong("ERR wrong key at 1")
    _check_keys(call, place, (key_parts.KeyPart.EVENTS, key_parts.KeyPart.ID))
    cutoff = call.any_number(0, "cutoff")
    limit = call.number(1, NUMBER_MAX, "limit")
    yard = call.yard
    queue = yard.queues.get(place.queue_name)
    if queue is None:
        call.answer_texts([])
        return
    state = DONE if place.part == key_parts.KeyPart.COMPLETED else DEAD
    line = queue.done if state == DONE else queue.dead
    removed: list[bytes] = []

    def remove(job: Job, now_ms: i64) -> bool:
        if job.state != state:
            return False
        removed.append(glide_add.id_bytes(job))
        yard.drop(job, now_ms)
        _drop_beside(yard, place, removed[-1], now_ms)
        return True

    found = AppendListGather(line, set(), yard.journal.wall_offset_ms, is_reversed=False)
    found.within(ScoreRange(-inf, float(cutoff), low_open=False, high_open=False))
    found.stops_outside = True
    found.limit(0, limit)
    treat = FoundTask(call.events, found, remove)
    treat.oldest_first = True
    treat.is_quiet = False
    treat.then = lambda now_ms: _end_work(call, queue, b"cleaned", treat.count, now_ms)
    units = min(limit, line.live_count) * CHANGE_UNITS
    begin(call.call, treat, lambda: TextArray(removed, ARRAY, call.proto), units)


def _end_work(call: Fcall, queue: Queue, event: bytes, count: i64, now_ms: i64) -> None:
    """Emit the event of a change to many jobs, and drop a queue that is empty now."""
    if count == 0:
        return
    yard = call.yard
    call.events.is_quiet = False
    call.events.publish(queue, event, number(count), [], max(yard.now_ms, now_ms))
    if yard.queues.get(queue.name) is queue:
        drop_if_idle(yard, queue)


def drain(call: Fcall) -> None:
    """Remove all waiting jobs and, if requested, the delayed ones."""
    place = call.place(0, key_parts.KeyPart.STREAM)
    _check_keys(
        call, place, (key_parts.KeyPart.SCHEDULED, key_parts.KeyPart.EVENTS, key_parts.KeyPart.ID)
    )
    _check_lists(call, place, 4)
    check_group(call.arg(1))
    yard = call.yard
    queue = yard.queues.get(place.queue_name)
    if queue is None:
        call.answer_number(0)
        return
    with_delayed = call.is_set(0)

    def waits(job: Job) -> bool:
        if job.state == DELAYED:
            return with_delayed
        return job.state == READY and (with_delayed or job.ready_list != ReadyList.STAGED)

    def remove(job: Job, now_ms: i64) -> bool:
        if not waits(job):
            return False
        yard.now_ms = max(yard.now_ms, now_ms)
        job_id = glide_add.id_bytes(job)
        erase(yard, job, now_ms)
        _drop_beside(yard, place, job_id, now_ms)
        return True

    def end(now_ms: i64) -> None:
        # The removed jobs may have held up others of their ordering key that clients wait for. This
        # must come last: waiting clients would be given jobs that are about to be removed.
        if queue.first_link is not None:
            offer(yard, queue, now_ms)
        _end_work(call, queue, b"drained", treat.count, now_ms)

    treat = FoundTask(call.events, JobsBySeqGather(queue, waits), remove)
    treat.then = end
    units = (stream_length(queue) + scheduled_count(queue)) * CHANGE_UNITS
    begin(call.call, treat, lambda: call.answer_number(treat.count), units)


def retry_jobs(call: Fcall) -> None:
    """Revive dead jobs, oldest first."""
    place = call.place(0, key_parts.KeyPart.FAILED)
    _check_keys(
        call, place, (key_parts.KeyPart.SCHEDULED, key_parts.KeyPart.EVENTS, key_parts.KeyPart.ID)
    )
    count = call.number(0, NUMBER_MAX, "count")
    call.number(1, TIME_MAX, "timestamp")
    yard = call.yard
    queue = yard.queues.get(place.queue_name)
    if queue is None:
        call.answer_number(0)
        return
    found = AppendListGather(queue.dead, set(), 0, is_reversed=False)
    found.limit(0, count if count > 0 else HIGHEST)
    treat = FoundTask(call.events, found, lambda job, now_ms: _retry(yard, treat, job, now_ms))
    treat.oldest_first = True
    treat.is_quiet = False
    treat.then = lambda now_ms: _end_work(call, queue, b"retried", treat.count, now_ms)
    units = min(count if count > 0 else HIGHEST, queue.dead.live_count) * CHANGE_UNITS
    begin(call.call, treat, lambda: call.answer_number(treat.count), units)


def _retry(yard: Yard, treat: FoundTask, job: Job, now_ms: i64) -> bool:
    """Revive one job if it is dead; when the disk is full, stop with those done so far."""
    if job.state != DEAD:
        return False
    try:
        glide_move.retry(yard, job, now_ms)
    except StorageFull:
        if treat.count == 0:
            raise
        treat.most = treat.count
        return False
    return True


def retry_job(call: Fcall) -> None:
    """Revive one dead job."""
    place = call.place(0, key_parts.KeyPart.JOB)
    _check_keys(call, place, (key_parts.KeyPart.FAILED, key_parts.KeyPart.SCHEDULED))
    call.number(1, TIME_MAX, "timestamp")
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    if job.state != DEAD:
        call.answer("error:not_failed")
        return
    glide_move.retry(call.yard, job, call.now_ms)
    call.answer("ok")


def update_job_fields(call: Fcall) -> None:
    """Set fields of an existing job, and emit an event if requested."""
    place = call.place(0, key_parts.KeyPart.JOB)
    _check_keys(call, place, (key_parts.KeyPart.EVENTS,))
    if call.args_count % 2 == 0:
        raise Wrong("ERR wrong number of arguments")
    job = job_at(call, 0)
    if job is None:
        call.answer_number(0)
        return
    parts = [call.arg(at) for at in range(3, int(call.args_count))]
    if parts:
        fields = dict(zip(parts[::2], parts[1::2], strict=True))
        call.door.keyed(call.key(0), call.now_ms).set_fields(fields)
    if call.arg(1):
        more = [b"data", call.arg(2)]
        call.events.publish(
            job.queue, call.arg(1), bytes_of(glide_add.id_of(job)), more, call.now_ms
        )
    call.answer_number(1)


def trim_broadcast(call: Fcall) -> None:
    """Remove the oldest messages of a stream; answer how many."""
    place = call.place(0, key_parts.KeyPart.STREAM)
    _check_keys(
        call,
        place,
        (key_parts.KeyPart.COMPLETED, key_parts.KeyPart.FAILED, key_parts.KeyPart.SCHEDULED),
    )
    most = call.number(0, NUMBER_MAX, "maxLen")
    call.number(1, TIME_MAX, "timestamp")
    key = call.door.keyed(call.key(0), call.now_ms)
    over: i64 = key.entries_count() - most if key.kind() == ValueKind.STREAM else 0
    trim = key.trim_oldest(over) if over > 0 else None
    if trim is None:
        call.answer_number(0)
    else:
        begin(call.call, trim, lambda: call.answer_number(trim.count), over * CHANGE_UNITS)


def revoke(call: Fcall) -> None:
    """Stop a job from running; a running one is only flagged."""
    place = call.place(0, key_parts.KeyPart.JOB)
    _check_keys(
        call,
        place,
        (
            key_parts.KeyPart.STREAM,
            key_parts.KeyPart.SCHEDULED,
            key_parts.KeyPart.FAILED,
            key_parts.KeyPart.EVENTS,
        ),
    )
    _check_lists(call, place, 5)
    call.number(1, TIME_MAX, "timestamp")
    job = job_at(call, 0)
    if job is None:
        call.answer("not_found")
        return
    # Only the event `revoked` is emitted, not the failure that follows from it.
    call.events.is_quiet = True
    try:
        is_laid = glide_move.revoke(call.yard, job, call.now_ms)
    finally:
        call.events.is_quiet = False
    call.events.publish_job(job, b"revoked", call.now_ms)
    call.answer("revoked" if is_laid else "flagged")


def change_priority(call: Fcall) -> None:
    """Change the priority of a waiting job."""
    place = call.place(0, key_parts.KeyPart.JOB)
    _check_keys(
        call,
        place,
        (key_parts.KeyPart.STREAM, key_parts.KeyPart.SCHEDULED, key_parts.KeyPart.EVENTS),
    )
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    priority = call.any_number(1, "priority")
    if not 0 <= priority <= GLIDE_PRIORITY_MAX:
        call.answer("error:invalid_priority")
        return
    why = _why_not(job)
    if why:
        call.answer(why)
        return
    if job.rank == priority:
        call.answer("no_op")
        return
    glide_move.set_priority(call.yard, job, priority, call.now_ms)
    more = [b"priority", number(priority)]
    job_id = bytes_of(glide_add.id_of(job))
    call.events.publish(job.queue, b"priority-changed", job_id, more, call.now_ms)
    call.answer("ok")


def _why_not(job: Job) -> str:
    """Return why a job cannot be moved; empty if it can."""
    if job.state not in (READY, DELAYED):
        return "error:invalid_state"
    if job.state == READY and job.ready_list in (ReadyList.PROMOTED, ReadyList.LIFO):
        return "error:not_in_stream"
    return ""


def change_delay(call: Fcall) -> None:
    """Change the delay of a waiting job."""
    place = call.place(0, key_parts.KeyPart.JOB)
    _check_keys(
        call,
        place,
        (key_parts.KeyPart.STREAM, key_parts.KeyPart.SCHEDULED, key_parts.KeyPart.EVENTS),
    )
    call.number(2, TIME_MAX, "timestamp")
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    delay_ms = call.any_number(1, "delay")
    if not 0 <= delay_ms <= TIME_MAX // 2:
        call.answer("error:invalid_delay")
        return
    why = _why_not(job)
    if why:
        call.answer(why)
        return
    if delay_ms == 0 and job.state == READY and job.delay_ms == 0:
        call.answer("no_op")
        return
    glide_move.set_delay(call.yard, job, delay_ms, call.now_ms)
    more = [b"delay", number(delay_ms)]
    job_id = bytes_of(glide_add.id_of(job))
    call.events.publish(job.queue, b"delay-changed", job_id, more, call.now_ms)
    call.answer("ok")


def promote_job(call: Fcall) -> None:
    """Make a delayed job ready now."""
    place = call.place(0, key_parts.KeyPart.JOB)
    _check_keys(
        call,
        place,
        (key_parts.KeyPart.STREAM, key_parts.KeyPart.SCHEDULED, key_parts.KeyPart.EVENTS),
    )
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    if glide_add.state_of(job) != "delayed":
        call.answer("error:not_delayed")
        return
    try:
        glide_move.promote_job(call.yard, job, call.now_ms)
    except NotFound:
        call.answer("error:not_delayed")
        return
    call.answer("ok")


def search_by_name(call: Fcall) -> None:
    """Answer with the ids of jobs in a sorted set or the stream that have a given name."""
    place = find_place(parse_key(call.key(0)))
    name = call.text(1)
    limit = min(call.number(2, NUMBER_MAX, "limit"), SEARCH_MAX)
    queue = call.yard.queues.get(place.queue_name)
    if place.part not in _SEARCHED:
        raise Wrong("ERR wrong key at 1")
    if queue is None:
        call.answer_texts([])
        return
    # Limit the search to the number of jobs with that name: it ends with the last of them, and does
    # not start if there is none.
    left: i64 = queue.jobs_count()
    if name != PLAIN.name:
        known = [one.jobs_count for one in call.yard.policies.values() if one.name == name]
        left = min(left, sum(known))
    found = _searched(call.yard, queue, place)
    found.name = name
    found.limit(0, min(limit, left))
    begin(call.call, found, lambda: _named(call, found))


def _named(call: Fcall, found: Gather) -> Pieces:
    return TextArray([glide_add.id_bytes(job_of(item)) for item in found.items], ARRAY, call.proto)


def _searched(yard: Yard, queue: Queue, place: KeyPlace) -> Gather:
    """Return a task that finds the jobs of a part of a queue."""
    if place.part == key_parts.KeyPart.STREAM:
        return StreamGather(queue, 0, ENTRY_MAX - 1, is_reversed=False)
    if place.part == key_parts.KeyPart.SCHEDULED:
        return ScheduledGather(yard, queue, LOWEST, HIGHEST, is_reversed=False)
    line = queue.done if place.part == key_parts.KeyPart.COMPLETED else queue.dead
    return AppendListGather(line, set(), 0, is_reversed=False)
