"""Minutes: the statements for the gold tables of queues, workers and dead letters.

Runs of an hour are counted again from silver whenever one of them changes. What a row of silver
cannot tell, because it knows only the newest state of a job, is added up batch by batch instead:
puts, changes of the backlog, and dead letters. A sum has no order, so the cut of the history into
batches does not matter here either.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from jobyard.spark.pipeline.statements import statement

_FAILED: Final = "('failed', 'buried', 'dead_lettered')"
_EXPIRED: Final = "('expired', 'stalled', 'disconnected')"
SAMPLES_MAX: Final = 5

# Each run counts where it began, and where it ended.
_RUNS: Final = """
SELECT yard, queue, coalesce(worker, '') AS worker, minute, is_begin, NOT is_begin AS is_end,
    CASE WHEN is_begin THEN wait_ms END AS wait_ms,
    CASE WHEN NOT is_begin THEN run_ms END AS run_ms,
    CASE WHEN NOT is_begin AND outcome = 'completed' AND enqueued_at IS NOT NULL THEN greatest(
        unix_millis(finished_at) - unix_millis(enqueued_at), 0L) END AS total_ms,
    CASE WHEN NOT is_begin THEN outcome END AS outcome,
    NOT is_begin AND next_state IN ('ready', 'delayed') AS is_retried,
    0L AS enqueued, 0L AS dead_lettered, 0L AS backlog
FROM (
    SELECT *, begun.minute AS minute, begun.is_begin AS is_begin FROM (
        SELECT *, explode(array(
            struct(date_trunc('MINUTE', claimed_at) AS minute, true AS is_begin),
            struct(date_trunc('MINUTE', finished_at) AS minute, false AS is_begin))) AS begun
        FROM {runs}
    )
)
WHERE minute IS NOT NULL
"""
_SUMS: Final = """
SELECT yard, queue, '' AS worker, minute, false AS is_begin, false AS is_end,
    CAST(NULL AS bigint) AS wait_ms, CAST(NULL AS bigint) AS run_ms,
    CAST(NULL AS bigint) AS total_ms, CAST(NULL AS string) AS outcome, false AS is_retried,
    enqueued, dead_lettered, backlog
"""
_NEWS: Final = statement(
    """@sums
FROM (
    SELECT yard, queue, each.minute AS minute, sum(each.enqueued) AS enqueued,
        sum(each.dead_lettered) AS dead_lettered, sum(each.backlog) AS backlog
    FROM (
        SELECT yard, queue, explode(array(
            struct(date_trunc('MINUTE', ts) AS minute, 0L AS enqueued,
                bigint(is_leaving AND state = 'dead' OR event = 'dead_lettered')
                    AS dead_lettered, bigint(backlog) AS backlog),
            struct(CASE WHEN is_first_told THEN date_trunc('MINUTE', put_at) END AS minute,
                1L AS enqueued, 0L AS dead_lettered, 0L AS backlog))
        ) AS each
        FROM {marked} WHERE kind = 'event'
    )
    WHERE each.minute IS NOT NULL GROUP BY yard, queue, each.minute
)
""",
    sums=_SUMS,
)
_BEFORE: Final = statement(
    """@sums
FROM (SELECT *, backlog_change AS backlog FROM {before})
""",
    sums=_SUMS,
)
_QUEUE_MINUTE: Final = statement(
    """
SELECT yard, queue, minute, enqueued, claimed, completed, failed, released, expired, abandoned,
    dead_lettered, retried, failed / nullif(ended, 0) AS fail_rate,
    retried / nullif(ended, 0) AS retry_rate,
    waits[0] AS wait_p50, waits[1] AS wait_p95, waits[2] AS wait_p99, wait_max,
    runs[0] AS run_p50, runs[1] AS run_p95, runs[2] AS run_p99, run_max,
    totals[0] AS total_p50, totals[1] AS total_p95, totals[2] AS total_p99,
    CASE WHEN wait_max IS NOT NULL THEN wait_kll END AS wait_kll,
    CASE WHEN run_max IS NOT NULL THEN run_kll END AS run_kll, backlog_change
FROM (
    SELECT yard, queue, minute, sum(enqueued) AS enqueued, count_if(is_begin) AS claimed,
        count_if(is_end) AS ended, count_if(outcome = 'completed') AS completed,
        count_if(outcome IN @failed) AS failed, count_if(outcome = 'released') AS released,
        count_if(outcome IN @expired) AS expired,
        count_if(outcome = 'abandoned') AS abandoned, sum(dead_lettered) AS dead_lettered,
        count_if(is_retried) AS retried,
        percentile(wait_ms, array(0.5, 0.95, 0.99)) AS waits, double(max(wait_ms)) AS wait_max,
        percentile(run_ms, array(0.5, 0.95, 0.99)) AS runs, double(max(run_ms)) AS run_max,
        percentile(total_ms, array(0.5, 0.95, 0.99)) AS totals,
        kll_sketch_agg_bigint(wait_ms) AS wait_kll, kll_sketch_agg_bigint(run_ms) AS run_kll,
        sum(backlog) AS backlog_change
    FROM {rows} GROUP BY yard, queue, minute
)
WHERE enqueued != 0 OR claimed != 0 OR ended != 0 OR dead_lettered != 0 OR backlog_change != 0
""",
    failed=_FAILED,
    expired=_EXPIRED,
)
_WORKER_MINUTE: Final = statement(
    """
SELECT yard, worker, queue, minute, claimed, completed, failed, lost, busy_ms,
    busy_ms / 60000 AS utilisation, runs[0] AS run_p50, runs[1] AS run_p95
FROM (
    SELECT yard, worker, queue, minute, count_if(is_begin) AS claimed,
        count_if(outcome = 'completed') AS completed, count_if(outcome IN @failed) AS failed,
        count_if(outcome IN @expired OR outcome = 'abandoned') AS lost,
        coalesce(sum(run_ms), 0L) AS busy_ms, percentile(run_ms, array(0.5, 0.95)) AS runs
    FROM {rows} GROUP BY yard, worker, queue, minute
)
""",
    failed=_FAILED,
    expired=_EXPIRED,
)
# What was there comes first: its samples, and its error, are of earlier events.
_DLQ: Final = statement(
    """
SELECT yard, queue, reason, error_fingerprint, minute, sum(count) AS count,
    min(first_seen) AS first_seen, max(last_seen) AS last_seen,
    min_by(error_class, seq) AS error_class, min_by(error_message, seq) AS error_message,
    slice(flatten(transform(array_sort(array_agg(struct(seq, ids))), each -> each.ids)), 1,
        @samples) AS sample_job_ids
FROM (
    SELECT yard, queue, reason, error_fingerprint, minute, 0L AS seq, count, first_seen,
        last_seen, struct(error_class) AS error_class, struct(error_message) AS error_message,
        sample_job_ids AS ids
    FROM {before}
    UNION ALL
    SELECT yard, queue, coalesce(reason, CASE WHEN event != 'dead_lettered' THEN event END, ''),
        coalesce(error_fingerprint, ''), date_trunc('MINUTE', ts), seq, 1L, ts, ts,
        struct(error_class), struct(error_message), array(job_id)
    FROM {marked}
    WHERE kind = 'event' AND (is_leaving AND state = 'dead' OR event = 'dead_lettered')
)
GROUP BY yard, queue, reason, error_fingerprint, minute
""",
    samples=SAMPLES_MAX,
)


def rows_of_runs(spark: SparkSession, runs: DataFrame) -> DataFrame:
    """Return what runs count for in minutes: their begin and their end."""
    return spark.sql(_RUNS, runs=runs)


def queue_minute(
    spark: SparkSession, counted: DataFrame, before: DataFrame, lives: DataFrame
) -> DataFrame:
    """Return the rows of `queue_minute`: of runs, and what `before` had and lives add to it."""
    rows = counted.unionByName(spark.sql(_BEFORE, before=before)).unionByName(
        spark.sql(_NEWS, marked=lives)
    )
    return spark.sql(_QUEUE_MINUTE, rows=rows)


def worker_minute(spark: SparkSession, counted: DataFrame) -> DataFrame:
    """Return the rows of `worker_minute`."""
    return spark.sql(_WORKER_MINUTE, rows=counted)


def dlq_reason_minute(spark: SparkSession, before: DataFrame, lives: DataFrame) -> DataFrame:
    """Return the rows of `dlq_reason_minute`: those of `before`, with what lives add to them."""
    found = spark.sql(_DLQ, before=before, marked=lives)
    return found.withColumns({name: found[name][name] for name in ("error_class", "error_message")})
