"""The jobs of one queue in the order they came, for listing and paging.

Made when somebody first lists the queue and kept from then on; queues nobody lists pay nothing. A
job that is gone stays as a dead entry until they outnumber a quarter of the living.
"""

from typing import final

from mypy_extensions import i64

from jobyard.model.job import GONE, Job


@final
class Roster:
    """Jobs by rising seq, some of them gone."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs: list[Job] = jobs
        self._gone_count: i64 = 0

    def add(self, job: Job) -> None:
        """Add the newest job."""
        self._jobs.append(job)

    def note_gone(self) -> None:
        """Count one entry as dead."""
        self._gone_count += 1
        living: i64 = len(self._jobs) - self._gone_count
        if self._gone_count > living // 4 + 64:
            self._jobs = [job for job in self._jobs if job.state != GONE]
            self._gone_count = 0

    def page(
        self, states: frozenset[int], offset: int, limit: int, *, oldest_first: bool
    ) -> list[Job]:
        """Return jobs in any of `states`, skipping `offset` of them."""
        found: list[Job] = []
        jobs = self._jobs
        count: i64 = len(jobs)
        at: i64 = 0 if oldest_first else count - 1
        step: i64 = 1 if oldest_first else -1
        while 0 <= at < count and len(found) < limit:
            job = jobs[at]
            if int(job.state) in states:
                if offset > 0:
                    offset -= 1
                else:
                    found.append(job)
            at += step
        return found
