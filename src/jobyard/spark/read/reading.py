"""What a task does: reads the ranges of one partition, and yields batches for Spark.

Runs on executors, from what was pickled on the driver. Holds one connection and one thread for as
long as Spark takes batches.
"""

import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import final

import pyarrow as pa

from jobyard.client import YardClient
from jobyard.spark.options import Connecting
from jobyard.spark.read.columns import Table
from jobyard.spark.read.export import RangeExport
from jobyard.spark.read.losses import Losses, LossRule
from jobyard.spark.read.prefetch import PARK_S, ROOM_BYTES, BatchSource, Prefetch
from jobyard.spark.read.ranges import SeqPartition, SeqRange


@dataclass(frozen=True)
class Reading:
    """How partitions of one read are read. Can be sent to executors."""

    connecting: Connecting
    table: Table
    # Further parameters of each export.
    query: Mapping[str, str]
    loss_rule: LossRule
    room_bytes: int = ROOM_BYTES
    park_s: float = PARK_S

    def read(self, partition: object) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of a partition."""
        # Spark sends an empty partition where there is nothing to read.
        ranges = partition.ranges if isinstance(partition, SeqPartition) else ()
        if not ranges:
            return
        closed = threading.Event()
        with self.connecting.client(closed.wait) as client:
            source = _PartitionSource(self, client, ranges, closed)
            ahead = Prefetch(
                source, client.interrupt, closed,
                room_bytes=self.room_bytes, park_s=self.park_s,
            )  # fmt: skip
            try:
                yield from ahead
            finally:
                ahead.close()

    def opened(
        self,
        client: YardClient,
        wanted: SeqRange,
        query: Mapping[str, str],
        closed: threading.Event,
        losses: Losses,
    ) -> BatchSource:
        """Return the rows of one range."""
        return RangeExport(
            client, wanted, query, closed.wait,
            retries_max=self.connecting.retries_max, losses=losses,
        )  # fmt: skip


@final
class _PartitionSource:
    """The batches of some ranges, one range after the other."""

    def __init__(
        self,
        reading: Reading,
        client: YardClient,
        ranges: tuple[SeqRange, ...],
        closed: threading.Event,
    ) -> None:
        self._reading = reading
        self._client = client
        self._closed = closed
        self._left = list(reversed(ranges))
        self._topic = ""
        self._export: BatchSource | None = None
        self._losses = Losses(reading.loss_rule)
        self._query = {**reading.query, "columns": ",".join(reading.table.sources())}

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next rows; None after those of the last range."""
        while True:
            if self._export is None:
                if not self._left:
                    return None
                self._export = self._begin(self._left.pop())
            found = self._export.next_batch()
            if found is not None:
                return self._reading.table.batch(found, self._topic)
            if self._closed.is_set():
                return None
            self._export = None

    def park(self) -> None:
        """Close the stream while Spark does something else."""
        if self._export is not None:
            self._export.park()

    def _begin(self, wanted: SeqRange) -> BatchSource:
        self._topic = wanted.topic
        return self._reading.opened(self._client, wanted, self._query, self._closed, self._losses)
