"""Objectives of queues, hour by hour: the statements for the gold table `slo`.

How often an objective was met or missed is counted from runs; the rest is derived from these
counts, so an hour that changes corrects what is derived in the hours after it, as far as the window
goes.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from jobyard.lake.tables import Partition
from jobyard.spark.pipeline.objectives import Objective, Objectives
from jobyard.spark.pipeline.touched import Span, day_of

# A job that ends without being completed misses an objective for its total time.
_ENDED_BADLY: Final = (
    "next_state IN ('dead', 'gone') AND outcome IN "
    "('failed', 'buried', 'dead_lettered', 'expired', 'stalled', 'disconnected')"
)
_COUNTS: Final = """
SELECT yard, queue, each.objective AS objective, each.hour_at AS hour_at,
    count_if(each.is_good) AS good, count_if(NOT each.is_good) AS bad, max(each.target) AS target
FROM (SELECT yard, queue, explode(array({objectives})) AS each FROM {{runs}})
WHERE each.hour_at IS NOT NULL AND {within}
GROUP BY yard, queue, each.objective, each.hour_at
"""
_DERIVED: Final = """
SELECT yard, queue, objective, hour_at, good, bad, good / (good + bad) AS ratio, target,
    bad / (good + bad) / (1 - target) AS burn_1h,
    sum(bad) OVER six / sum(good + bad) OVER six / (1 - target) AS burn_6h,
    1 - sum(bad) OVER whole / sum(good + bad) OVER whole / (1 - target) AS budget_left
FROM {{rows}}
WINDOW six AS (PARTITION BY yard, queue, objective ORDER BY unix_seconds(hour_at)
        RANGE BETWEEN 18000 PRECEDING AND CURRENT ROW),
    whole AS (PARTITION BY yard, queue, objective ORDER BY unix_seconds(hour_at)
        RANGE BETWEEN {seconds} PRECEDING AND CURRENT ROW)
"""
_KEPT: Final = """
SELECT yard, queue, objective, hour_at, good, bad, target FROM {{before}}
WHERE NOT {within}
"""


def slo(
    spark: SparkSession,
    runs: DataFrame,
    before: DataFrame,
    within: Span,
    objectives: Objectives,
) -> DataFrame:
    """Return the rows of `slo`: hours within a span from runs, all others as `before` has them."""
    cases = ", ".join(_case(each) for each in objectives.all)
    counts = _COUNTS.format(objectives=cases, within=within("each.hour_at"))
    kept = _KEPT.format(within=within("hour_at"))
    rows = spark.sql(counts, runs=runs).unionByName(spark.sql(kept, before=before))
    # The window ends with an hour, so it begins just after the same hour that many days before.
    seconds = (objectives.window_days * 24 - 1) * 3600
    return spark.sql(_DERIVED.format(seconds=seconds), rows=rows)


def _case(objective: Objective) -> str:
    is_asked = f"queue RLIKE {_text(objective.queues)}"
    if objective.is_wait:
        when, at = "wait_ms IS NOT NULL", "claimed_at"
        is_good = f"wait_ms < {objective.limit_ms}"
    else:
        when = f"(outcome = 'completed' AND enqueued_at IS NOT NULL OR {_ENDED_BADLY})"
        at = "finished_at"
        is_good = (
            "(outcome = 'completed' AND unix_millis(finished_at) - unix_millis(enqueued_at) < "
            f"{objective.limit_ms})"
        )
    return (
        f"struct({_text(objective.name)} AS objective, {is_good} AS is_good, "
        f"CASE WHEN {is_asked} AND {when} THEN date_trunc('HOUR', {at}) END AS hour_at, "
        f"double({objective.target!r}) AS target)"
    )


def _text(text: str) -> str:
    """Return a text as an expression of SQL that cannot end early, whatever it holds."""
    # Braces would be taken for names of tables.
    return f"decode(unhex('{text.encode().hex()}'), 'utf-8')"


def days_before(days: Sequence[Partition], window_days: int) -> tuple[str, str]:
    """Return the first day whose counts matter for these days, and the last that they change."""
    first = day_of(min(days)[0]) - timedelta(days=window_days)
    last = day_of(max(days)[0]) + timedelta(days=window_days)
    return first.isoformat(), last.isoformat()
