"""From what a run has staged to files that can enter a table.

Spark writes several files for a partition, some without rows, with marks and checksums beside
them. Here they become few files of exactly the columns of the table, with complete footers, and
on the disk. Files that are so already are taken as they are. Rows pass through memory in pieces.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from jobyard.lake import names
from jobyard.lake.disk import Disk, bad_batch
from jobyard.lake.footers import FileFacts, arrow_schema, facts_of, is_as
from jobyard.lake.schemas import TableSchema
from jobyard.lake.tables import Change, Partition

# A partition with more becomes several files.
PART_BYTES_MAX: Final = 256 << 20
# A row group is what a reader holds in memory at a time.
_GROUP_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 65_536
_COMPRESSION: Final = "zstd"


class StagedPart(NamedTuple):
    """A file that is ready to enter a partition."""

    partition: Partition
    path: Path
    facts: FileFacts


class _Found(NamedTuple):
    path: Path
    # None if the file has to be written again to have what the table needs.
    facts: FileFacts | None


def parts(disk: Disk, change: Change, ready: Path, bytes_max: int) -> list[StagedPart]:
    """Return the files for the partitions of a change, on the disk, in `ready` or as staged.

    No file of them has much more than `bytes_max` bytes, unless one was staged so.
    """
    found = list(_found(change))
    if change.replaced is not None and (outside := {p for p, _ in found} - change.replaced):
        raise bad_batch(f"{change.table.name}: rows are staged for {min(outside)}, not replaced")
    made: list[StagedPart] = []
    for partition in sorted({p for p, _ in found}):
        for group in _groups([f for p, f in found if p == partition], bytes_max):
            first = group[0]
            if len(group) == 1 and first.facts is not None:
                disk.sync(first.path)
                made.append(StagedPart(partition, first.path, first.facts))
            else:
                disk.make_folder(ready)
                path = ready / f"{len(made)}.staged"
                paths = [each.path for each in group]
                made.append(StagedPart(partition, path, merge(disk, change.table, paths, path)))
    return made


def _found(change: Change) -> Iterator[tuple[Partition, _Found]]:
    """Yield the files with rows."""
    table = change.table
    for path in sorted(change.staged.rglob("*")):
        where = PurePosixPath(path.relative_to(change.staged))
        if path.is_dir() or any(part.startswith(("_", ".")) for part in where.parts):
            continue
        partition = names.partition_of(table, where.parent)
        if partition is None or where.suffix != names.SUFFIX:
            raise bad_batch(f"{table.name}: {where} is no file of a partition of this table")
        try:
            with pq.ParquetFile(path) as file:
                rows, schema = file.metadata.num_rows, file.schema_arrow
        except pa.ArrowException as fault:
            raise bad_batch(f"{table.name}: staged file {where} cannot be read: {fault}") from fault
        if rows == 0:
            continue
        if set(schema.names) != set(table.names()):
            wrong = set(schema.names) ^ set(table.names())
            raise bad_batch(f"{table.name}: columns {sorted(wrong)} are missing or too many")
        yield partition, _Found(path, facts_of(path, table) if is_as(schema, table) else None)


def _groups(found: Sequence[_Found], bytes_max: int) -> list[list[_Found]]:
    """Return what becomes one file each."""
    groups: list[list[_Found]] = []
    size = 0
    for each in found:
        own = each.path.stat().st_size
        if not groups or size + own > bytes_max:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += own
    return groups


def merge(disk: Disk, table: TableSchema, paths: Sequence[Path], target: Path) -> FileFacts:
    """Write the rows of files into one, with null for columns that older files lack."""
    schema = arrow_schema(table)
    with disk.create(target) as file, pq.ParquetWriter(file, schema, compression=_COMPRESSION) as w:
        for group in _row_groups(table, paths, schema):
            w.write_table(group, row_group_size=group.num_rows)
    disk.sync(target)
    facts = facts_of(target, table)
    assert facts is not None, "pyarrow writes complete footers"
    return facts


def _row_groups(table: TableSchema, paths: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                waiting.append(cast(table, batch, schema, path))
                size += waiting[-1].nbytes
                if size >= _GROUP_BYTES:
                    yield pa.Table.from_batches(waiting)
                    waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def cast(
    table: TableSchema, batch: pa.RecordBatch, schema: pa.Schema, path: Path
) -> pa.RecordBatch:
    """Return rows with exactly these columns, null where the file has none."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(batch.column(field.name).cast(field.type))
        except pa.ArrowException as fault:
            raise bad_batch(f"{table.name}: {path.name}, column {field.name}: {fault}") from fault
    return pa.RecordBatch.from_arrays(columns, schema=schema)
