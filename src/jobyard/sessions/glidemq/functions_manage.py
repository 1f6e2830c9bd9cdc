"""The functions by which jobs are looked after: removed, cleaned away, retried, revoked."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine import glide, glide_move, side
from jobyard.errors import NotFound
from jobyard.model.extra import Outcome
from jobyard.model.job import DEAD, DELAYED, READY, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue
from jobyard.model.shelves import PROMOTED, STACK
from jobyard.model.side import STREAM
from jobyard.sessions.glidemq import places
from jobyard.sessions.glidemq.functions_add import PRIORITY_MAX
from jobyard.sessions.glidemq.functions_call import NUMBER_MAX, TIME_MAX, Fcall
from jobyard.sessions.glidemq.functions_work import job_at
from jobyard.sessions.glidemq.groups import check_group
from jobyard.sessions.glidemq.keys import parse_key
from jobyard.sessions.glidemq.places import Place, bytes_of, find_place
from jobyard.sessions.glidemq.projection_job import number
from jobyard.sessions.glidemq.projection_sets import scheduled_page
from jobyard.sessions.glidemq.projection_stream import stream_ranks
from jobyard.sessions.glidemq.words import Wrong

SEARCH_MAX: Final = 1000
_SEARCH_PAGE: Final = 1024
_SEARCHED: Final = (places.STREAM, places.SCHEDULED, places.COMPLETED, places.FAILED)


def _check_keys(call: Fcall, place: Place, parts: tuple[int, ...]) -> None:
    at: i64 = 1
    for part in parts:
        call.same_queue(at, part, place)
        at += 1


def _check_lists(call: Fcall, place: Place, at: i64) -> None:
    """See that the keys from `at` on, if there are any, are those of the lists."""
    if call.keys_count > at:
        call.same_queue(at, places.LIFO, place)
    if call.keys_count > at + 1:
        call.same_queue(at + 1, places.PRIORITY, place)


def remove_job(call: Fcall) -> None:
    """Remove a job in whatever state."""
    place = call.place(0, places.JOB)
    _check_keys(
        call,
        place,
        (
            places.STREAM,
            places.SCHEDULED,
            places.COMPLETED,
            places.FAILED,
            places.EVENTS,
            places.LOG,
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
        raise Wrong("ERR the job runs at another door") from None
    _drop_beside(call, place, [job])
    call.answer_number(1)


def _drop_beside(call: Fcall, place: Place, jobs: list[Job]) -> None:
    """Let go of what clients kept beside jobs that were removed."""
    if not call.yard.side.keys:
        return
    for job in jobs:
        job_id = bytes_of(glide.id_of(job))
        for family in (b"jstream:", b"signals:"):
            key = side.find(call.yard, place.base + family + job_id, call.now_ms)
            if key is not None:
                side.drop(call.yard, key)


def clean(call: Fcall) -> None:
    """Remove jobs at rest that ended before a time, oldest first; tell which."""
    place = find_place(parse_key(call.key(0)))
    if place.part not in (places.COMPLETED, places.FAILED):
        raise Wrong("ERR wrong key at 1")
    _check_keys(call, place, (places.EVENTS, places.ID))
    cutoff = call.any_number(0, "cutoff")
    limit = call.number(1, NUMBER_MAX, "limit")
    queue = call.yard.queues.get(place.queue_name)
    removed: list[Job] = []
    if queue is not None and limit > 0:
        line = queue.done if place.part == places.COMPLETED else queue.dead
        before_ms = cutoff - call.yard.journal.wall_offset_ms
        removed = glide_move.clean(call.yard, queue, line, before_ms, limit, call.now_ms)
        _drop_beside(call, place, removed)
        if removed:
            call.events.tell(queue, b"cleaned", number(len(removed)), [], call.now_ms)
    call.answer_texts([glide.id_of(job) for job in removed])


def drain(call: Fcall) -> None:
    """Remove all jobs that wait, and if asked for those that are to come later."""
    place = call.place(0, places.STREAM)
    _check_keys(call, place, (places.SCHEDULED, places.EVENTS, places.ID))
    _check_lists(call, place, 4)
    check_group(call.arg(1))
    queue = call.yard.queues.get(place.queue_name)
    count: i64 = 0
    if queue is not None:
        call.events.is_quiet = True
        try:
            jobs = glide_move.drain(call.yard, queue, call.now_ms, with_delayed=call.is_set(0))
        finally:
            call.events.is_quiet = False
        _drop_beside(call, place, jobs)
        count = len(jobs)
        if count > 0:
            call.events.tell(queue, b"drained", number(count), [], call.now_ms)
    call.answer_number(count)


def retry_jobs(call: Fcall) -> None:
    """Bring dead jobs back, oldest first."""
    place = call.place(0, places.FAILED)
    _check_keys(call, place, (places.SCHEDULED, places.EVENTS, places.ID))
    count = call.number(0, NUMBER_MAX, "count")
    call.number(1, TIME_MAX, "timestamp")
    queue = call.yard.queues.get(place.queue_name)
    retried: i64 = 0
    if queue is not None:
        retried = len(glide_move.retry_jobs(call.yard, queue, count, call.now_ms))
        if retried > 0:
            call.events.tell(queue, b"retried", number(retried), [], call.now_ms)
    call.answer_number(retried)


def retry_job(call: Fcall) -> None:
    """Bring one dead job back."""
    place = call.place(0, places.JOB)
    _check_keys(call, place, (places.FAILED, places.SCHEDULED))
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
    """Set fields of a job that is there, and tell so if asked."""
    place = call.place(0, places.JOB)
    _check_keys(call, place, (places.EVENTS,))
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
        call.events.tell(job.queue, call.arg(1), bytes_of(glide.id_of(job)), more, call.now_ms)
    call.answer_number(1)


def trim_broadcast(call: Fcall) -> None:
    """Let the oldest messages of a stream go; count them."""
    place = call.place(0, places.STREAM)
    _check_keys(call, place, (places.COMPLETED, places.FAILED, places.SCHEDULED))
    most = call.number(0, NUMBER_MAX, "maxLen")
    call.number(1, TIME_MAX, "timestamp")
    key = call.door.keyed(call.key(0), call.now_ms)
    count: i64 = 0
    if key.kind() == STREAM:
        before = key.entries_count()
        if before > most:
            key.drop_oldest(before - most)
            count = before - key.entries_count()
    call.answer_number(count)


def revoke(call: Fcall) -> None:
    """Let a job not run any more; of one that runs, only remember that."""
    place = call.place(0, places.JOB)
    _check_keys(call, place, (places.STREAM, places.SCHEDULED, places.FAILED, places.EVENTS))
    _check_lists(call, place, 5)
    call.number(1, TIME_MAX, "timestamp")
    job = job_at(call, 0)
    if job is None:
        call.answer("not_found")
        return
    # It is revoked; that it failed by that is not told beside it.
    call.events.is_quiet = True
    try:
        is_laid = glide_move.revoke(call.yard, job, call.now_ms)
    finally:
        call.events.is_quiet = False
    call.events.tell_job(job, b"revoked", call.now_ms)
    call.answer("revoked" if is_laid else "flagged")


def change_priority(call: Fcall) -> None:
    """Give a job that waits another priority."""
    place = call.place(0, places.JOB)
    _check_keys(call, place, (places.STREAM, places.SCHEDULED, places.EVENTS))
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    priority = call.any_number(1, "priority")
    if not 0 <= priority <= PRIORITY_MAX:
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
    job_id = bytes_of(glide.id_of(job))
    call.events.tell(job.queue, b"priority-changed", job_id, more, call.now_ms)
    call.answer("ok")


def _why_not(job: Job) -> str:
    """Return why the place of a job cannot be changed; nothing if it can."""
    if job.state not in (READY, DELAYED):
        return "error:invalid_state"
    if job.state == READY and job.shelf in (PROMOTED, STACK):
        return "error:not_in_stream"
    return ""


def change_delay(call: Fcall) -> None:
    """Let a job that waits come at another time."""
    place = call.place(0, places.JOB)
    _check_keys(call, place, (places.STREAM, places.SCHEDULED, places.EVENTS))
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
    job_id = bytes_of(glide.id_of(job))
    call.events.tell(job.queue, b"delay-changed", job_id, more, call.now_ms)
    call.answer("ok")


def promote_job(call: Fcall) -> None:
    """Let a delayed job be taken now."""
    place = call.place(0, places.JOB)
    _check_keys(call, place, (places.STREAM, places.SCHEDULED, places.EVENTS))
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    if glide.state_of(job) != "delayed":
        call.answer("error:not_delayed")
        return
    try:
        glide_move.promote_job(call.yard, job, call.now_ms)
    except NotFound:
        call.answer("error:not_delayed")
        return
    call.answer("ok")


def search_by_name(call: Fcall) -> None:
    """Tell which jobs of a sorted set or of the stream have a name."""
    place = find_place(parse_key(call.key(0)))
    name = call.text(1)
    limit = min(call.number(2, NUMBER_MAX, "limit"), SEARCH_MAX)
    queue = call.yard.queues.get(place.queue_name)
    if place.part not in _SEARCHED:
        raise Wrong("ERR wrong key at 1")
    call.answer_texts([] if queue is None else _named(call, queue, place, name, limit))


def _named(call: Fcall, queue: Queue, place: Place, name: str, limit: i64) -> list[str]:
    """Return the ids of the first jobs with a name, looked for page by page."""
    # As many as there can be: so the search ends with the last of them, and begins for one only.
    left: i64 = queue.jobs_count()
    if name != PLAIN.name:
        known = [one.jobs_count for one in call.yard.policies.values() if one.name == name]
        left = min(left, sum(known))
    found: list[str] = []
    start: i64 = 0
    size: i64 = _SEARCH_PAGE
    while len(found) < limit and left > 0:
        jobs = _page(call, queue, place, start, size)
        for job in jobs:
            if job.policy.name == name and len(found) < limit:
                found.append(glide.id_of(job))
                left -= 1
        if len(jobs) < size:
            break
        start += size
        # Doubled each time, since every page walks past all that was seen.
        size *= 2
    return found


def _page(call: Fcall, queue: Queue, place: Place, start: i64, count: i64) -> list[Job]:
    if place.part == places.STREAM:
        return stream_ranks(queue, start, count)
    if place.part == places.SCHEDULED:
        return scheduled_page(call.yard, queue, start, start + count, is_reversed=False)
    line = queue.done if place.part == places.COMPLETED else queue.dead
    jobs: list[Job] = []
    for item in line.page(start, count, is_reversed=False):
        assert isinstance(item, Outcome)
        jobs.append(item.job)
    return jobs
