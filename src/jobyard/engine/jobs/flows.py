"""Jobs that wait for other jobs: what the end of one means for the others.

A job with open members is BLOCKED; each member stores the state and the result of its child, so
the child may be removed as soon as it is done. All records that follow from the end of one job are
in the same batch as that end, or a crash between them would leave a parent waiting for a child that
no longer exists. So room for all of them is reserved first, and no client is served before the last
one is written.

Knows nothing of names that clients give; labels and protocol fields come from the session and go
back to it.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import offer
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.bodies import SMALL_VALUE_SIZE
from jobyard.journal.format.record import (
    END_ROOM,
    GONE_SIZE,
    LEASE_ROOM,
    LONG_BODY_SIZE,
    MOVE_SIZE,
    NOTE_SIZE,
    PUT_SIZE,
    STATE_SIZE,
    Cause,
)
from jobyard.model.details import FailureReason, Outcome
from jobyard.model.details_codec import FieldWriter, Tag, member_field, size_of
from jobyard.model.glidemq.fields import GlideFlag
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.members import Member, MemberState
from jobyard.model.policy import (
    CHILD_BLOCKS,
    CHILD_CONTINUES_PARENT,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    REMOVE_DEAD,
)
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.transition import Transition

__all__ = ["Outcome", "fail", "make_room", "settle"]

# What the error text of a failed child grows by in a parent that fails with it, besides its name.
_BLAME_ROOM: Final = 32
# Options of a successor that differ from those of its predecessor.
_MORE_ROOM: Final = 1024
# How many bytes of results of children that are done already are stored with a parent at once.
_LINKED_VALUES_MAX: Final = 1 << 20
# Otherwise each parent in a chain would repeat the names of all jobs below it.
CHILD_ERROR_MAX: Final = 1024


# -- events and serving ------------------------------------------------------------------------


def publish_blocked(yard: Yard, job: Job, now_ms: i64) -> None:
    """Publish the event that a job waits for others from now on."""
    if yard.bus.is_on:
        yard.bus.publish(bus.Event(bus.EventName.WAITING_CHILDREN, job.queue, job, now_ms))


def serve(yard: Yard, queues: list[Queue], now_ms: i64) -> None:
    """Offer jobs that became ready to waiting clients."""
    for queue in queues:
        if queue.first_link is not None:
            offer(yard, queue, now_ms)


# -- room --------------------------------------------------------------------------------------


def make_room(yard: Yard, child: Job, value_size: i64) -> None:
    """Ensure that the end of a job and all that follows from it fit into one batch.

    YardFull if there is no room for its result: the job can then end later, when there is room, and
    the small reserve for ends is left to other jobs.
    """
    journal = yard.journal
    dependents = yard.names.dependents
    if not journal.is_on or not dependents.has(int(child.id)):
        return
    if value_size > SMALL_VALUE_SIZE and not journal.has_room_aside(
        2 * value_size, journal.segment_size // 2
    ):
        raise YardFull
    own: i64 = 2 * (STATE_SIZE + END_ROOM + GONE_SIZE + _size(child)) + value_size
    own += _bases_room(child) + _lease_room(child.queue) + _successor_room(child)
    room: i64 = own
    parents: list[Job] = []
    # A job has at most one parent, so the jobs that fail with it form a single chain.
    doomed: Job | None = child
    while doomed is not None:
        one = doomed
        doomed = None
        size: i64 = 0
        for parent in dependents.get(int(one.id)) or ():
            member = member_of(parent, one.id)
            if member is None:
                continue
            label_size: i64 = 4 * len(member.label)
            room += _change_room(2 * (value_size + label_size + _BLAME_ROOM))
            parents.append(parent)
            if failure_of(parent, one) == CHILD_FAILS_PARENT:
                doomed = parent
                room += _bases_room(parent)
                size = min(value_size + label_size + _BLAME_ROOM, 4 * CHILD_ERROR_MAX)
        value_size = size
    for parent in parents:
        if not journal.has_room_for_change(parent, room):
            _reserve(yard, room + _states_room(parents))
            return


def make_room_for_result(yard: Yard, child: Job, size: i64, *, is_kept: bool) -> None:
    """Do the same for a child that is done; YardFull also if its parents cannot store its result.

    They read it from the child if that is kept.
    """
    if not is_kept:
        parents = yard.names.dependents.get(int(child.id))
        if parents is not None and not yard.bodies.admits_value(size * len(parents)):
            raise YardFull
    make_room(yard, child, size)


def _bases_room(job: Job) -> i64:
    """Return the size of the records that remove the older bases of a job, one per old body."""
    details = job.details
    if details is None or details.old_bases is None:
        return 0
    return GONE_SIZE * len(details.old_bases)


def _states_room(jobs: list[Job]) -> i64:
    """Return the size of two records about each of some jobs if they begin a new trail."""
    room: i64 = 0
    for job in jobs:
        room += 2 * (STATE_SIZE + _size(job))
    return room


def _change_room(value_size: i64) -> i64:
    """Return the largest size of a note and a move that change a member."""
    return 2 * value_size + NOTE_SIZE + MOVE_SIZE + GONE_SIZE


def room_to_change(yard: Yard, job: Job, more: i64) -> None:
    """Ensure that two changes of a job, with `more` new bytes, fit into one batch."""
    if yard.journal.is_on:
        _reserve(yard, parent_room(job, more) + END_ROOM + _size(job))


def _reserve(yard: Yard, size: i64) -> None:
    try:
        yard.journal.make_room(size)
    except StorageFull:
        raise YardFull from None


def parent_room(parent: Job, value_size: i64) -> i64:
    """Return the largest size of a note and a move of a job, each after its whole state."""
    return _change_room(value_size) + _states_room([parent])


def _successor_room(child: Job) -> i64:
    """Return the size of the successor of a repeating job, which is put at its end."""
    details = child.details
    if details is None or not details.protocol_fields:
        return 0
    return PUT_SIZE + LONG_BODY_SIZE + _MORE_ROOM + i64(child.size) + _size(child)


def _lease_room(queue: Queue) -> i64:
    """Return the size of a lease that may follow at once because a run has ended."""
    rules = queue.rules
    if rules is None or queue.first_link is None:
        return 0
    largest: i64 = 0
    heads = [group.ready.items[0] for group in rules.ring]
    ready_lists = rules.ready_lists
    if ready_lists is not None:
        for ready_list in (ready_lists.staged, ready_lists.promoted, ready_lists.lifo):
            heads += ready_list.items[:1]
        heads += [
            ordering.waiting.items[0]
            for ordering in ready_lists.orderings.values()
            if ordering.waiting.items
        ]
    if queue.ready.items:
        heads.append(queue.ready.items[0])
    for head in heads:
        assert isinstance(head, Job)
        largest = max(largest, _size(head))
    return STATE_SIZE + LEASE_ROOM + largest


def _size(job: Job) -> i64:
    details = job.details
    return 0 if details is None else size_of(details)


# -- the end of a child ------------------------------------------------------------------------


def settle(yard: Yard, child: Job, value: bytes, now_ms: i64) -> None:
    """Record for all jobs that wait for a job that it is done."""
    freed: list[Queue] = []
    for parent in list(yard.names.dependents.get(int(child.id)) or ()):
        member = member_of(parent, child.id)
        if member is not None:
            if child.state == DONE and not yard.bodies.admits_value(len(value)):
                value = b""
            change(yard, parent, member, MemberState.SETTLED, value, freed, now_ms)
    serve(yard, freed, now_ms)


def fail(yard: Yard, child: Job, error: str, now_ms: i64) -> None:
    """Apply the child failure policy of a finally failed job to the jobs that wait for it."""
    freed: list[Queue] = []
    failed = [child]
    errors = [error]
    at = 0
    # No recursion: a chain of parents may be longer than the stack is deep.
    while at < len(failed):
        for parent in list(yard.names.dependents.get(int(failed[at].id)) or ()):
            why = blame(yard, parent, failed[at], errors[at], freed, now_ms)
            if why:
                failed.append(parent)
                errors.append(why)
        at += 1
    for parent in failed[1:]:
        if parent.queue is not child.queue and parent.queue.name in yard.queues:
            drop_if_idle(yard, parent.queue)
    serve(yard, freed, now_ms)


def blame(yard: Yard, parent: Job, child: Job, error: str, freed: list[Queue], now_ms: i64) -> str:
    """Apply the policy of a failed child to one parent; return the error if that fails too."""
    member = member_of(parent, child.id)
    how = failure_of(parent, child)
    if member is None or how == CHILD_BLOCKS or parent.state in (DEAD, DONE, GONE):
        return ""
    value = error.encode()
    if how == CHILD_IGNORED:
        change(yard, parent, member, MemberState.IGNORED, value, freed, now_ms)
    elif how == CHILD_REMOVED:
        change(yard, parent, member, MemberState.DROPPED, b"", freed, now_ms)
    elif how == CHILD_CONTINUES_PARENT:
        change(yard, parent, member, MemberState.FAILED, value, freed, now_ms, is_enough=True)
    elif parent.state == LEASED:
        # It keeps running; if it later waits for its children, this one does not hold it up.
        change(yard, parent, member, MemberState.FAILED, value, freed, now_ms)
    else:
        assert how == CHILD_FAILS_PARENT
        name = member.label[len(child.queue.name) + 1 :]
        why = f"Child job {name} failed: {error}"[:CHILD_ERROR_MAX]
        _fail_parent(yard, parent, member, value, why, now_ms)
        return why
    return ""


def failure_of(parent: Job, child: Job) -> i64:
    """Return what the failure of a job does to another that waits for it.

    The policy applies only to its parent: it was not chosen by other jobs that depend on it.
    """
    details = child.details
    if details is None or details.parent_id != parent.id:
        return CHILD_BLOCKS
    return child.policy.child_failure


def _fail_parent(
    yard: Yard, parent: Job, member: Member, value: bytes, why: str, now_ms: i64
) -> None:
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.FAILED, parent.queue, parent, now_ms)
        event.error = why
        event.is_final = True
        event.is_dead = not parent.policy.flags & REMOVE_DEAD
        yard.bus.publish(event)
    if parent.policy.flags & REMOVE_DEAD:
        yard.drop(parent, now_ms)
        yard.counters.of(parent).dead += 1
        parent.queue.finished_count += 1
        return
    move = Transition(parent, Cause.FAILED, DEAD)
    fields = FieldWriter()
    _write_member(fields, member, MemberState.FAILED, value)
    fields.numbers(Tag.REASON, (FailureReason.UNKNOWN,), why.encode())
    move.changed_fields = fields.done()
    yard.move(parent, move, now_ms)


# -- members -----------------------------------------------------------------------------------


def member_of(parent: Job, child_id: i64) -> Member | None:
    """Return the open member of a job for a child, if it still waits for that."""
    details = parent.details
    if details is None or details.members is None:
        return None
    return details.member_index().find_open(child_id)


def linked_size(yard: Yard, child: Job, taken: i64) -> i64:
    """Return how much of the result of a done child is stored with a parent that is linked to it.

    Nothing if it would be too much for memory, or for one command that has `taken` some already:
    the parent then reads the result from the child, as long as that is kept.
    """
    size = child.outcome().result_size
    if taken + size > _LINKED_VALUES_MAX or not yard.bodies.admits_value(taken + size):
        return 0
    return size


def settled_member(yard: Yard, child: Job, label: str, taken: i64) -> Member:
    """Return the member for a child that is done already; for `taken` see `linked_size`."""
    member = Member(child.id, label)
    member.state = MemberState.SETTLED
    if linked_size(yard, child, taken) > 0:
        member.value = yard.bodies.fetch_result(child) or b""
    return member


def _is_last(parent: Job, member: Member) -> bool:
    """Return whether a job waits for no other member."""
    details = parent.details
    assert details is not None
    others: i64 = details.open_count()
    return others == (1 if member.state == MemberState.OPEN else 0)


def change(  # noqa: PLR0913  the member, its new state, and the queues to serve
    yard: Yard,
    parent: Job,
    member: Member,
    how: i64,
    value: bytes,
    freed: list[Queue],
    now_ms: i64,
    *,
    is_enough: bool = False,
) -> None:
    """Set the state of a member; the last open one, or one that is enough, unblocks the job."""
    fields = FieldWriter()
    _write_member(fields, member, how, value)
    if (
        parent.state == BLOCKED
        and not is_suspended(parent)
        and (is_enough or _is_last(parent, member))
    ):
        _unblock(yard, parent, fields.done(), freed, now_ms)
    else:
        yard.note(parent, fields.done(), is_needed=True)
    yard.names.stop_waiting(parent, member.child_id)


def is_suspended(job: Job) -> bool:
    """Return whether a job waits for a signal, maybe in addition to other jobs."""
    details = job.details
    return (
        details is not None
        and details.glide is not None
        and details.glide.flags & GlideFlag.SUSPENDED != 0
    )


def _write_member(fields: FieldWriter, member: Member, how: i64, value: bytes) -> None:
    after = Member(member.child_id, member.label)
    after.state = how
    after.value = value
    member_field(fields, after)


def _unblock(
    yard: Yard, parent: Job, changed_fields: bytes, freed: list[Queue], now_ms: i64
) -> None:
    move = Transition(parent, Cause.UNBLOCKED, DELAYED if parent.due_ms > now_ms else READY)
    move.stamp = yard.new_place(parent, now_ms)
    move.ready_list = ReadyList.STREAM
    move.changed_fields = changed_fields
    yard.move(parent, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.WAITING, parent.queue, parent, now_ms)
        event.before = "waiting-children"
        yard.bus.publish(event)
    if parent.queue not in freed:
        freed.append(parent.queue)


# -- links added and removed later -------------------------------------------------------------


def catch_up(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    """Apply the policy of a child that had failed before it was linked to its parent."""
    if child.state != DEAD:
        return
    error = child.outcome().error
    make_room(yard, child, 4 * len(error))
    freed: list[Queue] = []
    why = blame(yard, parent, child, error, freed, now_ms)
    serve(yard, freed, now_ms)
    if why:
        fail(yard, parent, why, now_ms)


def link(
    yard: Yard, parent: Job, child: Job, label: str, changed_fields: bytes, now_ms: i64
) -> None:
    """Make a job that is not running wait for one more; a child that is done blocks nothing."""
    is_done = child.state == DONE
    member = settled_member(yard, child, label, 0) if is_done else Member(child.id, label)
    # It may already wait for that child under that label.
    is_known = _waits_for(parent, child.id, label)
    fields = FieldWriter()
    member_field(fields, member)
    if member.state == MemberState.OPEN and parent.state in (READY, DELAYED):
        move = Transition(parent, Cause.PARKED, BLOCKED)
        move.changed_fields = fields.done() + changed_fields
        parent.ensure_details()
        yard.move(parent, move, now_ms)
        publish_blocked(yard, parent, now_ms)
    else:
        yard.note(parent, fields.done() + changed_fields)
    if member.state == MemberState.OPEN and not is_known:
        yard.names.wait_for(parent, child.id)


def _waits_for(parent: Job, child_id: i64, label: str) -> bool:
    details = parent.details
    if details is None or details.members is None:
        return False
    place = details.member_index().place_of(child_id, label)
    return place >= 0 and details.members[place].state == MemberState.OPEN


def inherit(yard: Yard, old_id: i64, job: Job) -> None:
    """Make jobs that wait for a job that failed and is gone wait for its successor."""
    for parent in list(yard.names.dependents.get(int(old_id)) or ()):
        member = member_of(parent, old_id)
        if member is None:
            continue
        fields = FieldWriter()
        _write_member(fields, member, MemberState.DROPPED, b"")
        member_field(fields, Member(job.id, member.label))
        yard.note(parent, fields.done(), is_needed=True)
        yard.names.stop_waiting(parent, old_id)
        yard.names.wait_for(parent, job.id)


def look_again(yard: Yard, job: Job, now_ms: i64) -> None:
    """Record members that ended without notifying the job; unblock it if none is open.

    A job that has never had a member stays blocked: its children are still to come.
    """
    details = job.details
    if details is None or not details.members:
        return
    freed: list[Queue] = []
    names = yard.names
    taken: i64 = 0
    for member in list(details.members):
        if member.state != MemberState.OPEN:
            continue
        child = yard.jobs.get(member.child_id)
        if child is not None and child.state == DONE:
            value = settled_member(yard, child, member.label, taken).value
            taken += len(value)
            change(yard, job, member, MemberState.SETTLED, value, freed, now_ms)
        elif job not in (names.dependents.get(int(member.child_id)) or ()):
            names.wait_for(job, member.child_id)
    if job.state == BLOCKED and details.open_count() == 0:
        _unblock(yard, job, b"", freed, now_ms)
    serve(yard, freed, now_ms)


def room_to_look(yard: Yard, job: Job) -> i64:
    """Return the largest size of the records that `look_again` writes."""
    details = job.details
    if details is None or details.members is None:
        return 0
    needed: i64 = 0
    taken: i64 = 0
    for member in details.members:
        child = yard.jobs.get(member.child_id) if member.state == MemberState.OPEN else None
        if child is not None and child.state == DONE:
            size = linked_size(yard, child, taken)
            taken += size
            needed += parent_room(job, size + len(member.label))
    return needed
