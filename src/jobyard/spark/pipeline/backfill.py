"""Silver and gold made again from bronze, for whole days.

The same statements as for a batch, with all events at once and nothing known before; so what comes
out is what the batches made, and what a changed rule or a changed `slo.toml` makes of it now.
Reads all of bronze: a job of a day may have begun before it, and ended after.
"""

import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from jobyard.client.errors import bad_option
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
from jobyard.lake.tables import Batch
from jobyard.spark.pipeline import gold, silver
from jobyard.spark.pipeline.batch import Staging
from jobyard.spark.pipeline.frames import DATED_BY, settings, tasks_for
from jobyard.spark.pipeline.objectives import Objectives
from jobyard.spark.pipeline.run import existing, objectives_of, time_in_ms
from jobyard.spark.pipeline.slo import slo as slo_rows
from jobyard.spark.pipeline.touched import within_days

# Of no yard: it takes in no events, and replaces partitions.
_BATCH: Final = Batch("backfill", 0, 0)
_DAY: Final = timedelta(days=1)


class BackfillResult(NamedTuple):
    """What was made again."""

    events: int
    # Of all tables together.
    partitions: int
    elapsed_s: float


class _Days(NamedTuple):
    """Days to be made again: from one on, and before another; None is no bound."""

    since: date | None
    until: date | None

    def has(self, day: str) -> bool:
        return (self.since is None or day >= self.since.isoformat()) and (
            self.until is None or day < self.until.isoformat()
        )


def backfill(
    spark: SparkSession,
    lake: str | Path,
    since: str | None = None,
    until: str | None = None,
    *,
    table_format: str | None = None,
    slo: str | Path | None = None,
) -> BackfillResult:
    """Make silver and gold again from bronze: the days from `since` to before `until`, or all.

    A time within a day means the whole day.
    """
    begun_s = time.monotonic()
    days = _Days(
        None if since is None else _day_of(since), None if until is None else _day_after(until)
    )
    if days.since and days.until and days.since >= days.until:
        raise bad_option("until", f"no day lies from {days.since} to before {days.until}")
    objectives = objectives_of(Path(lake), slo)
    opened = existing(lake, table_format)
    with opened.lock(), settings(spark):
        tables = opened.tables
        count = sum(each.rows for each in tables.partitions(EVENTS).values())
        if not count:
            return BackfillResult(0, 0, time.monotonic() - begun_s)
        staging = Staging(spark, tables, tables.staging(_BATCH))
        _stage(spark, staging, days, objectives, tasks_for(count))
        tables.commit(_BATCH, staging.changes)
        partitions = sum(len(change.replaced or ()) for change in staging.changes)
    return BackfillResult(count, partitions, time.monotonic() - begun_s)


def _stage(
    spark: SparkSession,
    staging: Staging,
    days: _Days,
    objectives: Objectives,
    tasks: int,
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    within = within_days(days.since, days.until)

    def renew(table: TableSchema, rows: DataFrame) -> None:
        known = frozenset(each for each in staging.known(table) if days.has(each[0]))
        staging.replace(table, rows.where(within(DATED_BY[table.name])), known)

    events = staging.before(EVENTS, staging.known(EVENTS))
    no_runs, no_jobs = (staging.before(table, []) for table in (ATTEMPTS, JOBS))
    lives = silver.marked(spark, events, no_runs, no_jobs, tasks).persist()
    runs = silver.attempts(spark, lives).persist()
    try:
        renew(ATTEMPTS, runs)
        renew(JOBS, silver.jobs(spark, lives))
        counted = gold.rows_of_runs(spark, runs).where(within("minute"))
        before = staging.before(QUEUE_MINUTE, [])
        renew(QUEUE_MINUTE, gold.queue_minute(spark, counted, before, lives))
        renew(WORKER_MINUTE, gold.worker_minute(spark, counted))
        letters = staging.before(DLQ_REASON_MINUTE, [])
        renew(DLQ_REASON_MINUTE, gold.dlq_reason_minute(spark, letters, lives))
        # Later days have budgets that these days count for.
        later = _Days(days.since, None)
        known = frozenset(each for each in staging.known(SLO) if later.has(each[0]))
        if objectives.all:
            rows = slo_rows(
                spark, runs, staging.before(SLO, staging.known(SLO)), within, objectives
            )
            staging.replace(SLO, rows.where(within_days(days.since, None)("hour_at")), known)
        elif known:
            renew(SLO, staging.before(SLO, []))
    finally:
        runs.unpersist()
        lives.unpersist()


def _day_of(text: str) -> date:
    return datetime.fromtimestamp(time_in_ms(text) / 1000, UTC).date()


def _day_after(text: str) -> date:
    """Return the first day that begins at or after a time."""
    at = datetime.fromtimestamp(time_in_ms(text, "until") / 1000, UTC)
    return at.date() if at.time() == datetime.min.time() else at.date() + _DAY
