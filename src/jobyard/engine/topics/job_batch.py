"""Jobs of one write to a queue that is a topic, prepared as far as possible before they enter.

Knows no queue: what a job becomes does not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.put import NewJob, intern, job_room
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.details import JobDetails, Origin, RecordMeta
from jobyard.model.details_codec import encode_details
from jobyard.model.family import TOPICS
from jobyard.model.job import BYTES, JSON
from jobyard.model.policy import NAME_DEFAULT, Policy

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.log import LogRecord
    from jobyard.model.topic.new_keys import NewKeys


@final
class NewRecord:
    """One job as it is written; empty fields were not given, data is JSON text or bytes."""

    def __init__(self, data: bytes, meta: bytes = b"", tag: str = "", node: str = "") -> None:
        self.data: bytes = data
        self.meta: bytes = meta
        self.tag: str = tag
        self.node: str = node
        self.is_binary: bool = False
        self.delay_ms: i64 = 0
        self.priority: i64 = 0
        # The name of the job, the id that its client chose, and how often it may be delivered; 0:
        # as often as its queue says.
        self.name: str = ""
        self.job_id: str = ""
        self.max_attempts: i64 = 0
        # The job that it was before it became a dead letter.
        self.origin: Origin | None = None


def new_record_of(row: LogRecord) -> NewRecord:
    """Return a record of a log as a job to be written."""
    record = NewRecord(row.data, row.meta, row.tag, row.node)
    record.is_binary = row.is_binary
    return record


@final
class JobBatch:
    """Jobs of one write, prepared as far as possible before they enter a queue."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._is_written: bool = yard.journal.is_on
        self.policies_room: i64 = 0
        self.new_jobs: list[NewJob] = []
        # The keys of the jobs, as `known_keys` found them; None if none has one.
        self.record_keys: NewKeys | None = None
        # The size of data and meta, and the most journal bytes that the jobs take.
        self.size: i64 = 0
        self.room: i64 = 0
        # The policies of jobs that have names or limits.
        self._policies: dict[tuple[str, int], Policy] = {}

    def add(self, record: NewRecord) -> None:
        """Add a job."""
        new_job = _new_job(record)
        if record.name or record.max_attempts > 0:
            new_job.policy = self._policy_of(record)
        if self._is_written and new_job.details is not None:
            new_job.details.ahead = encode_details(new_job.details)
        self.new_jobs.append(new_job)
        self.size += len(record.data) + len(record.meta)
        self.room += job_room(new_job)

    def _policy_of(self, record: NewRecord) -> Policy:
        """Return the policy of a job with a name or a limit."""
        key = (record.name, int(record.max_attempts))
        policy = self._policies.get(key)
        if policy is None:
            policy = Policy(0)
            policy.name = record.name or NAME_DEFAULT
            policy.max_attempts = record.max_attempts
            policy = intern(self._yard, policy)
            self._policies[key] = policy
            if policy.number != 0:
                # It may be forgotten, and written again, before the jobs enter.
                self.policies_room += ENTRY_SIZE + 16 + len(policy.text)
        return policy

    def whole_room(self) -> i64:
        """Return the most journal bytes that the jobs and their policies take."""
        return self.room + self.policies_room

    def keep(self, positions: list[int]) -> None:
        """Drop all jobs but those at some rising positions."""
        self.new_jobs = [self.new_jobs[at] for at in positions]
        self.size = 0
        self.room = 0
        for new_job in self.new_jobs:
            self.room += job_room(new_job)
            self.size += _content_size(new_job)


def _content_size(new_job: NewJob) -> i64:
    """Return the size of the data and meta of a job."""
    details = new_job.details
    meta = None if details is None else details.record_meta
    return len(new_job.body) + (0 if meta is None else len(meta.meta))


def _new_job(record: NewRecord) -> NewJob:
    new_job = NewJob(TOPICS, BYTES if record.is_binary else JSON, record.data)
    new_job.rank = -record.priority
    new_job.delay_ms = record.delay_ms
    has_meta = record.tag or record.node or record.meta
    if has_meta or record.origin is not None or record.job_id:
        new_job.details = JobDetails()
        new_job.details.origin = record.origin
        new_job.details.custom_id = record.job_id
    if has_meta and new_job.details is not None:
        new_job.details.record_meta = RecordMeta(record.tag, record.node, record.meta)
    return new_job
