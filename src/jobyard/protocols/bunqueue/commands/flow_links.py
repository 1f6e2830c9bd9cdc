"""Parents and children as clients name them: read, checked, tied and untied.

The engine knows who waits for whom by number. What clients see of it (parentId, childrenIds,
dependsOn) stands in a job's marks, and changes with the tie in the same batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs import flows
from jobyard.engine.jobs.move import set_body
from jobyard.errors import Refused
from jobyard.model.details import MARKS, OPEN, PARENT, SETTLED, Extra, Member
from jobyard.model.details import Fields as NewsFields
from jobyard.model.index.name_table import NameTable
from jobyard.model.job import BLOCKED, DELAYED, DONE, MSGPACK, READY, Job
from jobyard.protocols.bunqueue.ids import find_job, id_text, was_issued
from jobyard.wire.msgpack.forms import KIND_MAP, kind_of, map_header, skip
from jobyard.wire.msgpack.read import Fields, read_fields, text_at
from jobyard.wire.msgpack.write import encode, write_map, write_text, write_value

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import Wish
    from jobyard.engine.state.yard import Yard

_NOTHING: Final = encode({})
# What data says of the flow its job is part of.
_KIN: Final = ("__parentId", "__parentQueue", "__childrenIds", "__flowParentId", "__flowParentIds")

# What was taken in is shown, however long it has become.
_ANY_COUNT: Final = 1 << 31

# States in which a job can be made to wait for one more.
LINKABLE: Final = (READY, DELAYED, BLOCKED)


# -- marks -------------------------------------------------------------------------------------


def marks_of(job: Job) -> Fields | None:
    """Return what was said of a job's kin and is shown again."""
    extra = job.extra
    if extra is None or not extra.marks:
        return None
    return read_fields(extra.marks, 0, len(extra.marks))


def marked_names(job: Job, key: bytes) -> list[str]:
    """Return the ids under a mark."""
    marks = marks_of(job)
    return (marks.texts(key, _ANY_COUNT) or []) if marks is not None else []


def parent_name(job: Job) -> str:
    """Return the id of a job's parent as it was told, or nothing."""
    marks = marks_of(job)
    name = marks.text(b"parentId") if marks is not None else None
    return name or ""


def map_with(data: bytes, changes: dict[str, object]) -> bytes:
    """Return an encoded map with some values changed; None takes one away."""
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


def with_kin(old: bytes, new: bytes) -> bytes:
    """Return new data of a job with what the old said of its parents and children.

    Clients look for their kin there, so nobody may take it away or make it up.
    """
    kin = {key: value for key, value in _reserved(old).items() if key in _KIN}
    if not kin:
        return new
    if kind_of(new, 0) != KIND_MAP:
        raise Refused("flow job data must be an object")
    for key in _reserved(new):
        raise Refused(f"flow job data key is reserved: {key}")
    count, at = map_header(new, 0, len(new))
    out = BytesWriter()
    write_map(out, count + len(kin))
    out.write(new[at:])
    for key, value in kin.items():
        write_text(out, key)
        out.write(value)
    return out.getvalue()


def _reserved(data: bytes) -> dict[str, bytes]:
    """Return the values of a map under keys that are not the client's."""
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


def marks_news(job: Job, changes: dict[str, object]) -> bytes:
    """Return the record of changed marks."""
    fields = NewsFields()
    data = map_with(job.more().marks or _NOTHING, changes)
    fields.begin(MARKS, len(data))
    fields.out.write(data)
    return fields.done()


# -- dependencies of a job that enters ---------------------------------------------------------


def depended_on(fields: Fields) -> list[str]:
    """Return the ids a job is to wait for, each once."""
    ids = fields.texts(b"dependsOn")
    if ids is None:
        if fields.has(b"dependsOn") and not fields.is_nil(b"dependsOn"):
            raise Refused("dependsOn must be an array of strings")
        return []
    return list(dict.fromkeys(ids))


def link_members(yard: Yard, wish: Wish, fields: Fields, batch: dict[str, int], queue: str) -> None:
    """Turn the ids a job depends on into members; those of the same batch get numbers later."""
    names = depended_on(fields)
    extra = wish.extra
    if not names or extra is None:
        return
    members: list[Member] = []
    for name in names:
        if name and name == extra.custom_id:
            raise Refused(f"Job cannot depend on itself: {name}")
        if name in batch:
            members.append(Member(0, f"{queue}:{name}"))
            continue
        child = find_job(yard, name.encode())
        if child is None:
            # One of ours that is here no more has nothing left to wait for.
            if was_issued(yard, name.encode()):
                continue
            raise Refused(f"Dependency job not found: {name}")
        member = Member(child.id, f"{child.queue.name}:{name}")
        if child.state == DONE:
            member.state = SETTLED
            member.value = yard.bodies.fetch_result(child) or b""
        members.append(member)
    extra.set_members(members)


@final
class Ties:
    """Who stands for the names of one batch, as its jobs enter."""

    def __init__(self, queue: str) -> None:
        self._queue: str = queue
        self._entered = NameTable()

    def entered(self, name: str, job: Job) -> None:
        """Note which job stands for a name of the batch."""
        if name and self._entered.get(name) is None:
            self._entered.put(name, job)

    def resolve(self, extra: Extra) -> None:
        """Give members of the same batch that are there by now their numbers."""
        for member in extra.members or ():
            if member.child_id == 0:
                child = self._entered.get(member.label[len(self._queue) + 1 :])
                if child is None:
                    continue
                member.child_id = child.id
                member.label = f"{child.queue.name}:{id_text(child)}"
                extra.set_members(extra.members)


def look_again(yard: Yard, extra: Extra) -> None:
    """Wait for no job that has gone since it was named, and for none that is done by now.

    Those of the same batch that have no number yet are still to come.
    """
    if extra.members is None:
        return
    kept: list[Member] = []
    for member in extra.members:
        if member.state == OPEN and member.child_id != 0:
            child = yard.jobs.get(member.child_id)
            if child is None:
                continue
            if child.state == DONE:
                member.state = SETTLED
                member.value = yard.bodies.fetch_result(child) or b""
        kept.append(member)
    extra.set_members(kept)


@final
class Order:
    """The order in which jobs of one batch enter, so that each finds those it waits for.

    Found some places at a time: a batch may be long.
    """

    def __init__(self, wishes: list[Wish], named: dict[str, int], queue: str) -> None:
        self._wishes = wishes
        self._named = named
        self._queue: str = queue
        self._first: int = 0
        self._stack: list[int] = []
        self._began: set[int] = set()
        self._ended: set[int] = set()
        self.places: list[int] = []

    def is_found(self) -> bool:
        """Tell whether all places are in it."""
        return self._first == len(self._wishes) and not self._stack

    def find(self, most: i64) -> i64:
        """Look at about so many places; return at how many. Refuse a circle."""
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
        """Keep nothing but the places, which are all found."""
        self._wishes = []
        self._named = {}
        self._began.clear()
        self._ended.clear()

    def _look_below(self, index: int) -> i64:
        names = _absent_names(self._wishes[index], self._queue)
        for name in names:
            other = self._named[name]
            if other in self._began and other not in self._ended:
                raise Refused(f"jobs[{index}]: Job cannot depend on itself: {name}")
            self._stack.append(other)
        return len(names)


def _absent_names(wish: Wish, queue: str) -> list[str]:
    extra = wish.extra
    if extra is None or extra.members is None:
        return []
    return [one.label[len(queue) + 1 :] for one in extra.members if one.child_id == 0]


def reaches(yard: Yard, members: list[Member] | None, target_id: i64) -> bool:
    """Tell whether jobs wait, at whatever remove, for a given one."""
    open_members = [one for one in members or () if one.state == OPEN]
    seen: set[int] = set()
    while open_members:
        member = open_members.pop()
        if member.child_id == target_id:
            return True
        if int(member.child_id) in seen:
            continue
        seen.add(int(member.child_id))
        child = yard.jobs.get(member.child_id)
        extra = None if child is None else child.extra
        if extra is not None and extra.members is not None:
            open_members.extend(one for one in extra.members if one.state == OPEN)
    return False


# -- a child that comes later than its parent --------------------------------------------------


def late_parent(yard: Yard, wish: Wish, fields: Fields) -> Job | None:
    """Return the parent that a new job names in its data too, and so is to hold up."""
    extra = wish.extra
    name = fields.text(b"parentId")
    if extra is None or not name:
        return None
    inside = fields.inside_at(fields.job_data)
    queue = None if inside is None else inside.text(b"__parentQueue")
    if inside is None or not queue or inside.text(b"__parentId") != name:
        return None
    if name == extra.custom_id:
        raise Refused("A job cannot be its own parent")
    parent = find_job(yard, name.encode())
    if parent is None:
        raise Refused(f"Parent job not found: {name}")
    if parent.state not in LINKABLE:
        raise Refused(f"Parent job {name} is not linkable")
    if parent.queue.name != queue:
        raise Refused(f"Parent job {name} belongs to queue {parent.queue.name}, not {queue}")
    if reaches(yard, extra.members, parent.id):
        raise Refused("flow contains a dependency cycle")
    extra.parent_id = parent.id
    return parent


def room_to_tie(parent: Job) -> i64:
    """Return what one more child takes in the records of its parent."""
    return flows.parent_room(parent, 2048)


def tie(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    """Let a parent wait for one more child, and show it."""
    if parent.state not in LINKABLE:
        return
    name = id_text(child)
    changes: dict[str, object] = {}
    for key in ("childrenIds", "dependsOn"):
        names = marked_names(parent, key.encode())
        if name not in names:
            changes[key] = [*names, name]
    news = marks_news(parent, changes)
    flows.link(yard, parent, child, f"{child.queue.name}:{name}", news, now_ms)


def welcome(
    yard: Yard, job: Job, parent: Job | None, before: i64, fields: Fields, now_ms: i64
) -> None:
    """Tie a job that has entered to those who waited for its namesake, its parent and children."""
    if job.state == BLOCKED:
        flows.tell_blocked(yard, job, now_ms)
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
    """Tell whether a job waits for one that waited for its namesake."""
    waiting = yard.names.dependents.get(int(before)) or ()
    members = job.more().members
    return any(reaches(yard, members, parent.id) for parent in waiting)


def is_free(yard: Yard, child: Job, parent: Job) -> bool:
    """Tell whether a job may become the child of another."""
    extra = child.extra
    if extra is not None and extra.parent_id not in {0, parent.id}:
        return yard.jobs.get(extra.parent_id) is None
    # Older clients name the parent before it is there, or say that it is still to come.
    return parent_name(child) in {"", "pending", id_text(parent)}


def adopt(yard: Yard, parent: Job, child: Job) -> None:
    """Note with a child that is there already who its parent is."""
    fields = NewsFields()
    fields.numbers(PARENT, (parent.id,), b"")
    news = marks_news(child, {"parentId": id_text(parent)})
    yard.note(child, fields.done() + news)


def sign(yard: Yard, parent: Job, child: Job, now_ms: i64) -> None:
    """Write into the data of a child whose it is, where clients look for it."""
    body = yard.bodies.fetch(child) if child.state in LINKABLE else None
    if body is None or child.codec != MSGPACK or kind_of(body, 0) != KIND_MAP:
        return
    told: dict[str, object] = {"__parentId": id_text(parent), "__parentQueue": parent.queue.name}
    signed = map_with(body, told)
    if signed != body:
        set_body(yard, child, signed, MSGPACK, now_ms)


def disown(yard: Yard, parent: Job, child: Job) -> None:
    """Forget on both sides that one is the child of the other."""
    fields = NewsFields()
    fields.numbers(PARENT, (0,), b"")
    yard.note(child, fields.done() + marks_news(child, {"parentId": None}))
    name = id_text(child)
    changes: dict[str, object] = {}
    for key in ("childrenIds", "dependsOn"):
        names = marked_names(parent, key.encode())
        if name in names:
            changes[key] = [one for one in names if one != name]
    yard.note(parent, marks_news(parent, changes))
