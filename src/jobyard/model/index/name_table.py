"""Jobs by name.

A caller that is about to add many jobs at one moment may claim their names in advance. Claims are
invisible to others: the first job to enter gets the name, and the claimant can check for that.
"""

from typing import final

from mypy_extensions import i64

from jobyard.model.index.sharded_dict import ShardedDict
from jobyard.model.job import Job


@final
class NameTable:
    """The jobs that have a name, by that name."""

    def __init__(self) -> None:
        # How many claims were lost, of all callers.
        self.claims_lost: i64 = 0
        self._claims_count: i64 = 0
        self._table: ShardedDict[str, Job] = ShardedDict()

    def count(self) -> i64:
        """Return the number of names, without claims."""
        return self._table.count - self._claims_count

    def get(self, name: str) -> Job | None:
        """Return the job with a name."""
        job = self._table.get(name)
        # A job that only claims the name has no id yet.
        return None if job is None or job.id == 0 else job

    def put(self, name: str, job: Job) -> None:
        """Give a name to a job, replacing the job that had it."""
        if self._claims_count > 0:
            self._lose_claim(name)
        self._table.put(name, job)

    def remove(self, name: str) -> None:
        """Remove a name that is there."""
        self._table.remove(name)

    # -- claims -------------------------------------------------------------------------------

    def claim(self, name: str, job: Job) -> None:
        """Claim a name for a job that will enter; lost at once if another job has it."""
        if self.get(name) is not None:
            self.claims_lost += 1
            return
        if self._claims_count > 0:
            self._lose_claim(name)
        self._table.put(name, job)
        self._claims_count += 1

    def _lose_claim(self, name: str) -> None:
        job = self._table.get(name)
        if job is not None and job.id == 0:
            self.claims_lost += 1
            self._claims_count -= 1
            self._table.remove(name)

    def holds(self, name: str, job: Job) -> bool:
        """Return whether the claim of a job is still valid."""
        return self._table.get(name) is job

    def give_up(self, name: str, job: Job) -> None:
        """Withdraw a claim, if it is still valid; that of a job that has entered stays."""
        if job.id == 0 and self.holds(name, job):
            self._claims_count -= 1
            self._table.remove(name)

    def redeem(self, count: i64) -> None:
        """Turn the claims of `count` jobs that have entered into names."""
        self._claims_count -= count

    def items(self) -> list[tuple[str, Job]]:
        """Return all names and their jobs."""
        return [(name, job) for name, job in self._table.items() if job.id != 0]
