"""Tables of a lake as DataFrames, and DataFrames as staged files of a table.

Reads files by name with the schema of their table, so that no job is needed to find it, and makes
the columns of the partition from those that they are derived from. Stages one file for each
partition, sorted by the key. Knows nothing of what the rows mean.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jobyard.lake.schemas import (
    BYTES,
    DATE,
    HOUR,
    LONG,
    LONGS,
    REAL,
    TEXT,
    TIME,
    Column,
    TableSchema,
)
from jobyard.lake.tables import Partition

_TYPES: Final[dict[str, DataType]] = {
    TEXT: StringType(),
    LONG: LongType(),
    REAL: DoubleType(),
    TIME: TimestampType(),
    DATE: DateType(),
    HOUR: IntegerType(),
    BYTES: BinaryType(),
    LONGS: ArrayType(LongType()),
}
# The column that the folders of a table are named after, as an expression of SQL.
DATED_BY: Final = {
    "events": "ts",
    "attempts": "claimed_at",
    "jobs": "coalesce(enqueued_at, TIMESTAMP '1970-01-01')",
    "queue_minute": "minute",
    "worker_minute": "minute",
    "dlq_reason_minute": "minute",
    "slo": "hour_at",
}
# Rows that one task sorts and merges: small enough for memory, large enough to be worth a task.
ROWS_PER_TASK: Final = 150_000
_TASKS_MAX: Final = 400


def struct_of(columns: Iterable[Column]) -> StructType:
    """Return columns as Spark's schema."""
    return StructType([StructField(column.name, _TYPES[column.type]) for column in columns])


def from_files(spark: SparkSession, table: TableSchema, paths: Sequence[Path]) -> DataFrame:
    """Return the rows of files of a table, without the columns of the partition."""
    if not paths:
        # Not a plain `WHERE false`: Spark would leave out the branch of a union that it is, and
        # mark columns of files as never null in one batch and not in another.
        return spark.createDataFrame([], struct_of(table.columns))
    # A name may have characters that a URI would escape, and Spark would not undo that.
    return spark.read.schema(struct_of(table.columns)).parquet(
        *(f"file://{path.absolute()}" for path in paths)
    )


def staged_files(folder: Path) -> list[tuple[Partition, Path]]:
    """Return what was staged in a folder, by partition."""
    return sorted((_partition_in(path.parent, folder), path) for path in folder.rglob("*.parquet"))


def _partition_in(folder: Path, root: Path) -> Partition:
    return tuple(part.partition("=")[2] for part in folder.relative_to(root).parts)


def stage(rows: DataFrame, table: TableSchema, folder: Path, *, is_whole: bool = True) -> None:
    """Write rows below a folder by partition: one file for each, or one for each task."""
    dated_by = DATED_BY[table.name]
    columns = [f"to_date({dated_by}) AS date", f"hour({dated_by}) AS hour"]
    by = [column.name for column in table.partition_by]
    found = rows.selectExpr(*table.names(), *columns[: len(by)])
    if is_whole:
        found = found.repartition(*by)
    found = found.sortWithinPartitions(*by, *table.key)
    (
        found.write.partitionBy(*by)
        .mode("append")
        .option("compression", "zstd")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(f"file://{folder.absolute()}")
    )


def tasks_for(rows_count: int) -> int:
    """Return how many tasks should share so many rows."""
    return min(max(rows_count // ROWS_PER_TASK + 1, 2), _TASKS_MAX)


@contextmanager
def settings(spark: SparkSession) -> Iterator[None]:
    """Set what results and files depend on, and what small batches need, for a while."""
    wanted = {
        # Minutes and dates are UTC, and statistics need times as integers.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Names of columns are ours; an error in an expression must not become a null.
        "spark.sql.ansi.enabled": "true",
        # Sizes are known, and its extra jobs cost more than they gain.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # What is read and what is cached is small or partitioned alike.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # A file that cannot be read is an error, and not no rows.
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.files.ignoreCorruptFiles": "false",
    }
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, text in before.items():
            if text is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, text)
