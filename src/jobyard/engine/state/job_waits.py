"""Those who wait for one job to be done, not for any job to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.model.index.item import Item

if TYPE_CHECKING:
    from jobyard.model.job import Job


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Patient:
    """Someone who waits for a job to be done."""

    def job_done(self, wait: JobWait, result: bytes | None) -> None:
        """Go on: the job is done, or with None the time is over."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenPatient(Patient):
    """A patient that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class JobWait(Item):
    """One who waits for one job. `sort_key` is until when."""

    def __init__(self, number: i64, job: Job, patient: Patient, until_ms: i64) -> None:
        super().__init__(number, until_ms, number)
        self.job: Job = job
        self.patient: Patient = patient


@final
class Waits:
    """All of them."""

    def __init__(self) -> None:
        # Of the job.
        self.by_id: dict[int, list[JobWait]] = {}

    def add(self, wait: JobWait) -> None:
        """Begin to wait."""
        self.by_id.setdefault(int(wait.job.id), []).append(wait)

    def remove(self, wait: JobWait) -> None:
        """Wait no more."""
        waits = self.by_id.get(int(wait.job.id))
        if waits is not None and wait in waits:
            waits.remove(wait)
            if not waits:
                del self.by_id[int(wait.job.id)]

    def ended(self, job: Job, result: bytes) -> None:
        """Tell those who wait for a job that it is done."""
        if self.by_id:
            for wait in self.by_id.pop(int(job.id), ()):
                wait.patient.job_done(wait, result)
