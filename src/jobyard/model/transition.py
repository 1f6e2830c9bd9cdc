"""What is to become of a job whose run ends or that is moved, decided but not yet done."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from jobyard.model.job import Job


@final
@mypyc_attr(free_list_len=1, acyclic=True)
class End:
    """The next state of a job and all that comes with it; the record and the yard both read it.

    What is not changed after it was made stays as it is with the job.
    """

    def __init__(self, job: Job, why: i64, state: i64) -> None:
        self.why: i64 = why
        self.state: i64 = state
        self.rank: i64 = job.rank
        self.due_ms: i64 = job.due_ms
        self.stamp: i64 = job.stamp
        self.attempts: i64 = i64(job.attempts)
        self.shelf: i64 = i64(job.shelf)
        # Fields as `model.extra` writes them.
        self.news: bytes = b""
