"""A flow: jobs that wait for each other enter in one batch, all of them or none.

A large flow is prepared beforehand in slices: the jobs, their links, and the bytes to write. While
it enters, everything else waits; so only what needs the ids of the jobs, their time or the tables
of the yard is left for then, and little memory is touched, which is what takes the time.
"""

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from jobyard.engine.jobs.flows import publish_blocked
from jobyard.engine.jobs.put import (
    NewJob,
    base_room,
    enter,
    make_job,
    may_need_name_again,
    policy_room,
    queue_room,
)
from jobyard.engine.jobs.put_transaction import reserve_all
from jobyard.engine.state.yard import Yard
from jobyard.model.ahead import PARENT_SIZE, EncodedAhead
from jobyard.model.details import JobDetails
from jobyard.model.details_codec import encode_details
from jobyard.model.family import GLIDE
from jobyard.model.job import BLOCKED, Job
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.members import Member
from jobyard.model.queue import Queue

if TYPE_CHECKING:
    from jobyard.model.policy import Policy

# Units of work.
_BEGIN_UNITS: Final = 4
_LINK_UNITS: Final = 2
_BYTES_PER_UNIT: Final = 1024

# Placeholder for the queue of a job that has not entered.
_NOWHERE: Final = Queue("")


@final
class Planned:
    """One job of a flow before it enters; refers to the others by their index in the flow."""

    def __init__(self, queue: str, name: str, new_job: NewJob) -> None:
        self.queue: str = queue
        self.name: str = name
        self.new_job: NewJob = new_job
        self.depends: list[int] = []
        self.parent: int = -1
        # The most journal bytes that the job itself takes; known once it is prepared.
        self.room: i64 = 0


@final
class Prepared:
    """The jobs of a flow, built as far as possible before they enter."""

    def __init__(self, yard: Yard, plan: list[Planned]) -> None:
        self._plan = plan
        self._names = yard.names.custom
        self._lost_before: i64 = self._names.claims_lost
        self._claims_count: i64 = 0
        self.jobs: list[Job] = []
        # By index of a job: the jobs that wait for it.
        self.waiting: list[list[Job]] = [[] for _ in plan]
        # For each job: its parent, the number of jobs it waits for, and those jobs; i32 each.
        self._links = BytesWriter()
        self._links_made: bytes = b""
        self.ahead: EncodedAhead | None = EncodedAhead() if yard.journal.is_on else None
        self.room: i64 = 0
        self.policies: set[Policy] = set()
        # Of the job being prepared: whether it was begun, and how many links it has so far.
        self._is_begun: bool = False
        self._tied: i64 = 0

    # -- before -------------------------------------------------------------------------------

    def proceed(self, most: i64) -> i64:
        """Do about `most` units of the preparation; return less than that once all is done."""
        done: i64 = 0
        while done < most and len(self.jobs) < len(self._plan):
            done += self._do_next(self._plan[len(self.jobs)])
        return done

    def is_ready(self) -> bool:
        """Return whether all jobs are prepared."""
        return len(self.jobs) == len(self._plan)

    def _do_next(self, one: Planned) -> i64:
        details = one.new_job.details
        assert details is not None
        if not self._is_begun:
            self._begin(one, details)
            return _BEGIN_UNITS + len(one.new_job.body) // _BYTES_PER_UNIT
        if self._tied < len(one.depends):
            self._link(one, details)
            return _LINK_UNITS
        self._end(one)
        return 1

    def _begin(self, one: Planned, details: JobDetails) -> None:
        new_job = one.new_job
        fields = encode_details(details)
        one.room = base_room(new_job) + (PARENT_SIZE if one.parent >= 0 else 0)
        write_i32_le(self._links, i32(one.parent))
        write_i32_le(self._links, i32(len(one.depends)))
        if one.depends:
            details.set_members([])
        self._is_begun = True
        self._tied = 0
        ahead = self.ahead
        if ahead is not None:
            ahead.begin(new_job.body if len(new_job.body) <= INLINE_BODY_MAX else b"", fields)
            if one.parent >= 0:
                ahead.add_parent(one.parent)

    def _link(self, one: Planned, details: JobDetails) -> None:
        """Link a job to the next one that it depends on."""
        place = one.depends[self._tied]
        self._tied += 1
        other = self._plan[place]
        member = Member(0, f"{other.queue}:{other.name}")
        details.member_index().add(member)
        write_i32_le(self._links, i32(place))
        one.room += member.weight()
        if self.ahead is not None:
            self.ahead.add_member(place, member.label)

    def _end(self, one: Planned) -> None:
        job = make_job(_NOWHERE, one.new_job)
        assert job.family != GLIDE
        self.jobs.append(job)
        name = _name_of(job)
        if name:
            self._names.claim(name, job)
            self._claims_count += 1
        for place in one.depends:
            self.waiting[place].append(job)
        self.room += one.room
        self.policies.add(one.new_job.policy)
        self._is_begun = False
        if self.ahead is not None:
            self.ahead.end()
        if self.is_ready():
            self._links_made = self._links.getvalue()
            if self.ahead is not None:
                self.ahead.end_all()

    def may_lack_names(self) -> bool:
        """Return whether another job may have taken a name that one of the jobs claims."""
        return self._names.claims_lost != self._lost_before

    def give_up_names(self) -> None:
        """Give up the claimed names: the jobs do not enter."""
        for job in self.jobs:
            name = _name_of(job)
            if name:
                self._names.give_up(name, job)

    # -- when they enter ----------------------------------------------------------------------

    def room_in(self, queues: list[Queue], different: list[Queue]) -> i64:
        """Return the most journal bytes that all jobs take, each in its queue."""
        room = self.room
        for policy in self.policies:
            room += policy_room(policy)
        for queue in different:
            if not may_need_name_again(queue):
                room += queue_room(queue, 0)
                continue
            for each in range(len(queues)):
                if queues[each] is queue:
                    room += queue_room(queue, self._plan[each].room)
        return room

    def new_jobs(self) -> list[NewJob]:
        """Return the new jobs as they were requested."""
        return [one.new_job for one in self._plan]

    def number(self, job: Job, at: i64, first_id: i64) -> i64:
        """Fill in the ids of a job's links, which start at `at`; return where the next start."""
        links = self._links_made
        parent = i64(read_i32_le(links, at))
        count = i64(read_i32_le(links, at + 4))
        at += 8
        if parent < 0 and count == 0:
            return at
        details = job.details
        assert details is not None
        if parent >= 0:
            details.parent_id = first_id + parent
        if count > 0:
            members = details.members
            assert members is not None
            for member in members:
                member.child_id = first_id + i64(read_i32_le(links, at))
                at += 4
        return at

    def take_names(self) -> None:
        """Assign the claimed names to the jobs, which have entered."""
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
    details = job.details
    assert details is not None
    return details.custom_id


def prepared(yard: Yard, plan: list[Planned]) -> Prepared:
    """Prepare a flow at once."""
    flow = Prepared(yard, plan)
    while not flow.is_ready():
        flow.proceed(1 << 40)
    return flow


def put_flow(yard: Yard, flow: Prepared, queues: list[Queue], now_ms: i64) -> list[Job]:
    """Add all jobs of a flow in one batch; YardFull changes nothing, and the flow may try again.

    Clients that wait are not served yet: see `flows.serve`. The jobs get consecutive ids, so each
    can refer to the others before they have entered, in any order.
    """
    different = list(dict.fromkeys(queues))
    has_topics = any(queue.config is not None for queue in different)
    new_jobs = flow.new_jobs() if has_topics else []
    reserve_all(yard, different, queues, new_jobs, flow.room_in(queues, different), now_ms)
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
        enter(yard, job, now_ms, ahead, first_id)
        if flow.waiting[each]:
            names.wait_first(job.id, flow.waiting[each])
    assert yard.journal.next_id == first_id + len(jobs)
    flow.take_names()
    if yard.bus.is_on:
        for job in jobs:
            if job.state == BLOCKED:
                publish_blocked(yard, job, now_ms)
    return jobs
