"""Latency of pushes, pulls and acks while they wait for the disk, in the original's buckets.

Counted once per commit, from counters that exist anyway: a job costs nothing here. Everything that
a commit makes durable is counted with the duration of its sync, or with 0 if no answer waits for a
sync. The work of the command itself takes a few microseconds and is not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from jobyard.engine.state.counters import Counters

# Upper bounds of the buckets; one more bucket counts everything longer.
BUCKETS_US: Final = (
    *(100, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000),
)


@final
class Histogram:
    """Counts of durations by bucket."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BUCKETS_US) + 1)
        self.count: int = 0
        self.sum_us: int = 0

    def note(self, count: int, took_us: int) -> None:
        """Count `count` operations that took `took_us` each."""
        if count <= 0:
            return
        self.count += count
        self.sum_us += count * took_us
        place = 0
        while place < len(BUCKETS_US) and BUCKETS_US[place] < took_us:
            place += 1
        self.counts[place] += count

    def mean_ms(self) -> float:
        """Return the mean duration."""
        return round(self.sum_us / self.count / 1000.0, 3) if self.count else 0.0

    def percentile_ms(self, percent: int) -> float:
        """Return the upper bound of the bucket that holds the percentile."""
        reached = 0
        for place in range(len(BUCKETS_US)):
            reached += self.counts[place]
            if reached > 0 and reached * 100 >= self.count * percent:
                return BUCKETS_US[place] / 1000.0
        return BUCKETS_US[-1] / 1000.0 if self.count else 0.0


@final
class Durations:
    """The latency histograms of one door."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        # Whether answers wait for a sync and the committer calls `begin` and `end`.
        self.are_timed: bool = False
        self.push = Histogram()
        self.pull = Histogram()
        self.ack = Histogram()
        # Counter values after the last commit, and with the commit in progress.
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._begun: tuple[int, int, int] = (0, 0, 0)

    def begin(self) -> None:
        """Record the counters as the commit that starts will make them durable."""
        counters = self._counters
        ended = int(counters.finished_total() + counters.dead_total())
        self._begun = (int(counters.put_total()), int(counters.taken_total()), ended)

    def end(self, took_us: int) -> None:
        """Count what the finished commit made durable."""
        pushed, pulled, ended = self._begun
        if self._begun != self._seen:
            self.push.note(pushed - self._seen[0], took_us)
            self.pull.note(pulled - self._seen[1], took_us)
            self.ack.note(ended - self._seen[2], took_us)
            self._seen = self._begun

    def look(self) -> None:
        """Count operations that waited for no sync; called before the histograms are read."""
        if not self.are_timed:
            self.begin()
            self.end(0)

    def averages(self) -> dict[str, object]:
        """Return the means, in ms."""
        return {
            "pushMs": self.push.mean_ms(),
            "pullMs": self.pull.mean_ms(),
            "ackMs": self.ack.mean_ms(),
        }

    def percentiles(self) -> dict[str, object]:
        """Return the 50th, 95th and 99th percentiles, in ms."""
        return {
            name: {f"p{percent}": one.percentile_ms(percent) for percent in (50, 95, 99)}
            for name, one in (("push", self.push), ("pull", self.pull), ("ack", self.ack))
        }
