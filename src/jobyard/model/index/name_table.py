"""Jobs by name, in a table that never moves many of them at once.

A dict that is full moves all it holds to a place twice as large, which takes 5 ms for 100,000 names
and 60 ms for a million. So none is: names beyond the first few are spread over many dicts.

Who is about to let many jobs enter at one moment may claim their names before. Nobody else sees a
claim: whoever is the first to enter has the name, and who had claimed it can tell.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.job import Job

# Names in the first dict, which is all there is of most tables.
FIRST: Final = 4096
PARTS: Final = 256


@final
class NameTable:
    """The jobs that have a name, by that."""

    def __init__(self) -> None:
        self.count: i64 = 0
        # How often a claim was of no avail, whoever had made it.
        self.claims_lost: i64 = 0
        self._claims_count: i64 = 0
        self._first: dict[str, Job] = {}
        self._parts: list[dict[str, Job]] = []

    def get(self, name: str) -> Job | None:
        """Return the job of a name."""
        job = self._find(name)
        # One that only claims it has no id yet.
        return None if job is None or job.id == 0 else job

    def _find(self, name: str) -> Job | None:
        job = self._first.get(name)
        if job is None and self._parts:
            job = self._part(name).get(name)
        return job

    def put(self, name: str, job: Job) -> None:
        """Give a name to a job, in place of the one that had it."""
        if self._claims_count > 0:
            self._lose_claim(name)
        table = self._table_for(name)
        before: i64 = len(table)
        table[name] = job
        self.count += len(table) - before

    def _table_for(self, name: str) -> dict[str, Job]:
        """Return where a name is, or is to be."""
        first = self._first
        if not self._parts:
            if len(first) < FIRST:
                return first
            for _ in range(PARTS):
                self._parts.append({})
        return first if name in first else self._part(name)

    def remove(self, name: str) -> None:
        """Let a name go that is there."""
        self.count -= 1
        self._forget(name)

    def _forget(self, name: str) -> None:
        if name in self._first:
            del self._first[name]
        else:
            del self._part(name)[name]
        if self.count == 0 and self._claims_count == 0:
            self._parts = []

    # -- claims -------------------------------------------------------------------------------

    def claim(self, name: str, job: Job) -> None:
        """Claim a name for a job that is to enter; of no avail if another has it."""
        if self.get(name) is not None:
            self.claims_lost += 1
            return
        if self._claims_count > 0:
            self._lose_claim(name)
        self._table_for(name)[name] = job
        self._claims_count += 1

    def _lose_claim(self, name: str) -> None:
        job = self._find(name)
        if job is not None and job.id == 0:
            self.claims_lost += 1
            self._claims_count -= 1
            self._forget(name)

    def holds(self, name: str, job: Job) -> bool:
        """Tell whether the claim of a job still stands."""
        return self._find(name) is job

    def give_up(self, name: str, job: Job) -> None:
        """Claim a name no more, if the claim still stands; that of a job that has entered stays."""
        if job.id == 0 and self.holds(name, job):
            self._claims_count -= 1
            self._forget(name)

    def redeem(self, count: i64) -> None:
        """Count so many jobs that have entered as those of the names that they claimed."""
        self._claims_count -= count
        self.count += count

    def items(self) -> list[tuple[str, Job]]:
        """Return all names and their jobs."""
        found: list[tuple[str, Job]] = list(self._first.items())
        for part in self._parts:
            found += part.items()
        return [(name, job) for name, job in found if job.id != 0]

    def _part(self, name: str) -> dict[str, Job]:
        number: i64 = hash(name)
        return self._parts[number & (PARTS - 1)]
