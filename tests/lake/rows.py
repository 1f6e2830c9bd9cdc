"""Rows for the tables of a lake, and how a run stages them; and what readers find."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobyard.lake import schemas
from jobyard.lake.schemas import ATTEMPTS, EVENTS, TABLES, TableSchema
from jobyard.lake.tables import Batch, Change, Partition, Tables

YARD = "a1b2c3d4e5f60718"
OTHER_YARD = "ffeeddccbbaa9988"
START = datetime(2026, 11, 16, tzinfo=UTC)
# Written here a second time: how Spark stores the columns.
ARROW = {
    schemas.TEXT: pa.string(),
    schemas.LONG: pa.int64(),
    schemas.REAL: pa.float64(),
    schemas.TIME: pa.timestamp("us", tz="UTC"),
    schemas.BYTES: pa.binary(),
    schemas.LONGS: pa.list_(pa.int64()),
}
Row = dict[str, object]
# Of one table: the rows of each partition.
Rows = Mapping[Partition, Iterable[Row]]


def event(seq: int, *, yard: str = YARD, minutes: int = 0) -> Row:
    return {"yard": yard, "seq": seq, "ts": START + timedelta(minutes=minutes), "event": "done"}


def attempt(job: int, *, yard: str = YARD, hour: int = 0, run_ms: int = 1) -> Row:
    claimed = START + timedelta(hours=hour, seconds=1)
    return {
        "yard": yard,
        "queue": "mail",
        "job_id": job,
        "attempt": 1,
        "claimed_at": claimed,
        "run_ms": run_ms,
        "last_seq": job,
    }


def arrow(table: TableSchema, rows: Iterable[Row]) -> pa.Table:
    fields = [(column.name, ARROW[column.type]) for column in table.columns]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def write(folder: Path, table: TableSchema, rows: Rows, *, files: int = 1) -> None:
    """Write rows as Spark does: several files for a partition, marks, and checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    for partition, each in rows.items():
        names = (f"{c.name}={v}" for c, v in zip(table.partition_by, partition, strict=True))
        inner = folder.joinpath(*names)
        inner.mkdir(parents=True, exist_ok=True)
        content = arrow(table, each)
        for number in range(files):
            # Whatever is left over is in the last; the others may be without rows.
            share = content.num_rows // files
            end = None if number == files - 1 else share
            path = inner / f"part-{number:05}-c000.snappy.parquet"
            pq.write_table(content.slice(number * share, end), path)
            (inner / f".{path.name}.crc").write_bytes(b"crc")
    (folder / "_SUCCESS").touch()


def stage(
    staging: Path,
    table: TableSchema,
    rows: Rows,
    replaced: Iterable[Partition] | None = None,
    *,
    files: int = 1,
) -> Change:
    write(staging / table.name, table, rows, files=files)
    partitions = None if replaced is None else frozenset(replaced)
    return Change(table, staging / table.name, partitions)


def send(
    tables: Tables,
    batch: Batch,
    events: Rows,
    attempts: Rows | None = None,
    replaced: Iterable[Partition] = (),
) -> None:
    """Commit a batch of events, and of attempts that replace theirs."""
    staging = tables.staging(batch)
    changes = [stage(staging, TABLES[EVENTS.name], events)]
    if attempts is not None:
        partitions = {*replaced, *attempts}
        changes.append(stage(staging, TABLES[ATTEMPTS.name], attempts, partitions))
    tables.commit(batch, changes)


def read(tables: Tables, table: TableSchema) -> list[Row]:
    """Return the rows that are not null of all columns, with the partition, in order."""
    found = []
    for partition, path in tables.files(table):
        for row in pq.ParquetFile(path).read().to_pylist():
            full = {name: value for name, value in row.items() if value is not None}
            found.append(full | {"in": partition})
    return sorted(found, key=lambda row: tuple(str(row[name]).zfill(20) for name in table.key))
