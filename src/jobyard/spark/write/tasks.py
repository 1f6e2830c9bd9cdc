"""A task of a write: sends the rows of one partition, and tells the driver what it has done."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from jobyard.client import JobyardError
from jobyard.spark.write.bad_rows import BadRows, BadRowsFile
from jobyard.spark.write.options import WriteOptions
from jobyard.spark.write.records import BadRow, RecordReader
from jobyard.spark.write.refusals import COMMITTED, explained
from jobyard.spark.write.sending import ChunkSender, Part, WriteCounts


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task has done."""

    parts: list[Part] = field(default_factory=list)
    counts: WriteCounts = field(default_factory=WriteCounts)
    bad: BadRows = field(default_factory=BadRows)
    # The transaction, which a stream's driver learns from its tasks.
    txn: str = ""
    # The transaction had been committed before; this is a repeated batch.
    was_committed: bool = False
    # How much of what a commit may hold was staged, in records and bytes as the server counts, and
    # how much it may hold; 0 if nothing was. A task that finds its share too large stops.
    size: int = 0
    staged_bytes: int = 0
    rows_max: int = 0
    bytes_max: int = 0


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
        aside = BadRowsFile(options.bad_rows_path, self._txn, self._part, self._attempt)
        reader = RecordReader(options)
        with options.connecting.client() as client:
            txn = self._txn if options.is_staged else ""
            sender = ChunkSender(client, txn, self._part, self._attempt)
            try:
                for batch in batches:
                    self._write_batch(batch, reader, sender, aside, written)
                    if sender.is_too_large:
                        break
                if not sender.is_too_large:
                    # What is left may be too large as well: the driver adds up.
                    written.parts = sender.finish()
            except JobyardError as error:
                if error.code != COMMITTED:
                    raise explained(error) from None
                written.was_committed = True
            written.counts = sender.counts
            written.size, written.rows_max = sender.size, sender.rows_max
            written.staged_bytes, written.bytes_max = sender.staged_bytes, sender.bytes_max
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
            "size": written.size,
            "staged_bytes": written.staged_bytes,
            "rows_max": written.rows_max,
            "bytes_max": written.bytes_max,
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
        counts=WriteCounts(*given["counts"]),
        bad=bad,
        txn=given["txn"],
        was_committed=given["was_committed"],
        size=given["size"],
        staged_bytes=given["staged_bytes"],
        rows_max=given["rows_max"],
        bytes_max=given["bytes_max"],
    )
