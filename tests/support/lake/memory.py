"""A source of events in memory, and the rows of a lake as plain Python."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from jobyard.lake import open_lake
from jobyard.lake.schemas import EVENTS, TABLES
from jobyard.spark.pipeline.events import History
from jobyard.spark.pipeline.frames import struct_of
from tests.support.lake.lives import YARD

Row = dict[str, Any]


class MemoryEvents:
    """Events of one yard, as far as `head` shows them."""

    def __init__(self, rows: list[Row], yard: str = YARD) -> None:
        self.all = rows
        self.yard = yard
        self.earliest = 1
        self.head = rows[-1]["seq"] if rows else 0

    def history(self) -> History:
        return History(self.yard, self.earliest, self.head)

    def seq_at(self, ts_ms: int) -> int:
        found = (row["seq"] for row in self.all if row["ts"].timestamp() * 1000 >= ts_ms)
        return next(found, self.head + 1)

    def rows(
        self, spark: SparkSession, history: History, from_seq: int, to_seq: int, **_: bool
    ) -> DataFrame:
        chosen = [
            (history.yard, *(row[name] for name in EVENTS.names()[1:]))
            for row in self.all if from_seq < row["seq"] <= to_seq
        ]  # fmt: skip
        return spark.createDataFrame(chosen, struct_of(EVENTS.columns))


def table_rows(lake: Path, name: str) -> list[Row]:
    """Return the rows of a table as any reader sees them, in the order of their key.

    A sketch is told by whether it is there: its bytes are drawn by chance.
    """
    opened = open_lake(lake)
    rows: list[Row] = []
    for partition, path in opened.tables.files(TABLES[name]):
        for row in pq.ParquetFile(path).read().to_pylist():
            for sketch in ("wait_kll", "run_kll"):
                if sketch in row:
                    row[sketch] = row[sketch] is not None
            rows.append(row | {"at": partition})
    return sorted(rows, key=lambda row: str([row[part] for part in TABLES[name].key]))


def everything(lake: Path) -> dict[str, list[Row]]:
    """Return all tables."""
    return {name: table_rows(lake, name) for name in TABLES}
