"""Jobs that wait for jobs: PUSHF, what children came to, and ties made and cut by hand.

A flow is checked whole before its first effect: a refused one leaves no job, no queue and no number
behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from jobyard.engine import end, flows
from jobyard.engine.flows import Planned
from jobyard.engine.move import remove
from jobyard.engine.queues import drop_if_idle, open_queue
from jobyard.errors import Refused, YardFull
from jobyard.model.extra import DROPPED, FAILED, IGNORED, OPEN, SETTLED, Extra, Member
from jobyard.model.job import BLOCKED, BUNQUEUE, DONE, LEASED, RAW, Job
from jobyard.sessions.bunqueue import kin, options
from jobyard.sessions.bunqueue.ids import find_job, id_text, token_number
from jobyard.sessions.bunqueue.shape import job_value, result_of
from jobyard.wire.msgpack import KIND_ABSENT, KIND_BOOL, KIND_MAP, kind_of, skip
from jobyard.wire.msgpack_read import Fields, read_fields
from jobyard.wire.msgpack_write import Raw
from jobyard.wire.payload import to_msgpack

if TYPE_CHECKING:
    from jobyard.engine.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.sessions.bunqueue.door import Answer, BunqueueDoor, Command
    from jobyard.sessions.bunqueue.request import Request
    from jobyard.sessions.bunqueue.session import BunqueueSession

FLOW_JOBS_MAX: Final = 10_000
FLOW_DATA_MAX: Final = 64 << 20
ID_MAX: Final = 1024

_TOO_MANY: Final = f"flow exceeds the {FLOW_JOBS_MAX} job limit"
# What an answer says of a job beside its data and its ties.
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
# What a flow cannot have, and what it is called then.
_UNFIT: Final = (
    (b"repeat", "repeat"),
    (b"uniqueKey", "deduplication"),
    (b"dedup", "deduplication"),
    (b"debounceId", "debounce"),
    (b"debounceTtl", "debounce"),
)


# -- PUSHF: reading ----------------------------------------------------------------------------


def push_flow(session: BunqueueSession, request: Request) -> Answer:
    """PUSHF: add a whole flow, all of it or nothing."""
    door = session.door
    yard = session.yard
    now_ms = request.now_ms
    entries = options.Entries(request.fields, "flow jobs", FLOW_JOBS_MAX, _TOO_MANY, " ").all()
    plan, inputs = _read_plan(door, entries, now_ms)
    _check_topology(plan, inputs)
    _check_groups(yard, plan, inputs)
    if door.is_draining:
        raise Refused("Server is shutting down")
    queues = [open_queue(yard, one.queue) for one in plan]
    try:
        jobs = flows.put_flow(yard, plan, queues, now_ms)
    except YardFull:
        for queue in dict.fromkeys(queues):
            drop_if_idle(yard, queue)
        raise
    # A flow is as safe as a single job that asks to be durable.
    yard.journal.raise_to(yard.journal.appended)
    if door.onlooker is not None:
        told: dict[str, object] = {"jobs": len(jobs), "queues": len(dict.fromkeys(queues))}
        door.onlooker.tell("flow:pushed", told)
    # As they were put, before anyone who waits gets hold of them.
    shown: list[object] = [job_value(door, job) for job in jobs]
    flows.serve(yard, list(dict.fromkeys(queues)), now_ms)
    return {"data": {"jobs": shown}}


def _read_plan(
    door: BunqueueDoor, entries: list[Fields], now_ms: i64
) -> tuple[list[Planned], list[Fields]]:
    plan: list[Planned] = []
    inputs: list[Fields] = []
    names: set[str] = set()
    total: i64 = 0
    for entry in entries:
        name = _flow_id(entry)
        if name in names:
            raise Refused(f"duplicate flow job id: {name}")
        names.add(name)
        if find_job(door.yard, name.encode()) is not None:
            raise Refused(f"Flow job {name} already exists")
        queue = options.queue_name(entry)
        raw = entry.raw(b"input")
        given = None if raw is None else read_fields(raw, 0, len(raw))
        if given is None:
            raise Refused(f"flow job input is invalid: {name}")
        _check_input(given, name)
        wish = options.read_wish(door, given, now_ms)
        if kind_of(wish.body, 0) != KIND_MAP:
            raise Refused("flow job data must be an object")
        if wish.extra is None:
            wish.extra = Extra()
        wish.extra.custom_id = name
        # All of it comes back in the answer, which has to fit into one frame too.
        total += len(wish.body) + len(wish.extra.marks) + _SHOWN_SIZE
        if total > FLOW_DATA_MAX:
            raise Refused("flow data is too large (max 64MB per atomic batch)")
        plan.append(Planned(queue, name, wish))
        inputs.append(given)
    return plan, inputs


def _flow_id(entry: Fields) -> str:
    name = entry.text(b"id")
    if name is None:
        raise Refused("flow job id must be a string")
    if not name or len(name) > ID_MAX or "\ufffd" in name:
        raise Refused("flow job id is invalid or is not well-formed Unicode")
    if ":" in name:
        raise Refused("flow job id cannot contain a colon")
    return name


def _check_input(given: Fields, name: str) -> None:
    """Refuse what a job of a flow cannot ask for."""
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


# -- PUSHF: checking the whole -----------------------------------------------------------------


def _check_topology(plan: list[Planned], inputs: list[Fields]) -> None:
    """Fill in who waits for whom; refuse ties that only one side knows of, and circles."""
    places = {one.name: each for each, one in enumerate(plan)}
    for one, given in zip(plan, inputs, strict=True):
        _place(one, given, places)
    children = [_names(given, b"childrenIds", "child") for given in inputs]
    owned = [set(names) for names in children]
    for each, one in enumerate(plan):
        depended = set(one.depends)
        for name in children[each]:
            place = places.get(name, -1)
            if place < 0:
                raise Refused(f"flow child not found: {name}")
            if place not in depended:
                raise Refused(f"flow child is missing from dependencies: {name}")
            if plan[place].parent != each:
                raise Refused(f"flow child {name} does not point back to parent {one.name}")
        if one.parent >= 0 and one.name not in owned[one.parent]:
            raise Refused(f"flow parent {plan[one.parent].name} does not own child {one.name}")
        _check_data(plan, one, children[each])
    _check_acyclic(plan)


def _place(one: Planned, given: Fields, places: dict[str, int]) -> None:
    """Find the jobs that one of them waits for, and its parent."""
    for name in _names(given, b"dependsOn", "dependency"):
        if name not in places:
            raise Refused(f"flow dependency not found: {name}")
        if name == one.name:
            raise Refused(f"flow job cannot depend on itself: {name}")
        one.depends.append(places[name])
    parent = given.text(b"parentId") or ""
    if parent:
        if parent not in places:
            raise Refused(f"flow parent not found: {parent}")
        one.parent = places[parent]


def _names(given: Fields, key: bytes, what: str) -> list[str]:
    if not given.has(key):
        return []
    names = given.texts(key)
    if names is None or not all(0 < len(name) <= ID_MAX for name in names):
        raise Refused(f"{key.decode()} must be an array of valid string job ids")
    if len(set(names)) != len(names):
        raise Refused(f"duplicate {what} in a flow job")
    return names


def _check_data(plan: list[Planned], one: Planned, children: list[str]) -> None:
    """See that the data of a job tell the same of its kin as its options do."""
    if one.parent < 0 and not children:
        return
    body = one.wish.body
    inside = read_fields(body, 0, len(body))
    if inside is None:
        raise Refused("flow job data has too many keys")
    if one.parent >= 0:
        parent = plan[one.parent]
        told = (inside.text(b"__parentId"), inside.text(b"__parentQueue"))
        if told != (parent.name, parent.queue):
            raise Refused(f"flow child {one.name} metadata does not match parent {parent.name}")
    if children and inside.texts(b"__childrenIds") != children:
        raise Refused(f"flow parent {one.name} children does not match the canonical flow topology")


def _check_acyclic(plan: list[Planned]) -> None:
    waiting = [len(one.depends) for one in plan]
    above: list[list[int]] = [[] for _ in plan]
    for each, one in enumerate(plan):
        for below in one.depends:
            above[below].append(each)
    ready = [each for each, count in enumerate(waiting) if count == 0]
    visited = 0
    while ready:
        visited += 1
        for each in above[ready.pop()]:
            waiting[each] -= 1
            if waiting[each] == 0:
                ready.append(each)
    if visited != len(plan):
        raise Refused("flow contains a dependency cycle")


def _check_groups(yard: Yard, plan: list[Planned], inputs: list[Fields]) -> None:
    """Refuse more jobs of a group than it may hold, those of the flow counted in."""
    counts: dict[tuple[str, str], int] = {}
    for each, one in enumerate(plan):
        extra = one.wish.extra
        if extra is None or not extra.group_id or one.depends:
            continue
        key = (one.queue, extra.group_id)
        if key not in counts:
            queue = yard.queues.get(one.queue)
            rules = None if queue is None else queue.rules
            group = None if rules is None else rules.groups.get(extra.group_id)
            counts[key] = 0 if group is None else len(group.ready.items)
        most = int(options.number(inputs[each], b"groupMaxSize", 0, 1, 1 << 31))
        if 0 < most <= counts[key]:
            raise Refused(f"Group {extra.group_id} has reached its maximum size of {most}")
        counts[key] += 1


# -- what children came to ---------------------------------------------------------------------


def _asked(session: BunqueueSession, request: Request) -> Job | None:
    name = request.fields.content(b"id")
    return None if name is None else find_job(session.yard, name)


def _members(job: Job | None) -> list[Member]:
    extra = None if job is None else job.extra
    members = None if extra is None else extra.members
    return [] if members is None else members


def children_values(session: BunqueueSession, request: Request) -> Answer:
    """GetChildrenValues: what the children of a job came to."""
    job = _asked(session, request)
    values: dict[str, object] = {}
    if job is not None:
        names = set(kin.marked_names(job, b"childrenIds"))
        for member in _members(job):
            result = _result_of(session.yard, member)
            if result is not None and _is_named(member.label, names):
                values[member.label] = result
    return {"data": {"values": values}}


def _result_of(yard: Yard, member: Member) -> Raw | None:
    child = yard.jobs.get(member.child_id)
    if member.state == SETTLED:
        value = member.value
        if child is not None:
            return result_of(child, value)
        # Of one that is gone it is not known how it wrote: if not so, then as glide-mq does.
        is_ours = skip(value, 0, len(value)) == len(value)
        return Raw(value if is_ours else to_msgpack(RAW, value)) if value else None
    # It may have come to a good end after all, when nobody waited for it any more.
    if member.state == DROPPED or child is None or child.state != DONE:
        return None
    return result_of(child, yard.bodies.fetch_result(child))


def _is_named(label: str, names: set[str]) -> bool:
    """Tell whether a label, queue and id with a colon between, ends with one of the ids."""
    at = label.find(":")
    while at >= 0:
        if label[at + 1 :] in names:
            return True
        at = label.find(":", at + 1)
    return False


def failed_children(session: BunqueueSession, request: Request) -> Answer:
    """GetFailedChildrenValues: why children failed that did not keep their parent from going on."""
    job = _asked(session, request)
    values: dict[str, object] = {}
    for member in _members(job):
        if member.state == FAILED:
            values[member.label] = member.value.decode("utf-8", "replace")
        elif member.state == OPEN and session.yard.jobs.get(member.child_id) is None:
            # Nothing will come of it: shown, so that the parent can be seen to wait in vain.
            values[member.label] = "Job was removed"
    return {"values": values}


def ignored_failures(session: BunqueueSession, request: Request) -> Answer:
    """GetIgnoredChildrenFailures: why children failed that were to be ignored then."""
    values: dict[str, object] = {
        member.label: member.value.decode("utf-8", "replace")
        for member in _members(_asked(session, request))
        if member.state == IGNORED
    }
    return {"values": values}


# -- ties by hand ------------------------------------------------------------------------------


def park(session: BunqueueSession, request: Request) -> Answer:
    """MoveToWaitingChildren: end a run until the children are done."""
    job = _asked(session, request)
    lease = None if job is None else job.lease
    if job is None or lease is None or job.state != LEASED or lease.terms.door != BUNQUEUE:
        raise Refused("Job is not active")
    if lease.terms.is_token:
        token = request.fields.content(b"token")
        if token is None or token_number(session.yard, token) != lease.key:
            raise Refused("Job is not active")
    yard = session.yard
    flows.room_to_change(yard, job, flows.room_to_look(yard, job))
    end.park(yard, job, request.now_ms)
    flows.look_again(yard, job, request.now_ms)
    return {"data": {"moved": True}}


def update_parent(session: BunqueueSession, request: Request) -> Answer:
    """UpdateParent: tie two jobs that are both there."""
    fields = request.fields
    now_ms = request.now_ms
    yard = session.yard
    child_name = fields.text(b"childId") or ""
    name = fields.text(b"parentId") or ""
    child = find_job(yard, child_name.encode())
    parent = find_job(yard, name.encode())
    if child is None:
        if parent is not None and child_name in kin.marked_names(parent, b"childrenIds"):
            # It was done, and removed, before it could be told whose it is.
            return {}
        raise Refused(f"Child job not found: {child_name}")
    if parent is None:
        raise Refused(f"Parent job not found: {name}")
    if child is parent:
        raise Refused("A flow job cannot be its own parent")
    if not kin.is_free(yard, child, parent):
        raise Refused(f"Child job {child_name} already belongs to parent {kin.parent_name(child)}")
    if child_name not in kin.marked_names(parent, b"childrenIds"):
        _tie(yard, parent, child, now_ms)
    flows.room_to_change(yard, child, 2 * ID_MAX)
    if child.more().parent_id != parent.id:
        kin.adopt(yard, parent, child)
    kin.sign(yard, parent, child, now_ms)
    flows.catch_up(yard, parent, child, now_ms)
    return {}


def _tie(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    if parent.state not in kin.LINKABLE:
        raise Refused(f"Parent job {id_text(parent)} is not linkable")
    if kin.reaches(yard, child.more().members, parent.id):
        raise Refused("flow contains a dependency cycle")
    value_size: i64 = child.outcome().result_size if child.state == DONE else 0
    flows.room_to_change(yard, parent, value_size + kin.room_to_tie(parent))
    kin.tie(yard, parent, child, now_ms)


def cut_loose(session: BunqueueSession, request: Request) -> Answer:
    """RemoveChildDependency: let a parent go on without a child, and the child without it."""
    yard = session.yard
    child = _asked(session, request)
    if child is None:
        raise Refused(f"Job not found: {request.fields.text(b'id') or ''}")
    extra = child.more()
    if extra.parent_id == 0:
        raise Refused(f"Job {id_text(child)} has no parent")
    parent = yard.jobs.get(extra.parent_id)
    member = None if parent is None else flows.member_of(parent, child.id)
    if parent is None or member is None or parent.state != BLOCKED:
        return {"removed": False}
    flows.room_to_change(yard, parent, 2 * ID_MAX + flows.parent_room(child, 2 * ID_MAX))
    kin.disown(yard, parent, child)
    freed: list[Queue] = []
    flows.change(yard, parent, member, DROPPED, b"", freed, request.now_ms)
    flows.serve(yard, freed, request.now_ms)
    return {"removed": True}


def remove_unprocessed(session: BunqueueSession, request: Request) -> Answer:
    """RemoveUnprocessedChildren: remove children nobody has begun, and wait for them no more."""
    yard = session.yard
    parent = _asked(session, request)
    now_ms = request.now_ms
    if parent is None:
        return {}
    freed: list[Queue] = []
    for name in kin.marked_names(parent, b"childrenIds"):
        child = find_job(yard, name.encode())
        if child is None or child.state not in kin.LINKABLE:
            continue
        if child.more().parent_id != parent.id:
            continue
        member = flows.member_of(parent, child.id)
        if member is not None:
            flows.make_room(yard, child, 64)
            flows.change(yard, parent, member, DROPPED, b"", freed, now_ms)
        remove(yard, child, now_ms)
    flows.serve(yard, freed, now_ms)
    return {}


COMMANDS: Final[dict[bytes, Command]] = {
    b"PUSHF": push_flow,
    b"GetChildrenValues": children_values,
    b"GetFailedChildrenValues": failed_children,
    b"GetIgnoredChildrenFailures": ignored_failures,
    b"MoveToWaitingChildren": park,
    b"UpdateParent": update_parent,
    b"RemoveChildDependency": cut_loose,
    b"RemoveUnprocessedChildren": remove_unprocessed,
}
