"""How a pushed job is tied to others: its group, its id and key, those it waits for, its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.put_transaction import Links
from jobyard.engine.jobs.unique_keys import is_needed, owner_of
from jobyard.errors import Refused
from jobyard.model.details import KEY_EXTENDS, KEY_REPLACES, Extra
from jobyard.model.job import DEAD, DONE, LEASED, Job
from jobyard.protocols.bunqueue.commands import flow_links, push_options
from jobyard.protocols.bunqueue.ids import find_job

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import Wish
    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.wire.msgpack.read import Fields


def links_for(yard: Yard, wish: Wish, fields: Fields) -> PushLinks | None:
    """Return the ties of a job; None for a plain one."""
    return None if wish.extra is None else PushLinks(yard, wish, wish.extra, fields)


@final
class PushLinks(Links):
    """The ties of one job that is pushed, alone or in a batch."""

    def __init__(self, yard: Yard, wish: Wish, extra: Extra, fields: Fields) -> None:
        self._yard = yard
        self._wish = wish
        self.extra: Extra = extra
        self._fields = fields
        # The parent of a child that comes later than it.
        self._parent_id: i64 = 0
        # Who stands for the names of its batch, if the jobs of this wait for each other.
        self.ties: flow_links.Ties | None = None

    def check(self, queue: Queue, now_ms: i64) -> None:
        """Refuse a job for its group, its ties or its key."""
        self.check_group(queue)
        self.tie({}, queue.name)
        self.refuse_taken(queue, now_ms)

    def check_group(self, queue: Queue) -> None:
        """Refuse a job beyond the size its group may have."""
        group_id = self.extra.group_id
        if not group_id or not self._fields.has(b"groupMaxSize"):
            return
        most = push_options.number(self._fields, b"groupMaxSize", 0, 1, 1 << 31)
        rules = queue.rules
        group = None if rules is None else rules.groups.get(group_id)
        if group is not None and len(group.ready.items) >= most > 0:
            raise Refused(f"Group {group_id} has reached its maximum size of {most}")

    def tie(self, batch: dict[str, int], queue: str) -> None:
        """Find the jobs that this one waits for, and its parent."""
        yard = self._yard
        flow_links.link_members(yard, self._wish, self._fields, batch, queue)
        parent = flow_links.late_parent(yard, self._wish, self._fields)
        if parent is not None:
            self._parent_id = parent.id

    def refuse_taken(self, queue: Queue, now_ms: i64) -> None:
        """Refuse a job whose key belongs to one that can be neither replaced nor extended."""
        extra = self.extra
        owner = owner_of(queue, extra, now_ms)
        if owner is None:
            return
        same = self.namesake()
        if same is not None and same.state not in (DEAD, DONE):
            return
        if extra.key_mode == KEY_REPLACES and is_needed(self._yard, owner, extra):
            raise Refused("Cannot replace a job that other jobs depend on")
        if extra.key_mode == KEY_EXTENDS and extra.key_ttl_ms > 0 and owner.state == LEASED:
            raise Refused("Duplicate unique_key (extended TTL)")

    def room(self) -> i64:
        """Return what one more child takes in the records of the parent."""
        parent = self._parent()
        return 0 if parent is None else flow_links.room_to_tie(parent)

    def resolve(self) -> None:
        """Give jobs of the same batch that have entered their ids, and forget those that went."""
        if self.extra.members is not None:
            if self.ties is not None:
                self.ties.resolve(self.extra)
            flow_links.look_again(self._yard, self.extra)

    def namesake(self) -> Job | None:
        """Return the job that has the id a client wants for another."""
        name = self.extra.custom_id
        if not name:
            return None
        same = self._yard.names.named(name)
        return same if same is not None else find_job(self._yard, name.encode())

    def entering(self) -> None:
        """Wait for no job that the same batch has replaced, and have no parent that went."""
        self.resolve()
        if self._parent() is None:
            self.extra.parent_id = 0

    def entered(self, job: Job, before: i64, now_ms: i64) -> None:
        """Tie it to its parent, its children and those that waited for its namesake."""
        flow_links.welcome(self._yard, job, self._parent(), before, self._fields, now_ms)

    def _parent(self) -> Job | None:
        return None if self._parent_id == 0 else self._yard.jobs.get(self._parent_id)
