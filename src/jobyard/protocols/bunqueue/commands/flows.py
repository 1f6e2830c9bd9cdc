"""Commands for flows: results of children, and links between parent and child jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs import finish, flows
from jobyard.engine.jobs.move import remove
from jobyard.engine.state.tasks import Task
from jobyard.errors import Refused
from jobyard.model.job import BLOCKED, DONE, LEASED, RAW, Job
from jobyard.model.lease import Proof
from jobyard.model.members import Member, MemberState
from jobyard.protocols.bunqueue.commands import flow_links
from jobyard.protocols.bunqueue.commands.flow_push import CUSTOM_ID_MAX, push_flow
from jobyard.protocols.bunqueue.ids import find_job, id_text, token_number
from jobyard.protocols.bunqueue.job_fields import result_of
from jobyard.protocols.bunqueue.long_answers import PAGE_BYTES_MAX, WRITTEN_PER_UNIT, LongList
from jobyard.wire.msgpack.forms import skip
from jobyard.wire.msgpack.write import Raw, encode
from jobyard.wire.payload import to_msgpack

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.protocols.bunqueue.command import Command
    from jobyard.protocols.bunqueue.door import Answer
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

# The answer to a parent whose children have more results than fit into one frame.
_RESULTS_TOO_LONG: Final = (
    "The results of the children are too large for one answer: use GetResult for each"
)

# -- results of children -----------------------------------------------------------------------


def _asked(session: BunqueueSession, request: Request) -> Job | None:
    name = request.fields.content(b"id")
    return None if name is None else find_job(session.yard, name)


def _members(job: Job) -> list[Member]:
    details = job.details
    members = None if details is None else details.members
    return [] if members is None else members


@final
class ChildrenValues(Task):
    """Collects the results of a job's children, or the errors of those in a state."""

    def __init__(self, yard: Yard, job: Job | None, state: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._yard = yard
        self._state: i64 = state
        self._members: list[Member] = [] if job is None else list(_members(job))
        self._at: i64 = 0
        self._names: set[str] = set()
        if job is not None and state == MemberState.SETTLED:
            self._names = set(flow_links.marked_names(job, b"childrenIds"))
        self._labels: set[str] = set()
        self.values = LongList()

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Read the values of some children."""
        done: i64 = 0
        while done < most and self._at < len(self._members):
            member = self._members[self._at]
            self._at += 1
            done += 1
            value = self._value_of(member)
            if value is not None and member.label not in self._labels:
                self._labels.add(member.label)
                self.values.add_pair(member.label, value.data)
                done += len(value.data) // WRITTEN_PER_UNIT
                if self.values.size() > PAGE_BYTES_MAX:
                    raise Refused(_RESULTS_TOO_LONG)
        return done

    def _value_of(self, member: Member) -> Raw | None:
        if self._state == MemberState.SETTLED:
            if not _is_named(member.label, self._names):
                return None
            return _result_of(self._yard, member)
        if member.state == self._state:
            return Raw(encode(member.value.decode("utf-8", "replace")))
        is_open = self._state == MemberState.FAILED and member.state == MemberState.OPEN
        if is_open and self._yard.jobs.get(member.child_id) is None:
            # It will never complete: shown so that a parent that waits in vain can be noticed.
            return Raw(encode("Job was removed"))
        return None


def children_values(session: BunqueueSession, request: Request) -> Answer | None:
    """GetChildrenValues: the results of a job's children."""
    task = ChildrenValues(session.yard, _asked(session, request), MemberState.SETTLED)
    return session.begin(request, task, lambda: {"data": task.values.map_under("values")})


def _result_of(yard: Yard, member: Member) -> Raw | None:
    child = yard.jobs.get(member.child_id)
    if member.state == MemberState.SETTLED:
        value = member.value
        if child is not None:
            if not value and child.state == DONE:
                # Too long to be stored with the parent, or empty there as well.
                return result_of(child, yard.bodies.fetch_result(child))
            return result_of(child, value)
        # The family of a child that is gone is unknown: what is not MessagePack is glide-mq's text.
        is_ours = skip(value, 0, len(value)) == len(value)
        return Raw(value if is_ours else to_msgpack(RAW, value)) if value else None
    # The child may have completed later, when its parent no longer waited for it.
    if member.state == MemberState.DROPPED or child is None or child.state != DONE:
        return None
    return result_of(child, yard.bodies.fetch_result(child))


def _is_named(label: str, names: set[str]) -> bool:
    """Return whether a label `queue:id` ends with one of the ids; either part may have colons."""
    at = label.find(":")
    while at >= 0:
        if label[at + 1 :] in names:
            return True
        at = label.find(":", at + 1)
    return False


def failed_children(session: BunqueueSession, request: Request) -> Answer | None:
    """GetFailedChildrenValues: errors of failed children whose parent continued."""
    task = ChildrenValues(session.yard, _asked(session, request), MemberState.FAILED)
    return session.begin(request, task, lambda: {"values": task.values.map_value()})


def ignored_failures(session: BunqueueSession, request: Request) -> Answer | None:
    """GetIgnoredChildrenFailures: errors of failed children that are ignored on failure."""
    task = ChildrenValues(session.yard, _asked(session, request), MemberState.IGNORED)
    return session.begin(request, task, lambda: {"values": task.values.map_value()})


# -- changing links ----------------------------------------------------------------------------


def park(session: BunqueueSession, request: Request) -> Answer:
    """MoveToWaitingChildren: end the run; the job waits until its children are done."""
    job = _asked(session, request)
    lease = None if job is None else job.lease
    if (
        job is None
        or lease is None
        or job.state != LEASED
        or lease.terms.proof not in (Proof.DOOR, Proof.TOKEN)
    ):
        raise Refused("Job is not active")
    if lease.terms.proof == Proof.TOKEN:
        token = request.fields.content(b"token")
        if token is None or token_number(session.yard, token) != lease.key:
            raise Refused("Job is not active")
    yard = session.yard
    flows.room_to_change(yard, job, flows.room_to_look(yard, job))
    finish.park(yard, job, request.now_ms)
    flows.look_again(yard, job, request.now_ms)
    return {"data": {"moved": True}}


def update_parent(session: BunqueueSession, request: Request) -> Answer:
    """UpdateParent: link two existing jobs as parent and child."""
    fields = request.fields
    now_ms = request.now_ms
    yard = session.yard
    child_name = fields.text(b"childId") or ""
    name = fields.text(b"parentId") or ""
    child = find_job(yard, child_name.encode())
    parent = find_job(yard, name.encode())
    if child is None:
        if parent is not None and child_name in flow_links.marked_names(parent, b"childrenIds"):
            # It was completed and removed before its parent was set.
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
        _link(yard, parent, child, now_ms)
    flows.room_to_change(yard, child, 2 * CUSTOM_ID_MAX)
    if child.ensure_details().parent_id != parent.id:
        flow_links.adopt(yard, parent, child)
    flow_links.sign(yard, parent, child, now_ms)
    flows.catch_up(yard, parent, child, now_ms)
    return {}


def _link(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    if parent.state not in flow_links.LINKABLE:
        raise Refused(f"Parent job {id_text(parent)} is not linkable")
    if flow_links.reaches(yard, child.ensure_details().members, parent.id):
        raise Refused("flow contains a dependency cycle")
    value_size = flows.linked_size(yard, child, 0) if child.state == DONE else 0
    flows.room_to_change(yard, parent, value_size + flow_links.room_to_link(parent))
    flow_links.tie(yard, parent, child, now_ms)


def cut_loose(session: BunqueueSession, request: Request) -> Answer:
    """RemoveChildDependency: unlink a child from its waiting parent."""
    yard = session.yard
    child = _asked(session, request)
    if child is None:
        raise Refused(f"Job not found: {request.fields.text(b'id') or ''}")
    details = child.ensure_details()
    if details.parent_id == 0:
        raise Refused(f"Job {id_text(child)} has no parent")
    parent = yard.jobs.get(details.parent_id)
    member = None if parent is None else flows.member_of(parent, child.id)
    if parent is None or member is None or parent.state != BLOCKED:
        return {"removed": False}
    flows.room_to_change(
        yard, parent, 2 * CUSTOM_ID_MAX + flows.parent_room(child, 2 * CUSTOM_ID_MAX)
    )
    flow_links.disown(yard, parent, child)
    freed: list[Queue] = []
    flows.change(yard, parent, member, MemberState.DROPPED, b"", freed, request.now_ms)
    flows.serve(yard, freed, request.now_ms)
    return {"removed": True}


def remove_unprocessed(session: BunqueueSession, request: Request) -> Answer:
    """RemoveUnprocessedChildren: remove children that have not started and their links."""
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
        if child.ensure_details().parent_id != parent.id:
            continue
        member = flows.member_of(parent, child.id)
        if member is not None:
            flows.make_room(yard, child, 64)
            flows.change(yard, parent, member, MemberState.DROPPED, b"", freed, now_ms)
        remove(yard, child, now_ms)
    flows.serve(yard, freed, now_ms)
    return {}


FLOW_COMMANDS: Final[dict[bytes, Command]] = {
    b"PUSHF": push_flow,
    b"GetChildrenValues": children_values,
    b"GetFailedChildrenValues": failed_children,
    b"GetIgnoredChildrenFailures": ignored_failures,
    b"MoveToWaitingChildren": park,
    b"UpdateParent": update_parent,
    b"RemoveChildDependency": cut_loose,
    b"RemoveUnprocessedChildren": remove_unprocessed,
}
