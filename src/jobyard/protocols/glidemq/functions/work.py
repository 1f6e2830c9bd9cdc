"""Functions of workers: promote due jobs, take jobs from lists, start and end a run.

A job passes all limits when it is taken, so a worker may run every job it holds: `moveToActive`
refuses only jobs that the caller does not hold. A late answer for a job that was released meanwhile
counts as long as no other worker took it; after that it changes nothing.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import finish as glide_finish
from jobyard.engine.glidemq import move as glide_move
from jobyard.engine.glidemq import take as glide_take
from jobyard.engine.glidemq.finish import Keep
from jobyard.engine.glidemq.flows import complete_child
from jobyard.engine.jobs.move import is_revoked
from jobyard.engine.jobs.queues import settings_of
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.yard import Yard
from jobyard.errors import NotHeld
from jobyard.model.family import GLIDE
from jobyard.model.job import LEASED, RAW, Job
from jobyard.model.lease import Lease, Proof
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions import subscribed
from jobyard.protocols.glidemq.groups.subscriptions import found
from jobyard.protocols.glidemq.groups.workers import check_group
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_names import parse_key
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.job import job_fields, number
from jobyard.protocols.glidemq.keyspace.views.sets import due_label
from jobyard.protocols.glidemq.keyspace.views.stream import GROUP, write_entry_id
from jobyard.protocols.glidemq.keyspace.views.writes import set_data
from jobyard.protocols.glidemq.number_text import NUMBER_MAX
from jobyard.wire.payload import to_msgpack
from jobyard.wire.resp.write import write_array, write_bulk

POP_MAX: Final = 1000
PROMOTE_MAX: Final = 1000
# How many of the next delayed jobs are checked for a client whose clock is ahead.
_AHEAD_MAX: Final = 1024


def job_at(call: Fcall, at: i64) -> Job | None:
    """Return the job that a key names."""
    place = call.place(at, key_parts.KeyPart.JOB)
    queue = call.yard.queues.get(place.queue_name)
    return None if queue is None else glide_add.find(call.yard, queue, place.rest)


def job_named(call: Fcall, queue_at: i64, part: i64, id_at: i64) -> Job | None:
    """Return the job that an argument names, in the queue that a key names."""
    queue = call.known_queue(queue_at, part)
    return None if queue is None else glide_add.find(call.yard, queue, call.text(id_at))


# -- due jobs ----------------------------------------------------------------------------------


def promote(call: Fcall) -> None:
    """Make jobs that are due available to workers."""
    place = call.place(0, key_parts.KeyPart.SCHEDULED)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.same_queue(2, key_parts.KeyPart.EVENTS, place)
    ts = call.number(0, NUMBER_MAX, "timestamp")
    queue = call.known_queue(0, key_parts.KeyPart.SCHEDULED)
    promoted: i64 = 0
    if queue is not None:
        promoted = subscribed.promote(call, queue, ts)
        promoted += glide_move.promote_due(call.yard, queue, call.now_ms, PROMOTE_MAX)
        promoted += _promote_ahead(call, queue, ts, PROMOTE_MAX - promoted)
    call.answer_number(promoted)


def _promote_ahead(call: Fcall, queue: Queue, ts: i64, most: i64) -> i64:
    """Promote jobs that are due by the caller's clock, though not yet by the yard's."""
    early: list[Job] = []
    # The next jobs of a heap are near its start.
    for item in queue.delayed.items[:_AHEAD_MAX]:
        assert isinstance(item, Job)
        if due_label(call.yard, item) <= ts:
            early.append(item)
    early.sort(key=_due_of)
    for job in early[: max(int(most), 0)]:
        glide_move.move_to_list(call.yard, job, call.now_ms)
    if early:
        offer(call.yard, queue, call.now_ms)
    return min(len(early), max(most, 0))


def _due_of(job: Job) -> tuple[int, int, int]:
    return job.rank, job.due_ms, job.key


def next_due(call: Fcall) -> None:
    """Answer when the next job is due, as wall time."""
    place = call.place(0, key_parts.KeyPart.SCHEDULED)
    call.same_queue(1, key_parts.KeyPart.RATELIMITED, place)
    queue = call.known_queue(0, key_parts.KeyPart.SCHEDULED)
    due_ms: i64 = -1 if queue is None else glide_move.next_due(queue)
    call.answer_number(due_ms + call.yard.journal.wall_offset_ms if due_ms > 0 else due_ms)


# -- lists -------------------------------------------------------------------------------------


def pop_lists(call: Fcall) -> None:
    """Take jobs that were promoted with a priority; if there are none, the newest LIFO jobs."""
    place = call.place(0, key_parts.KeyPart.PRIORITY)
    call.same_queue(1, key_parts.KeyPart.LIFO, place)
    count = min(call.number(0, NUMBER_MAX, "count"), POP_MAX)
    queue = call.known_queue(0, key_parts.KeyPart.PRIORITY)
    leases: list[Lease] = []
    if queue is not None:
        leases = glide_take.take_lists(call.yard, queue, count, call.now_ms)
    _answer_ids(call, leases)


def rpop_and_reserve(call: Fcall) -> None:
    """Take jobs from one list, no more than the concurrency limit allows."""
    place = call.place(0, key_parts.KeyPart.META)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.same_queue(2, key_parts.KeyPart.LIST_ACTIVE, place)
    listed = key_parts.find_place(parse_key(call.key(3)))
    if listed.part not in (key_parts.KeyPart.PRIORITY, key_parts.KeyPart.LIFO):
        raise Wrong("ERR wrong key at 4")
    call.same_queue(3, listed.part, place)
    check_group(call.arg(0))
    count = min(call.number_or(1, 1, "count"), POP_MAX)
    queue = call.known_queue(0, key_parts.KeyPart.META)
    leases: list[Lease] = []
    if queue is not None:
        ready_list = (
            ReadyList.PROMOTED if listed.part == key_parts.KeyPart.PRIORITY else ReadyList.LIFO
        )
        leases = glide_take.take_list(call.yard, queue, ready_list, count, call.now_ms)
    _answer_ids(call, leases)


def _answer_ids(call: Fcall, leases: list[Lease]) -> None:
    call.session.handed += leases
    call.answer_texts([glide_add.id_of(lease.job) for lease in leases])


def check_concurrency(call: Fcall) -> None:
    """Answer how many more jobs of a queue may run; -1 without a limit."""
    place = call.place(0, key_parts.KeyPart.META)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.same_queue(2, key_parts.KeyPart.LIST_ACTIVE, place)
    queue = call.known_queue(0, key_parts.KeyPart.META)
    most: i64 = -1 if queue is None else settings_of(queue).concurrency
    if queue is None or most <= 0:
        call.answer_number(-1)
        return
    running: i64 = len(queue.leased.items)
    if call.arg(0) != GROUP:
        running = found(queue, call.arg(0)).pending_count()
    call.answer_number(max(most - running, 0))


def heal_list_active(call: Fcall) -> None:
    """Answer by how much the count of jobs taken from lists was wrong, which is always 0 here."""
    call.place(0, key_parts.KeyPart.ID)
    call.answer_number(0)


def get_active_list_job_ids(call: Fcall) -> None:
    """Answer with the ids of running jobs that were taken from lists."""
    call.place(0, key_parts.KeyPart.ID)
    start = call.any_number(0, "start")
    end = call.any_number(1, "end")
    queue = call.known_queue(0, key_parts.KeyPart.ID)
    jobs = [] if queue is None else _list_jobs(queue)
    jobs.sort(key=_seq_of)
    first = max(int(start), 0)
    chosen = jobs[first:] if end < 0 else jobs[first : int(end) + 1]
    call.answer_texts([glide_add.id_of(job) for job in chosen])


def _list_jobs(queue: Queue) -> list[Job]:
    found: list[Job] = []
    for item in queue.leased.items:
        assert isinstance(item, Job)
        if item.lease is not None and item.lease.terms.proof == Proof.LISTED:
            found.append(item)
    return found


def _seq_of(job: Job) -> int:
    return job.key


# -- the start of a run ------------------------------------------------------------------------


def move_to_active(call: Fcall) -> None:
    """Start a run, and answer with the job's fields."""
    place = call.place(0, key_parts.KeyPart.JOB)
    if call.keys_count > 1:
        call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.number(0, TIME_MAX, "timestamp")
    entry = call.text(1)
    job = job_at(call, 0)
    if call.keys_count > 1 and call.arg(2) not in (GROUP, b""):
        subscribed.activate(call, job)
        return
    if job is None:
        call.answer("")
        return
    how = glide_take.activate(call.yard, job, entry, "", call.now_ms)
    if how == glide_take.ACTIVE:
        call.answer_all(job_fields(call.yard, job))
    elif how == glide_take.IS_REVOKED:
        call.answer("REVOKED")
    elif how == glide_take.IS_EXPIRED:
        call.answer("EXPIRED")
    else:
        # Not "": a worker would then complete a job that it does not hold.
        call.answer("GROUP_FULL")


# -- the end of a run --------------------------------------------------------------------------


def complete(call: Fcall) -> None:
    """Complete a run."""
    _check_end_keys(call)
    if call.arg(4) != GROUP:
        subscribed.complete(call, label_at=8)
        call.answer_number(1)
        return
    keep = read_keep(call, 5)
    _complete(call, keep, label_at=8, is_quiet=call.is_set(11))
    call.answer_number(1)


def _check_end_keys(call: Fcall) -> None:
    if call.keys_count not in (5, 9):
        raise Wrong("ERR wrong number of keys")
    place = call.place(0, key_parts.KeyPart.STREAM)
    call.same_queue(1, key_parts.KeyPart.COMPLETED, place)
    call.same_queue(2, key_parts.KeyPart.EVENTS, place)
    call.same_queue(3, key_parts.KeyPart.JOB, place)
    call.same_queue(4, key_parts.KeyPart.METRICS_COMPLETED, place)
    if call.keys_count > 5:
        parent = call.place(5, key_parts.KeyPart.DEPS)
        call.same_queue(6, key_parts.KeyPart.JOB, parent)
        call.same_queue(7, key_parts.KeyPart.STREAM, parent)
        call.same_queue(8, key_parts.KeyPart.EVENTS, parent)
    call.number(3, TIME_MAX, "timestamp")


def read_keep(call: Fcall, at: i64) -> Keep:
    """Parse how ended jobs are kept: the mode, how many, for how many seconds."""
    mode = call.arg(at)
    if mode == b"true":
        return Keep(is_kept=False)
    if mode == b"count":
        return Keep(count=call.number(at + 1, NUMBER_MAX, "count"))
    if mode == b"age_count":
        count = call.number(at + 1, NUMBER_MAX, "count")
        age_ms = call.number(at + 2, TIME_MAX // 1000, "age") * 1000
        return Keep(count=count if count > 0 else -1, age_ms=age_ms if age_ms > 0 else -1)
    if mode not in (b"0", b"", b"false"):
        raise Wrong("ERR unknown retention mode")
    return Keep()


def _complete(call: Fcall, keep: Keep, *, label_at: i64, is_quiet: bool) -> None:
    """Complete a job, if the caller may still do so."""
    label = call.text(label_at)
    parent = job_at(call, 6) if call.keys_count > 6 and label else None
    job = job_named(call, 0, key_parts.KeyPart.STREAM, 0)
    if job is None:
        return
    call.events.is_quiet = is_quiet
    value = call.arg(2) if job.family == GLIDE else to_msgpack(RAW, call.arg(2))
    try:
        glide_finish.complete(call.yard, job, call.text(1), value, keep, call.now_ms)
    except NotHeld:
        # Another worker holds it by now, or it has ended: a late answer does not count.
        return
    finally:
        call.events.is_quiet = False
    if parent is not None:
        # The parent may know the job only by its label.
        complete_child(call.yard, parent, label, call.arg(2), call.now_ms)


def complete_and_fetch_next(call: Fcall) -> None:
    """Complete a run, and start the next."""
    _check_end_keys(call)
    job_id = call.arg(0)
    if call.arg(4) != GROUP:
        subscribed.complete(call, label_at=9)
        call.answer_all([b"NEXT_NONE", job_id])
        return
    keep = read_keep(call, 6)
    consumer = call.text(5)
    _complete(call, keep, label_at=9, is_quiet=call.is_set(17))
    queue = call.known_queue(0, key_parts.KeyPart.STREAM)
    lease: Lease | None = None
    if queue is not None:
        lease = glide_take.take_next(call.yard, queue, consumer, call.now_ms)
        if lease is not None:
            call.session.handed.append(lease)
    write_next(call.yard, call.out, job_id, lease)


def write_next(yard: Yard, out: BytesWriter, job_id: bytes, lease: Lease | None) -> None:
    """Write the id of the completed job, and the next job."""
    if lease is None:
        write_array(out, 2)
        write_bulk(out, b"NEXT_NONE")
        write_bulk(out, job_id)
        return
    job = lease.job
    is_over = is_revoked(job)
    fields = [] if is_over else job_fields(yard, job)
    write_array(out, 4 + len(fields))
    write_bulk(out, b"NEXT_REVOKED" if is_over else b"NEXT_HASH")
    write_bulk(out, job_id)
    write_bulk(out, glide_add.id_bytes(job))
    if lease.terms.proof == Proof.LISTED:
        write_bulk(out, b"")
    else:
        write_entry_id(out, job)
    for value in fields:
        write_bulk(out, value)


def fail(call: Fcall) -> None:
    """Fail a run."""
    place = call.place(0, key_parts.KeyPart.STREAM)
    call.same_queue(1, key_parts.KeyPart.FAILED, place)
    call.same_queue(2, key_parts.KeyPart.SCHEDULED, place)
    call.same_queue(3, key_parts.KeyPart.EVENTS, place)
    call.same_queue(4, key_parts.KeyPart.JOB, place)
    call.number(3, TIME_MAX, "timestamp")
    attempts = call.number(4, NUMBER_MAX, "maxAttempts")
    backoff_ms = call.number(5, TIME_MAX, "backoff")
    if call.arg(6) != GROUP:
        subscribed.fail(call, attempts, backoff_ms)
        return
    keep = read_keep(call, 7)
    job = job_named(call, 0, key_parts.KeyPart.STREAM, 0)
    if job is None:
        call.answer("failed")
        return
    reason = call.arg(2).decode("utf-8", "replace")
    entry = call.text(1)
    outcome = "retrying"
    call.events.is_quiet = call.is_set(11)
    try:
        if call.is_set(13):
            # A rate limit held it up: this is not an attempt.
            glide_finish.defer(call.yard, job, entry, backoff_ms, call.now_ms)
        else:
            outcome = glide_finish.fail(
                call.yard, job, entry, reason, attempts, backoff_ms, keep, call.now_ms
            )
    except NotHeld:
        outcome = "failed"
    finally:
        call.events.is_quiet = False
    call.answer(outcome)


def defer_active(call: Fcall) -> None:
    """Release a job to the end of the queue, as if it had not been taken."""
    place = call.place(0, key_parts.KeyPart.STREAM)
    call.same_queue(1, key_parts.KeyPart.JOB, place)
    if call.arg(2) != GROUP:
        subscribed.defer(call)
        return
    job = job_named(call, 0, key_parts.KeyPart.STREAM, 0)
    is_held = job is not None and job.state == LEASED and glide_finish.is_held(job, call.text(1))
    if job is not None and is_held:
        glide_finish.defer(call.yard, job, call.text(1), 0, call.now_ms)
    call.answer_number(1 if is_held else 0)


def move_active_to_delayed(call: Fcall) -> None:
    """Release a job for a while, with new data if given."""
    place = call.place(0, key_parts.KeyPart.JOB)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.same_queue(2, key_parts.KeyPart.SCHEDULED, place)
    call.same_queue(3, key_parts.KeyPart.EVENTS, place)
    ts = call.number(2, TIME_MAX, "timestamp")
    until = call.number(3, TIME_MAX, "delayedUntil")
    job = job_at(call, 0)
    if call.arg(4) != GROUP:
        subscribed.move_to_delayed(call, job, max(until - ts, 1))
        return
    if job is None:
        call.answer("error:not_found")
        return
    entry = call.text(1)
    if job.state != LEASED or not glide_finish.is_held(job, entry):
        call.answer("error:not_active")
        return
    if call.arg(5):
        set_data(call.yard, job, call.arg(5), call.now_ms)
    delay_ms = max(until - ts, 1)
    glide_finish.defer(call.yard, job, entry, delay_ms, call.now_ms)
    job_id = bytes_of(glide_add.id_of(job))
    more = [b"delay", number(delay_ms)]
    call.events.publish(job.queue, b"delay-changed", job_id, more, call.now_ms)
    call.answer("ok")


# -- stalled workers ---------------------------------------------------------------------------


def reclaim_stalled(call: Fcall) -> None:
    """Release jobs of the stream whose workers are silent."""
    place = call.place(0, key_parts.KeyPart.STREAM)
    call.same_queue(1, key_parts.KeyPart.EVENTS, place)
    idle_ms = call.number(2, TIME_MAX, "minIdle")
    most = call.number(3, NUMBER_MAX, "maxStalled")
    lock_ms = call.number_or(7, 0, "lockDuration")
    if call.arg(0) != GROUP:
        subscribed.reclaim(call, lock_ms if lock_ms > 0 else idle_ms, most)
        return
    _reclaim(call, idle_ms, most, lock_ms, is_list=False)


def reclaim_stalled_list_jobs(call: Fcall) -> None:
    """Release jobs taken from lists whose workers are silent."""
    place = call.place(0, key_parts.KeyPart.STREAM)
    call.same_queue(1, key_parts.KeyPart.EVENTS, place)
    idle_ms = call.number(0, TIME_MAX, "minIdle")
    most = call.number(1, NUMBER_MAX, "maxStalled")
    lock_ms = call.number_or(4, 0, "lockDuration")
    _reclaim(call, idle_ms, most, lock_ms, is_list=True)


def _reclaim(call: Fcall, idle_ms: i64, most: i64, lock_ms: i64, *, is_list: bool) -> None:
    queue = call.known_queue(0, key_parts.KeyPart.STREAM)
    count: i64 = 0
    if queue is not None:
        silent_ms = lock_ms if lock_ms > 0 else idle_ms
        count = len(
            glide_finish.reclaim(call.yard, queue, silent_ms, most, call.now_ms, is_list=is_list)
        )
    call.answer_number(count)
