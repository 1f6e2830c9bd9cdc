"""What has happened to jobs since this process began, by family and by door.

The one set of counters: whatever a door shows as a total is read from here. They begin at 0 with
every start. The family is that of the job; the door is the one at which it was put, or the one
whose lease was taken or has ended, and none where a job was ended that nobody held.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.journal.format.record import EXPIRED, FAILED, FINISHED, HANDED_BACK, RELEASED, STALLED
from jobyard.model.family import BEANSTALK, BUNQUEUE, GLIDE, TOPICS
from jobyard.model.job import DEAD, GONE, Job
from jobyard.model.transition import End

NO_DOOR: Final = 0
# As many places as families and doors have numbers.
WIDTH: Final = 8

# What the doors are called to users.
DOOR_NAMES: Final = {
    BEANSTALK: "beanstalk",
    BUNQUEUE: "bunqueue",
    GLIDE: "glidemq",
    TOPICS: "topics",
}
EVENTS: Final = (
    *("put", "taken", "finished", "failed", "dead", "removed", "timed_out", "stalled"),
    "released",
)


@final
@mypyc_attr(acyclic=True)
class Counts:
    """What happened to jobs of one family at one door."""

    def __init__(self) -> None:
        self.put: i64 = 0
        self.taken: i64 = 0
        # Ended well.
        self.finished: i64 = 0
        # Runs that ended badly, whether the job is tried again or not.
        self.failed: i64 = 0
        # Given up for good: laid aside, made a dead letter, or gone after the last attempt.
        self.dead: i64 = 0
        # Removed on demand, or because the time to live was over.
        self.removed: i64 = 0
        # Leases that were over before the job was ended, where that counts for no attempt.
        self.timed_out: i64 = 0
        # Jobs whose worker fell silent.
        self.stalled: i64 = 0
        self.released: i64 = 0

    def by_name(self) -> dict[str, int]:
        """Return all counts under the names of what is counted."""
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
        # By family * WIDTH + door.
        self.table: list[Counts] = [Counts() for _ in range((TOPICS + 1) * WIDTH)]

    def at(self, family: i64, door: i64) -> Counts:
        """Return the counts of a family at a door."""
        return self.table[family * WIDTH + door]

    def of(self, job: Job) -> Counts:
        """Return the counts that an end of the run of a job belongs to."""
        lease = job.lease
        door: i64 = NO_DOOR
        if lease is not None:
            door = lease.terms.door
        return self.table[i64(job.family) * WIDTH + door]

    def ends(self, job: Job, end: End) -> None:
        """Count the end of a run that is about to be made."""
        counts = self.of(job)
        why = end.why
        if why == FINISHED:
            counts.finished += 1
            return
        if why in (FAILED, HANDED_BACK):
            counts.failed += 1
        elif why == EXPIRED:
            counts.timed_out += 1
        elif why == STALLED:
            counts.stalled += 1
        if why in (RELEASED, HANDED_BACK):
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
        """Return how many jobs ended well."""
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
        """Return how many leases were over before their jobs were ended."""
        total: i64 = 0
        for counts in self.table:
            total += counts.timed_out
        return total

    def totals(self) -> dict[str, int]:
        """Return all counts, of all families at all doors together."""
        sums = dict.fromkeys(EVENTS, 0)
        for counts in self.table:
            for name, number in counts.by_name().items():
                sums[name] += number
        return sums

    def rows(self) -> list[tuple[str, str, str, int]]:
        """Return event, family, door and number of all that is not 0; no door is empty."""
        found: list[tuple[str, str, str, int]] = []
        for place, counts in enumerate(self.table):
            family = DOOR_NAMES.get(place // WIDTH, "")
            door = DOOR_NAMES.get(place % WIDTH, "")
            for name, number in counts.by_name().items():
                if number > 0:
                    found.append((name, family, door, number))
        return sorted(found)
