"""Parents and children at the door of glide-mq, and jobs that wait for a signal.

A parent knows its children by the names their clients write; a child may be in another queue, or be
known by its name alone. A child that fails for good never lets its parent go on. All jobs of a flow
enter in one batch, and every refusal comes before the first of them.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import Adding, check, counting_room, enter_wish, free_seq, wish_for
from jobyard.engine.glidemq.finish import defer, is_held
from jobyard.engine.jobs import finish as ends
from jobyard.engine.jobs import flows
from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.jobs.put import Wish, room_for
from jobyard.engine.jobs.put_transaction import reserve_all
from jobyard.engine.jobs.take import offer
from jobyard.engine.state import bus
from jobyard.engine.state.names import glide_key
from jobyard.engine.state.yard import Yard
from jobyard.errors import Duplicate, NotFound, NotHeld
from jobyard.journal.format.record import FAILED, PARKED, UNBLOCKED
from jobyard.model.details import (
    OPEN,
    REASON,
    SETTLED,
    TIMED_OUT,
    Extra,
    Fields,
    Member,
    encode_extra,
    glide_field,
    member_field,
)
from jobyard.model.glidemq.fields import EXPECTANT, SUSPENDED, GlidePart
from jobyard.model.job import BLOCKED, DEAD, DONE, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import part_of
from jobyard.model.throttle.ready_lists import STREAM
from jobyard.model.transition import End


@final
class Child:
    """A job of a flow: where it is to be, and what its parent calls it."""

    def __init__(
        self, queue: Queue, adding: Adding, label_head: str, wish: Wish | None = None
    ) -> None:
        self.queue: Queue = queue
        self.adding: Adding = adding
        # Of many children they are made ahead.
        self.wish: Wish | None = wish
        # The label is this, a colon, and the id of the job.
        self.label_head: str = label_head


@final
class Tie:
    """One more whom the parent of a flow waits for: a job that is there, or only its name."""

    def __init__(self, label: str, job: Job | None) -> None:
        self.label: str = label
        self.job: Job | None = job


# -- entering ----------------------------------------------------------------------------------


def add_flow(
    yard: Yard, queue: Queue, parent: Adding, children: list[Child], ties: list[Tie], now_ms: i64
) -> list[Job]:
    """Add a parent and its children in one batch; the parent comes first.

    Refused as `add` is, with nothing changed. A parent of none waits for children to come.
    """
    _check_all(yard, queue, parent, children)
    seqs = _seqs_for(queue, parent, children)
    wishes = [wish_for(yard, parent, is_expectant=True)]
    wishes += [_wish_of(yard, child, parent, seqs[0]) for child in children]
    queues = [queue] + [child.queue for child in children]
    extra = wishes[0].extra
    assert extra is not None
    first_id: i64 = yard.journal.next_id
    members: list[Member] = []
    for each in range(len(children)):
        child = children[each]
        name = child.adding.custom_id or str(seqs[each + 1])
        members.append(Member(first_id + 1 + each, f"{child.label_head}:{name}"))
    members += [_member_for(yard, tie) for tie in ties]
    extra.set_members(members or None)
    if yard.journal.is_on:
        _encode_ahead(wishes)
    room: i64 = 0
    for each in range(len(wishes)):
        room += room_for(queues[each], wishes[each]) + counting_room(queues[each])
    reserve_all(yard, list(dict.fromkeys(queues)), queues, wishes, room, now_ms)
    jobs: list[Job] = []
    for each in range(len(wishes)):
        queues[each].next_seq = seqs[each]
        jobs.append(enter_wish(yard, queues[each], wishes[each], now_ms))
    if yard.bus.is_on:
        flows.tell_blocked(yard, jobs[0], now_ms)
    for one in queues:
        if one.first_link is not None:
            offer(yard, one, now_ms)
    look_again(yard, jobs[0], now_ms)
    return jobs


def _encode_ahead(wishes: list[Wish]) -> None:
    """Make what is written of jobs: its size is asked for before they enter."""
    for wish in wishes:
        extra = wish.extra
        # Which place a job has in its lane is only known when it enters.
        if extra is not None and (extra.glide is None or not extra.glide.lane_key):
            extra.ahead = encode_extra(extra)


def _check_all(yard: Yard, queue: Queue, parent: Adding, children: list[Child]) -> None:
    roster_of(queue)
    check(yard, queue, parent)
    names = {glide_key(queue, parent.custom_id)} if parent.custom_id else set()
    for child in children:
        roster_of(child.queue)
        check(yard, child.queue, child.adding)
        if child.adding.custom_id:
            name = glide_key(child.queue, child.adding.custom_id)
            if name in names:
                raise Duplicate
            names.add(name)


def _seqs_for(queue: Queue, parent: Adding, children: list[Child]) -> list[int]:
    """Return the seqs the jobs will have, stepping over ids that are or will be taken."""
    chosen: set[str] = set()
    if parent.custom_id:
        chosen.add(glide_key(queue, parent.custom_id))
    for child in children:
        if child.adding.custom_id:
            chosen.add(glide_key(child.queue, child.adding.custom_id))
    following: dict[str, int] = {}
    seqs: list[int] = []
    for each in range(len(children) + 1):
        one = queue if each == 0 else children[each - 1].queue
        adding = parent if each == 0 else children[each - 1].adding
        seq: int = following.get(one.name, int(one.next_seq))
        if not adding.custom_id:
            seq = int(free_seq(one, seq, adding.taken))
            while chosen and glide_key(one, str(seq)) in chosen:
                seq = int(free_seq(one, seq + 1, adding.taken))
        seqs.append(seq)
        following[one.name] = seq + 1
    return seqs


def _wish_of(yard: Yard, child: Child, parent: Adding, parent_seq: int) -> Wish:
    wish = child.wish
    if wish is None:
        wish = wish_for(yard, child.adding, is_child=True)
    extra = wish.extra
    assert extra is not None
    part = extra.glide
    assert part is not None
    if not part.parent_id:
        part.parent_id = parent.custom_id or str(parent_seq)
    return wish


def _member_for(yard: Yard, tie: Tie) -> Member:
    job = tie.job
    member = Member(0 if job is None else job.id, tie.label)
    if job is not None and job.state == DONE:
        member.state = SETTLED
        member.value = yard.bodies.fetch_result(job) or b""
    return member


# -- ties made and cut later -------------------------------------------------------------------


def link_parent(yard: Yard, parent: Job, child: Job | None, label: str, now_ms: i64) -> bool:
    """Let a parent wait for one more; False for a child that is done and holds nobody up.

    The state of the parent does not change by it: it may run, and wait for its children later.
    """
    known = _member_named(parent, label)
    if known is not None:
        return known.state == OPEN
    member = _member_for(yard, Tie(label, child))
    flows.room_to_change(yard, parent, 4 * len(label) + len(member.value))
    fields = Fields()
    member_field(fields, member)
    yard.note(parent, fields.done())
    if member.state == OPEN and parent.state not in (DEAD, DONE):
        yard.names.wait_for(parent, member.child_id)
    look_again(yard, parent, now_ms)
    return member.state == OPEN


def is_member(parent: Job, label: str) -> bool:
    """Tell whether a parent waits for one of that name, or has waited for it."""
    return _member_named(parent, label) is not None


def complete_child(yard: Yard, parent: Job, label: str, value: bytes, now_ms: i64) -> i64:
    """Note for a parent that a child is done, which it knows by name; return how many are not."""
    freed: list[Queue] = []
    member = _member_named(parent, label)
    if member is not None and member.state == OPEN:
        flows.room_to_change(yard, parent, 4 * len(label) + len(value))
        flows.change(yard, parent, member, SETTLED, value, freed, now_ms)
    flows.serve(yard, freed, now_ms)
    look_again(yard, parent, now_ms)
    extra = parent.extra
    return 0 if extra is None else extra.open_count()


def look_again(yard: Yard, parent: Job, now_ms: i64) -> None:
    """Let a parent go on that waits for nobody any more, and once had a child."""
    extra = parent.extra
    if extra is None or parent.state != BLOCKED or not extra.members:
        return
    if extra.open_count() == 0 and not flows.is_suspended(parent):
        _wake(yard, parent, now_ms)


def park(yard: Yard, job: Job, entry: str, now_ms: i64) -> bool:
    """End a run until the children of the job are done; False if none is open.

    Then the job goes to the end of the stream at once: its worker holds it no longer.
    """
    if not is_held(job, entry):
        raise NotHeld
    extra = job.extra
    if extra is None or extra.open_count() == 0:
        defer(yard, job, entry, 0, now_ms)
        return False
    yard.now_ms = max(yard.now_ms, now_ms)
    ends.park(yard, job, now_ms)
    return True


def _member_named(parent: Job, label: str) -> Member | None:
    extra = parent.extra
    if extra is None or extra.members is None:
        return None
    return extra.member_index().named(label)


# -- signals -----------------------------------------------------------------------------------


def suspend(yard: Yard, job: Job, entry: str, until_ms: i64, now_ms: i64) -> None:
    """End a run until a signal comes, or until it is too late for one; 0 for never."""
    if not is_held(job, entry):
        raise NotHeld
    yard.now_ms = max(yard.now_ms, now_ms)
    end = End(job, PARKED, BLOCKED)
    end.news = _flagged(job.more(), SUSPENDED, 0, until_ms)
    roster_of(job.queue).may_wait_for_signals = True
    ends.end_run(yard, job, end, now_ms)


def signal(yard: Yard, job: Job, now_ms: i64) -> None:
    """Let a job go on that waits for a signal; NotFound if it does not."""
    if job.state != BLOCKED or not flows.is_suspended(job):
        raise NotFound
    extra = job.more()
    if extra.open_count() > 0:
        yard.note(job, _flagged(extra, 0, SUSPENDED, 0))
        return
    _wake(yard, job, now_ms)


def suspended_jobs(queue: Queue) -> list[Job]:
    """Return the jobs of a queue that wait for a signal; parents are looked through only for them.

    Those who wait for their children may be many, and are asked for again and again.
    """
    found: list[Job] = []
    roster = roster_of(queue)
    if not roster.may_wait_for_signals:
        return found
    for item in queue.blocked.items:
        assert isinstance(item, Job)
        part = None if item.extra is None else item.extra.glide
        if part is not None and part.flags & SUSPENDED:
            found.append(item)
    roster.may_wait_for_signals = len(found) > 0
    return found


def sweep(yard: Yard, queue: Queue, now_ms: i64) -> list[Job]:
    """Let jobs of a queue fail for which a signal would come too late; return them."""
    late = [job for job in suspended_jobs(queue) if 0 < part_of(job).until_ms <= now_ms]
    error = "Suspend timeout exceeded"
    for job in late:
        move = End(job, FAILED, DEAD)
        fields = Fields()
        fields.numbers(REASON, (TIMED_OUT,), error.encode())
        move.news = _flagged(job.more(), 0, SUSPENDED, 0) + fields.done()
        yard.move(job, move, now_ms)
        if yard.bus.is_on:
            event = bus.Event(bus.FAILED, queue, job, now_ms)
            event.error = error
            event.is_final = True
            event.is_dead = True
            yard.bus.tell(event)
    if late and queue.first_link is not None:
        offer(yard, queue, now_ms)
    return late


def _wake(yard: Yard, job: Job, now_ms: i64) -> None:
    """Let a job that waits for nobody go to the end of the stream."""
    yard.now_ms = max(yard.now_ms, now_ms)
    move = End(job, UNBLOCKED, READY)
    move.due_ms = now_ms
    move.stamp = yard.new_place(job, now_ms)
    move.shelf = STREAM
    move.news = _flagged(job.more(), 0, SUSPENDED | EXPECTANT, 0)
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.WAITING, job.queue, job, now_ms)
        event.before = "waiting-children"
        yard.bus.tell(event)
    if job.queue.first_link is not None:
        offer(yard, job.queue, now_ms)


def _flagged(extra: Extra, on: i64, off: i64, until_ms: i64) -> bytes:
    """Return the news that some flags are set and some are not."""
    part = extra.glide
    is_new = part is None
    if part is None:
        part = GlidePart()
    flags, until = part.flags, part.until_ms
    part.flags = (flags | on) & ~off
    part.until_ms = until_ms
    fields = Fields()
    glide_field(fields, part)
    part.flags, part.until_ms = flags, until
    return b"" if is_new and on == 0 else fields.done()
