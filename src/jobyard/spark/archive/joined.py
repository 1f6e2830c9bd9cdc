"""The rows of one range, from the archive where it has them, and from the yard elsewhere.

The list of files is looked at where a range begins and ends, and whenever the yard says that
records are gone: what was archived since the read was planned is then read from its file. A row is
never read twice, since both go on behind the last seq that was handed out. Runs on executors.
"""

import threading
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import final

import pyarrow as pa

from jobyard.client import JobyardError, YardClient
from jobyard.client.errors import Code
from jobyard.lake.archive.faults import not_found
from jobyard.lake.archive.index import FileEntry, TopicIndex
from jobyard.lake.archive.reading import Archive
from jobyard.spark.read.columns import Table
from jobyard.spark.read.export import RangeExport
from jobyard.spark.read.losses import Losses, LossRule, dropped
from jobyard.spark.read.prefetch import BatchSource
from jobyard.spark.read.ranges import SeqPartition, SeqRange
from jobyard.spark.read.reading import Reading

_STRICT = LossRule(is_fatal=True)
_NOT_ARCHIVED = "not archived"


@dataclass(frozen=True)
class ArchiveReading(Reading):
    """How partitions of a read with an archive are read. Can be sent to executors."""

    archive_path: str = ""
    # Whether the yard is not asked.
    is_alone: bool = False

    def read(self, partition: object) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of a partition."""
        if not self.is_alone:
            yield from super().read(partition)
            return
        losses = Losses(self.loss_rule)
        query = {"columns": ",".join(self.table.sources())}
        for wanted in partition.ranges if isinstance(partition, SeqPartition) else ():
            rows = JoinedRange(self, None, wanted, query, threading.Event(), losses)
            while (found := rows.next_batch()) is not None:
                yield self.table.batch(found, wanted.topic)

    def opened(
        self,
        client: YardClient,
        wanted: SeqRange,
        query: Mapping[str, str],
        closed: threading.Event,
        losses: Losses,
    ) -> BatchSource:
        """Return the rows of one range."""
        return JoinedRange(self, client, wanted, query, closed, losses)


@final
class JoinedRange:
    """One range, read batch by batch."""

    def __init__(
        self,
        reading: ArchiveReading,
        client: YardClient | None,
        wanted: SeqRange,
        query: Mapping[str, str],
        closed: threading.Event,
        losses: Losses,
    ) -> None:
        self._reading = reading
        self._archive = Archive(reading.archive_path, wanted.topic)
        self._client = client
        self._wanted = wanted
        self._query = query
        self._columns = query["columns"].split(",")
        self._closed = closed
        self._losses = losses
        self._reached = wanted.after_seq
        # One of them is read, up to `_end`.
        self._rows: Iterator[pa.RecordBatch] | None = None
        self._export: RangeExport | None = None
        self._end = wanted.after_seq
        # Whether the yard may pass over what neither of the two has.
        self._may_lose = False

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end of the range."""
        while self._reached < self._wanted.to_seq or self._rows is not None:
            if self._rows is None and self._export is None:
                self._begin()
                continue
            found = self._next_archived() if self._rows is not None else self._next_exported()
            if found is not None:
                return found
            if self._closed.is_set():
                return None
        return None

    def park(self) -> None:
        """Free what is held while nothing is wanted."""
        if self._export is not None:
            self._export.park()

    def _begin(self) -> None:
        """Choose where the next rows come from."""
        wanted = self._wanted
        index = self._index()
        entry = index.file_after(wanted.incarnation, self._reached)
        if entry is not None:
            self._open(entry)
            return
        life = index.life(wanted.incarnation)
        is_before = life is not None and self._reached < life.after_seq
        self._end = min(life.after_seq, wanted.to_seq) if life and is_before else wanted.to_seq
        if self._client is None:
            lost = dropped(wanted.topic, self._reached + 1, self._end, _NOT_ARCHIVED)
            self._losses.meet(lost)
            self._reached = self._end
            return
        self._export = RangeExport(
            self._client,
            wanted._replace(after_seq=self._reached, to_seq=self._end),
            self._query,
            self._closed.wait,
            retries_max=self._reading.connecting.retries_max,
            losses=self._losses if self._may_lose else Losses(_STRICT),
        )

    def _index(self) -> TopicIndex:
        index = self._archive.index()
        planned = self._wanted.archived_to
        life = index.life(self._wanted.incarnation)
        if planned > 0 and (life is None or life.to_seq < planned):
            raise not_found(
                self._archive.path,
                f"has {life.to_seq if life is not None else 0} as last number of "
                f"{self._wanted.topic}, where the driver saw {planned},",
            )
        return index

    def _open(self, entry: FileEntry) -> None:
        wanted = self._wanted
        if entry.gap is not None and self._reached < entry.after_seq:
            end = min(entry.after_seq, wanted.to_seq)
            self._losses.meet(dropped(wanted.topic, self._reached + 1, end, entry.gap.reason))
            self._reached = end
        self._end = min(entry.to_seq, wanted.to_seq)
        self._rows = self._archive.rows(entry, self._reached, self._end, self._columns)

    def _next_archived(self) -> pa.RecordBatch | None:
        assert self._rows is not None
        for found in self._rows:
            if found.num_rows > 0:
                return _with_all(found, self._reading.table)
        self._rows = None
        self._reached = self._end
        return None

    def _next_exported(self) -> pa.RecordBatch | None:
        export = self._export
        assert export is not None
        try:
            found = export.next_batch()
        except JobyardError as error:
            if error.code != Code.DATA_LOSS or self._may_lose:
                raise
            self._reached = export.reached
            self._export = None
            if self._index().file_after(self._wanted.incarnation, self._reached) is None:
                # Neither has it. Asked for again, the yard says so as for any other read.
                self._may_lose = True
            return None
        if found is None and not self._closed.is_set():
            self._reached = self._end
            self._export = None
        return found


def _with_all(found: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    """Return rows with all columns of a table: files that are older may lack some."""
    for column in table.columns:
        if column.source and column.source not in found.schema.names:
            field = pa.field(column.source, column.kind.arrow)
            found = found.append_column(field, pa.nulls(found.num_rows, column.kind.arrow))
    return found
