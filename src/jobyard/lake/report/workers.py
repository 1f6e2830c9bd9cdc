"""What workers did: runs, time spent in runs, and how many of them were at work.

A run counts in the minute in which it ends, with all the time it took: a worker that runs jobs of
an hour is busy for 60 minutes in one. Over longer steps this evens out.
"""

from typing import Final, NamedTuple

import numpy as np

from jobyard.lake.report.gold import Names, Slice, longs, minutes
from jobyard.lake.report.histogram import Reals
from jobyard.lake.report.kll import Longs
from jobyard.lake.report.period import Period
from jobyard.lake.schemas import WORKER_MINUTE

_COUNTS: Final = ("claimed", "completed", "failed", "lost")
_MINUTE_MS: Final = 60_000


class Workers(NamedTuple):
    """The figures of all workers; rows are workers, the busiest first."""

    names: list[str]
    counts: dict[str, Longs]
    # Milliseconds spent in runs, for each worker and step.
    busy_ms: Longs
    # Workers that began or ended a run, for each step.
    active: Longs
    # Minutes of the period, and of each step, that the report covers.
    minutes: int
    step_minutes: Longs

    def utilisation(self) -> Reals:
        """Return for each worker the share of the period that it spent in runs."""
        shares: Reals = self.busy_ms.sum(axis=1) / (self.minutes * _MINUTE_MS)
        return shares

    def utilisation_by_step(self) -> Reals:
        """Return the same for each worker and step."""
        return self.busy_ms / (self.step_minutes * _MINUTE_MS)

    def busy(self) -> Reals:
        """Return for each step how many runs went on at a time, on average."""
        sums: Reals = self.busy_ms.sum(axis=0) / (self.step_minutes * _MINUTE_MS)
        return sums


def read_workers(part: Slice, period: Period) -> Workers:
    """Read the table of minutes of workers."""
    names = Names()
    counts = np.zeros((0, len(_COUNTS)), dtype=np.int64)
    busy_ms = np.zeros((0, period.steps), dtype=np.int64)
    is_active = np.zeros((0, period.steps), dtype=bool)
    for batch in part.scan(WORKER_MINUTE, ["worker", "minute", *_COUNTS, "busy_ms"]):
        worker = names.codes(batch.column("worker"))
        missing = len(names.all) - len(counts)
        if missing > 0:
            missing = max(missing, len(counts))
            counts = np.pad(counts, ((0, missing), (0, 0)))
            busy_ms = np.pad(busy_ms, ((0, missing), (0, 0)))
            is_active = np.pad(is_active, ((0, missing), (0, 0)))
        step = (minutes(batch) - period.start) // period.step
        for at, name in enumerate(_COUNTS):
            np.add.at(counts[:, at], worker, longs(batch, name))
        np.add.at(busy_ms.reshape(-1), worker * period.steps + step, longs(batch, "busy_ms"))
        is_active[worker, step] = True
    total_ms = busy_ms.sum(axis=1)
    known = range(len(names.all))
    order = np.array(
        sorted(known, key=lambda at: (-int(total_ms[at]), names.all[at])), dtype=np.int64
    )
    return Workers(
        [names.all[at] for at in order],
        {name: counts[order, at] for at, name in enumerate(_COUNTS)},
        busy_ms[order],
        is_active.sum(axis=0, dtype=np.int64),
        period.last + 1 - period.first,
        _step_minutes(period),
    )


def _step_minutes(period: Period) -> Longs:
    """Return how many minutes of each step the period covers: less at its ends."""
    begins = period.start + period.step * np.arange(period.steps, dtype=np.int64)
    ends = np.minimum(begins + period.step, period.last + 1)
    covered: Longs = np.maximum(ends - np.maximum(begins, period.first), 1)
    return covered
