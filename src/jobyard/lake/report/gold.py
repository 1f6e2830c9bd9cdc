"""Reads gold tables with pyarrow: the files a format names, the columns wanted, nothing else.

Partitions whose newest row is too old are not opened. A run of the pipeline may put other files in
the place of those that were listed; the reader then starts again (`attempts`). Knows the tables
and no figure of the report.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import schemas
from jobyard.lake.report.kll import Longs
from jobyard.lake.schemas import TableSchema
from jobyard.lake.tables import Partition, PartitionFacts, Tables

Result = TypeVar("Result")

_TYPES: Final = {
    schemas.TEXT: pa.string(),
    schemas.LONG: pa.int64(),
    schemas.REAL: pa.float64(),
    schemas.TIME: pa.timestamp("us", tz="UTC"),
    schemas.BYTES: pa.binary(),
    schemas.LONGS: pa.list_(pa.int64()),
}
MINUTE_US: Final = 60_000_000
# How often files may change while they are read before something other than a run is to blame.
_ATTEMPTS_MAX: Final = 3


@final
class Gold:
    """The gold tables of a lake as they are when they are first asked for."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._partitions: dict[str, Mapping[Partition, PartitionFacts]] = {}

    def partitions(self, table: TableSchema) -> Mapping[Partition, PartitionFacts]:
        """Return the partitions of a table that have rows."""
        if table.name not in self._partitions:
            self._partitions[table.name] = self._tables.partitions(table)
        return self._partitions[table.name]

    def files(self, table: TableSchema, partitions: Sequence[Partition]) -> list[str]:
        """Return the paths of the files of partitions."""
        return [str(path) for _, path in self._tables.files(table, partitions)]


class Slice(NamedTuple):
    """The part of a lake that a report is about: some minutes, and a queue or all of them."""

    gold: Gold
    # Minutes since 1970, both included; rows before and after are left out.
    since: int
    until: int
    queue: str | None

    def scan(
        self, table: TableSchema, columns: Sequence[str], time: str = "minute", *, old: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, some thousand at a time; with `old`, those before instead."""
        facts = self.gold.partitions(table)
        edge = self.since * MINUTE_US
        wanted = [
            partition
            for partition, fact in facts.items()
            if (
                fact.least.get(time, edge - 1) < edge
                if old
                else fact.greatest.get(time, edge) >= edge
            )
        ]
        paths = self.gold.files(table, wanted) if wanted else []
        if not paths:
            return
        field, begin = ds.field(time), _moment(self.since)
        rows = field < begin if old else (field >= begin) & (field <= _moment(self.until))
        if self.queue is not None:
            rows &= ds.field("queue") == self.queue
        files = ds.dataset(paths, schema=_schema_of(table), format="parquet")
        for batch in files.to_batches(columns=list(columns), filter=rows, batch_readahead=4):
            if batch.num_rows:
                yield batch


def attempts(tables: Tables, read: Callable[[Gold], Result]) -> Result:
    """Read, and read again if files change meanwhile."""
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return read(Gold(tables))
        except (pa.ArrowInvalid, OSError):
            continue  # the next listing has what took the place of a file
    try:
        return read(Gold(tables))
    except (pa.ArrowInvalid, OSError) as error:
        raise JobyardError(
            Code.LAKE_DAMAGED,
            f"A file of the lake cannot be read: {error}.",
            remedy="Compare the lake with the yard: jobyard pipeline check.",
        ) from error


def span(gold: Gold, table: TableSchema, time: str = "minute") -> tuple[int, int] | None:
    """Return the first and the last minute that a table has rows of; None if it is empty."""
    facts = list(gold.partitions(table).values())
    firsts = [fact.least[time] for fact in facts if time in fact.least]
    lasts = [fact.greatest[time] for fact in facts if time in fact.greatest]
    if not firsts or not lasts:
        return None
    return min(firsts) // MINUTE_US, max(lasts) // MINUTE_US


def queues_of(gold: Gold, since: int, until: int, limit: int) -> list[str]:
    """Return the names of queues with rows since a minute, in order, at most so many."""
    names: set[str] = set()
    for batch in Slice(gold, since, until, None).scan(schemas.QUEUE_MINUTE, ["queue"]):
        names.update(texts(batch.column(0).unique()))
        if len(names) >= limit:
            break
    return sorted(names)[:limit]


def minutes(batch: pa.RecordBatch, column: str = "minute") -> Longs:
    """Return a column of times as minutes since 1970."""
    return longs(batch, column) // MINUTE_US


def longs(batch: pa.RecordBatch, column: str) -> Longs:
    """Return a column of integers or times; null is 0."""
    values = batch.column(column)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, 0)
    return np.asarray(values).astype(np.int64, copy=False)


def texts(column: pa.Array) -> list[str]:
    """Return a column of text; null is empty, and bytes that are no text are replaced."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return [
        (each or b"").decode("utf-8", "replace") for each in column.cast(pa.binary()).to_pylist()
    ]


class Names:
    """Numbers for names, in the order in which the names are met."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def codes(self, column: pa.Array) -> Longs:
        """Return the number of the name in each row; new names get the next numbers."""
        coded = column.dictionary_encode()
        known = [self._number(name) for name in texts(coded.dictionary)]
        indices = coded.indices
        if indices.null_count:
            known.append(self._number(""))
            indices = pc.fill_null(indices, len(known) - 1)
        numbers: Longs = np.array(known, dtype=np.int64)[np.asarray(indices)]
        return numbers

    def _number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self.all))
        if number == len(self.all):
            self.all.append(name)
        return number


def _moment(minute: int) -> pa.Scalar:
    return pa.scalar(minute * MINUTE_US, pa.timestamp("us", tz="UTC"))


def _schema_of(table: TableSchema) -> pa.Schema:
    return pa.schema([(column.name, _TYPES[column.type]) for column in table.columns])
