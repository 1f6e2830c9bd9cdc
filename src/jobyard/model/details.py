"""The parts of a job that most jobs never need.

A `JobDetails` is made on first use; `details_codec` encodes and decodes its durable fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i32, i64, mypyc_attr

from jobyard.model.glidemq.fields import GlideFlag, GlidePart
from jobyard.model.index.item import Item
from jobyard.model.members import Member, MemberIndex

if TYPE_CHECKING:
    from jobyard.model.job import Job
    from jobyard.model.throttle.settings import Group


# Failed attempts that are kept one by one; beyond these only the count is known.
FAILURES_KEPT: Final = 20


@final
class FailureReason:
    """Why a run or a job failed."""

    EXPLICIT: Final = 0
    ATTEMPTS_USED: Final = 1
    TIMED_OUT: Final = 2
    STALLED: Final = 3
    TTL_OVER: Final = 4
    WORKER_LOST: Final = 5
    UNKNOWN: Final = 6
    BURIED: Final = 7
    DAMAGED: Final = 8
    # A job is done, but a full disk had no room for its result.
    RESULT_LOST: Final = 9


# What a second put with the same key does.
KEY_PLAIN: Final = 0
KEY_EXTENDS: Final = 1
KEY_REPLACES: Final = 2


@final
class JobCounters:
    """How often the rarer events happened to a job."""

    def __init__(self) -> None:
        self.timeouts: i32 = 0
        self.releases: i32 = 0
        self.buries: i32 = 0
        self.kicks: i32 = 0
        self.stalls: i32 = 0


@final
@mypyc_attr(acyclic=True)
class Outcome(Item):
    """Why and when a job ended (done or dead); `key` counts the endings of the queue."""

    def __init__(self, number: i64, job: Job, ended_ms: i64) -> None:
        super().__init__(number, 0, 0)
        self.job: Job = job
        self.ended_ms: i64 = ended_ms
        self.started_ms: i64 = 0
        self.reason: i64 = FailureReason.UNKNOWN
        self.error: str = ""
        self.codec: i64 = 0
        # The result of the job; empty while it is on disk only, at `result_place`.
        self.result: bytes = b""
        self.result_size: i64 = 0
        self.result_place: i64 = 0
        self.result_crc: i64 = 0
        # How many bytes of it are counted as held in memory.
        self.result_counted: i64 = 0

    def set_result(self, codec: i64, result: bytes) -> None:
        """Set the result of the job."""
        self.codec = codec
        self.result = result
        self.result_size = len(result)


@final
class Failure:
    """One failed attempt."""

    def __init__(
        self, attempt: i64, started_ms: i64, failed_ms: i64, reason: i64, error: str
    ) -> None:
        self.attempt: i64 = attempt
        self.started_ms: i64 = started_ms
        self.failed_ms: i64 = failed_ms
        self.reason: i64 = reason
        self.error: str = error


@final
class LogLine:
    """One line a worker wrote about a job."""

    def __init__(self, at_ms: i64, level: str, text: str) -> None:
        self.at_ms: i64 = at_ms
        self.level: str = level
        self.text: str = text


@final
class RecordMeta:
    """What the writer of a record sent besides its data; empty fields were not sent."""

    def __init__(self, tag: str, node: str, meta: bytes) -> None:
        self.tag: str = tag
        self.node: str = node
        self.meta: bytes = meta


@final
class Origin:
    """The job that a job was before: it became a dead letter and was put again."""

    def __init__(self, job_id: i64, queue: str) -> None:
        # 0 if it is unknown.
        self.job_id: i64 = job_id
        self.queue: str = queue


@final
class DurableLease:
    """A lease as the next boot needs it."""

    def __init__(self, name: str, node: str, started_ms: i64, until_ms: i64, ttl_ms: i64) -> None:
        self.name: str = name
        self.node: str = node
        self.started_ms: i64 = started_ms
        self.until_ms: i64 = until_ms
        self.ttl_ms: i64 = ttl_ms


@final
class JobDetails:
    """Everything rare about one job."""

    def __init__(self) -> None:
        # First the fields that are read for every job that enters: adjacent memory loads sooner.
        self.custom_id: str = ""
        self.unique_key: str = ""
        self.group_id: str = ""
        self.group: Group | None = None
        self.record_meta: RecordMeta | None = None
        self.glide: GlidePart | None = None
        self.members: list[Member] | None = None
        self._member_index: MemberIndex | None = None
        # How many bytes of values of members are counted as held in memory.
        self.values_counted: i64 = 0
        self.parent_id: i64 = 0
        # The size of these fields, as the live bytes of the journal count them.
        self.base_weight: i32 = 0
        self.trail_weight: i32 = 0
        # All fields as written when the job enters, if they were encoded in advance.
        self.ahead: bytes = b""
        self.protocol_fields: bytes = b""
        self.counters: JobCounters | None = None
        self.outcome: Outcome | None = None
        self.key_mode: i64 = KEY_PLAIN
        self.key_ttl_ms: i64 = 0
        # 0: until the job ends.
        self.key_until_ms: i64 = 0
        self.progress: str = ""
        self.message: str = ""
        self.logs: list[LogLine] | None = None
        self.failures: list[Failure] | None = None
        self.stack: str = ""
        # The error with which a worker last gave the job back, if it is not among the failures.
        self.last_error: str = ""
        self.origin: Origin | None = None
        self.retries: i64 = 0
        self.retried_ms: i64 = 0
        # The current lease of the job, if it must survive a restart.
        self.durable_lease: DurableLease | None = None
        # Alarm for the end of its time to live; not stored, rebuilt after a restart.
        self.expiry: Item | None = None
        # The lease by token that ended last, until the job is taken again; not stored.
        self.last_lease: i64 = 0
        # Segments with bases of this job from before its body changed; replay finds them again.
        self.old_bases: list[int] | None = None

    def open_count(self) -> i64:
        """Return the number of members that are still waited for."""
        return 0 if self.members is None else self.member_index().open_count

    def set_members(self, members: list[Member] | None) -> None:
        """Replace all members."""
        self.members = members
        self._member_index = None

    def member_index(self) -> MemberIndex:
        """Return the index of the members; after changing one elsewhere, call `set_members`."""
        index = self._member_index
        if index is None:
            if self.members is None:
                self.members = []
            index = MemberIndex(self.members)
            self._member_index = index
        return index


def is_put_blocked(details: JobDetails) -> bool:
    """Return whether a job waits for other jobs from the start, known or yet to come."""
    part = details.glide
    return details.open_count() > 0 or (part is not None and part.flags & GlideFlag.EXPECTANT != 0)
