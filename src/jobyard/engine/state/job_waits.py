"""Waits for one particular job to be done, as opposed to waits for any job to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.model.index.item import Item

if TYPE_CHECKING:
    from jobyard.model.job import Job


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class JobWaiter:
    """An object that waits for a job to be done."""

    def job_done(self, wait: JobWait, result: bytes | None) -> None:
        """Continue: the job is done, or, if `result` is None, the wait timed out."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenJobWaiter(JobWaiter):
    """A job waiter that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class JobWait(Item):
    """One wait for one job. `sort_key` is when it times out."""

    def __init__(self, number: i64, job: Job, job_waiter: JobWaiter, until_ms: i64) -> None:
        super().__init__(number, until_ms, number)
        self.job: Job = job
        self.job_waiter: JobWaiter = job_waiter


@final
class JobWaits:
    """All waits for single jobs."""

    def __init__(self) -> None:
        # By job id.
        self.by_id: dict[int, list[JobWait]] = {}

    def add(self, wait: JobWait) -> None:
        """Start a wait."""
        self.by_id.setdefault(int(wait.job.id), []).append(wait)

    def remove(self, wait: JobWait) -> None:
        """Stop a wait."""
        waits = self.by_id.get(int(wait.job.id))
        if waits is not None and wait in waits:
            waits.remove(wait)
            if not waits:
                del self.by_id[int(wait.job.id)]

    def ended(self, job: Job, result: bytes) -> None:
        """Notify the waiters of a job that it is done."""
        if self.by_id:
            for wait in self.by_id.pop(int(job.id), ()):
                wait.job_waiter.job_done(wait, result)
