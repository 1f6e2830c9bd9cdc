"""Writing: tasks stage their records on the yard, and the driver commits them at once.

A transaction is a batch. Its name is drawn once for a write, and is made of query and batch number
for a stream, so that a batch that Spark repeats after a crash is found committed and does nothing.
Only what the winning attempt of each task has staged is named in the commit; everything else is
dropped by the server. An abort never undoes what may have been committed.
"""

import json
import re
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from jobyard.client import Answer, JobyardError, YardClient
from jobyard.client.txns import Transactions
from jobyard.spark.write.bad_rows import BadRows, BadRowsFile, name_files, remove_files
from jobyard.spark.write.options import WriteOptions
from jobyard.spark.write.records import BadRow, RecordReader
from jobyard.spark.write.sending import ChunkSender, Counts, Part

COMMITTED: Final = "committed"
_UNFIT_FOR_NAME: Final = re.compile(r"[^A-Za-z0-9._~-]")


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task has done."""

    parts: list[Part] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    bad: BadRows = field(default_factory=BadRows)
    # The transaction, which a stream's driver learns from its tasks.
    txn: str = ""
    # The transaction had been committed before; this is a repeated batch.
    was_committed: bool = False


@dataclass(frozen=True)
class Committed:
    """What a write has done."""

    txn: str
    written: int
    duplicates: int
    rejected: int
    # Whether the transaction had been committed before.
    is_repeated: bool = False


@final
class TaskWriter:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions, txn: str, part: int) -> None:
        self._options = options
        self._txn = txn
        self._part = part
        # Drawn, not counted: a driver that starts again counts attempts from the beginning.
        self._attempt = secrets.randbits(62)

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send all rows; return what the driver must know."""
        written = TaskWritten(txn=self._txn)
        options = self._options
        name = f"{_UNFIT_FOR_NAME.sub('-', self._txn)}-{self._part}-{self._attempt}"
        aside = BadRowsFile(options.bad_rows_path, name)
        reader = RecordReader(options)
        with options.connecting.client() as client:
            txn = self._txn if options.is_staged else ""
            sender = ChunkSender(client, txn, self._part, self._attempt)
            try:
                for batch in batches:
                    self._write_batch(batch, reader, sender, aside, written)
                written.parts = sender.finish()
            except JobyardError as error:
                if error.code != COMMITTED:
                    raise
                written.was_committed = True
            written.counts = sender.counts
        if options.bad_rows_path and not written.was_committed:
            written.bad.files = aside.write()
        return written

    def _write_batch(
        self,
        batch: pa.RecordBatch,
        reader: RecordReader,
        sender: ChunkSender,
        aside: BadRowsFile,
        written: TaskWritten,
    ) -> None:
        bodies = reader.bodies(batch)
        if bodies is not None:
            sender.add_all(self._options.topic, bodies)
            return
        bad: list[tuple[int, BadRow]] = []
        for place, one in enumerate(reader.read(batch)):
            if isinstance(one, BadRow):
                written.bad.add(self._part, one)
                bad.append((place, one))
            else:
                sender.add(one)
        if bad and self._options.bad_rows_path:
            aside.add(batch, bad)


def encode_written(written: TaskWritten) -> str:
    """Return what a task has done as JSON."""
    bad = written.bad
    return json.dumps(
        {
            "parts": [list(part) for part in written.parts],
            "counts": list(written.counts),
            "reasons": dict(bad.reasons),
            "examples": [[part, *row] for part, row in bad.examples],
            "files": bad.files,
            "txn": written.txn,
            "was_committed": written.was_committed,
        }
    )


def decode_written(text: str) -> TaskWritten:
    """Decode what `encode_written` made."""
    given = json.loads(text)
    bad = BadRows()
    bad.reasons.update(given["reasons"])
    bad.examples = [(part, BadRow(*row)) for part, *row in given["examples"]]
    bad.files = given["files"]
    return TaskWritten(
        parts=[Part(*part) for part in given["parts"]],
        counts=Counts(*given["counts"]),
        bad=bad,
        txn=given["txn"],
        was_committed=given["was_committed"],
    )


def commit_tasks(options: WriteOptions, messages: list[TaskWritten | None]) -> Committed:
    """Make what the tasks have staged visible, all at once; or refuse all of it."""
    done = [message for message in messages if message is not None]
    bad = BadRows()
    for message in done:
        bad.join(message.bad)
    txn = next((message.txn for message in done if message.txn), "")
    if bad.count() > 0 and not options.bad_rows_path:
        if options.is_staged:
            _abort(options, txn)
        raise bad.error()
    if not options.is_staged:
        name_files(bad.files)
        return Committed(
            "",
            sum(message.counts.written for message in done),
            sum(message.counts.duplicates for message in done),
            bad.count(),
        )
    with options.connecting.client() as client:
        answer = _commit_staged(client, txn, done)
    name_files(bad.files)
    written, duplicates = totals(answer)
    is_repeated = any(message.was_committed for message in done)
    return Committed(txn, written, duplicates, bad.count(), is_repeated)


def _commit_staged(client: YardClient, txn: str, done: list[TaskWritten]) -> Answer:
    txns = Transactions(client)
    if any(message.was_committed for message in done):
        return txns.look(txn)
    parts = [part.fields() for message in done for part in message.parts]
    try:
        return txns.commit(txn, {"parts": parts})
    except JobyardError as error:
        # A repeated batch whose tasks staged nothing had no chance to notice.
        if error.code == "txn_differs" and not parts:
            return txns.look(txn)
        raise


def totals(answer: Answer) -> tuple[int, int]:
    """Return how many records a commit has written, and how many were duplicates."""
    topics = answer.fields.get("topics")
    each = topics.values() if isinstance(topics, dict) else ()
    found = [one for one in each if isinstance(one, dict)]
    return (
        sum(int(one.get("written", 0)) for one in found),
        sum(int(one.get("duplicates", 0)) for one in found),
    )


def abort_tasks(options: WriteOptions, messages: list[TaskWritten | None]) -> None:
    """Drop what was staged, unless it was committed; the server keeps that."""
    done = [message for message in messages if message is not None]
    remove_files([file for message in done for file in message.bad.files])
    txn = next((message.txn for message in done if message.txn), "")
    if options.is_staged and txn:
        _abort(options, txn)


def _abort(options: WriteOptions, txn: str) -> None:
    with options.connecting.client() as client:
        try:
            Transactions(client).abort(txn)
        except JobyardError:
            # Committed, or out of reach: what is staged expires by itself.
            return


@final
class BatchWriter(DataSourceArrowWriter):
    """One write of a batch."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        # Pickled with the writer, so all tasks and the driver have the same.
        self.txn = options.txn or f"batch:{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        return TaskWriter(self.options, self.txn, context.partitionId()).write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write."""
        commit_tasks(self.options, _own(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the write."""
        abort_tasks(self.options, _own(messages))


@final
class StreamWriter(DataSourceStreamArrowWriter):
    """The writes of a stream. Made again for each batch; only tasks know the query."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of one task of a batch."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        txn = f"{query}:{batch}"
        return TaskWriter(self.options, txn, context.partitionId()).write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  Spark's names
        """Commit a batch."""
        commit_tasks(self.options, _own(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  Spark's names
        """Drop a batch, unless it may have been committed."""
        abort_tasks(self.options, _own(messages))


def _own(messages: list[WriterCommitMessage | None]) -> list[TaskWritten | None]:
    return [message if isinstance(message, TaskWritten) else None for message in messages]
