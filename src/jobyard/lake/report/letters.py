"""Dead letters: how many for which reason, and the kinds of errors behind them.

A kind is a queue, a reason and a fingerprint: the hash of an error without its numbers, ids and
quoted parts.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobyard.lake.report.gold import Names, Slice, longs, minutes, texts
from jobyard.lake.report.kll import Longs
from jobyard.lake.report.period import Period
from jobyard.lake.schemas import DLQ_REASON_MINUTE

# Kinds that are told one by one; of more than these, the most frequent.
KINDS_MAX: Final = 300
_SAMPLES_MAX: Final = 5
_NAMED: Final = ("queue", "reason", "error_fingerprint")
_COLUMNS: Final = (
    *(*_NAMED, "minute", "count", "first_seen", "last_seen"),
    *("error_class", "error_message", "sample_job_ids"),
)


class LetterKind(NamedTuple):
    """Dead letters of one queue, for one reason, with errors of one fingerprint."""

    queue: str
    reason: str
    fingerprint: str
    letters: int
    first_seen: datetime | None
    last_seen: datetime | None
    # Of the first of them.
    error_class: str
    error_message: str
    job_ids: tuple[int, ...]


class Letters(NamedTuple):
    """The dead letters of the period."""

    # Reasons by frequency, and the count of each (row) in each step.
    reasons: list[str]
    by_reason: Longs
    # The most frequent first; `kinds_count` is how many there are.
    kinds: list[LetterKind]
    kinds_count: int

    def total(self) -> int:
        """Return how many dead letters there are."""
        return int(self.by_reason.sum())


def read_letters(part: Slice, period: Period) -> Letters:
    """Read the table of reasons of dead letters."""
    batches = list(part.scan(DLQ_REASON_MINUTE, _COLUMNS))
    if not batches:
        return Letters([], np.zeros((0, period.steps), dtype=np.int64), [], 0)
    names = Names()
    for batch in batches:
        names.codes(batch.column("reason"))
    sums = np.zeros((len(names.all), period.steps), dtype=np.int64)
    for batch in batches:
        step = (minutes(batch) - period.start) // period.step
        np.add.at(sums, (names.codes(batch.column("reason")), step), longs(batch, "count"))
    totals = sums.sum(axis=1)
    order = sorted(range(len(names.all)), key=lambda at: (-int(totals[at]), names.all[at]))
    kinds, kinds_count = _kinds(pa.Table.from_batches(batches))
    return Letters([names.all[at] for at in order], sums[order], kinds, kinds_count)


def _kinds(rows: pa.Table) -> tuple[list[LetterKind], int]:
    rows = rows.append_column("row", pa.array(range(len(rows)), pa.int64()))
    groups = rows.sort_by("first_seen").group_by(list(_NAMED), use_threads=False)
    found = groups.aggregate(
        [
            *(("count", "sum"), ("first_seen", "min"), ("last_seen", "max")),
            *(("row", "first"), ("row", "list")),
        ]
    )
    order = [("count_sum", "descending"), ("last_seen_max", "descending")]
    top = found.sort_by([*order, *((name, "ascending") for name in _NAMED)])[:KINDS_MAX]
    firsts = rows.take(top["row_first"])
    columns = [texts(firsts[name]) for name in (*_NAMED, "error_class", "error_message")]
    queues, reasons, prints, classes, messages = columns
    return [
        LetterKind(
            queues[at],
            reasons[at],
            prints[at],
            top["count_sum"][at].as_py() or 0,
            _time(top["first_seen_min"][at]),
            _time(top["last_seen_max"][at]),
            classes[at],
            messages[at],
            _samples(rows["sample_job_ids"], top["row_list"][at].as_py()),
        )
        for at in range(len(top))
    ], len(found)


def _samples(column: pa.ChunkedArray, rows: list[int]) -> tuple[int, ...]:
    """Return the first job ids of rows that are in order of time."""
    found: list[int] = []
    for row in rows:
        found += [each for each in column[row].as_py() or () if each is not None]
        if len(found) >= _SAMPLES_MAX:
            break
    return tuple(dict.fromkeys(found))[:_SAMPLES_MAX]


def _time(value: pa.Scalar) -> datetime | None:
    # Not as_py, which wants a database of time zones.
    micros = value.cast(pa.int64()).as_py()
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
