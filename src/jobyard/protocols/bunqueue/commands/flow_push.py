"""PUSHF: add a whole flow atomically, after all of it was checked.

A refused flow leaves no job, queue or number behind. A short flow is added at once. A long one is a
task: it is read and checked in slices, enters at one moment, and its answer is encoded in slices,
with each job as it was put, whatever its state is by then. Other commands run between slices, so
names and groups are checked again when the flow enters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs import flows
from jobyard.engine.jobs.flow_put import Planned, Prepared, put_flow
from jobyard.engine.jobs.put import NewJob
from jobyard.engine.jobs.queues import drop_if_idle, open_queue
from jobyard.engine.state.tasks import Task
from jobyard.errors import Refused, StorageFull
from jobyard.model.details import JobDetails
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import BLOCKED, DELAYED, MSGPACK, READY, Job
from jobyard.model.members import Member
from jobyard.model.policy import LIFO
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.ids import UUID_SIZE, find_job, may_be_id
from jobyard.protocols.bunqueue.job_fields import job_value
from jobyard.protocols.bunqueue.long_answers import WRITTEN_PER_UNIT, LongList
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_BOOL, KIND_MAP, kind_of
from jobyard.wire.msgpack.read import MapFields, read_fields
from jobyard.wire.msgpack.write import LongRaw, Raw, write_ascii, write_map

if TYPE_CHECKING:
    from jobyard.model.queue import Queue
    from jobyard.protocols.bunqueue.door import Answer
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

FLOW_JOBS_MAX: Final = 10_000
FLOW_DATA_MAX: Final = 64 << 20
CUSTOM_ID_MAX: Final = 1024

_TOO_MANY: Final = f"flow exceeds the {FLOW_JOBS_MAX} job limit"
# The size of a job in the answer, in addition to its data and protocol fields.
_SHOWN_SIZE: Final = 2048

_SWITCHES: Final = (
    b"lifo",
    b"removeOnComplete",
    b"removeOnFail",
    b"durable",
    b"failParentOnFailure",
    b"removeDependencyOnFailure",
    b"continueParentOnFailure",
    b"ignoreDependencyOnFailure",
)
_POLICIES: Final = _SWITCHES[4:]
# Fields that a job of a flow cannot have, and their names in the error.
_UNFIT: Final = (
    (b"repeat", "repeat"),
    (b"uniqueKey", "deduplication"),
    (b"dedup", "deduplication"),
    (b"debounceId", "debounce"),
    (b"debounceTtl", "debounce"),
)

# A flow up to this size is added in its turn, whatever the turn's load.
FLOW_JOBS_AT_ONCE: Final = 200
FLOW_BYTES_AT_ONCE: Final = 1 << 20

# Units of work, about a microsecond each.
_READ_UNITS: Final = 5
_CHECK_UNITS: Final = 2
_SHOW_UNITS: Final = 5
_BYTES_PER_UNIT: Final = 1024

# Phases of the task.
_READ: Final = 0
_PLACE: Final = 1
_CHECK: Final = 2
_COUNT: Final = 3
_SORT: Final = 4
_PREPARE: Final = 5
_ENTER: Final = 6
_SHOW: Final = 7
_DONE: Final = 8


def push_flow(session: BunqueueSession, request: Request) -> Answer | None:
    """PUSHF: add a whole flow, all jobs or none."""
    entries = push_options.PushEntries(request.fields, "flow jobs", FLOW_JOBS_MAX, _TOO_MANY, " ")
    flow = FlowPush(session, entries)
    if entries.count > FLOW_JOBS_AT_ONCE or entries.size() > FLOW_BYTES_AT_ONCE:
        return session.begin(request, flow, flow.answer)
    flow.run(request.now_ms)
    return flow.answer()


@final
class _Read:
    """One job of a flow as its client sent it."""

    def __init__(self, given: MapFields, planned: Planned) -> None:
        self.given: MapFields = given
        self.planned: Planned = planned
        self.protocol_fields: bytes = b""
        self.group_id: str = ""
        self.group_max: i64 = 0
        self.children: list[str] = []
        self.owned: set[str] = set()
        # Indexes of the jobs that depend on it.
        self.above: list[int] = []
        self.waits_for: i64 = 0


# Replaces a job that was encoded, so that its memory is freed.
_SHOWN: Final = _Read(MapFields(b"", 0, 0), Planned("", "", NewJob(BUNQUEUE, MSGPACK, b"")))


@final
class FlowPush(Task):
    """Reads, checks, adds and encodes the jobs of one PUSHF."""

    def __init__(self, session: BunqueueSession, entries: push_options.PushEntries) -> None:
        super().__init__()
        self._door = session.door
        self._yard = session.yard
        self._entries = entries
        self._phase: i64 = _READ
        # How many jobs the current phase has processed.
        self._at: i64 = 0
        self._jobs: list[_Read] = []
        self._plan: list[Planned] = []
        self._places: dict[str, int] = {}
        # Custom ids that look like an id of ours, which a new job may get.
        self._like_ids: list[str] = []
        # The size of the answer.
        self._size: i64 = 0
        self._free: list[int] = []
        self._prepared: Prepared | None = None
        # The names of its queues, and for each job the index of its queue.
        self._queue_names: dict[str, int] = {}
        self._queue_places: list[int] = []
        self._queues: list[Queue] = []
        self._is_grouped: bool = False
        self._entered_ms: i64 = 0
        self._shown = LongList()

    def run(self, now_ms: i64) -> None:
        """Run all phases at once."""
        while self._phase != _DONE:
            self._proceed(1 << 40, now_ms)

    def step(self, most: i64, now_ms: i64) -> i64:
        """Run the next slice; the flow enters at one moment even if that exceeds `most`."""
        done: i64 = 0
        while done < most and self._phase != _DONE:
            if self._phase == _ENTER and done > 0:
                # Entering gets a turn of its own.
                tasks = self._yard.tasks
                tasks.leave_less(tasks.units_per_turn)
                return most
            done += self._proceed(most - done, now_ms)
        return done

    def _proceed(self, most: i64, now_ms: i64) -> i64:
        try:
            return self._do_next(most, now_ms)
        except (Refused, StorageFull):
            if self._prepared is not None:
                self._prepared.give_up_names()
            raise

    def _do_next(self, most: i64, now_ms: i64) -> i64:
        phase = self._phase
        if phase == _READ:
            return self._read(most, now_ms)
        if phase == _SORT:
            return self._sort(most)
        if phase == _PREPARE:
            return self._prepare(most)
        if phase == _ENTER:
            return self._enter(now_ms)
        done: i64 = 0
        while done < most and self._at < len(self._jobs):
            place = int(self._at)
            self._at += 1
            if phase == _PLACE:
                done += self._place(place)
            elif phase == _CHECK:
                done += self._check(place)
            elif phase == _COUNT:
                done += self._count(place)
            else:
                done += self._show(place)
        if self._at == len(self._jobs):
            self._next_phase()
        return done

    def _next_phase(self) -> None:
        self._phase += 1
        self._at = 0
        if self._phase == _DONE and self._prepared is not None:
            for policy in self._prepared.policies:
                policy.jobs_count -= 1

    # -- reading -------------------------------------------------------------------------------

    def _read(self, most: i64, now_ms: i64) -> i64:
        done: i64 = 0
        while done < most and self._entries.has_more():
            job = self._read_job(self._entries.next(), now_ms)
            self._jobs.append(job)
            self._plan.append(job.planned)
            done += _READ_UNITS + len(job.planned.new_job.body) // _BYTES_PER_UNIT
        if not self._entries.has_more():
            self._next_phase()
        return done

    def _read_job(self, entry: MapFields, now_ms: i64) -> _Read:
        name = _flow_id(entry)
        if name in self._places:
            raise Refused(f"duplicate flow job id: {name}")
        self._places[name] = len(self._jobs)
        self._refuse_taken(name)
        if len(name) == UUID_SIZE and may_be_id(name.encode()):
            self._like_ids.append(name)
        queue = push_options.queue_name(entry)
        raw = entry.raw(b"input")
        given = None if raw is None else read_fields(raw, 0, len(raw))
        if given is None:
            raise Refused(f"flow job input is invalid: {name}")
        _check_input(given, name)
        new_job = push_options.read_new_job(self._door, given, now_ms)
        if kind_of(new_job.body, 0) != KIND_MAP:
            raise Refused("flow job data must be an object")
        details = new_job.details
        if details is None:
            details = JobDetails()
            new_job.details = details
        details.custom_id = name
        # All of it is part of the answer, which must also fit into one frame.
        self._size += len(new_job.body) + len(details.protocol_fields) + _SHOWN_SIZE
        if self._size > FLOW_DATA_MAX:
            raise Refused("flow data is too large (max 64MB per atomic batch)")
        job = _Read(given, Planned(queue, name, new_job))
        job.protocol_fields = details.protocol_fields
        job.group_id = details.group_id
        self._queue_places.append(self._queue_names.setdefault(queue, len(self._queue_names)))
        if details.group_id:
            self._is_grouped = True
            job.group_max = push_options.number(given, b"groupMaxSize", 0, 1, 1 << 31)
        return job

    def _refuse_taken(self, name: str) -> None:
        # Only a name as long as our ids can be one of them.
        if len(name) == UUID_SIZE:
            known = find_job(self._yard, name.encode())
        else:
            known = self._yard.names.named(name)
        if known is not None:
            raise Refused(f"Flow job {name} already exists")

    # -- checking the flow ---------------------------------------------------------------------

    def _place(self, place: int) -> i64:
        """Resolve the dependencies, the parent and the children of a job."""
        job = self._jobs[place]
        one = job.planned
        for name in _names(job.given, b"dependsOn", "dependency"):
            other = self._places.get(name, -1)
            if other < 0:
                raise Refused(f"flow dependency not found: {name}")
            if name == one.name:
                raise Refused(f"flow job cannot depend on itself: {name}")
            one.depends.append(other)
        parent = job.given.text(b"parentId") or ""
        if parent:
            if parent not in self._places:
                raise Refused(f"flow parent not found: {parent}")
            one.parent = self._places[parent]
        job.children = _names(job.given, b"childrenIds", "child")
        job.owned = set(job.children)
        return 1 + len(one.depends) + len(job.children)

    def _check(self, place: int) -> i64:
        """Refuse links that only one side declares."""
        job = self._jobs[place]
        one = job.planned
        depended = set(one.depends)
        for name in job.children:
            child = self._places.get(name, -1)
            if child < 0:
                raise Refused(f"flow child not found: {name}")
            if child not in depended:
                raise Refused(f"flow child is missing from dependencies: {name}")
            if self._jobs[child].planned.parent != place:
                raise Refused(f"flow child {name} does not point back to parent {one.name}")
        if one.parent >= 0:
            parent = self._jobs[one.parent]
            if one.name not in parent.owned:
                name = parent.planned.name
                raise Refused(f"flow parent {name} does not own child {one.name}")
        self._check_data(job)
        return _CHECK_UNITS + len(one.depends) + len(job.children)

    def _check_data(self, job: _Read) -> None:
        """Refuse a job whose data and options name different parents or children."""
        one = job.planned
        if one.parent < 0 and not job.children:
            return
        body = one.new_job.body
        inside = read_fields(body, 0, len(body))
        if inside is None:
            raise Refused("flow job data has too many keys")
        if one.parent >= 0:
            parent = self._jobs[one.parent].planned
            link = (inside.text(b"__parentId"), inside.text(b"__parentQueue"))
            if link != (parent.name, parent.queue):
                raise Refused(f"flow child {one.name} metadata does not match parent {parent.name}")
        if job.children and inside.texts(b"__childrenIds") != job.children:
            raise Refused(
                f"flow parent {one.name} children does not match the canonical flow topology"
            )

    def _count(self, place: int) -> i64:
        """Count the dependencies of a job, and record it with each of them."""
        job = self._jobs[place]
        depends = job.planned.depends
        job.waits_for = len(depends)
        if not depends:
            self._free.append(place)
        for below in depends:
            self._jobs[below].above.append(place)
        return 1 + len(depends)

    def _prepare(self, most: i64) -> i64:
        """Prepare the jobs as far as possible before they enter."""
        prepared = self._prepared
        if prepared is None:
            prepared = Prepared(self._yard, self._plan)
            self._prepared = prepared
        done = prepared.proceed(most)
        if prepared.is_ready():
            self._next_phase()
        return done

    def _sort(self, most: i64) -> i64:
        """Refuse a dependency cycle."""
        done: i64 = 0
        while self._free and done < most:
            self._at += 1
            above = self._jobs[self._free.pop()].above
            for place in above:
                other = self._jobs[place]
                other.waits_for -= 1
                if other.waits_for == 0:
                    self._free.append(place)
            done += 1 + len(above)
        if not self._free:
            if self._at != len(self._jobs):
                raise Refused("flow contains a dependency cycle")
            self._next_phase()
        return done

    # -- entering ------------------------------------------------------------------------------

    def _enter(self, now_ms: i64) -> i64:
        """Add all jobs at one moment."""
        yard = self._yard
        if self._door.is_draining:
            raise Refused("Server is shutting down")
        flow = self._prepared
        assert flow is not None
        for name in self._places if flow.may_lack_names() else self._like_ids:
            self._refuse_taken(name)
        if self._is_grouped:
            self._check_groups()
        different = [open_queue(yard, name) for name in self._queue_names]
        self._queues = [different[at] for at in self._queue_places]
        try:
            put_flow(yard, flow, self._queues, now_ms)
        except (Refused, StorageFull):
            for queue in different:
                drop_if_idle(yard, queue)
            raise
        self._entered_ms = now_ms
        # A flow is synced like a job with the `durable` option.
        yard.journal.raise_to(yard.journal.appended)
        self.reply_sync_batch = max(self.reply_sync_batch, yard.journal.command_sync_batch)
        # Policies keep their numbers until the answer is encoded.
        for policy in flow.policies:
            policy.jobs_count += 1
        observer = self._door.observer
        if observer is not None:
            counts: dict[str, object] = {"jobs": len(flow.jobs), "queues": len(different)}
            observer.publish("flow:pushed", counts)
        flows.serve(yard, different, now_ms)
        self._next_phase()
        return len(flow.jobs)

    def _check_groups(self) -> None:
        """Refuse the flow if a group would exceed its maximum size, including the flow's jobs."""
        counts: dict[tuple[str, str], i64] = {}
        for job in self._jobs:
            if not job.group_id or job.planned.depends:
                continue
            key = (job.planned.queue, job.group_id)
            if key not in counts:
                queue = self._yard.queues.get(job.planned.queue)
                rules = None if queue is None else queue.rules
                group = None if rules is None else rules.groups.get(job.group_id)
                counts[key] = 0 if group is None else len(group.ready.items)
            most = job.group_max
            if 0 < most <= counts[key]:
                raise Refused(f"Group {job.group_id} has reached its maximum size of {most}")
            counts[key] += 1

    # -- the answer ----------------------------------------------------------------------------

    def _show(self, place: int) -> i64:
        """Encode a job as it was put; it may have been finished by now."""
        read = self._jobs[place]
        new_job = read.planned.new_job
        policy = new_job.policy
        job = Job(
            0,
            self._queues[place],
            0,
            -1 if policy.flags & LIFO else 1,
            new_job.rank,
            self._entered_ms,
            new_job.delay_ms,
            new_job.own_ms,
            policy,
            new_job.body,
            len(new_job.body),
            new_job.family,
            new_job.codec,
        )
        details = JobDetails()
        details.custom_id = read.planned.name
        details.group_id = read.group_id
        details.protocol_fields = read.protocol_fields
        job.state = DELAYED if new_job.delay_ms > 0 else READY
        if read.planned.depends:
            details.set_members([Member(0, "")])
            job.state = BLOCKED
        job.details = details
        value = job_value(self._door, job).data
        self._shown.add(value)
        # Freed one by one: freeing all at once would take too long.
        self._jobs[place] = _SHOWN
        self._plan[place] = _SHOWN.planned
        return _SHOW_UNITS + len(value) // WRITTEN_PER_UNIT

    def answer(self) -> Answer:
        """Return the answer with all jobs."""
        jobs = self._shown.value()
        out = BytesWriter()
        write_map(out, 1)
        write_ascii(out, b"jobs")
        if isinstance(jobs, Raw):
            out.write(jobs.data)
            return {"data": Raw(out.getvalue())}
        return {"data": LongRaw([out.getvalue(), *jobs.pieces])}


# -- single jobs -------------------------------------------------------------------------------


def _flow_id(entry: MapFields) -> str:
    name = entry.text(b"id")
    if name is None:
        raise Refused("flow job id must be a string")
    if not name or len(name) > CUSTOM_ID_MAX or "\ufffd" in name:
        raise Refused("flow job id is invalid or is not well-formed Unicode")
    if ":" in name:
        raise Refused("flow job id cannot contain a colon")
    return name


def _check_input(given: MapFields, name: str) -> None:
    """Refuse options that a job of a flow cannot have."""
    if given.has(b"customId") and given.text(b"customId") != name:
        raise Refused(f"custom id does not match planned id: {name}")
    if given.has(b"parentId") and not given.text(b"parentId"):
        raise Refused(f"flow parent id is invalid: {name}")
    for key, what in _UNFIT:
        if given.has(key):
            raise Refused(f"{what} is not supported inside an atomic flow")
    for key in _SWITCHES:
        if given.kind(key) not in {KIND_ABSENT, KIND_BOOL}:
            raise Refused(f"{key.decode()} must be a boolean")
    count = sum(given.is_true(key) for key in _POLICIES)
    if count > 1:
        raise Refused("flow failure policies are mutually exclusive")
    if count == 1 and not given.has(b"parentId"):
        raise Refused("a flow failure policy requires a parent")


def _names(given: MapFields, key: bytes, what: str) -> list[str]:
    if not given.has(key):
        return []
    names = given.texts(key)
    if names is None or not all(0 < len(name) <= CUSTOM_ID_MAX for name in names):
        raise Refused(f"{key.decode()} must be an array of valid string job ids")
    if len(set(names)) != len(names):
        raise Refused(f"duplicate {what} in a flow job")
    return names
