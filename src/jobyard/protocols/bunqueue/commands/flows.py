"""Jobs that wait for jobs: what children came to, and ties made and cut by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from jobyard.engine.jobs import finish, flows
from jobyard.engine.jobs.move import remove
from jobyard.errors import Refused
from jobyard.model.details import DROPPED, FAILED, IGNORED, OPEN, SETTLED, Member
from jobyard.model.job import BLOCKED, DONE, LEASED, RAW, Job
from jobyard.model.queue import DOOR, TOKEN
from jobyard.protocols.bunqueue.commands import flow_links
from jobyard.protocols.bunqueue.commands.flow_push import ID_MAX, push_flow
from jobyard.protocols.bunqueue.ids import find_job, id_text, token_number
from jobyard.protocols.bunqueue.job_fields import result_of
from jobyard.wire.msgpack.forms import skip
from jobyard.wire.msgpack.write import Raw
from jobyard.wire.payload import to_msgpack

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.protocols.bunqueue.door import Answer, Command
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

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
        names = set(flow_links.marked_names(job, b"childrenIds"))
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
    if (
        job is None
        or lease is None
        or job.state != LEASED
        or lease.terms.proof not in (DOOR, TOKEN)
    ):
        raise Refused("Job is not active")
    if lease.terms.proof == TOKEN:
        token = request.fields.content(b"token")
        if token is None or token_number(session.yard, token) != lease.key:
            raise Refused("Job is not active")
    yard = session.yard
    flows.room_to_change(yard, job, flows.room_to_look(yard, job))
    finish.park(yard, job, request.now_ms)
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
        if parent is not None and child_name in flow_links.marked_names(parent, b"childrenIds"):
            # It was done, and removed, before it could be told whose it is.
            return {}
        raise Refused(f"Child job not found: {child_name}")
    if parent is None:
        raise Refused(f"Parent job not found: {name}")
    if child is parent:
        raise Refused("A flow job cannot be its own parent")
    if not flow_links.is_free(yard, child, parent):
        raise Refused(
            f"Child job {child_name} already belongs to parent {flow_links.parent_name(child)}"
        )
    if child_name not in flow_links.marked_names(parent, b"childrenIds"):
        _tie(yard, parent, child, now_ms)
    flows.room_to_change(yard, child, 2 * ID_MAX)
    if child.more().parent_id != parent.id:
        flow_links.adopt(yard, parent, child)
    flow_links.sign(yard, parent, child, now_ms)
    flows.catch_up(yard, parent, child, now_ms)
    return {}


def _tie(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    if parent.state not in flow_links.LINKABLE:
        raise Refused(f"Parent job {id_text(parent)} is not linkable")
    if flow_links.reaches(yard, child.more().members, parent.id):
        raise Refused("flow contains a dependency cycle")
    value_size: i64 = child.outcome().result_size if child.state == DONE else 0
    flows.room_to_change(yard, parent, value_size + flow_links.room_to_tie(parent))
    flow_links.tie(yard, parent, child, now_ms)


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
    flow_links.disown(yard, parent, child)
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
    for name in flow_links.marked_names(parent, b"childrenIds"):
        child = find_job(yard, name.encode())
        if child is None or child.state not in flow_links.LINKABLE:
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
