"""Gold tables made up for tests of the report, and a lake that holds them.

Shares no code with what it tests: sketches are written here from the description of their format.
Traffic has days and quiet nights, bursts, failures of several kinds, a fleet, and objectives.
"""

import datetime as dt
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobyard.lake import open_lake, schemas
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import TableSchema
from jobyard.lake.tables import Batch, Change, Partition

START = dt.datetime(2026, 11, 9, tzinfo=dt.UTC)
YARD = "5f0c2a9e7b1d4c36"
MINUTE_US = 60_000_000
ERRORS = (
    (
        "max_deliveries",
        "a1b2c3d4e5f60718",
        "ConnectionError",
        "mail.example:25 refused the connection",
    ),
    ("max_deliveries", "0f1e2d3c4b5a6978", "TimeoutError", "no answer within 30 s"),
    ("given_up", "99aabbccddeeff00", "ValueError", "order 8841 has no address"),
    ("expired", "", "", ""),
)
TYPES = {
    schemas.TEXT: pa.string(),
    schemas.LONG: pa.int64(),
    schemas.REAL: pa.float64(),
    schemas.TIME: pa.timestamp("us", tz="UTC"),
    schemas.BYTES: pa.binary(),
    schemas.LONGS: pa.list_(pa.int64()),
}
Columns = dict[str, Any]
# The columns of each table.
Gold = dict[str, Columns]


def sketch(values: Iterable[int]) -> bytes | None:
    """Return a sketch of less than 200 values, or None without any."""
    kept = sorted(values)
    if not kept:
        return None
    if len(kept) == 1:
        return struct.pack("<BBBBHBxq", 2, 2, 15, 4, 200, 8, kept[0])
    assert len(kept) < 200
    head = struct.pack("<BBBBHBxqHBxi", 5, 1, 15, 0, 200, 8, len(kept), 200, 1, 200 - len(kept))
    return head + struct.pack(f"<{len(kept) + 2}q", kept[0], kept[-1], *kept)


def write(staged: Path, table: TableSchema, columns: Columns) -> list[Partition]:
    """Write rows in the folders of their partitions; columns that are missing are null."""
    count = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns.get(each.name, [None] * count), TYPES[each.type]) for each in table.columns
    ]
    rows = pa.table(arrays, names=[each.name for each in table.columns])
    time = "hour_at" if table.name == "slo" else "minute"
    hours = np.asarray(rows[time].cast(pa.int64())) // (60 * MINUTE_US)
    by_hour = len(table.partition_by) == 2
    keys = hours if by_hour else hours // 24 * 24
    partitions = []
    for key in np.unique(keys):
        begin = dt.datetime.fromtimestamp(int(key) * 3600, dt.UTC)
        partition = (f"{begin:%Y-%m-%d}", str(begin.hour))[: len(table.partition_by)]
        named = zip(table.partition_by, partition, strict=True)
        folder = staged.joinpath(*(f"{each.name}={value}" for each, value in named))
        folder.mkdir(parents=True, exist_ok=True)
        chosen = rows.filter(pa.array(keys == key))
        pq.write_table(chosen, folder / "part-0.parquet", compression="zstd")
        partitions.append(partition)
    return partitions


def queue_rows(names: Sequence[str], minutes: int, *, seed: int = 7, busy: float = 1.0) -> Columns:
    """Return rows of queue_minute: every queue in every minute, fewer at night."""
    rng = np.random.default_rng(seed)
    first = int(START.timestamp()) // 60
    minute = np.repeat(np.arange(first, first + minutes), len(names))
    queue = np.tile(np.arange(len(names)), minutes)
    weight = busy * (40.0 / (1 + queue) + 2)
    day = 0.15 + np.maximum(0, np.sin((minute % 1440 - 360) / 1440 * 2 * np.pi))
    burst = np.where((minute % 1440 > 840) & (minute % 1440 < 885) & (queue % 3 == 0), 3.0, 1.0)
    rate = weight * day * burst
    enqueued = rng.poisson(rate)
    claimed = rng.poisson(rate * np.where(burst > 1, 0.7, 1.0))
    failed = rng.binomial(claimed, 0.02 + 0.03 * (queue % 4 == 1))
    expired = rng.binomial(claimed - failed, 0.002)
    abandoned = np.where(minute % 4320 == 2000, np.minimum(1, claimed - failed - expired), 0)
    completed = claimed - failed - expired - abandoned
    dead = rng.binomial(failed, 0.1)
    columns: Columns = {
        "yard": np.repeat([YARD], len(minute)),
        "queue": np.array(names)[queue],
        "minute": minute * MINUTE_US,
        "enqueued": enqueued,
        "claimed": claimed,
        "completed": completed,
        "failed": failed,
        "released": np.zeros_like(failed),
        "expired": expired,
        "abandoned": abandoned,
        "dead_lettered": dead,
        "retried": failed - dead,
        "backlog_change": enqueued - completed - dead,
    }
    for kind, scale in (("wait", 60.0 * burst**2), ("run", 250.0 * (1 + queue % 7))):
        columns |= _durations(rng, kind, claimed, scale)
    return columns


def _durations(rng: Any, kind: str, counts: Any, scale: Any) -> Columns:
    drawn = rng.lognormal(np.log(np.repeat(scale, counts)), 1.0).astype(np.int64)
    groups = np.split(drawn, np.cumsum(counts)[:-1])
    greatest = [float(group.max()) if len(group) else None for group in groups]
    return {
        f"{kind}_kll": [sketch(group[:199].tolist()) for group in groups],
        f"{kind}_max": greatest,
        f"{kind}_p50": [float(np.median(group)) if len(group) else None for group in groups],
    }


def worker_rows(names: Sequence[str], workers: int, minutes: int, *, seed: int = 3) -> Columns:
    """Return rows of worker_minute: a fleet of which some are idle at night."""
    rng = np.random.default_rng(seed)
    first = int(START.timestamp()) // 60
    minute = np.repeat(np.arange(first, first + minutes), workers)
    worker = np.tile(np.arange(workers), minutes)
    day = 0.1 + np.maximum(0, np.sin((minute % 1440 - 360) / 1440 * 2 * np.pi))
    load = np.clip(day * (1.1 - worker / (workers + 3)), 0, 1)
    claimed = rng.poisson(load * 12)
    failed = rng.binomial(claimed, 0.03)
    kept = claimed > 0
    busy_ms = np.clip(load * 60_000 * rng.uniform(0.6, 1.1, len(load)), 0, 60_000).astype(int)
    columns: Columns = {
        "yard": np.repeat([YARD], len(minute)),
        "worker": np.array([f"mailer-{each:02}" for each in range(workers)])[worker],
        "queue": np.array(names)[worker % len(names)],
        "minute": minute * MINUTE_US,
        "claimed": claimed,
        "completed": claimed - failed,
        "failed": failed,
        "lost": np.zeros_like(failed),
        "busy_ms": busy_ms,
        "utilisation": busy_ms / 60_000,
    }
    return {name: values[kept] for name, values in columns.items()}


def letter_rows(rows: Columns) -> Columns:
    """Return rows of dlq_reason_minute for the dead letters of rows of queue_minute."""
    found: list[tuple[Any, ...]] = []
    for at in np.flatnonzero(rows["dead_lettered"]):
        minute = int(rows["minute"][at])
        reason, fingerprint, kind, message = ERRORS[(minute // MINUTE_US + at) % len(ERRORS)]
        count = int(rows["dead_lettered"][at])
        seen = minute + 1_000_000, minute + 40_000_000
        ids = [int(at) * 10 + each for each in range(min(count, 5))]
        named = (str(rows["queue"][at]), reason, fingerprint, minute)
        found.append((str(rows["yard"][at]), *named, count, *seen, kind, message, ids))
    names = [column.name for column in schemas.DLQ_REASON_MINUTE.columns]
    return {name: [row[at] for row in found] for at, name in enumerate(names)}


def slo_rows(names: Sequence[str], hours: int) -> Columns:
    """Return rows of slo: two objectives of each queue; the first loses its budget."""
    found = []
    first = int(START.timestamp()) // 3600
    for queue_at, queue in enumerate(names):
        for objective, target in (("wait under 1 s", 0.99), ("done in 60 s", 0.999)):
            used = 0.0
            for hour in range(hours):
                good = 600 + 40 * (hour % 24)
                bad = (hour * 7 + queue_at) % (9 if queue_at else 4) + (25 if hour % 50 == 9 else 0)
                bad = bad if target < 0.999 else bad // 6
                burn = bad / (good + bad) / (1 - target)
                used += burn / (30 * 24)
                at = (first + hour) * 60 * MINUTE_US
                numbers = (good, bad, good / (good + bad), target, burn, burn * 0.8, 1 - used * 4)
                found.append((YARD, queue, objective, at, *numbers))
    columns = [column.name for column in schemas.SLO.columns]
    return {name: [row[at] for row in found] for at, name in enumerate(columns)}


class Staging:
    """A lake that is filled as a run of the pipeline fills it: staged, then committed."""

    def __init__(self, folder: Path) -> None:
        self.lake = open_lake(folder)
        self.batches = 0

    def commit(self, content: Mapping[str, Columns]) -> Lake:
        """Let rows enter tables, in the place of what their partitions had."""
        self.batches += 1
        batch = Batch(YARD, self.batches - 1, self.batches)
        with self.lake.lock():
            staging = self.lake.tables.staging(batch)
            changes = []
            for name, columns in content.items():
                table = schemas.TABLES[name]
                partitions = write(staging / name, table, columns)
                changes.append(Change(table, staging / name, frozenset(partitions)))
            self.lake.tables.commit(batch, changes)
        return self.lake


def make_gold(names: Sequence[str], minutes: int, *, workers: int = 12) -> Gold:
    """Return rows of all gold tables, of some queues over some minutes."""
    rows = queue_rows(names, minutes)
    content = {
        "queue_minute": rows,
        "worker_minute": worker_rows(names, workers, minutes),
        "dlq_reason_minute": letter_rows(rows),
        "slo": slo_rows(names[:3], -(-minutes // 60)),
    }
    return {name: columns for name, columns in content.items() if len(columns["yard"])}


def make_lake(folder: Path, names: Sequence[str], minutes: int, *, workers: int = 12) -> Lake:
    """Return a lake with all gold tables of some queues over some minutes."""
    return Staging(folder).commit(make_gold(names, minutes, workers=workers))
