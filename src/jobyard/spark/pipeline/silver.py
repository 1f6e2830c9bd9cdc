"""How events become runs and jobs: the statements for the two silver tables.

One relation holds the rows of a batch and what silver knew of their jobs before, in the order of
their numbers; runs, jobs and what gold adds up are all made from it. Every rule is a choice of the
least or greatest number, so any cut of the history into batches has the same result, and a row that
is merged with itself does not change.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from jobyard.spark.error_text import class_of, fingerprint_of, message_of
from jobyard.spark.pipeline.statements import statement

LIVE: Final = "('ready', 'delayed', 'leased', 'blocked')"

# An event: what it says of a job, of a run, and of the time before.
_FROM_EVENTS: Final = statement(
    """
SELECT yard, coalesce(queue, '') AS queue, job_id, seq, 'event' AS kind, event, ts, state,
    coalesce(deliveries, 0) AS attempt, lease, queue_seq, client_id, name, family, door, worker,
    -rank AS priority, CASE WHEN event = 'enqueued' THEN size END AS size,
    enqueued_at AS put_at, enqueued_at, available_at, claimed_at,
    finished_at, due_at, error_class, error_message,
    @fingerprint AS error_fingerprint,
    error IS NOT NULL AS has_error, origin_id, letter_topic, reason, seq AS first_seq,
    seq AS last_seq,
    event = 'claimed' AND coalesce(deliveries, 0) > 0 AND claimed_at IS NOT NULL AS is_begin,
    event NOT IN ('claimed', 'enqueued') AND coalesce(deliveries, 0) > 0
        AND claimed_at IS NOT NULL AND finished_at IS NOT NULL AS is_end,
    CAST(NULL AS struct<finished_at: timestamp, outcome: string, next_state: string>) AS closed
FROM (
    SELECT *, @message AS error_message
    FROM (SELECT *, @kind AS error_class FROM {events})
)
""",
    fingerprint=fingerprint_of("error_class", "error_message"),
    message=message_of("error", "error_class"),
    kind=class_of("error"),
)
# A run as silver has it. Its end was seen if `run_ms` is known; otherwise it goes on, or another
# event closed it.
_FROM_RUNS: Final = """
SELECT yard, queue, job_id, first_seq AS seq, 'run' AS kind, outcome AS event, NULL AS ts,
    next_state AS state, attempt, lease, queue_seq, client_id, name, family, door, worker,
    priority, size, NULL AS put_at, enqueued_at, available_at, claimed_at, finished_at,
    next_due_at AS due_at, error_class, error_message, error_fingerprint,
    error_message IS NOT NULL AS has_error, NULL AS origin_id, NULL AS letter_topic,
    NULL AS reason, first_seq, last_seq,
    run_ms IS NULL AS is_begin, run_ms IS NOT NULL AS is_end,
    CASE WHEN run_ms IS NULL AND finished_at IS NOT NULL THEN struct(
        finished_at, outcome, next_state) END AS closed
FROM {runs}
"""
_FROM_JOBS: Final = """
SELECT yard, queue, job_id, last_seq AS seq, 'job' AS kind, NULL AS event, NULL AS ts, state,
    attempts AS attempt, NULL AS lease, NULL AS queue_seq, NULL AS client_id, NULL AS name,
    NULL AS family, NULL AS door, NULL AS worker, NULL AS priority, size,
    enqueued_at AS put_at, enqueued_at, NULL AS available_at, first_claimed_at AS claimed_at,
    finished_at, NULL AS due_at, last_error_class AS error_class, NULL AS error_message,
    NULL AS error_fingerprint, last_error_class IS NOT NULL AS has_error, origin_id,
    dead_letter_topic AS letter_topic, NULL AS reason, last_seq AS first_seq, last_seq,
    false AS is_begin, false AS is_end, NULL AS closed
FROM {jobs}
"""
# Looks back and ahead in the life of each job. Windows run from the newest row to the oldest: what
# comes next is a running value then, whatever the number of rows.
_MARKED: Final = statement(
    """
SELECT *,
    kind = 'event' AND put_at IS NOT NULL AND told_at IS NULL AS is_first_told,
    is_final AND (was_state IS NULL OR was_state IN @live) AS is_leaving,
    CASE WHEN kind = 'event' THEN CASE
        WHEN was_state IS NOT NULL
            THEN int(state IN @live) - int(was_state IN @live)
        WHEN event = 'enqueued' THEN int(state IN @live)
        WHEN is_begin OR is_end OR event IN ('claimed', 'dead_lettered', 'failed')
            THEN int(state IN @live) - 1
        ELSE 0 END ELSE 0 END AS backlog
FROM (
    SELECT *,
        kind != 'run' AND state IN ('dead', 'done', 'gone') AS is_final,
        max(CASE WHEN kind != 'run' THEN size END) OVER job AS job_size,
        lead(CASE WHEN kind != 'run' THEN state END) IGNORE NULLS OVER back AS was_state,
        lead(put_at) IGNORE NULLS OVER back AS told_at,
        last(CASE WHEN kind = 'event' THEN CASE
            WHEN is_begin THEN struct(ts AS finished_at, 'abandoned' AS outcome,
                'ready' AS next_state)
            WHEN event IN ('removed', 'corrupt') THEN struct(ts AS finished_at,
                event AS outcome, state AS next_state)
            WHEN event = 'dead_lettered' AND NOT is_end THEN struct(ts AS finished_at,
                'abandoned' AS outcome, state AS next_state)
            END END, true) OVER until AS closing
    FROM {lives}
    WINDOW job AS (PARTITION BY yard, queue, job_id),
        back AS (PARTITION BY yard, queue, job_id ORDER BY seq DESC),
        until AS (PARTITION BY yard, queue, job_id ORDER BY seq DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
""",
    live=LIVE,
)
# The first row of a run says when it began, and the last of its ends how it ended.
_ATTEMPTS: Final = """
SELECT yard, queue, job_id, attempt,
    coalesce(a.lease, b.lease) AS lease, coalesce(a.queue_seq, b.queue_seq) AS queue_seq,
    coalesce(a.client_id, b.client_id) AS client_id, coalesce(a.name, b.name) AS name,
    coalesce(a.family, b.family) AS family, coalesce(a.door, b.door) AS door,
    coalesce(a.worker, b.worker) AS worker, b.priority, size, b.enqueued_at, b.available_at,
    a.claimed_at, coalesce(b.finished_at, closed.finished_at) AS finished_at,
    greatest(unix_millis(a.claimed_at) - unix_millis(b.available_at),
        CASE WHEN b.available_at IS NOT NULL THEN 0L END) AS wait_ms,
    greatest(unix_millis(b.finished_at) - unix_millis(a.claimed_at),
        CASE WHEN b.finished_at IS NOT NULL THEN 0L END) AS run_ms,
    coalesce(b.outcome, closed.outcome) AS outcome, b.error_class, b.error_message,
    b.error_fingerprint, coalesce(b.next_state, closed.next_state) AS next_state,
    b.next_due_at, a.first_seq, coalesce(b.last_seq, a.first_seq) AS last_seq
FROM (
    SELECT yard, queue, job_id, attempt, max(size) AS size,
        min_by(struct(lease, queue_seq, client_id, name, family, door, worker, claimed_at,
            first_seq), first_seq) AS a,
        max_by(CASE WHEN is_end THEN struct(lease, queue_seq, client_id, name, family, door,
            worker, priority, enqueued_at, available_at, finished_at, event AS outcome,
            error_class, error_message, error_fingerprint, state AS next_state,
            due_at AS next_due_at, last_seq) END, CASE WHEN is_end THEN last_seq END) AS b,
        max_by(closing, CASE WHEN closing IS NOT NULL THEN first_seq END) AS closed
    FROM (
        SELECT * EXCEPT (size, closed, closing), coalesce(size, job_size) AS size,
            CASE WHEN is_begin THEN coalesce(closed, closing) END AS closing
        FROM {marked} WHERE is_begin OR is_end
    )
    GROUP BY yard, queue, job_id, attempt
)
"""
_JOBS: Final = statement(
    """
SELECT yard, queue, job_id, state, attempts, enqueued_at, first_claimed_at,
    CASE WHEN state NOT IN @live THEN left_at END AS finished_at,
    CASE WHEN state NOT IN @live THEN greatest(unix_millis(left_at) - unix_millis(enqueued_at),
        CASE WHEN enqueued_at IS NOT NULL THEN 0L END) END AS total_ms,
    last_error_class, origin_id, dead_letter_topic, last_seq, size
FROM (
    SELECT yard, queue, job_id, max_by(state, seq) AS state, max(attempt) AS attempts,
        min_by(put_at, CASE WHEN put_at IS NOT NULL THEN seq END) AS enqueued_at,
        min_by(claimed_at, CASE WHEN claimed_at IS NOT NULL THEN seq END) AS first_claimed_at,
        max_by(coalesce(finished_at, ts), CASE WHEN is_leaving THEN seq END) AS left_at,
        max_by(error_class, CASE WHEN has_error THEN seq END) AS last_error_class,
        max(origin_id) AS origin_id,
        max_by(letter_topic, CASE WHEN letter_topic IS NOT NULL THEN seq END)
            AS dead_letter_topic,
        max(last_seq) AS last_seq, max(job_size) AS size
    FROM {marked} WHERE kind != 'run'
    GROUP BY yard, queue, job_id
)
""",
    live=LIVE,
)


def marked(
    spark: SparkSession, events: DataFrame, runs: DataFrame, jobs: DataFrame, tasks: int
) -> DataFrame:
    """Return the lives of jobs: events, and the runs and jobs that silver has, with marks."""
    lives = (
        spark.sql(_FROM_EVENTS, events=events)
        .unionByName(spark.sql(_FROM_RUNS, runs=runs))
        .unionByName(spark.sql(_FROM_JOBS, jobs=jobs))
        # By exactly these columns: everything that follows needs no other exchange.
        .repartition(tasks, "yard", "queue", "job_id")
    )
    return spark.sql(_MARKED, lives=lives)


def attempts(spark: SparkSession, lives: DataFrame) -> DataFrame:
    """Return the rows of `attempts` in marked lives."""
    return spark.sql(_ATTEMPTS, marked=lives)


def jobs(spark: SparkSession, lives: DataFrame) -> DataFrame:
    """Return the rows of `jobs` in marked lives."""
    return spark.sql(_JOBS, marked=lives)
