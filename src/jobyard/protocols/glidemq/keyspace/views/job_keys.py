"""Keys that show one job, as commands see them: its fields, its log, its parents and children."""

from typing import final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.job import GONE, Job
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key import RedisKey
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace
from jobyard.protocols.glidemq.keyspace.views.job import field_of, job_fields
from jobyard.protocols.glidemq.keyspace.views.sets import (
    has_members,
    log_lines,
    members_of,
    parents_of,
)
from jobyard.protocols.glidemq.keyspace.views.writes import (
    add_log,
    drop_job_fields,
    link_members,
    remove_job,
    set_job_fields,
    settle_members,
)


@final
class JobKey(RedisKey):
    """One job."""

    def __init__(self, yard: Yard, job: Job, now_ms: i64) -> None:
        self._yard = yard
        self._job = job
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a hash, unless another key of the same command removed it."""
        return ValueKind.NONE if self._job.state == GONE else ValueKind.HASH

    def field(self, name: bytes) -> bytes | None:
        """Return one field."""
        return field_of(self._yard, self._job, name)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        flat = job_fields(self._yard, self._job)
        return {flat[at]: flat[at + 1] for at in range(0, len(flat), 2)}

    def set_fields(self, fields: dict[bytes, bytes]) -> i64:
        """Set the fields of the job that can be set; store any other as written."""
        flat = job_fields(self._yard, self._job, with_data=False, with_result=False)
        known = {flat[at] for at in range(0, len(flat), 2)}
        set_job_fields(self._yard, self._job, fields, self._now_ms)
        return len([name for name in fields if name not in known])

    def drop_fields(self, names: list[bytes]) -> i64:
        """Remove fields that a client had set."""
        return drop_job_fields(self._yard, self._job, names)

    def delete(self) -> bool:
        """Remove the job."""
        remove_job(self._yard, self._job, self._now_ms)
        return True


@final
class LogKey(RedisKey):
    """Log lines that workers wrote about a job."""

    def __init__(self, yard: Yard, job: Job | None, now_ms: i64) -> None:
        self._yard = yard
        self._job = job
        self._now_ms: i64 = now_ms

    def _lines(self) -> list[bytes]:
        return [] if self._job is None else log_lines(self._job)

    def kind(self) -> i64:
        """Return that it is a list, if there is a line."""
        return ValueKind.LIST if self._lines() else ValueKind.NONE

    def items_count(self) -> i64:
        """Return the number of lines."""
        return len(self._lines())

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return some of the lines."""
        return self._lines()[start:end]

    def push(self, values: list[bytes], *, is_left: bool) -> i64:
        """Append lines."""
        if is_left or self._job is None:
            return super().push(values, is_left=is_left)
        add_log(self._yard, self._job, values, self._now_ms)
        return self.items_count()

    def delete(self) -> bool:
        """Report it as deleted; in fact it is deleted with its job."""
        return bool(self._lines())


@final
class MembersKey(RedisKey):
    """The children that a job waits for, or the parents that wait for it."""

    def __init__(self, yard: Yard, job: Job | None, place: KeyPlace, now_ms: i64) -> None:
        self._yard = yard
        self._job = job
        self._place = place
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a set, if it has a member."""
        job = self._job
        if job is None:
            return ValueKind.NONE
        if self._place.part != key_parts.KeyPart.DEPS:
            return ValueKind.SET if parents_of(self._yard, job) else ValueKind.NONE
        return ValueKind.SET if has_members(job) else ValueKind.NONE

    def members(self) -> list[bytes]:
        """Return all members."""
        job = self._job
        if job is None:
            return []
        return (
            members_of(job)
            if self._place.part == key_parts.KeyPart.DEPS
            else parents_of(self._yard, job)
        )

    def add_members(self, members: list[bytes]) -> i64:
        """Make the job wait for more children."""
        job = self._job
        if job is None or self._place.part != key_parts.KeyPart.DEPS:
            return super().add_members(members)
        return link_members(self._yard, job, members, self._now_ms)

    def drop_members(self, members: list[bytes]) -> i64:
        """Stop the job from waiting for some children."""
        job = self._job
        if job is None or self._place.part != key_parts.KeyPart.DEPS:
            return super().drop_members(members)
        return settle_members(self._yard, job, members, self._now_ms)

    def delete(self) -> bool:
        """Report it as deleted; in fact it is deleted with its job."""
        return self.kind() != ValueKind.NONE
