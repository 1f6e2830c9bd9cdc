"""Writing: tasks stage their records on the yard, and the driver commits them at once.

A transaction is a batch. Its name is drawn once for a write, and is made of query and batch number
for a stream, so that a batch that Spark repeats after a crash is found committed and does nothing.
"""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from jobyard.spark.raising import raised_short
from jobyard.spark.write.committing import abort_tasks, commit_tasks
from jobyard.spark.write.options import DRAWN, WriteOptions
from jobyard.spark.write.tasks import TaskWriter, TaskWritten


@final
class BatchWriter(DataSourceArrowWriter):
    """One write of a batch."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        # Pickled with the writer, so all tasks and the driver have the same.
        self.txn = options.txn or f"{DRAWN}{uuid.uuid4()}"

    @raised_short
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        return TaskWriter(self.options, self.txn, context.partitionId()).write(iterator)

    @raised_short
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write."""
        commit_tasks(self.options, _own(messages), self.txn, is_named=True)

    @raised_short
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the write, unless it may have been committed."""
        abort_tasks(self.options, _own(messages), self.txn)


@final
class StreamWriter(DataSourceStreamArrowWriter):
    """The writes of a stream. Made again for each batch; only tasks know the query."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    @raised_short
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of one task of a batch."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        txn = f"{query}:{batch}"
        return TaskWriter(self.options, txn, context.partitionId()).write(iterator)

    @raised_short
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  Spark's names
        """Commit a batch."""
        commit_tasks(self.options, _own(messages))

    @raised_short
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Drop a batch, unless it may have been committed."""
        query = query_of(self.options.checkpoint)
        abort_tasks(self.options, _own(messages), f"{query}:{batchId}" if query else "")


def query_of(checkpoint: str) -> str:
    """Return the id of the query of a checkpoint; empty if it cannot be read here.

    Then only messages of tasks tell it; what tasks have staged that all failed expires by itself.
    """
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in ("", "file"):
        return ""
    try:
        found = json.loads((Path(unquote(parts.path)) / "metadata").read_text())
    except (OSError, ValueError):
        return ""
    query = found.get("id") if isinstance(found, dict) else None
    return query if isinstance(query, str) else ""


def _own(messages: list[WriterCommitMessage | None]) -> list[TaskWritten | None]:
    return [message if isinstance(message, TaskWritten) else None for message in messages]
