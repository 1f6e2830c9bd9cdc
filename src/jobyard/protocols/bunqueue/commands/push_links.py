"""Links of a pushed job to others: its group, id and key, its dependencies, its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.put_transaction import Links
from jobyard.engine.jobs.unique_keys import is_needed, owner_of
from jobyard.errors import Refused
from jobyard.model.details import KEY_EXTENDS, KEY_REPLACES, JobDetails
from jobyard.model.job import DEAD, DONE, LEASED, Job
from jobyard.protocols.bunqueue.commands import flow_links, push_options
from jobyard.protocols.bunqueue.ids import find_job

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import NewJob
    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.wire.msgpack.read import MapFields


@final
class PushLinks(Links):
    """The links of one job that is pushed, alone or in a batch."""

    def __init__(self, yard: Yard, new_job: NewJob, details: JobDetails, fields: MapFields) -> None:
        self._yard = yard
        self._new_job = new_job
        self.details: JobDetails = details
        self._fields = fields
        # The parent of a child that is pushed after it.
        self._parent_id: i64 = 0
        # Resolves names within a batch whose jobs depend on each other.
        self.batch_names: flow_links.BatchNames | None = None

    def check(self, queue: Queue, now_ms: i64) -> None:
        """Refuse a job because of its group, its links or its key."""
        self.check_group(queue)
        self.tie({}, queue.name)
        self.refuse_taken(queue, now_ms)

    def check_group(self, queue: Queue) -> None:
        """Refuse a job if its group is full."""
        group_id = self.details.group_id
        if not group_id or not self._fields.has(b"groupMaxSize"):
            return
        most = push_options.number(self._fields, b"groupMaxSize", 0, 1, 1 << 31)
        rules = queue.rules
        group = None if rules is None else rules.groups.get(group_id)
        if group is not None and len(group.ready.items) >= most > 0:
            raise Refused(f"Group {group_id} has reached its maximum size of {most}")

    def tie(self, batch: dict[str, int], queue: str) -> None:
        """Find the jobs that this one depends on, and its parent."""
        yard = self._yard
        flow_links.link_members(yard, self._new_job, self._fields, batch, queue)
        parent = flow_links.late_parent(yard, self._new_job, self._fields)
        if parent is not None:
            self._parent_id = parent.id

    def refuse_taken(self, queue: Queue, now_ms: i64) -> None:
        """Refuse a job whose key belongs to a job that cannot be replaced or extended."""
        details = self.details
        owner = owner_of(queue, details, now_ms)
        if owner is None:
            return
        same = self.same_named()
        if same is not None and same.state not in (DEAD, DONE):
            return
        if details.key_mode == KEY_REPLACES and is_needed(self._yard, owner, details):
            raise Refused("Cannot replace a job that other jobs depend on")
        if details.key_mode == KEY_EXTENDS and details.key_ttl_ms > 0 and owner.state == LEASED:
            raise Refused("Duplicate unique_key (extended TTL)")

    def room(self) -> i64:
        """Return the size that one more child adds to the records of the parent."""
        parent = self._parent()
        return 0 if parent is None else flow_links.room_to_link(parent)

    def resolve(self) -> None:
        """Fill in the ids of dependencies from the same batch, and drop those that are gone."""
        if self.details.members is not None:
            if self.batch_names is not None:
                self.batch_names.resolve(self.details)
            flow_links.look_again(self._yard, self.details)

    def same_named(self) -> Job | None:
        """Return the existing job with the custom id of this one, or None."""
        name = self.details.custom_id
        if not name:
            return None
        same = self._yard.names.named(name)
        return same if same is not None else find_job(self._yard, name.encode())

    def entering(self) -> None:
        """Drop dependencies that the same batch has replaced, and a parent that is gone."""
        self.resolve()
        if self._parent() is None:
            self.details.parent_id = 0

    def entered(self, job: Job, before: i64, now_ms: i64) -> None:
        """Link the job to its parent, its children, and jobs that waited for its same-named job."""
        flow_links.link_children(self._yard, job, self._parent(), before, self._fields, now_ms)

    def _parent(self) -> Job | None:
        return None if self._parent_id == 0 else self._yard.jobs.get(self._parent_id)
