"""What happened in queues: counts of each step of the period, levels, and percentiles.

Counts are sums of the minutes. Percentiles of a step, a queue or the period come from the sketches
of its minutes, never from percentiles of them. Levels (backlog, running) count from the first
minute of the lake; where that falls below zero, jobs were there before the lake began, and the
level is raised by as many: it is "at least".
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobyard.lake.report.gold import Names, Slice, longs, minutes
from jobyard.lake.report.histogram import BINS, Reals, bins_of, percentiles
from jobyard.lake.report.kll import Longs, values_of
from jobyard.lake.report.period import Period
from jobyard.lake.schemas import QUEUE_MINUTE

COUNTS: Final = (
    *("enqueued", "claimed", "completed", "failed", "released", "expired"),
    *("abandoned", "dead_lettered", "retried", "backlog_change"),
)
# Events that end a run.
ENDS: Final = ("completed", "failed", "released", "expired", "abandoned")
SHARES: Final = (0.5, 0.95, 0.99)
# Percentiles are kept for so many queues, the greatest: a histogram takes 40 kB.
QUEUES_MEASURED: Final = 1000


class Latency(NamedTuple):
    """Percentiles (p50, p95, p99 in columns) and greatest values of waits, or of runs, in ms."""

    steps: Reals
    steps_max: Reals
    queues: Reals
    queues_max: Reals
    all: Reals


class Queues(NamedTuple):
    """The figures of all queues; rows are queues by volume, columns the steps of the period."""

    names: list[str]
    yards: list[str]
    counts: dict[str, Longs]
    wait: Latency
    run: Latency
    # Jobs that are neither done nor gone, at the end of each step, and how many jobs at least
    # were there before the lake began.
    backlog: Longs
    backlog_before: int
    # Of all queues together: runs that go on at the end of each step, the greatest level of the
    # backlog within each, and what the busiest minute completed.
    running: Longs
    backlog_peak: Longs
    busiest: int
    busiest_at: int

    def total(self, count: str) -> int:
        """Return the sum of a count over all queues and the whole period."""
        return int(self.counts[count].sum())

    def by_step(self, count: str) -> Longs:
        """Return the sum of a count over all queues for each step."""
        sums: Longs = self.counts[count].sum(axis=0)
        return sums

    def by_queue(self, count: str) -> Longs:
        """Return the sum of a count over the period for each queue."""
        sums: Longs = self.counts[count].sum(axis=1)
        return sums

    def ended(self) -> int:
        """Return how many runs ended."""
        return sum(self.total(each) for each in ENDS)

    def ended_by_queue(self) -> Longs:
        """Return how many runs ended in each queue."""
        sums: Longs = np.sum([self.by_queue(each) for each in ENDS], axis=0)
        return sums


class _Counting:
    """Sums that grow with the queues that are met."""

    def __init__(self, period: Period) -> None:
        self.period = period
        self.names = Names()
        self.yards = Names()
        self.sums = np.zeros((0, len(COUNTS), period.steps), dtype=np.int64)
        # The greatest wait and run of each queue, and of each step.
        self.queue_max = np.full((2, 0), np.nan)
        self.step_max = np.full((2, period.steps), np.nan)
        # Of every minute: how the backlog changed, how the running changed, what was completed.
        self.by_minute = np.zeros((3, period.end() - period.start), dtype=np.int64)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the table."""
        queue = self.names.codes(batch.column("queue"))
        self.yards.codes(batch.column("yard"))
        self._grow()
        minute = minutes(batch) - self.period.start
        step = minute // self.period.step
        flat = self.sums.reshape(-1)
        cells = queue * (len(COUNTS) * self.period.steps) + step
        for at, name in enumerate(COUNTS):
            np.add.at(flat, cells + at * self.period.steps, longs(batch, name))
        for at, name in enumerate(("wait_max", "run_max")):
            greatest = batch.column(name).to_numpy(zero_copy_only=False)
            np.fmax.at(self.queue_max[at], queue, greatest)
            np.fmax.at(self.step_max[at], step, greatest)
        np.add.at(self.by_minute[0], minute, longs(batch, "backlog_change"))
        np.add.at(self.by_minute[1], minute, _running_change(batch))
        np.add.at(self.by_minute[2], minute, longs(batch, "completed"))

    def _grow(self) -> None:
        missing = len(self.names.all) - len(self.sums)
        if missing > 0:
            # Twice the size each time: few copies.
            missing = max(missing, len(self.sums))
            self.sums = np.pad(self.sums, ((0, missing), (0, 0), (0, 0)))
            more = np.full((2, missing), np.nan)
            self.queue_max = np.concatenate([self.queue_max, more], axis=1)

    def order(self) -> Longs:
        """Return the numbers of the queues, the greatest first: by what was put and taken."""
        known = len(self.names.all)
        volume = self.sums[:known, :2].sum(axis=(1, 2))
        order = sorted(range(known), key=lambda at: (-int(volume[at]), self.names.all[at]))
        return np.array(order, dtype=np.int64)


class _Sketches:
    """Histograms of one kind of duration: by step, and by queue."""

    def __init__(self, period: Period, queues: int) -> None:
        self.steps = np.zeros((period.steps, BINS), dtype=np.int64)
        self.queues = np.zeros((queues, BINS), dtype=np.int64)

    def add(self, column: pa.Array, step: Longs, slot: Longs) -> None:
        """Add a column of sketches; slot is the place of the queue, or -1."""
        row, value, weight = values_of(column)
        bins, place = bins_of(value), slot[row]
        np.add.at(self.steps.reshape(-1), step[row] * BINS + bins, weight)
        kept = place >= 0
        if not kept.all():
            place, bins, weight = place[kept], bins[kept], weight[kept]
        np.add.at(self.queues.reshape(-1), place * BINS + bins, weight)

    def latency(self, steps_max: Reals, queues_max: Reals) -> Latency:
        """Return the percentiles."""
        # Queues beyond those that are measured have no percentiles.
        by_queue = np.full((len(queues_max), len(SHARES)), np.nan)
        by_queue[: len(self.queues)] = percentiles(self.queues, SHARES)
        everything = percentiles(self.steps.sum(axis=0, keepdims=True), SHARES)[0]
        by_step = percentiles(self.steps, SHARES)
        # The middle of a bin may lie above the greatest value, which is known exactly.
        return Latency(
            np.where(np.isnan(by_step), np.nan, np.fmin(by_step, steps_max[:, None])),
            steps_max,
            np.where(np.isnan(by_queue), np.nan, np.fmin(by_queue, queues_max[:, None])),
            queues_max,
            np.where(np.isnan(everything), np.nan, np.fmin(everything, np.fmax.reduce(steps_max))),
        )


def read_queues(part: Slice, period: Period) -> Queues:
    """Read the table of minutes of queues: counts first, then sketches."""
    counting = _Counting(period)
    columns = ["yard", "queue", "minute", *COUNTS, "wait_max", "run_max"]
    for batch in part.scan(QUEUE_MINUTE, columns):
        counting.add(batch)
    order = counting.order()
    before, running_before = _before(part, counting.names, order)
    wait, run = _latencies(part, counting, order)
    counts = {name: counting.sums[order, at] for at, name in enumerate(COUNTS)}
    backlog = before[:, None] + np.cumsum(counts["backlog_change"], axis=1)
    lifts = np.maximum(0, -backlog.min(axis=1, initial=0))
    levels = np.maximum(0, int((before + lifts).sum()) + np.cumsum(counting.by_minute[0]))
    running = running_before + np.cumsum(counting.by_minute[1])
    running -= min(0, int(running.min()))
    completed = counting.by_minute[2]
    return Queues(
        names=[counting.names.all[at] for at in order],
        yards=sorted(counting.yards.all),
        counts=counts,
        wait=wait,
        run=run,
        backlog=backlog + lifts[:, None],
        backlog_before=int(lifts.sum()),
        running=running.reshape(period.steps, period.step)[:, -1],
        backlog_peak=levels.reshape(period.steps, period.step).max(axis=1),
        busiest=int(completed.max()),
        busiest_at=period.start + int(completed.argmax()),
    )


def _before(part: Slice, names: Names, order: Longs) -> tuple[Longs, int]:
    """Return the backlog of each queue, and the running of all, when the period begins."""
    sums: dict[int, int] = {}
    running = 0
    columns = ["queue", "claimed", "backlog_change", *ENDS]
    for batch in part.scan(QUEUE_MINUTE, columns, old=True):
        codes = names.codes(batch.column("queue"))
        changes = np.zeros(len(names.all), dtype=np.int64)
        np.add.at(changes, codes, longs(batch, "backlog_change"))
        for code in np.flatnonzero(changes):
            sums[int(code)] = sums.get(int(code), 0) + int(changes[code])
        running += int(_running_change(batch).sum())
    return np.array([sums.get(int(code), 0) for code in order], dtype=np.int64), running


def _latencies(part: Slice, counting: _Counting, order: Longs) -> tuple[Latency, Latency]:
    period = counting.period
    measured = min(len(order), QUEUES_MEASURED)
    slots = np.full(len(counting.names.all), -1, dtype=np.int64)
    slots[order[:measured]] = np.arange(measured)
    wait, run = _Sketches(period, measured), _Sketches(period, measured)
    for batch in part.scan(QUEUE_MINUTE, ["queue", "minute", "wait_kll", "run_kll"]):
        codes = counting.names.codes(batch.column("queue"))
        # A run of the pipeline may have added a queue since the counts were read.
        slot = np.where(codes < len(slots), slots[np.minimum(codes, len(slots) - 1)], -1)
        step = (minutes(batch) - period.start) // period.step
        wait.add(batch.column("wait_kll"), step, slot)
        run.add(batch.column("run_kll"), step, slot)
    wait_max, run_max = counting.step_max
    return (
        wait.latency(wait_max, counting.queue_max[0][order]),
        run.latency(run_max, counting.queue_max[1][order]),
    )


def _running_change(batch: pa.RecordBatch) -> Longs:
    change = longs(batch, "claimed").copy()
    for name in ENDS:
        change -= longs(batch, name)
    return change
