"""What Parquet files say of themselves: their columns, and facts of them without reading rows.

The only place that knows how columns of a table are stored in Parquet. It writes nothing.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from jobyard.lake import schemas
from jobyard.lake.disk import damaged
from jobyard.lake.schemas import TableSchema
from jobyard.lake.tables import PartitionFacts

_TYPES: Final = {
    schemas.TEXT: pa.string(),
    schemas.LONG: pa.int64(),
    schemas.REAL: pa.float64(),
    schemas.TIME: pa.timestamp("us", tz="UTC"),
    schemas.DATE: pa.date32(),
    schemas.HOUR: pa.int32(),
    schemas.BYTES: pa.binary(),
    schemas.LONGS: pa.list_(pa.int64()),
}
_BOUNDED: Final = frozenset({schemas.LONG, schemas.TIME})


class FileFacts(NamedTuple):
    """The facts of one file, and by what it is known again without reading it."""

    size: int
    mtime_ns: int
    rows: int
    least: Mapping[str, int]
    greatest: Mapping[str, int]
    nulls: Mapping[str, int]

    def says_as(self, other: "FileFacts") -> bool:
        """Return whether the footers of both say the same."""
        return self._replace(mtime_ns=0) == other._replace(mtime_ns=0)


def arrow_schema(table: TableSchema, *, with_partition: bool = False) -> pa.Schema:
    """Return the columns of the files of a table, and those that its folders are named after."""
    columns = (*table.columns, *table.partition_by) if with_partition else table.columns
    return pa.schema([(column.name, _TYPES[column.type]) for column in columns])


def is_as(schema: pa.Schema, table: TableSchema) -> bool:
    """Return whether a file has exactly the columns of a table, in their order and types."""
    wanted = arrow_schema(table)
    return schema.names == wanted.names and all(
        found.type == column.type for found, column in zip(schema, wanted, strict=True)
    )


def read_footer(path: Path) -> pq.FileMetaData:
    """Read the footer of a file that a lake should have."""
    try:
        return pq.read_metadata(path)
    except FileNotFoundError as fault:
        raise damaged(path, "the file is gone") from fault
    except (OSError, pa.ArrowException) as fault:
        raise damaged(path, f"the file cannot be read: {fault}") from fault


def facts_of(path: Path, table: TableSchema) -> FileFacts | None:
    """Return the facts of a file; None if its footer lacks some of them."""
    footer = read_footer(path)
    status = path.stat()
    types = {column.name: column.type for column in table.columns}
    least: dict[str, int] = {}
    greatest: dict[str, int] = {}
    nulls = dict.fromkeys(types, 0)
    seen = set()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            name = chunk.path_in_schema.partition(".")[0]
            if name not in types:
                continue
            seen.add(name)
            told = chunk.statistics
            if told is None or not told.has_null_count:
                return None
            nulls[name] += told.null_count
            if types[name] not in _BOUNDED or told.null_count == chunk.num_values:
                continue
            if not told.has_min_max or not isinstance(told.min_raw, int):
                return None
            least[name] = min(told.min_raw, least.get(name, told.min_raw))
            greatest[name] = max(told.max_raw, greatest.get(name, told.max_raw))
    # A file of an older version lacks columns that came later.
    nulls |= {name: footer.num_rows for name in types if name not in seen}
    return FileFacts(status.st_size, status.st_mtime_ns, footer.num_rows, least, greatest, nulls)


def sum_of(table: TableSchema, files: Iterable[FileFacts]) -> PartitionFacts:
    """Return the facts of a partition from those of its files."""
    rows = size = 0
    least: dict[str, int] = {}
    greatest: dict[str, int] = {}
    nulls = dict.fromkeys(table.names(), 0)
    for each in files:
        rows += each.rows
        size += each.size
        for name in nulls:
            nulls[name] += each.nulls.get(name, each.rows)
        for name, value in each.least.items():
            least[name] = min(value, least.get(name, value))
        for name, value in each.greatest.items():
            greatest[name] = max(value, greatest.get(name, value))
    return PartitionFacts(rows, size, least, greatest, nulls)
