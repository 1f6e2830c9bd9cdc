"""What clients on a faulty disk were promised: their jobs and records, and the fate of each.

The models of other runs predict every answer; with a disk that fills and rots at any moment they
would be as large as the yard. These ledgers record less, but enough to detect whether anything was
lost, came back, came twice or was shown with wrong data. Up to the newest batch that must survive a
crash all promises hold; what is in later batches may be there or not, and the yard decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.model.details import FailureReason
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
        # The batches with its put and its end, and the one with its lease if that is durable.
        self.added = added
        self.ended = 0
        self.leased = 0
        # Until when it is held, and the word with which its holder ends it.
        self.until = 0
        self.word = ""
        # Its result, once it is known to be kept.
        self.result: bytes | None = None
        # Whether a bit of its body was flipped, and whether it is dead because of that.
        self.is_damaged = False
        self.is_corrupt = False

    def __repr__(self) -> str:
        times = f"added in {self.added}, ended in {self.ended}, leased in {self.leased}"
        return f"job {self.name}, {times}, held until {self.until}"

    def is_open(self) -> bool:
        """Return whether it has not ended."""
        return not self.ended and not self.is_corrupt


class Ledger:
    """The jobs of one queue, by their names."""

    def __init__(self, queue: str, find: Callable[[Yard, str], Job | None]) -> None:
        self.queue = queue
        self.find = find
        self.jobs: dict[str, Entry] = {}

    def add(self, name: str, body: bytes, batch: int) -> Entry:
        """Record a job whose put was answered."""
        if name in self.jobs:
            raise Violation("ids", f"{self.queue} already has a job {name}")
        entry = Entry(name, body, batch)
        self.jobs[name] = entry
        return entry

    def open_jobs(self, now: int, *, is_held: bool) -> list[Entry]:
        """Return the open jobs that are leased, or those that are not."""
        jobs = [entry for entry in self.jobs.values() if entry.is_open()]
        return [entry for entry in jobs if (entry.until > now) == is_held]

    def corrupt_count(self) -> int:
        """Return how many are dead because of damage."""
        return sum(entry.is_corrupt for entry in self.jobs.values())

    def taken(self, name: str, now: int) -> Entry:
        """Check that a job that was delivered was available, and return it."""
        entry = self.jobs.get(name)
        if entry is None or not entry.is_open() or entry.until > now:
            raise Violation("lease", f"{self.queue}: {name} was given, which is {entry}")
        return entry

    def check(self, yard: Yard, failed_count: int) -> int:
        """Check that all jobs are there; return how many died since the last check.

        Those may be the jobs that were hit, and as many others as reads have failed.
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
                if job.outcome().reason != FailureReason.DAMAGED:
                    raise Violation("silent damage", f"{self.queue}: {entry} is dead for no reason")
                entry.is_corrupt = True
                if not entry.is_damaged:
                    dead_count += 1
        if dead_count > failed_count:
            raise Violation("read error", f"{dead_count} dead jobs, {failed_count} failed reads")
        return dead_count

    def restart(self, yard: Yard, floor: int, now: int) -> None:
        """Compare what a restart brought back with what was promised up to a batch."""
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
        """Check that a durable lease came back, perhaps an older one instead of a newer."""
        lease = None if job is None else job.lease
        until = 0 if lease is None else int(lease.sort_key)
        is_promised = not entry.ended and not entry.is_corrupt and 0 < entry.leased <= floor
        if is_promised and entry.until > now and until != entry.until:
            raise Violation("restart", f"{self.queue}: the lease of {entry} is until {until}")
        entry.until = until
        entry.leased = min(entry.leased, floor) if until else 0


class Stream:
    """The records written to a topic, in order, and those that its router delivered."""

    def __init__(self, source: str, dest: str) -> None:
        self.source = source
        self.dest = dest
        # Written records, each with its batch.
        self.written: list[tuple[int, int]] = []
        # How many of these were delivered or skipped.
        self.passed = 0
        self.cursor = 0
        self.skipped_count = 0

    def write(self, number: int, batch: int) -> None:
        """Record a write that was answered."""
        self.written.append((number, batch))

    def came(self, number: int, *, may_skip: bool) -> None:
        """Check that a delivered record is the next one."""
        while self.passed < len(self.written) and self.written[self.passed][0] != number:
            self.passed += 1
            self.skipped_count += 1
            if not may_skip:
                raise Violation("routers", f"{self.dest} has {number} before earlier records")
        if self.passed == len(self.written):
            raise Violation("routers", f"{self.dest} has {number} a second time or never written")
        self.passed += 1

    def restart(self, head: int, floor: int) -> None:
        """Forget what a crash lost."""
        if any(batch <= floor for _, batch in self.written[head:]):
            raise Violation("restart", f"{self.source} has {head} records of {self.written[-5:]}")
        self.written = [(number, min(batch, floor)) for number, batch in self.written[:head]]
        self.rewind()

    def rewind(self) -> None:
        """Check all delivered records once more."""
        self.passed = self.cursor = self.skipped_count = 0
