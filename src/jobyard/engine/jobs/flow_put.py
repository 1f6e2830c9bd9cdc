"""A flow: jobs that wait for each other enter in one batch, all of them or none.

Whoever puts many prepares them before, bit by bit: the jobs, who waits for whom, and what is
written. When they enter, all others wait; so only what needs the ids of the jobs, their time or the
tables of the yard is left for then, and little memory is touched, which is what takes the time.
"""

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from jobyard.engine.jobs.flows import tell_blocked
from jobyard.engine.jobs.put import (
    Wish,
    base_room,
    enter_made,
    is_told_again,
    make_job,
    policy_room,
    queue_room,
)
from jobyard.engine.jobs.put_transaction import reserve_all
from jobyard.engine.state.yard import Yard
from jobyard.model.ahead import PARENT_SIZE, Ahead
from jobyard.model.details import Extra, Member, encode_extra
from jobyard.model.family import GLIDE
from jobyard.model.job import BLOCKED, Job
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.queue import Queue

if TYPE_CHECKING:
    from jobyard.model.policy import Policy

# Units of work.
_BEGIN_UNITS: Final = 4
_TIE_UNITS: Final = 2
_BYTES_PER_UNIT: Final = 1024

# In place of the queue of a job that has not entered.
_NOWHERE: Final = Queue("")


@final
class Planned:
    """One job of a flow before it enters; the others are told by their index in the flow."""

    def __init__(self, queue: str, name: str, wish: Wish) -> None:
        self.queue: str = queue
        self.name: str = name
        self.wish: Wish = wish
        self.depends: list[int] = []
        self.parent: int = -1
        # The most bytes of the journal that it takes for itself, once it is prepared.
        self.room: i64 = 0


@final
class Prepared:
    """The jobs of a flow, made as far as that can be done before they enter."""

    def __init__(self, yard: Yard, plan: list[Planned]) -> None:
        self._plan = plan
        self._names = yard.names.custom
        self._lost_before: i64 = self._names.claims_lost
        self._claims_count: i64 = 0
        self.jobs: list[Job] = []
        # By job: those that wait for it.
        self.waiting: list[list[Job]] = [[] for _ in plan]
        # By job: whose child it is, and for how many and whom it waits, i32 each.
        self._ties = BytesWriter()
        self._ties_made: bytes = b""
        self.ahead: Ahead | None = Ahead() if yard.journal.is_on else None
        self.room: i64 = 0
        self.policies: set[Policy] = set()
        # Of the job that is being made: whether it is begun, and how many ties it has.
        self._is_begun: bool = False
        self._tied: i64 = 0

    # -- before -------------------------------------------------------------------------------

    def go_on(self, most: i64) -> i64:
        """Do the next of it, about so many units; return how many, or less when all is done."""
        done: i64 = 0
        while done < most and len(self.jobs) < len(self._plan):
            done += self._do_next(self._plan[len(self.jobs)])
        return done

    def is_ready(self) -> bool:
        """Tell whether all of it is done."""
        return len(self.jobs) == len(self._plan)

    def _do_next(self, one: Planned) -> i64:
        extra = one.wish.extra
        assert extra is not None
        if not self._is_begun:
            self._begin(one, extra)
            return _BEGIN_UNITS + len(one.wish.body) // _BYTES_PER_UNIT
        if self._tied < len(one.depends):
            self._tie(one, extra)
            return _TIE_UNITS
        self._end(one)
        return 1

    def _begin(self, one: Planned, extra: Extra) -> None:
        wish = one.wish
        fields = encode_extra(extra)
        one.room = base_room(wish) + (PARENT_SIZE if one.parent >= 0 else 0)
        write_i32_le(self._ties, i32(one.parent))
        write_i32_le(self._ties, i32(len(one.depends)))
        if one.depends:
            extra.set_members([])
        self._is_begun = True
        self._tied = 0
        ahead = self.ahead
        if ahead is not None:
            ahead.begin(wish.body if len(wish.body) <= INLINE_BODY_MAX else b"", fields)
            if one.parent >= 0:
                ahead.add_parent(one.parent)

    def _tie(self, one: Planned, extra: Extra) -> None:
        """Let a job wait for the next of those that it depends on."""
        place = one.depends[self._tied]
        self._tied += 1
        other = self._plan[place]
        member = Member(0, f"{other.queue}:{other.name}")
        extra.member_index().add(member)
        write_i32_le(self._ties, i32(place))
        one.room += member.weight()
        if self.ahead is not None:
            self.ahead.add_member(place, member.label)

    def _end(self, one: Planned) -> None:
        job = make_job(_NOWHERE, one.wish)
        assert job.family != GLIDE
        self.jobs.append(job)
        name = _name_of(job)
        if name:
            self._names.claim(name, job)
            self._claims_count += 1
        for place in one.depends:
            self.waiting[place].append(job)
        self.room += one.room
        self.policies.add(one.wish.policy)
        self._is_begun = False
        if self.ahead is not None:
            self.ahead.end()
        if self.is_ready():
            self._ties_made = self._ties.getvalue()
            if self.ahead is not None:
                self.ahead.end_all()

    def may_lack_names(self) -> bool:
        """Tell whether somebody else may have a name that one of the jobs claims."""
        return self._names.claims_lost != self._lost_before

    def let_go(self) -> None:
        """Claim no names any more: the jobs do not enter."""
        for job in self.jobs:
            name = _name_of(job)
            if name:
                self._names.give_up(name, job)

    # -- when they enter ----------------------------------------------------------------------

    def room_in(self, queues: list[Queue], different: list[Queue]) -> i64:
        """Return the most bytes of the journal that all jobs take, each in its queue."""
        room = self.room
        for policy in self.policies:
            room += policy_room(policy)
        for queue in different:
            if not is_told_again(queue):
                room += queue_room(queue, 0)
                continue
            for each in range(len(queues)):
                if queues[each] is queue:
                    room += queue_room(queue, self._plan[each].room)
        return room

    def wishes(self) -> list[Wish]:
        """Return what was asked for."""
        return [one.wish for one in self._plan]

    def number(self, job: Job, at: i64, first_id: i64) -> i64:
        """Tell a job which ids the others get; its ties are at `at`. Return where the next are."""
        ties = self._ties_made
        parent = i64(read_i32_le(ties, at))
        count = i64(read_i32_le(ties, at + 4))
        at += 8
        if parent < 0 and count == 0:
            return at
        extra = job.extra
        assert extra is not None
        if parent >= 0:
            extra.parent_id = first_id + parent
        if count > 0:
            members = extra.members
            assert members is not None
            for member in members:
                member.child_id = first_id + i64(read_i32_le(ties, at))
                at += 4
        return at

    def take_names(self) -> None:
        """Give the jobs, which have entered, the names that they claim."""
        if not self.may_lack_names():
            self._names.redeem(self._claims_count)
            return
        for job in self.jobs:
            name = _name_of(job)
            if not name:
                continue
            if self._names.holds(name, job):
                self._names.redeem(1)
            else:
                self._names.put(name, job)


def _name_of(job: Job) -> str:
    extra = job.extra
    assert extra is not None
    return extra.custom_id


def prepared(yard: Yard, plan: list[Planned]) -> Prepared:
    """Prepare a flow at once."""
    flow = Prepared(yard, plan)
    while not flow.is_ready():
        flow.go_on(1 << 40)
    return flow


def put_flow(yard: Yard, flow: Prepared, queues: list[Queue], now_ms: i64) -> list[Job]:
    """Add all jobs of a flow in one batch; YardFull changes nothing, and the flow may try again.

    Who waits is not served yet: see `flows.serve`. The jobs take ids one after the other, so each
    knows the others before they are there, in whatever order they come.
    """
    different = list(dict.fromkeys(queues))
    has_topics = any(queue.config is not None for queue in different)
    wishes = flow.wishes() if has_topics else []
    reserve_all(yard, different, queues, wishes, flow.room_in(queues, different), now_ms)
    first_id: i64 = yard.journal.next_id
    names = yard.names
    ahead = flow.ahead
    if ahead is not None:
        ahead.rewind()
    jobs = flow.jobs
    at: i64 = 0
    for each in range(len(jobs)):
        job = jobs[each]
        job.queue = queues[each]
        at = flow.number(job, at, first_id)
        enter_made(yard, job, b"", now_ms, ahead, first_id)
        if flow.waiting[each]:
            names.wait_first(job.id, flow.waiting[each])
    assert yard.journal.next_id == first_id + len(jobs)
    flow.take_names()
    if yard.bus.is_on:
        for job in jobs:
            if job.state == BLOCKED:
                tell_blocked(yard, job, now_ms)
    return jobs
