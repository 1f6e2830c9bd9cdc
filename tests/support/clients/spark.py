"""Reads through the reader classes as Spark does: planned here, pickled, read there."""

import json
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from jobyard.spark.read.batch import PushingBatchReader
from jobyard.spark.source import JobyardSource
from tests.support.values.pickled import sent

Row = dict[str, Any]
# Columns of a topic that need no text of a record.
BARE = "topic partition seq ts key node"


def source_of(url: str, **options: str) -> JobyardSource:
    """Return a source with options, which has crossed to another process."""
    made: JobyardSource = sent(JobyardSource({"url": url, **options}))
    return made


def schema(source: JobyardSource, names: str = "") -> StructType:
    """Return these columns of a source, or all."""
    whole = source.schema()
    wanted = names.split() or whole.fieldNames()
    return StructType([field for field in whole.fields if field.name in wanted])


def read_batch(url: str, names: str = BARE, filters: Any = None, **options: str) -> list[Row]:
    """Return the rows of a batch read."""
    source = source_of(url, **options)
    reader = source.reader(schema=schema(source, names))
    if filters is not None:
        reader = PushingBatchReader(reader.options, reader.table)
        kept = list(reader.pushFilters(filters))
        assert kept == filters, "Spark must apply all of them again"
    return rows_of(reader, reader.partitions())


def rows_of(reader: Any, partitions: list[Any]) -> list[Row]:
    """Return what the tasks of a read find."""
    found: list[Row] = []
    for partition in sent(partitions):
        copy = sent(reader)
        for batch in copy.read(partition):
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


class Query:
    """One run of a query: what Spark asks of a reader, in the order in which it asks."""

    def __init__(self, url: str, start: Any = None, **options: str) -> None:
        source = source_of(url, **{"pollIntervalMs": "20", **options})
        self.reader = source.streamReader(schema=schema(source, "topic seq"))
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()
        # Through JSON, as in a checkpoint.
        self.at = (
            start if start is not None else json.loads(json.dumps(self.reader.initialOffset()))
        )

    def plan(self, limit: ReadLimit | None = None) -> Any:
        return json.loads(json.dumps(self.reader.latestOffset(self.at, limit or self.limit)))

    def batch(self, limit: ReadLimit | None = None) -> list[tuple[str, int]]:
        """Run one batch and return its rows."""
        end = self.plan(limit)
        rows = self.rows(self.at, end)
        self.at = end
        return rows

    def rows(self, start: Any, end: Any) -> list[tuple[str, int]]:
        found = rows_of(self.reader, list(self.reader.partitions(start, end)))
        # The history has no column for it.
        return [(row.get("topic", ""), row["seq"]) for row in found]

    def until_end(self) -> list[list[tuple[str, int]]]:
        """Run batches until there is nothing new, as with the trigger availableNow."""
        self.reader.prepareForTriggerAvailableNow()
        batches = []
        while (end := self.plan()) != self.at:
            batches.append(self.rows(self.at, end))
            self.at = end
        return batches

    def stop(self) -> None:
        self.reader.stop()
