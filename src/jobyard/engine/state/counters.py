"""Counts events of jobs since this process started, by family and by door.

The only set of counters: every total that a door shows is read from here. They begin at 0 with
every start. The family is that of the job; the door is the one at which the job was put, or the one
whose lease was taken or has ended, and none if the job was not leased when it ended.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.journal.format.record import Cause
from jobyard.model.family import FAMILIES_MAX, FAMILY_NAMES
from jobyard.model.job import DEAD, GONE, Job
from jobyard.model.transition import Transition

NO_DOOR: Final = 0

COUNTED_EVENTS: Final = (
    *("put", "taken", "finished", "failed", "dead", "removed", "timed_out", "stalled"),
    "released",
)


@final
@mypyc_attr(acyclic=True)
class Counts:
    """Counts of the events of one family's jobs at one door."""

    def __init__(self) -> None:
        self.put: i64 = 0
        self.taken: i64 = 0
        # Succeeded.
        self.finished: i64 = 0
        # Failed runs, whether the job is tried again or not.
        self.failed: i64 = 0
        # Given up for good: buried, made a dead letter, or removed after the last attempt.
        self.dead: i64 = 0
        # Removed on demand, or because the time to live was over.
        self.removed: i64 = 0
        # Leases that expired before the job was ended, if that does not count as an attempt.
        self.timed_out: i64 = 0
        # Jobs whose worker sent no heartbeat in time.
        self.stalled: i64 = 0
        self.released: i64 = 0

    def by_name(self) -> dict[str, int]:
        """Return all counts by name."""
        return {
            "put": int(self.put),
            "taken": int(self.taken),
            "finished": int(self.finished),
            "failed": int(self.failed),
            "dead": int(self.dead),
            "removed": int(self.removed),
            "timed_out": int(self.timed_out),
            "stalled": int(self.stalled),
            "released": int(self.released),
        }


@final
class Counters:
    """All counts of one yard."""

    def __init__(self) -> None:
        # By family * FAMILIES_MAX + door.
        self.table: list[Counts] = [Counts() for _ in range(FAMILIES_MAX * FAMILIES_MAX)]

    def at(self, family: i64, door: i64) -> Counts:
        """Return the counts of a family at a door."""
        return self.table[family * FAMILIES_MAX + door]

    def of(self, job: Job) -> Counts:
        """Return the counts to which the end of a job's run belongs."""
        lease = job.lease
        door: i64 = NO_DOOR
        if lease is not None:
            door = lease.terms.door
        return self.table[i64(job.family) * FAMILIES_MAX + door]

    def ends(self, job: Job, end: Transition) -> None:
        """Count the end of a run before it is applied."""
        counts = self.of(job)
        why = end.why
        if why == Cause.FINISHED:
            counts.finished += 1
            return
        if why in (Cause.FAILED, Cause.HANDED_BACK):
            counts.failed += 1
        elif why == Cause.EXPIRED:
            counts.timed_out += 1
        elif why == Cause.STALLED:
            counts.stalled += 1
        if why in (Cause.RELEASED, Cause.HANDED_BACK):
            counts.released += 1
        if end.state in (DEAD, GONE):
            counts.dead += 1

    # -- totals --------------------------------------------------------------------------------

    def put_total(self) -> i64:
        """Return how many jobs were put."""
        total: i64 = 0
        for counts in self.table:
            total += counts.put
        return total

    def taken_total(self) -> i64:
        """Return how often a job was taken."""
        total: i64 = 0
        for counts in self.table:
            total += counts.taken
        return total

    def finished_total(self) -> i64:
        """Return how many jobs succeeded."""
        total: i64 = 0
        for counts in self.table:
            total += counts.finished
        return total

    def dead_total(self) -> i64:
        """Return how many jobs were given up for good."""
        total: i64 = 0
        for counts in self.table:
            total += counts.dead
        return total

    def timed_out_total(self) -> i64:
        """Return how many leases expired before their jobs were ended."""
        total: i64 = 0
        for counts in self.table:
            total += counts.timed_out
        return total

    def totals(self) -> dict[str, int]:
        """Return all counts, summed over all families and doors."""
        sums = dict.fromkeys(COUNTED_EVENTS, 0)
        for counts in self.table:
            for name, number in counts.by_name().items():
                sums[name] += number
        return sums

    def rows(self) -> list[tuple[str, str, str, int]]:
        """Return event, family, door ("" for none) and count of all counts that are not 0."""
        found: list[tuple[str, str, str, int]] = []
        for place, counts in enumerate(self.table):
            family = FAMILY_NAMES.get(place // FAMILIES_MAX, "")
            door = FAMILY_NAMES.get(place % FAMILIES_MAX, "")
            for name, number in counts.by_name().items():
                if number > 0:
                    found.append((name, family, door, number))
        return sorted(found)
