"""What clients on a faulty disk were promised: their jobs and records, and what became of each.

The models of other runs know every answer; with a disk that fills and rots at any moment they would
be as large as the yard. These books know less, and enough to tell whether anything was lost, came
back, came twice or was shown as what it is not. Up to the newest batch that a crash may not take
all promises hold; what lies in later ones may be there or not, and the yard is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.model.details import DAMAGED
from jobyard.model.job import DEAD, DONE
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.engine.state.yard import Yard
    from jobyard.model.job import Job


class Entry:
    """A job that was put."""

    def __init__(self, name: str, body: bytes, added: int) -> None:
        self.name = name
        self.body = body
        # The batches with its put and its end, and that with its lease if it is to last.
        self.added = added
        self.ended = 0
        self.leased = 0
        # Until when it is held, and the word by which its holder ends it.
        self.until = 0
        self.word = ""
        # Its result, once it is known to be kept.
        self.result: bytes | None = None
        # Whether a bit of its body was flipped, and whether it is dead for it.
        self.is_damaged = False
        self.is_corrupt = False

    def __repr__(self) -> str:
        times = f"added in {self.added}, ended in {self.ended}, leased in {self.leased}"
        return f"job {self.name}, {times}, held until {self.until}"

    def is_open(self) -> bool:
        """Tell whether it is still to be done."""
        return not self.ended and not self.is_corrupt


class Ledger:
    """The jobs of one queue, by their names."""

    def __init__(self, queue: str, find: Callable[[Yard, str], Job | None]) -> None:
        self.queue = queue
        self.find = find
        self.jobs: dict[str, Entry] = {}

    def add(self, name: str, body: bytes, batch: int) -> Entry:
        """Take in a job whose put was answered."""
        if name in self.jobs:
            raise Violation("ids", f"{self.queue} has a job {name} already")
        entry = Entry(name, body, batch)
        self.jobs[name] = entry
        return entry

    def open_jobs(self, now: int, *, is_held: bool) -> list[Entry]:
        """Return the jobs that are to be done and are held by somebody, or by nobody."""
        jobs = [entry for entry in self.jobs.values() if entry.is_open()]
        return [entry for entry in jobs if (entry.until > now) == is_held]

    def corrupt_count(self) -> int:
        """Return how many are dead of damage."""
        return sum(entry.is_corrupt for entry in self.jobs.values())

    def taken(self, name: str, now: int) -> Entry:
        """Check that a job that somebody was given was to be had, and return it."""
        entry = self.jobs.get(name)
        if entry is None or not entry.is_open() or entry.until > now:
            raise Violation("lease", f"{self.queue}: {name} was given, which is {entry}")
        return entry

    def check(self, yard: Yard, failed_count: int) -> int:
        """See that all jobs are there; return how many are dead since the last look.

        That may be those that were hit, and as many others as reads have failed.
        """
        dead_count = 0
        for entry in self.jobs.values():
            job = self.find(yard, entry.name)
            if entry.ended:
                if job is not None and job.state != DONE:
                    raise Violation("full disk", f"{self.queue}: {entry} is there again")
            elif job is None or job.state == DONE:
                raise Violation("lost", f"{self.queue}: {entry} is not there")
            elif job.state == DEAD and not entry.is_corrupt:
                if job.outcome().reason != DAMAGED:
                    raise Violation("silent damage", f"{self.queue}: {entry} is dead for nothing")
                entry.is_corrupt = True
                if not entry.is_damaged:
                    dead_count += 1
        if dead_count > failed_count:
            raise Violation("read error", f"{dead_count} dead jobs, {failed_count} failed reads")
        return dead_count

    def restart(self, yard: Yard, floor: int, now: int) -> None:
        """Hold what a restart brought back against what was promised up to a batch."""
        for entry in list(self.jobs.values()):
            job = self.find(yard, entry.name)
            is_there = job is not None and job.state != DONE
            if is_there and 0 < entry.ended <= floor:
                raise Violation("restart", f"{self.queue}: {entry} came back")
            if not is_there and not entry.ended and entry.added <= floor:
                raise Violation("restart", f"{self.queue}: {entry} did not come back")
            if not is_there and entry.added > floor:
                del self.jobs[entry.name]
                continue
            if is_there:
                entry.ended = 0
                entry.result = None
            entry.is_corrupt = job is not None and job.state == DEAD
            self._restart_lease(entry, job, floor, now)
            entry.added = min(entry.added, floor)

    def _restart_lease(self, entry: Entry, job: Job | None, floor: int, now: int) -> None:
        """See that a lease came back that was to last; an older one may have instead of a newer."""
        lease = None if job is None else job.lease
        until = 0 if lease is None else int(lease.sort_key)
        is_promised = not entry.ended and not entry.is_corrupt and 0 < entry.leased <= floor
        if is_promised and entry.until > now and until != entry.until:
            raise Violation("restart", f"{self.queue}: the lease of {entry} is until {until}")
        entry.until = until
        entry.leased = min(entry.leased, floor) if until else 0


class Stream:
    """What was written to a topic, in order, and what came out behind its router."""

    def __init__(self, source: str, dest: str) -> None:
        self.source = source
        self.dest = dest
        # What was written, with its batch.
        self.written: list[tuple[int, int]] = []
        # How many of these have come out, or were passed over.
        self.passed = 0
        self.cursor = 0
        self.skipped_count = 0

    def write(self, number: int, batch: int) -> None:
        """Take in a record whose write was answered."""
        self.written.append((number, batch))

    def came(self, number: int, *, may_skip: bool) -> None:
        """Check that a record that came out is the next."""
        while self.passed < len(self.written) and self.written[self.passed][0] != number:
            self.passed += 1
            self.skipped_count += 1
            if not may_skip:
                raise Violation("routers", f"{self.dest} has {number}, others come before it")
        if self.passed == len(self.written):
            raise Violation("routers", f"{self.dest} has {number}, which came before or never")
        self.passed += 1

    def restart(self, head: int, floor: int) -> None:
        """Forget what a crash took."""
        if any(batch <= floor for _, batch in self.written[head:]):
            raise Violation("restart", f"{self.source} has {head} records of {self.written[-5:]}")
        self.written = [(number, min(batch, floor)) for number, batch in self.written[:head]]
        self.rewind()

    def rewind(self) -> None:
        """Look at all that came out once more."""
        self.passed = self.cursor = self.skipped_count = 0
