"""The next state of a job whose run ends or that is moved: decided, but not yet applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from jobyard.model.job import Job


@final
@mypyc_attr(free_list_len=1, acyclic=True)
class Transition:
    """The next state of a job with its changed fields; the record and the yard both read it.

    Fields that are not set after construction stay as they are in the job.
    """

    def __init__(self, job: Job, why: i64, state: i64) -> None:
        self.why: i64 = why
        self.state: i64 = state
        self.rank: i64 = job.rank
        self.due_ms: i64 = job.due_ms
        self.stamp: i64 = job.stamp
        self.attempts: i64 = i64(job.attempts)
        self.ready_list: i64 = i64(job.ready_list)
        # Changed fields as `model.details_codec` encodes them.
        self.changed_fields: bytes = b""
