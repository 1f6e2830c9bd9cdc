"""Parents and children at the door of glide-mq, and jobs that wait for a signal.

A parent refers to its children by the names that clients write; a child may be in another queue, or
be only a name. The parent of a child that failed for good stays blocked. All jobs of a flow enter
in one batch, and every refusal comes before the first of them.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import (
    GlideJobSpec,
    check,
    counting_room,
    enter_new_job,
    free_seq,
    new_job_for,
)
from jobyard.engine.glidemq.finish import defer, is_held
from jobyard.engine.jobs import finish as ends
from jobyard.engine.jobs import flows
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.jobs.put import NewJob, room_for
from jobyard.engine.jobs.put_transaction import reserve_all
from jobyard.engine.jobs.take import offer
from jobyard.engine.state import bus
from jobyard.engine.state.names import glide_key
from jobyard.engine.state.yard import Yard
from jobyard.errors import Duplicate, NotFound, NotHeld
from jobyard.journal.format.record import Cause
from jobyard.model.details import FailureReason, JobDetails
from jobyard.model.details_codec import FieldWriter, Tag, encode_details, glide_field, member_field
from jobyard.model.glidemq.fields import GlideFlag, GlidePart
from jobyard.model.job import BLOCKED, DEAD, DONE, READY, Job
from jobyard.model.members import Member, MemberState
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import part_of
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.transition import Transition


@final
class Child:
    """A child in a flow: its queue, its description, and the label that its parent uses."""

    def __init__(
        self, queue: Queue, spec: GlideJobSpec, label_head: str, new_job: NewJob | None = None
    ) -> None:
        self.queue: Queue = queue
        self.spec: GlideJobSpec = spec
        # Built beforehand if there are many children.
        self.new_job: NewJob | None = new_job
        # The label is this, a colon, and the id of the job.
        self.label_head: str = label_head


@final
class FlowLink:
    """Another dependency of the parent of a flow: an existing job, or only its name."""

    def __init__(self, label: str, job: Job | None) -> None:
        self.label: str = label
        self.job: Job | None = job


# -- entering ----------------------------------------------------------------------------------


def add_flow(
    yard: Yard,
    queue: Queue,
    parent: GlideJobSpec,
    children: list[Child],
    links: list[FlowLink],
    now_ms: i64,
) -> list[Job]:
    """Add a parent and its children in one batch; the parent comes first.

    Refusals are those of `add`, and change nothing. A parent without children waits for them.
    """
    _check_all(yard, queue, parent, children)
    seqs = _seqs_for(queue, parent, children)
    new_jobs = [new_job_for(yard, parent, is_expectant=True)]
    new_jobs += [_new_job_of(yard, child, parent, seqs[0]) for child in children]
    queues = [queue] + [child.queue for child in children]
    details = new_jobs[0].details
    assert details is not None
    first_id: i64 = yard.journal.next_id
    members: list[Member] = []
    for each in range(len(children)):
        child = children[each]
        name = child.spec.custom_id or str(seqs[each + 1])
        members.append(Member(first_id + 1 + each, f"{child.label_head}:{name}"))
    taken: i64 = 0
    for link in links:
        members.append(_member_for(yard, link, taken))
        taken += len(members[len(members) - 1].value)
    details.set_members(members or None)
    if yard.journal.is_on:
        _encode_ahead(new_jobs)
    room: i64 = 0
    for each in range(len(new_jobs)):
        room += room_for(queues[each], new_jobs[each]) + counting_room(queues[each])
    reserve_all(yard, list(dict.fromkeys(queues)), queues, new_jobs, room, now_ms)
    jobs = [
        enter_new_job(yard, queues[each], new_jobs[each], seqs[each], now_ms)
        for each in range(len(new_jobs))
    ]
    if yard.bus.is_on:
        flows.publish_blocked(yard, jobs[0], now_ms)
    for one in queues:
        if one.first_link is not None:
            offer(yard, one, now_ms)
    look_again(yard, jobs[0], now_ms)
    return jobs


def _encode_ahead(new_jobs: list[NewJob]) -> None:
    """Encode the details of jobs beforehand: their size is needed before they enter."""
    for new_job in new_jobs:
        details = new_job.details
        # The place of a job in its ordering group is known only when it enters.
        if details is not None and (details.glide is None or not details.glide.ordering_key):
            details.ahead = encode_details(details)


def _check_all(yard: Yard, queue: Queue, parent: GlideJobSpec, children: list[Child]) -> None:
    jobs_by_seq_of(queue)
    check(yard, queue, parent)
    names = {glide_key(queue, parent.custom_id)} if parent.custom_id else set()
    for child in children:
        jobs_by_seq_of(child.queue)
        check(yard, child.queue, child.spec)
        if child.spec.custom_id:
            name = glide_key(child.queue, child.spec.custom_id)
            if name in names:
                raise Duplicate
            names.add(name)


def _seqs_for(queue: Queue, parent: GlideJobSpec, children: list[Child]) -> list[int]:
    """Return the seqs that the jobs will have; skip ids that are or will be taken."""
    chosen: set[str] = set()
    if parent.custom_id:
        chosen.add(glide_key(queue, parent.custom_id))
    for child in children:
        if child.spec.custom_id:
            chosen.add(glide_key(child.queue, child.spec.custom_id))
    following: dict[str, int] = {}
    seqs: list[int] = []
    for each in range(len(children) + 1):
        one = queue if each == 0 else children[each - 1].queue
        spec = parent if each == 0 else children[each - 1].spec
        seq: int = following.get(one.name, int(one.next_seq))
        if not spec.custom_id:
            seq = int(free_seq(one, seq, spec.taken))
            while chosen and glide_key(one, str(seq)) in chosen:
                seq = int(free_seq(one, seq + 1, spec.taken))
        seqs.append(seq)
        following[one.name] = seq + 1
    return seqs


def _new_job_of(yard: Yard, child: Child, parent: GlideJobSpec, parent_seq: int) -> NewJob:
    new_job = child.new_job
    if new_job is None:
        new_job = new_job_for(yard, child.spec, is_child=True)
    details = new_job.details
    assert details is not None
    part = details.glide
    assert part is not None
    if not part.parent_id:
        part.parent_id = parent.custom_id or str(parent_seq)
    return new_job


def _member_for(yard: Yard, link: FlowLink, taken: i64) -> Member:
    job = link.job
    if job is None or job.state != DONE:
        return Member(0 if job is None else job.id, link.label)
    return flows.settled_member(yard, job, link.label, taken)


# -- links added and removed later -------------------------------------------------------------


def link_parent(yard: Yard, parent: Job, child: Job | None, label: str, now_ms: i64) -> bool:
    """Make a parent wait for one more child; False if that is done and blocks nothing.

    The parent keeps its state: it may run now, and wait for its children later.
    """
    known = _member_named(parent, label)
    if known is not None:
        return known.state == MemberState.OPEN
    member = _member_for(yard, FlowLink(label, child), 0)
    flows.room_to_change(yard, parent, 4 * len(label) + len(member.value))
    fields = FieldWriter()
    member_field(fields, member)
    yard.note(parent, fields.done())
    if member.state == MemberState.OPEN and parent.state not in (DEAD, DONE):
        yard.names.wait_for(parent, member.child_id)
    look_again(yard, parent, now_ms)
    return member.state == MemberState.OPEN


def is_member(parent: Job, label: str) -> bool:
    """Return whether a parent waits, or has waited, for a child with that label."""
    return _member_named(parent, label) is not None


def complete_child(yard: Yard, parent: Job, label: str, value: bytes, now_ms: i64) -> i64:
    """Record for a parent that the child with a label is done; return how many are not."""
    freed: list[Queue] = []
    member = _member_named(parent, label)
    if member is not None and member.state == MemberState.OPEN:
        flows.room_to_change(yard, parent, 4 * len(label) + len(value))
        flows.change(yard, parent, member, MemberState.SETTLED, value, freed, now_ms)
    flows.serve(yard, freed, now_ms)
    look_again(yard, parent, now_ms)
    details = parent.details
    return 0 if details is None else details.open_count()


def look_again(yard: Yard, parent: Job, now_ms: i64) -> None:
    """Unblock a parent that has had children if none of them is open."""
    details = parent.details
    if details is None or parent.state != BLOCKED or not details.members:
        return
    if details.open_count() == 0 and not flows.is_suspended(parent):
        _wake(yard, parent, now_ms)


def park(yard: Yard, job: Job, entry: str, now_ms: i64) -> bool:
    """End a run until the children of the job are done; False if none is open.

    Then the job moves to the end of the stream at once: its worker no longer holds it.
    """
    if not is_held(job, entry):
        raise NotHeld
    details = job.details
    if details is None or details.open_count() == 0:
        defer(yard, job, entry, 0, now_ms)
        return False
    yard.now_ms = max(yard.now_ms, now_ms)
    ends.park(yard, job, now_ms)
    return True


def _member_named(parent: Job, label: str) -> Member | None:
    details = parent.details
    if details is None or details.members is None:
        return None
    return details.member_index().named(label)


# -- signals -----------------------------------------------------------------------------------


def suspend(yard: Yard, job: Job, entry: str, until_ms: i64, now_ms: i64) -> None:
    """End a run until a signal comes, or until it times out at `until_ms`; 0 for never."""
    if not is_held(job, entry):
        raise NotHeld
    yard.now_ms = max(yard.now_ms, now_ms)
    end = Transition(job, Cause.PARKED, BLOCKED)
    end.changed_fields = _flagged(job.ensure_details(), GlideFlag.SUSPENDED, 0, until_ms)
    jobs_by_seq_of(job.queue).may_wait_for_signals = True
    ends.end_run(yard, job, end, now_ms)


def signal(yard: Yard, job: Job, now_ms: i64) -> None:
    """Signal a suspended job, which is then ready unless it waits for others; else NotFound."""
    if job.state != BLOCKED or not flows.is_suspended(job):
        raise NotFound
    details = job.ensure_details()
    if details.open_count() > 0:
        yard.note(job, _flagged(details, 0, GlideFlag.SUSPENDED, 0))
        return
    _wake(yard, job, now_ms)


def suspended_jobs(queue: Queue) -> list[Job]:
    """Return the jobs of a queue that wait for a signal.

    Blocked jobs are searched only if one may be suspended: there can be many, and calls are many.
    """
    found: list[Job] = []
    jobs_by_seq = jobs_by_seq_of(queue)
    if not jobs_by_seq.may_wait_for_signals:
        return found
    for item in queue.blocked.items:
        assert isinstance(item, Job)
        part = None if item.details is None else item.details.glide
        if part is not None and part.flags & GlideFlag.SUSPENDED:
            found.append(item)
    jobs_by_seq.may_wait_for_signals = len(found) > 0
    return found


def sweep(yard: Yard, queue: Queue, now_ms: i64) -> list[Job]:
    """Fail the suspended jobs of a queue that have timed out; return them."""
    late = [job for job in suspended_jobs(queue) if 0 < part_of(job).until_ms <= now_ms]
    error = "Suspend timeout exceeded"
    for job in late:
        move = Transition(job, Cause.FAILED, DEAD)
        fields = FieldWriter()
        fields.numbers(Tag.REASON, (FailureReason.TIMED_OUT,), error.encode())
        move.changed_fields = (
            _flagged(job.ensure_details(), 0, GlideFlag.SUSPENDED, 0) + fields.done()
        )
        yard.move(job, move, now_ms)
        if yard.bus.is_on:
            event = bus.Event(bus.EventName.FAILED, queue, job, now_ms)
            event.error = error
            event.is_final = True
            event.is_dead = True
            yard.bus.publish(event)
    if late and queue.first_link is not None:
        offer(yard, queue, now_ms)
    return late


def _wake(yard: Yard, job: Job, now_ms: i64) -> None:
    """Move an unblocked job to the end of the stream."""
    yard.now_ms = max(yard.now_ms, now_ms)
    move = Transition(job, Cause.UNBLOCKED, READY)
    move.due_ms = now_ms
    move.stamp = yard.new_place(job, now_ms)
    move.ready_list = ReadyList.STREAM
    move.changed_fields = _flagged(
        job.ensure_details(), 0, GlideFlag.SUSPENDED | GlideFlag.EXPECTANT, 0
    )
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.WAITING, job.queue, job, now_ms)
        event.before = "waiting-children"
        yard.bus.publish(event)
    if job.queue.first_link is not None:
        offer(yard, job.queue, now_ms)


def _flagged(details: JobDetails, on: i64, off: i64, until_ms: i64) -> bytes:
    """Return the changed fields for setting and clearing some flags."""
    part = details.glide
    is_new = part is None
    if part is None:
        part = GlidePart()
    flags, until = part.flags, part.until_ms
    part.flags = (flags | on) & ~off
    part.until_ms = until_ms
    fields = FieldWriter()
    glide_field(fields, part)
    part.flags, part.until_ms = flags, until
    return b"" if is_new and on == 0 else fields.done()
