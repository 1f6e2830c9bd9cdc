"""Whether the files of a lake are what its manifest says, as a list of findings.

Every file is read, one at a time, and compared with its footer and the manifest. What rows mean,
and whether they agree with the server, is not known here. Nothing is changed.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import names
from jobyard.lake.footers import arrow_schema, facts_of
from jobyard.lake.intent import INTENT
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import TABLES, TableSchema
from jobyard.lake.staged import cast
from jobyard.lake.tables import Partition

_BATCH_ROWS: Final = 65_536


class FindingKind(StrEnum):
    """What can be wrong."""

    # A file is gone, was changed, or cannot be read.
    DAMAGED = "damaged"
    # A file belongs to no table.
    STRAY = "stray"
    # Two bronze files of a partition have the same part of the history of a yard.
    OVERLAP = "overlap"
    # Two rows of a partition have the same key, or a row has none.
    KEY = "key"
    # A commit was cut off; the next run ends it.
    UNFINISHED = "unfinished"


class Finding(NamedTuple):
    """One thing that is wrong, and where."""

    kind: FindingKind
    # The name of the table, or nothing.
    table: str
    path: str
    message: str


def check(lake: Lake) -> list[Finding]:
    """Return all that is wrong with the files of a lake."""
    with lake.reading():
        found = []
        if lake.tables.has_intent():
            path = str(lake.tables.manifest / INTENT)
            found.append(
                Finding(FindingKind.UNFINISHED, "", path, "a commit is in progress, or was cut off")
            )
        for table in TABLES.values():
            files, faults = _sought(lake, table)
            found += faults
            found += _check_files(lake, table, files)
            found += _overlaps(table, files)
            if lake.table_format == "parquet":
                found += _stray(lake, table)
        return found


def _sought(lake: Lake, table: TableSchema) -> tuple[list[tuple[Partition, Path]], list[Finding]]:
    """Return the files that are there, and what is wrong with the others."""
    try:
        return list(lake.tables.files(table)), []
    except JobyardError as fault:
        if fault.code != Code.LAKE_DAMAGED:
            raise
        first = _damaged(table, fault)
    # One that is gone hides the others, so all are looked for.
    files: list[tuple[Partition, Path]] = []
    faults = []
    for day in lake.tables.state().days.get(table.name, {}):
        try:
            partitions = sorted({each for each, _ in lake.tables.known_files(table, [day])})
        except JobyardError as fault:
            faults.append(_damaged(table, fault))
            continue
        for partition in partitions:
            try:
                files += lake.tables.files(table, [partition])
            except JobyardError as fault:
                faults.append(_damaged(table, fault))
    return files, faults or [first]


def _damaged(table: TableSchema, fault: JobyardError) -> Finding:
    path, _, message = fault.message.partition(": ")
    return Finding(FindingKind.DAMAGED, table.name, path, message)


def _check_files(
    lake: Lake, table: TableSchema, files: list[tuple[Partition, Path]]
) -> Iterator[Finding]:
    by_partition: dict[Partition, list[Path]] = {}
    for partition, path in files:
        by_partition.setdefault(partition, []).append(path)
    for partition, paths in by_partition.items():
        keys = []
        for path in paths:
            try:
                keys.append(_read(lake, table, partition, path))
            except JobyardError as fault:
                yield _damaged(table, fault)
            except (OSError, pa.ArrowException) as fault:
                message = " ".join(f"the file cannot be read: {fault}".split())
                yield Finding(FindingKind.DAMAGED, table.name, str(path), message[:300])
        yield from _keys(table, paths[0].parent, keys)


def _read(lake: Lake, table: TableSchema, partition: Partition, path: Path) -> pa.Table:
    """Read all of a file; return its keys, or raise what is wrong with it."""
    lake.tables.check_facts(table, partition, path, facts_of(path, table))
    schema = arrow_schema(table)
    keys = []
    rows = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            whole = cast(table, batch, schema, path)
            rows += whole.num_rows
            keys.append(whole.select(list(table.key)))
        told = file.metadata.num_rows
    if rows != told:
        raise pa.ArrowInvalid(f"{rows} rows where the footer says {told}")
    return pa.Table.from_batches(keys, pa.schema([schema.field(name) for name in table.key]))


def _keys(table: TableSchema, folder: Path, keys: list[pa.Table]) -> Iterator[Finding]:
    if not keys:
        return
    rows = pa.concat_tables(keys)
    for name in table.key:
        if nulls := rows.column(name).null_count:
            yield Finding(FindingKind.KEY, table.name, str(folder), f"{nulls} rows have no {name}")
    counts = rows.group_by(list(table.key)).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1))
    if twice.num_rows:
        first = {name: str(value) for name, value in twice.slice(0, 1).to_pylist()[0].items()}
        del first["count_all"]
        message = f"{twice.num_rows} keys are there twice, such as {first}"
        yield Finding(FindingKind.KEY, table.name, str(folder), message[:300])


def _overlaps(table: TableSchema, files: list[tuple[Partition, Path]]) -> Iterator[Finding]:
    ranges = []
    for partition, path in files:
        if (found := names.range_of(path.name)) is not None:
            ranges.append((partition, *found, path))
    ranges.sort()
    for one, other in pairwise(ranges):
        if one[:2] == other[:2] and other[2] < one[3]:
            message = f"its range overlaps that of {one[4].name}"
            yield Finding(FindingKind.OVERLAP, table.name, str(other[4]), message)


def _stray(lake: Lake, table: TableSchema) -> Iterator[Finding]:
    folder = lake.folder / table.name
    try:
        known = lake.tables.known_files(table, lake.tables.state().days.get(table.name, {}))
    except JobyardError:
        # The page that is damaged is a finding already; without it all of its day looks stray.
        return
    paths = {folder / names.folder_of(table, partition) / name for partition, name in known}
    # Days whose page is gone, which is a finding of its own.
    gone = lake.tables.state().days.get(table.name, {}).keys() - {each[0] for each, _ in known}
    for path in sorted(folder.rglob("*")):
        partition = names.partition_of(table, PurePosixPath(path.parent.relative_to(folder)))
        is_hidden = partition is not None and partition[0] in gone
        if not path.is_dir() and path not in paths and not is_hidden:
            yield Finding(FindingKind.STRAY, table.name, str(path), "the file belongs to no table")
