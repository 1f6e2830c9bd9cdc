"""Jobs by name, in a table that never moves many of them at once.

A dict that is full moves all it holds to a place twice as large, which takes 5 ms for 100,000 names
and 60 ms for a million. So none is: names beyond the first few are spread over many dicts.
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
        self._first: dict[str, Job] = {}
        self._parts: list[dict[str, Job]] = []

    def get(self, name: str) -> Job | None:
        """Return the job of a name."""
        job = self._first.get(name)
        if job is None and self._parts:
            job = self._part(name).get(name)
        return job

    def put(self, name: str, job: Job) -> None:
        """Give a name to a job, in place of the one that had it."""
        table = self._first
        if self._parts or len(table) >= FIRST:
            if not self._parts:
                for _ in range(PARTS):
                    self._parts.append({})
            if name not in table:
                table = self._part(name)
        before: i64 = len(table)
        table[name] = job
        self.count += len(table) - before

    def remove(self, name: str) -> None:
        """Let a name go that is there."""
        self.count -= 1
        if name in self._first:
            del self._first[name]
        else:
            del self._part(name)[name]
        if self.count == 0:
            self._parts = []

    def items(self) -> list[tuple[str, Job]]:
        """Return all names and their jobs."""
        found: list[tuple[str, Job]] = list(self._first.items())
        for part in self._parts:
            found += part.items()
        return found

    def _part(self, name: str) -> dict[str, Job]:
        number: i64 = hash(name)
        return self._parts[number & (PARTS - 1)]
