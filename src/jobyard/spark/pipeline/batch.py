"""One batch: from events to staged files of all tables that change, and one commit.

Bronze is staged first and read back, so the server is asked once; silver is merged with what it had
of the same partitions; gold is made from silver as it will be. Nothing is seen before the commit.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from jobyard.lake.schemas import (
    ATTEMPTS,
    DLQ_REASON_MINUTE,
    EVENTS,
    JOBS,
    QUEUE_MINUTE,
    SLO,
    WORKER_MINUTE,
    TableSchema,
)
from jobyard.lake.tables import Batch, Change, Partition, Tables
from jobyard.spark.pipeline import gold, silver
from jobyard.spark.pipeline.frames import from_files, stage, staged_files, tasks_for
from jobyard.spark.pipeline.objectives import Objectives
from jobyard.spark.pipeline.slo import days_before, slo
from jobyard.spark.pipeline.touched import (
    Snapshot,
    Touched,
    events_in,
    touched,
    with_ends_in,
    within_hours,
)


@final
class Staging:
    """The folder of a batch, with what was staged of each table."""

    def __init__(self, spark: SparkSession, tables: Tables, folder: Path) -> None:
        self._spark = spark
        self.tables = Snapshot(tables)
        self._folder = folder
        self.changes: list[Change] = []

    def before(self, table: TableSchema, partitions: Iterable[Partition]) -> DataFrame:
        """Return the rows that partitions of a table have now."""
        return from_files(self._spark, table, self.tables.files(table, partitions))

    def count_before(self, table: TableSchema, partitions: Iterable[Partition]) -> int:
        """Return how many rows they are."""
        known = self.tables.partitions(table)
        return sum(known[each].rows for each in partitions if each in known)

    def add(self, table: TableSchema, rows: DataFrame) -> None:
        """Stage rows that a table gets in addition."""
        folder = self._folder_of(table)
        stage(rows, table, folder, is_whole=False)
        self.changes.append(Change(table, folder, None))

    def replace(
        self, table: TableSchema, rows: DataFrame, partitions: frozenset[Partition]
    ) -> None:
        """Stage rows that take the place of those in partitions."""
        folder = self._folder_of(table)
        stage(rows, table, folder)
        found = {partition for partition, _ in staged_files(folder)}
        # Their rows would be gone: nobody has read them.
        assert not (found - partitions) & set(self.tables.partitions(table)), table.name
        self.changes.append(Change(table, folder, partitions | found))

    def paths(self, table: TableSchema) -> list[Path]:
        """Return the files that were staged of a table."""
        return [path for _, path in staged_files(self._folder_of(table))]

    def after(self, table: TableSchema, partitions: Iterable[Partition]) -> DataFrame:
        """Return the rows that partitions will have."""
        replaced = {
            partition
            for change in self.changes
            if change.table is table
            for partition in change.replaced or ()
        }
        wanted = set(partitions)
        paths = [path for at, path in staged_files(self._folder_of(table)) if at in wanted]
        paths += self.tables.files(table, sorted(wanted - replaced))
        return from_files(self._spark, table, paths)

    def known(self, table: TableSchema) -> list[Partition]:
        """Return the partitions that a table has now."""
        return sorted(self.tables.partitions(table))

    def runs_in(self, hours: frozenset[Partition]) -> DataFrame:
        """Return the runs that will have begun or ended in some hours, and perhaps more."""
        wanted = with_ends_in(self.tables.partitions(ATTEMPTS), hours)
        wanted |= {at for at, _ in staged_files(self._folder_of(ATTEMPTS))}
        return self.after(ATTEMPTS, wanted)

    def _folder_of(self, table: TableSchema) -> Path:
        return self._folder / table.name


def take_in(
    spark: SparkSession, tables: Tables, batch: Batch, rows: DataFrame, objectives: Objectives
) -> int:
    """Let the events of a range enter all tables; return how many they are."""
    staging = Staging(spark, tables, tables.staging(batch))
    staging.add(EVENTS, rows)
    paths = staging.paths(EVENTS)
    count: int = sum(pq.read_metadata(path).num_rows for path in paths)
    if count:
        affected = touched(staging.tables, batch.yard, events_in(paths))
        known = staging.count_before(ATTEMPTS, affected.attempts)
        known += staging.count_before(JOBS, affected.jobs)
        lives = silver.marked(
            spark,
            from_files(spark, EVENTS, paths),
            staging.before(ATTEMPTS, affected.attempts),
            staging.before(JOBS, affected.jobs),
            tasks_for(count + known),
        ).persist()
        try:
            _stage_all(spark, staging, lives, affected, objectives)
        finally:
            lives.unpersist()
    tables.commit(batch, staging.changes if count else [])
    return count


def _stage_all(
    spark: SparkSession,
    staging: Staging,
    lives: DataFrame,
    affected: Touched,
    objectives: Objectives,
) -> None:
    """Stage silver, and gold as it follows from that."""
    staging.replace(ATTEMPTS, silver.attempts(spark, lives), affected.attempts)
    staging.replace(JOBS, silver.jobs(spark, lives), affected.jobs)
    runs = staging.runs_in(affected.hours)
    within = within_hours(affected.hours)
    counted = gold.rows_of_runs(spark, runs).where(within("minute"))
    before = staging.before(QUEUE_MINUTE, affected.hours)
    minutes = gold.queue_minute(spark, counted, before, lives)
    staging.replace(QUEUE_MINUTE, minutes, affected.hours)
    staging.replace(WORKER_MINUTE, gold.worker_minute(spark, counted), affected.hours)
    letters = staging.before(DLQ_REASON_MINUTE, affected.days)
    staging.replace(DLQ_REASON_MINUTE, gold.dlq_reason_minute(spark, letters, lives), affected.days)
    if objectives.all:
        first, last = days_before(sorted(affected.days), objectives.window_days)
        days = [day for day in staging.known(SLO) if first <= day[0] <= last]
        found = slo(spark, runs, staging.before(SLO, days), within, objectives)
        changed = min(affected.days)
        staging.replace(
            SLO,
            found.where(f"to_date(hour_at) >= DATE '{changed[0]}'"),
            frozenset(day for day in days if day >= changed),
        )
