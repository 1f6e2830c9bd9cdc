"""Functions of flows, and of jobs that wait for a signal."""

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import finish as glide_finish
from jobyard.engine.glidemq import flows as glide_flows
from jobyard.engine.glidemq import stored_values
from jobyard.errors import NotFound, NotHeld
from jobyard.model.details_codec import FieldWriter, overlay_field
from jobyard.model.job import DONE, LEASED, Job
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions.work import job_at
from jobyard.protocols.glidemq.groups.workers import check_group
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.job import number
from jobyard.wire.json.write import write_int, write_text


def move_to_waiting_children(call: Fcall) -> None:
    """Suspend a run until the children of a job are done."""
    place = call.place(0, key_parts.KeyPart.JOB)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.same_queue(2, key_parts.KeyPart.EVENTS, place)
    check_group(call.arg(2))
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    if job.state != LEASED:
        call.answer("error:not_active")
        return
    try:
        is_parked = glide_flows.park(call.yard, job, call.text(1), call.now_ms)
    except NotHeld:
        call.answer("error:not_active")
        return
    if is_parked:
        call.answer("ok")
        return
    call.events.publish_job(job, b"active", call.now_ms)
    call.answer("completed")


def complete_child(call: Fcall) -> None:
    """Mark a child as done for its parent; answer how many are open."""
    place = call.place(0, key_parts.KeyPart.DEPS)
    call.same_queue(1, key_parts.KeyPart.JOB, place)
    call.same_queue(2, key_parts.KeyPart.STREAM, place)
    call.same_queue(3, key_parts.KeyPart.EVENTS, place)
    job = job_at(call, 1)
    if job is None:
        call.answer_number(-1)
        return
    left = glide_flows.complete_child(call.yard, job, call.text(0), b"", call.now_ms)
    call.answer_number(left)


def register_parent(call: Fcall) -> None:
    """Make another parent wait for a child."""
    child_place = call.place(0, key_parts.KeyPart.JOB)
    call.same_queue(1, key_parts.KeyPart.PARENTS, child_place)
    place = call.place(2, key_parts.KeyPart.DEPS)
    call.same_queue(3, key_parts.KeyPart.JOB, place)
    call.same_queue(4, key_parts.KeyPart.STREAM, place)
    call.same_queue(5, key_parts.KeyPart.EVENTS, place)
    child = job_at(call, 0)
    parent = job_at(call, 3)
    if child is None:
        call.answer("error:child_not_found")
        return
    if parent is None:
        call.answer("error:parent_not_found")
        return
    glide_flows.link_parent(call.yard, parent, child, call.text(3), call.now_ms)
    call.answer("already_completed" if child.state == DONE else "ok")


# -- signals -----------------------------------------------------------------------------------


def suspend(call: Fcall) -> None:
    """Suspend a run until a signal comes."""
    place = call.place(0, key_parts.KeyPart.JOB)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.same_queue(2, key_parts.KeyPart.EVENTS, place)
    call.same_queue(3, key_parts.KeyPart.SUSPENDED, place)
    check_group(call.arg(2))
    ts = call.number(3, TIME_MAX, "timestamp")
    timeout_ms = call.number(5, TIME_MAX, "timeout")
    job = job_at(call, 0)
    if job is None:
        call.answer("error:not_found")
        return
    entry = call.text(1)
    if job.state != LEASED or not glide_finish.is_held(job, entry):
        call.answer("error:not_active")
        return
    changes = FieldWriter()
    overlay_field(changes, b"suspendedAt", number(ts))
    if call.arg(4):
        overlay_field(changes, b"suspendReason", call.arg(4))
    if timeout_ms > 0:
        overlay_field(changes, b"suspendTimeout", number(timeout_ms))
    call.yard.note(job, changes.done())
    until_ms: i64 = call.now_ms + timeout_ms if timeout_ms > 0 else 0
    glide_flows.suspend(call.yard, job, entry, until_ms, call.now_ms)
    call.events.publish_job(job, b"suspended", call.now_ms)
    call.answer("ok")


def signal(call: Fcall) -> None:
    """Resume a job that waits for a signal, and store the signal for it."""
    place = call.place(0, key_parts.KeyPart.JOB)
    call.same_queue(1, key_parts.KeyPart.STREAM, place)
    call.same_queue(2, key_parts.KeyPart.EVENTS, place)
    call.same_queue(3, key_parts.KeyPart.SUSPENDED, place)
    if call.key(4) != place.base + b"signals:" + bytes_of(place.rest):
        raise Wrong("ERR wrong key at 5")
    ts = call.number(3, TIME_MAX, "timestamp")
    name = call.text(1)
    text = _signal_text(name, call.text(2), ts)
    job = job_at(call, 0)
    if job is None or glide_add.state_of(job) != "suspended":
        call.answer("not_suspended")
        return
    stored_values.push(call.yard, call.key(4), [text], call.now_ms, is_left=False)
    known = stored_values.find(call.yard, call.key(4), call.now_ms)
    assert known is not None
    signals = [known.items[at] for at in sorted(known.items)]
    changes = FieldWriter()
    overlay_field(changes, b"signals", b"[" + b",".join(signals) + b"]")
    call.yard.note(job, changes.done())
    call.events.is_quiet = True
    try:
        glide_flows.signal(call.yard, job, call.now_ms)
    except NotFound:
        call.answer("not_suspended")
        return
    finally:
        call.events.is_quiet = False
    job_id = bytes_of(glide_add.id_of(job))
    call.events.publish(job.queue, b"resumed", job_id, [b"signal", bytes_of(name)], call.now_ms)
    call.answer("ok")


def _signal_text(name: str, data: str, ts: i64) -> bytes:
    out = BytesWriter()
    out.write(b'{"name":')
    write_text(out, name)
    out.write(b',"data":')
    write_text(out, data)
    out.write(b',"receivedAt":')
    write_int(out, ts)
    out.write(b"}")
    return out.getvalue()


def sweep_suspended(call: Fcall) -> None:
    """Fail the jobs whose wait for a signal has timed out."""
    place = call.place(0, key_parts.KeyPart.SUSPENDED)
    call.same_queue(1, key_parts.KeyPart.EVENTS, place)
    call.same_queue(2, key_parts.KeyPart.FAILED, place)
    call.same_queue(3, key_parts.KeyPart.METRICS_FAILED, place)
    ts = call.number(0, TIME_MAX, "timestamp")
    queue = call.yard.queues.get(place.queue_name)
    late: list[Job] = []
    if queue is not None:
        at_ms = max(call.now_ms, ts - call.yard.journal.wall_offset_ms)
        late = glide_flows.sweep(call.yard, queue, at_ms)
    call.answer_number(len(late))
