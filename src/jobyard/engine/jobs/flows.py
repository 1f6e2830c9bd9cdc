"""Jobs that wait for other jobs: what the end of one means for the others.

A job with open members is BLOCKED; each member remembers how it stands and what it came to, so that
a child may go as soon as it is done. All records that follow from the end of one job lie in one
batch with that end, or a crash between them would leave a parent waiting for a child that is no
more. So the room for all of them is made first, and nobody is served before the last is written.

Knows nothing of the names clients give; labels and marks come from the session and go back to it.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import offer
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.record import (
    END_SIZE,
    FAILED,
    GONE_SIZE,
    LEASE_SIZE,
    LONG_BODY_SIZE,
    MOVE_SIZE,
    NOTE_SIZE,
    PARKED,
    PUT_SIZE,
    STATE_SIZE,
    UNBLOCKED,
)
from jobyard.model.details import (
    DROPPED,
    IGNORED,
    OPEN,
    REASON,
    SETTLED,
    UNKNOWN,
    Fields,
    Member,
    Outcome,
    member_field,
    size_of,
)
from jobyard.model.details import FAILED as MEMBER_FAILED
from jobyard.model.glidemq.fields import SUSPENDED
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.policy import (
    CHILD_BLOCKS,
    CHILD_CONTINUES_PARENT,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    REMOVE_DEAD,
)
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import STREAM
from jobyard.model.transition import End

__all__ = ["Outcome", "fail", "make_room", "settle"]

# What the text of a failed child gains, beside its name, with a parent it fails.
_BLAME_ROOM: Final = 32
# Options of a successor that differ from those of its predecessor.
_MORE_ROOM: Final = 1024
# What is remembered of a child for its parent even if results find no room any more.
VALUE_SIZE_FULL: Final = 64
# A chain of parents would else repeat the names of all below it.
ERROR_MAX: Final = 1024


# -- telling and serving -----------------------------------------------------------------------


def tell_blocked(yard: Yard, job: Job, now_ms: i64) -> None:
    """Tell that a job waits for others from now on."""
    if yard.bus.is_on:
        yard.bus.tell(bus.Event(bus.WAITING_CHILDREN, job.queue, job, now_ms))


def serve(yard: Yard, queues: list[Queue], now_ms: i64) -> None:
    """Hand jobs that became ready to those who wait for them."""
    for queue in queues:
        if queue.first_link is not None:
            offer(yard, queue, now_ms)


# -- room --------------------------------------------------------------------------------------


def make_room(yard: Yard, child: Job, value_size: i64) -> None:
    """See that the end of a job and all that follows from it fit into one batch.

    YardFull if there is no room for what is to be remembered: the job then ends when there is, and
    what little room is kept for ends alone is left to others.
    """
    journal = yard.journal
    dependents = yard.names.dependents
    if not journal.is_on or not dependents.has(int(child.id)):
        return
    if value_size > VALUE_SIZE_FULL and not journal.has_room_aside(
        2 * value_size, journal.segment_size // 2
    ):
        raise YardFull
    own: i64 = 2 * (STATE_SIZE + END_SIZE + GONE_SIZE + _size(child)) + value_size
    own += _lease_room(child.queue) + _successor_room(child)
    news: i64 = own
    told: list[Job] = []
    # A job has one parent at most, so those who fail with it are one line.
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
            news += _news_room(2 * (value_size + label_size + _BLAME_ROOM))
            told.append(parent)
            if failure_of(parent, one) == CHILD_FAILS_PARENT:
                doomed = parent
                size = min(value_size + label_size + _BLAME_ROOM, 4 * ERROR_MAX)
        value_size = size
    for parent in told:
        if not journal.has_room_for_news(parent, news):
            _reserve(yard, news + _states_room(told))
            return


def _states_room(jobs: list[Job]) -> i64:
    """Return what two records about each of some jobs take if they begin a new trail."""
    room: i64 = 0
    for job in jobs:
        room += 2 * (STATE_SIZE + _size(job))
    return room


def _news_room(value_size: i64) -> i64:
    """Return the most that a note and a move that tell of a member take."""
    return 2 * value_size + NOTE_SIZE + MOVE_SIZE + GONE_SIZE


def room_to_change(yard: Yard, job: Job, more: i64) -> None:
    """See that two changes of a job that say `more` beyond what it is fit into one batch."""
    if yard.journal.is_on:
        _reserve(yard, parent_room(job, more) + END_SIZE)


def _reserve(yard: Yard, size: i64) -> None:
    try:
        yard.journal.make_room(size)
    except StorageFull:
        raise YardFull from None


def parent_room(parent: Job, value_size: i64) -> i64:
    """Return the most that a note and a move of a job take, each after its whole state."""
    return _news_room(value_size) + _states_room([parent])


def _successor_room(child: Job) -> i64:
    """Return what the next of a job that repeats takes, put at its end."""
    extra = child.extra
    if extra is None or not extra.marks:
        return 0
    return PUT_SIZE + LONG_BODY_SIZE + _MORE_ROOM + i64(child.size) + _size(child)


def _lease_room(queue: Queue) -> i64:
    """Return what a lease takes that the end of a run lets through at once."""
    rules = queue.rules
    if rules is None or queue.first_link is None:
        return 0
    largest: i64 = 0
    heads = [group.ready.items[0] for group in rules.ring]
    shelves = rules.shelves
    if shelves is not None:
        for shelf in (shelves.staged, shelves.promoted, shelves.stack):
            heads += shelf.items[:1]
        heads += [lane.waiting.items[0] for lane in shelves.lanes.values() if lane.waiting.items]
    if queue.ready.items:
        heads.append(queue.ready.items[0])
    for head in heads:
        assert isinstance(head, Job)
        largest = max(largest, _size(head))
    return STATE_SIZE + LEASE_SIZE + largest


def _size(job: Job) -> i64:
    extra = job.extra
    return 0 if extra is None else size_of(extra)


# -- the end of a child ------------------------------------------------------------------------


def settle(yard: Yard, child: Job, value: bytes, now_ms: i64) -> None:
    """Note for all who wait for a job that it is done."""
    freed: list[Queue] = []
    for parent in list(yard.names.dependents.get(int(child.id)) or ()):
        member = member_of(parent, child.id)
        if member is not None:
            change(yard, parent, member, SETTLED, value, freed, now_ms)
    serve(yard, freed, now_ms)


def fail(yard: Yard, child: Job, error: str, now_ms: i64) -> None:
    """Do to all who wait for a job what it was put to do to them when it fails for good."""
    freed: list[Queue] = []
    failed = [child]
    errors = [error]
    at = 0
    # Not by recursion: a chain of parents may be longer than the stack is deep.
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
    """Do to one parent what its child was put to do; return why it failed, if it did."""
    member = member_of(parent, child.id)
    how = failure_of(parent, child)
    if member is None or how == CHILD_BLOCKS or parent.state in (DEAD, DONE, GONE):
        return ""
    value = error.encode()
    if how == CHILD_IGNORED:
        change(yard, parent, member, IGNORED, value, freed, now_ms)
    elif how == CHILD_REMOVED:
        change(yard, parent, member, DROPPED, b"", freed, now_ms)
    elif how == CHILD_CONTINUES_PARENT:
        change(yard, parent, member, MEMBER_FAILED, value, freed, now_ms, is_enough=True)
    elif parent.state == LEASED:
        # It goes on without being told; if it comes to wait for the others it is not held up.
        change(yard, parent, member, MEMBER_FAILED, value, freed, now_ms)
    else:
        assert how == CHILD_FAILS_PARENT
        name = member.label[len(child.queue.name) + 1 :]
        why = f"Child job {name} failed: {error}"[:ERROR_MAX]
        _fail_parent(yard, parent, member, value, why, now_ms)
        return why
    return ""


def failure_of(parent: Job, child: Job) -> i64:
    """Return what the failure of a job does to another that waits for it.

    Only to its parent: others that depend on it had no say in how it was put.
    """
    extra = child.extra
    if extra is None or extra.parent_id != parent.id:
        return CHILD_BLOCKS
    return child.policy.child_failure


def _fail_parent(
    yard: Yard, parent: Job, member: Member, value: bytes, why: str, now_ms: i64
) -> None:
    if yard.bus.is_on:
        event = bus.Event(bus.FAILED, parent.queue, parent, now_ms)
        event.error = why
        event.is_final = True
        event.is_dead = not parent.policy.flags & REMOVE_DEAD
        yard.bus.tell(event)
    if parent.policy.flags & REMOVE_DEAD:
        yard.counters.of(parent).dead += 1
        yard.drop(parent, now_ms)
        parent.queue.finished_count += 1
        return
    move = End(parent, FAILED, DEAD)
    fields = Fields()
    _write_member(fields, member, MEMBER_FAILED, value)
    fields.numbers(REASON, (UNKNOWN,), why.encode())
    move.news = fields.done()
    yard.move(parent, move, now_ms)


# -- members -----------------------------------------------------------------------------------


def member_of(parent: Job, child_id: i64) -> Member | None:
    """Return what a job remembers of one it still waits for."""
    extra = parent.extra
    if extra is None or extra.members is None:
        return None
    return extra.member_index().find_open(child_id)


def _is_last(parent: Job, member: Member) -> bool:
    """Tell whether a job waits for nobody but a member."""
    extra = parent.extra
    assert extra is not None
    others: i64 = extra.open_count()
    return others == (1 if member.state == OPEN else 0)


def change(  # noqa: PLR0913  whose member becomes what, and who is to be served then
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
    """Set how a member stands; the last open one, or one that is enough, lets the job go on."""
    fields = Fields()
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
    """Tell whether a job waits for a signal, whoever else it waits for."""
    extra = job.extra
    return extra is not None and extra.glide is not None and extra.glide.flags & SUSPENDED != 0


def _write_member(fields: Fields, member: Member, how: i64, value: bytes) -> None:
    news = Member(member.child_id, member.label)
    news.state = how
    news.value = value
    member_field(fields, news)


def _unblock(yard: Yard, parent: Job, news: bytes, freed: list[Queue], now_ms: i64) -> None:
    move = End(parent, UNBLOCKED, DELAYED if parent.due_ms > now_ms else READY)
    move.stamp = yard.new_place(parent, now_ms)
    move.shelf = STREAM
    move.news = news
    yard.move(parent, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.WAITING, parent.queue, parent, now_ms)
        event.before = "waiting-children"
        yard.bus.tell(event)
    if parent.queue not in freed:
        freed.append(parent.queue)


# -- ties made and cut later -------------------------------------------------------------------


def catch_up(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    """Do to a parent what a child did not do because it had failed before they were tied."""
    if child.state != DEAD:
        return
    error = child.outcome().error
    make_room(yard, child, 4 * len(error))
    freed: list[Queue] = []
    why = blame(yard, parent, child, error, freed, now_ms)
    serve(yard, freed, now_ms)
    if why:
        fail(yard, parent, why, now_ms)


def link(yard: Yard, parent: Job, child: Job, label: str, news: bytes, now_ms: i64) -> None:
    """Let a job that nobody runs wait for one more; one that is done holds nobody up."""
    member = Member(child.id, label)
    if child.state == DONE:
        member.state = SETTLED
        member.value = yard.bodies.fetch_result(child) or b""
    # It may wait for that one under that name already.
    is_known = _waits_for(parent, child.id, label)
    fields = Fields()
    member_field(fields, member)
    if member.state == OPEN and parent.state in (READY, DELAYED):
        move = End(parent, PARKED, BLOCKED)
        move.news = fields.done() + news
        parent.more()
        yard.move(parent, move, now_ms)
        tell_blocked(yard, parent, now_ms)
    else:
        yard.note(parent, fields.done() + news)
    if member.state == OPEN and not is_known:
        yard.names.wait_for(parent, child.id)


def _waits_for(parent: Job, child_id: i64, label: str) -> bool:
    extra = parent.extra
    if extra is None or extra.members is None:
        return False
    place = extra.member_index().place_of(child_id, label)
    return place >= 0 and extra.members[place].state == OPEN


def inherit(yard: Yard, old_id: i64, job: Job) -> None:
    """Let those who wait for a job that failed and is gone wait for its successor."""
    for parent in list(yard.names.dependents.get(int(old_id)) or ()):
        member = member_of(parent, old_id)
        if member is None:
            continue
        fields = Fields()
        _write_member(fields, member, DROPPED, b"")
        member_field(fields, Member(job.id, member.label))
        yard.note(parent, fields.done(), is_needed=True)
        yard.names.stop_waiting(parent, old_id)
        yard.names.wait_for(parent, job.id)


def look_again(yard: Yard, job: Job, now_ms: i64) -> None:
    """Tell a job what became of its members while nobody told it; go on if none is open.

    A job that has never had a member is left waiting: its children are still to come.
    """
    extra = job.extra
    if extra is None or not extra.members:
        return
    freed: list[Queue] = []
    names = yard.names
    for member in list(extra.members):
        if member.state != OPEN:
            continue
        child = yard.jobs.get(member.child_id)
        if child is not None and child.state == DONE:
            value = yard.bodies.fetch_result(child) or b""
            change(yard, job, member, SETTLED, value, freed, now_ms)
        elif job not in (names.dependents.get(int(member.child_id)) or ()):
            names.wait_for(job, member.child_id)
    if job.state == BLOCKED and extra.open_count() == 0:
        _unblock(yard, job, b"", freed, now_ms)
    serve(yard, freed, now_ms)


def room_to_look(yard: Yard, job: Job) -> i64:
    """Return the most that `look_again` adds to what a job is."""
    extra = job.extra
    if extra is None or extra.members is None:
        return 0
    needed: i64 = 0
    for member in extra.members:
        child = yard.jobs.get(member.child_id) if member.state == OPEN else None
        if child is not None and child.state == DONE:
            needed += parent_room(job, child.outcome().result_size + len(member.label))
    return needed
