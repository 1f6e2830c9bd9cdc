"""Links between parent and child jobs by client ids: reads, checks, adds and removes them.

The engine stores dependencies by job number. What clients see of them (parentId, childrenIds,
dependsOn) is stored in a job's protocol fields and changes in the same batch as the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs import flows
from jobyard.engine.jobs.move import set_body
from jobyard.errors import Refused
from jobyard.model.details_codec import FieldWriter as ChangedFields
from jobyard.model.details_codec import Tag
from jobyard.model.index.name_table import NameTable
from jobyard.model.job import BLOCKED, DELAYED, DONE, MSGPACK, READY, Job
from jobyard.model.members import Member, MemberState
from jobyard.protocols.bunqueue.ids import find_job, id_text, was_issued
from jobyard.wire.msgpack.forms import KIND_MAP, kind_of, map_header, skip
from jobyard.wire.msgpack.read import MapFields, read_fields, text_at
from jobyard.wire.msgpack.write import encode, write_map, write_text, write_value

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import NewJob
    from jobyard.engine.state.yard import Yard
    from jobyard.model.details import JobDetails

_NOTHING: Final = encode({})
# Keys in the data of a job that describe its flow.
_RELATIVES: Final = (
    "__parentId",
    "__parentQueue",
    "__childrenIds",
    "__flowParentId",
    "__flowParentIds",
)

# No limit when reading: everything that was accepted is shown.
_ANY_COUNT: Final = 1 << 31

# States in which a job can get another dependency.
LINKABLE: Final = (READY, DELAYED, BLOCKED)


# -- protocol fields ---------------------------------------------------------------------------


def protocol_fields_of(job: Job) -> MapFields | None:
    """Return the protocol fields of a job, or None."""
    details = job.details
    if details is None or not details.protocol_fields:
        return None
    return read_fields(details.protocol_fields, 0, len(details.protocol_fields))


def marked_names(job: Job, key: bytes) -> list[str]:
    """Return the ids in a protocol field."""
    marks = protocol_fields_of(job)
    return (marks.texts(key, _ANY_COUNT) or []) if marks is not None else []


def parent_name(job: Job) -> str:
    """Return the parent id of a job as sent by its client; empty if it has none."""
    marks = protocol_fields_of(job)
    name = marks.text(b"parentId") if marks is not None else None
    return name or ""


def map_with(data: bytes, changes: dict[str, object]) -> bytes:
    """Return an encoded map with some values changed; None removes a key."""
    kept: list[bytes] = []
    end: i64 = len(data)
    at = map_header(data, 0, end)[1]
    while at < end:
        after = skip(data, at, end)
        value_end = skip(data, after, end)
        if text_at(data, at, after) not in changes:
            kept.append(data[at:value_end])
        at = value_end
    added = [(key, value) for key, value in changes.items() if value is not None]
    out = BytesWriter()
    write_map(out, len(kept) + len(added))
    for entry in kept:
        out.write(entry)
    for key, value in added:
        write_text(out, key)
        write_value(out, value)
    return out.getvalue()


def with_relatives(old: bytes, new: bytes) -> bytes:
    """Return the new data of a job with the parent and child ids of the old data.

    Clients rely on these ids, so a change of the data must neither remove nor invent them.
    """
    links = {key: value for key, value in _reserved(old).items() if key in _RELATIVES}
    if not links:
        return new
    if kind_of(new, 0) != KIND_MAP:
        raise Refused("flow job data must be an object")
    for key in _reserved(new):
        raise Refused(f"flow job data key is reserved: {key}")
    count, at = map_header(new, 0, len(new))
    out = BytesWriter()
    write_map(out, count + len(links))
    out.write(new[at:])
    for key, value in links.items():
        write_text(out, key)
        out.write(value)
    return out.getvalue()


def _reserved(data: bytes) -> dict[str, bytes]:
    """Return the encoded values of a map under reserved keys."""
    found: dict[str, bytes] = {}
    end: i64 = len(data)
    at = map_header(data, 0, end)[1] if kind_of(data, 0) == KIND_MAP else end
    while at < end:
        value_at = skip(data, at, end)
        after = skip(data, value_at, end)
        key = text_at(data, at, value_at)
        if key is not None and key.startswith("__"):
            found[key] = data[value_at:after]
        at = after
    return found


def protocol_fields_changes(job: Job, changes: dict[str, object]) -> bytes:
    """Encode changed protocol fields for a record."""
    fields = ChangedFields()
    data = map_with(job.ensure_details().protocol_fields or _NOTHING, changes)
    fields.begin(Tag.PROTOCOL_FIELDS, len(data))
    fields.out.write(data)
    return fields.done()


# -- dependencies of a job that enters ---------------------------------------------------------


def depended_on(fields: MapFields) -> list[str]:
    """Return the ids in `dependsOn` without duplicates."""
    ids = fields.texts(b"dependsOn")
    if ids is None:
        if fields.has(b"dependsOn") and not fields.is_nil(b"dependsOn"):
            raise Refused("dependsOn must be an array of strings")
        return []
    return list(dict.fromkeys(ids))


def link_members(
    yard: Yard, new_job: NewJob, fields: MapFields, batch: dict[str, int], queue: str
) -> None:
    """Resolve `dependsOn` to members; members from the same batch get their numbers later."""
    names = depended_on(fields)
    details = new_job.details
    if not names or details is None:
        return
    members: list[Member] = []
    taken: i64 = 0
    for name in names:
        if name and name == details.custom_id:
            raise Refused(f"Job cannot depend on itself: {name}")
        if name in batch:
            members.append(Member(0, f"{queue}:{name}"))
            continue
        child = find_job(yard, name.encode())
        if child is None:
            # It had been assigned here and is gone: there is nothing to wait for.
            if was_issued(yard, name.encode()):
                continue
            raise Refused(f"Dependency job not found: {name}")
        label = f"{child.queue.name}:{name}"
        if child.state == DONE:
            members.append(flows.settled_member(yard, child, label, taken))
            taken += len(members[len(members) - 1].value)
        else:
            members.append(Member(child.id, label))
    details.set_members(members)


@final
class BatchNames:
    """The jobs of one batch that have entered, by custom id."""

    def __init__(self, queue: str) -> None:
        self._queue: str = queue
        self._entered = NameTable()

    def entered(self, name: str, job: Job) -> None:
        """Record the job that entered, or already existed, under a custom id of the batch."""
        if name and self._entered.get(name) is None:
            self._entered.put(name, job)

    def resolve(self, details: JobDetails) -> None:
        """Set the numbers of members from the same batch that have entered."""
        for member in details.members or ():
            if member.child_id == 0:
                child = self._entered.get(member.label[len(self._queue) + 1 :])
                if child is None:
                    continue
                member.child_id = child.id
                member.label = f"{child.queue.name}:{id_text(child)}"
                details.set_members(details.members)


def look_again(yard: Yard, details: JobDetails) -> None:
    """Drop members that are gone by now, and settle those that are done.

    Members from the same batch without a number are kept: they enter later.
    """
    if details.members is None:
        return
    kept: list[Member] = []
    taken = details.member_index().values_size
    for member in details.members:
        if member.state == MemberState.OPEN and member.child_id != 0:
            child = yard.jobs.get(member.child_id)
            if child is None:
                continue
            if child.state == DONE:
                kept.append(flows.settled_member(yard, child, member.label, taken))
                taken += len(kept[len(kept) - 1].value)
                continue
        kept.append(member)
    details.set_members(kept)


@final
class BatchOrder:
    """Finds the order in which the jobs of a batch enter: each after its dependencies.

    Works in slices, as a batch may be long.
    """

    def __init__(self, new_jobs: list[NewJob], named: dict[str, int], queue: str) -> None:
        self._new_jobs = new_jobs
        self._named = named
        self._queue: str = queue
        self._first: int = 0
        self._stack: list[int] = []
        self._began: set[int] = set()
        self._ended: set[int] = set()
        self.places: list[int] = []

    def is_found(self) -> bool:
        """Return whether the order is complete."""
        return self._first == len(self._new_jobs) and not self._stack

    def find(self, most: i64) -> i64:
        """Process about `most` jobs and return how many; refuse a dependency cycle."""
        done: i64 = 0
        stack = self._stack
        while done < most and not self.is_found():
            done += 1
            if not stack:
                stack.append(self._first)
                self._first += 1
            index = stack[-1]
            if index in self._ended:
                stack.pop()
            elif index in self._began:
                stack.pop()
                self._ended.add(index)
                self.places.append(index)
            else:
                self._began.add(index)
                done += self._look_below(index)
        return done

    def forget(self) -> None:
        """Free everything but the finished order."""
        self._new_jobs = []
        self._named = {}
        self._began.clear()
        self._ended.clear()

    def _look_below(self, index: int) -> i64:
        names = _absent_names(self._new_jobs[index], self._queue)
        for name in names:
            other = self._named[name]
            if other in self._began and other not in self._ended:
                raise Refused(f"jobs[{index}]: Job cannot depend on itself: {name}")
            self._stack.append(other)
        return len(names)


def _absent_names(new_job: NewJob, queue: str) -> list[str]:
    details = new_job.details
    if details is None or details.members is None:
        return []
    return [one.label[len(queue) + 1 :] for one in details.members if one.child_id == 0]


def reaches(yard: Yard, members: list[Member] | None, target_id: i64) -> bool:
    """Return whether members depend, directly or indirectly, on a given job."""
    open_members = [one for one in members or () if one.state == MemberState.OPEN]
    seen: set[int] = set()
    while open_members:
        member = open_members.pop()
        if member.child_id == target_id:
            return True
        if int(member.child_id) in seen:
            continue
        seen.add(int(member.child_id))
        child = yard.jobs.get(member.child_id)
        details = None if child is None else child.details
        if details is not None and details.members is not None:
            open_members.extend(one for one in details.members if one.state == MemberState.OPEN)
    return False


# -- children pushed after their parent --------------------------------------------------------


def late_parent(yard: Yard, new_job: NewJob, fields: MapFields) -> Job | None:
    """Return the parent that must wait for a new job: it is also named in the job's data."""
    details = new_job.details
    name = fields.text(b"parentId")
    if details is None or not name:
        return None
    inside = fields.inside_at(fields.job_data)
    queue = None if inside is None else inside.text(b"__parentQueue")
    if inside is None or not queue or inside.text(b"__parentId") != name:
        return None
    if name == details.custom_id:
        raise Refused("A job cannot be its own parent")
    parent = find_job(yard, name.encode())
    if parent is None:
        raise Refused(f"Parent job not found: {name}")
    if parent.state not in LINKABLE:
        raise Refused(f"Parent job {name} is not linkable")
    if parent.queue.name != queue:
        raise Refused(f"Parent job {name} belongs to queue {parent.queue.name}, not {queue}")
    if reaches(yard, details.members, parent.id):
        raise Refused("flow contains a dependency cycle")
    details.parent_id = parent.id
    return parent


def room_to_link(parent: Job) -> i64:
    """Return the size that one more child adds to the records of its parent."""
    return flows.parent_room(parent, 2048)


def tie(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    """Make a parent wait for one more child, and add the child to its protocol fields."""
    if parent.state not in LINKABLE:
        return
    name = id_text(child)
    changes: dict[str, object] = {}
    for key in ("childrenIds", "dependsOn"):
        names = marked_names(parent, key.encode())
        if name not in names:
            changes[key] = [*names, name]
    changed_fields = protocol_fields_changes(parent, changes)
    flows.link(yard, parent, child, f"{child.queue.name}:{name}", changed_fields, now_ms)


def link_children(
    yard: Yard, job: Job, parent: Job | None, before: i64, fields: MapFields, now_ms: i64
) -> None:
    """Link a new job to jobs that waited for its same-named job, its parent and its children."""
    if job.state == BLOCKED:
        flows.publish_blocked(yard, job, now_ms)
    if before not in {0, job.id} and not _closes_circle(yard, before, job):
        flows.inherit(yard, before, job)
    if parent is not None:
        tie(yard, parent, job, now_ms)
    for name in fields.texts(b"childrenIds") or ():
        child = find_job(yard, name.encode())
        if child is not None and child is not job and is_free(yard, child, job):
            adopt(yard, job, child)
            flows.catch_up(yard, job, child, now_ms)


def _closes_circle(yard: Yard, before: i64, job: Job) -> bool:
    """Return whether a job depends on one that waited for its same-named predecessor."""
    waiting = yard.names.dependents.get(int(before)) or ()
    members = job.ensure_details().members
    return any(reaches(yard, members, parent.id) for parent in waiting)


def is_free(yard: Yard, child: Job, parent: Job) -> bool:
    """Return whether a job may become the child of another."""
    details = child.details
    if details is not None and details.parent_id not in {0, parent.id}:
        return yard.jobs.get(details.parent_id) is None
    # Older clients name the parent before it exists, or send "pending".
    return parent_name(child) in {"", "pending", id_text(parent)}


def adopt(yard: Yard, parent: Job, child: Job) -> None:
    """Set the parent of an existing child."""
    fields = ChangedFields()
    fields.numbers(Tag.PARENT, (parent.id,), b"")
    changed_fields = protocol_fields_changes(child, {"parentId": id_text(parent)})
    yard.note(child, fields.done() + changed_fields)


def sign(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    """Write the parent into the data of a child, where clients look for it."""
    body = yard.bodies.fetch(child) if child.state in LINKABLE else None
    if body is None or child.codec != MSGPACK or kind_of(body, 0) != KIND_MAP:
        return
    links: dict[str, object] = {"__parentId": id_text(parent), "__parentQueue": parent.queue.name}
    signed = map_with(body, links)
    if signed != body:
        set_body(yard, child, signed, MSGPACK, now_ms)


def disown(yard: Yard, parent: Job, child: Job) -> None:
    """Remove the link between parent and child on both sides."""
    fields = ChangedFields()
    fields.numbers(Tag.PARENT, (0,), b"")
    yard.note(child, fields.done() + protocol_fields_changes(child, {"parentId": None}))
    name = id_text(child)
    changes: dict[str, object] = {}
    for key in ("childrenIds", "dependsOn"):
        names = marked_names(parent, key.encode())
        if name in names:
            changes[key] = [one for one in names if one != name]
    yard.note(parent, protocol_fields_changes(parent, changes))
