"""The tables of a lake: names, columns, keys, partitions and versions.

The one place for all of them: the pipeline makes DataFrames of these columns, the formats make
tables of them, and the tables of `docs/lake.md` are compared with it by a test.
"""

from typing import Final, NamedTuple

# Types, as Spark and SQL call them.
TEXT: Final = "string"
LONG: Final = "bigint"
REAL: Final = "double"
TIME: Final = "timestamp"
DATE: Final = "date"
HOUR: Final = "int"
BYTES: Final = "binary"
LONGS: Final = "array<bigint>"


class Column(NamedTuple):
    """A column: every one may be null but those of the key."""

    name: str
    type: str
    meaning: str


class TableSchema(NamedTuple):
    """One table. A newer version only adds columns, at the end."""

    name: str
    layer: str
    grain: str
    columns: tuple[Column, ...]
    # Columns that name a row; no two rows have the same.
    key: tuple[str, ...]
    # Columns that the folders are named after; they are not in the files.
    partition_by: tuple[Column, ...]
    version: int

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns in the files."""
        return tuple(column.name for column in self.columns)


_DATE: Final = Column("date", DATE, "")
_HOUR: Final = Column("hour", HOUR, "")
_YARD: Final = Column(
    "yard", TEXT, "the data directory the row is from: `incarnation` of `_events`"
)
_QUEUE: Final = Column("queue", TEXT, "the queue")
_MINUTE: Final = Column("minute", TIME, "the beginning of the minute, UTC")
_JOB_ID: Final = Column("job_id", LONG, "the number of the job in its yard")

EVENTS: Final = TableSchema(
    "events",
    "bronze",
    "an event of a job, as `_events` has it",
    (
        _YARD,
        Column("seq", LONG, "the number of the row in its yard; rises, with gaps"),
        Column("ts", TIME, "when it happened"),
        Column("event", TEXT, "what happened"),
        _QUEUE,
        _JOB_ID,
        Column("queue_seq", LONG, "the number of the job in its queue (`$seq` of topics)"),
        Column("client_id", TEXT, "the id that its client chose"),
        Column("name", TEXT, "the name of the job"),
        Column("state", TEXT, "the state of the job after the event"),
        Column("family", TEXT, "the door that put the job"),
        Column("door", TEXT, "the door through which the job was taken"),
        Column("worker", TEXT, "who took it"),
        Column("rank", LONG, "the lower, the sooner"),
        Column("attempts", LONG, "failed runs so far"),
        Column("deliveries", LONG, "runs so far, this one included"),
        Column("size", LONG, "bytes of the body"),
        Column("lease", LONG, "the number of the run, since the server started"),
        Column("holder", LONG, "the number of the worker, since the server started"),
        Column("ttl_ms", LONG, "how long the lease was given for"),
        Column("due_at", TIME, "when a delayed job becomes ready"),
        Column("enqueued_at", TIME, "when the job was put"),
        Column("available_at", TIME, "since when it could be taken"),
        Column("claimed_at", TIME, "when the run began"),
        Column("finished_at", TIME, "when the run ended"),
        Column("error", TEXT, "what the worker said of a failed run"),
        Column("origin_id", LONG, "of a redriven job: its number before"),
        Column("origin_queue", TEXT, "of a redriven job: its queue before"),
        Column("reason", TEXT, "why it became a dead letter"),
        Column("letter_topic", TEXT, "the log that has the dead letter"),
        Column("letter_seq", LONG, "its number there"),
    ),
    ("yard", "seq"),
    (_DATE._replace(meaning="of `ts`"),),
    1,
)

ATTEMPTS: Final = TableSchema(
    "attempts",
    "silver",
    "a run of a job",
    (
        _YARD,
        _QUEUE,
        _JOB_ID,
        Column("attempt", LONG, "the number of the run of the job, from 1: its `deliveries`"),
        Column("lease", LONG, "the number of the run, since the server started"),
        Column("queue_seq", LONG, "the number of the job in its queue"),
        Column("client_id", TEXT, "the id that its client chose"),
        Column("name", TEXT, "the name of the job"),
        Column("family", TEXT, "the door that put the job"),
        Column("door", TEXT, "the door through which it was taken"),
        Column("worker", TEXT, "who took it"),
        Column("priority", LONG, "the greater, the sooner; null while the run goes on"),
        Column("size", LONG, "bytes of the body; null if the put was before the lake began"),
        Column("enqueued_at", TIME, "when the job was put"),
        Column("available_at", TIME, "since when it could be taken"),
        Column("claimed_at", TIME, "when the run began"),
        Column("finished_at", TIME, "when it ended; null while it goes on"),
        Column("wait_ms", LONG, "`claimed_at - available_at`: a delay is no waiting"),
        Column("run_ms", LONG, "`finished_at - claimed_at`; null if the end was not seen"),
        Column("outcome", TEXT, "the event that ended it; null while it goes on"),
        Column("error_class", TEXT, "the error up to the first `:`, if that looks like a name"),
        Column("error_message", TEXT, "the rest of the error"),
        Column("error_fingerprint", TEXT, "a hash of both without numbers, ids and quoted parts"),
        Column("next_state", TEXT, "the state of the job after the run"),
        Column("next_due_at", TIME, "when it runs again, if it was delayed"),
        Column("first_seq", LONG, "the first event of the run"),
        Column("last_seq", LONG, "the last event of the run"),
    ),
    ("yard", "queue", "job_id", "attempt"),
    (
        _DATE._replace(meaning="of `claimed_at`"),
        _HOUR._replace(meaning="of `claimed_at`, 0 to 23, UTC"),
    ),
    1,
)

JOBS: Final = TableSchema(
    "jobs",
    "silver",
    "a job",
    (
        _YARD,
        _QUEUE,
        _JOB_ID,
        Column("state", TEXT, "its newest state"),
        Column("attempts", LONG, "how many runs it had"),
        Column("enqueued_at", TIME, "when it was put; null while no event has told it"),
        Column("first_claimed_at", TIME, "when its first run that was seen began"),
        Column("finished_at", TIME, "when it was completed, or gone or dead otherwise"),
        Column("total_ms", LONG, "`finished_at - enqueued_at`"),
        Column("last_error_class", TEXT, "of its last run that had an error"),
        Column("origin_id", LONG, "of a redriven job: its number before"),
        Column("dead_letter_topic", TEXT, "the log that has its dead letter"),
        Column("last_seq", LONG, "its newest event"),
        Column("size", LONG, "bytes of the body; null if the put was before the lake began"),
    ),
    ("yard", "queue", "job_id"),
    (_DATE._replace(meaning="of `enqueued_at`; `1970-01-01` if that is not known"),),
    1,
)


def _percentiles(subject: str, of: str, *shares: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{subject}_{share}", REAL, f"{share.replace('p', '')} % of {of} are at most this")
        for share in shares
    )


QUEUE_MINUTE: Final = TableSchema(
    "queue_minute",
    "gold",
    "a queue in a minute in which something happened",
    (
        _YARD,
        _QUEUE,
        _MINUTE,
        Column("enqueued", LONG, "jobs that were put"),
        Column("claimed", LONG, "runs that began"),
        Column("completed", LONG, "runs that ended well"),
        Column("failed", LONG, "runs that failed, were buried, or made a dead letter"),
        Column("released", LONG, "runs whose job was given back"),
        Column("expired", LONG, "runs whose lease ended, or whose worker was gone"),
        Column("abandoned", LONG, "runs that the end of the server cut off"),
        Column("dead_lettered", LONG, "jobs that became dead letters, or dead in their queue"),
        Column("retried", LONG, "runs after which the job is to run again"),
        Column("fail_rate", REAL, "`failed` of all runs that ended; null if none did"),
        Column("retry_rate", REAL, "`retried` of all runs that ended; null if none did"),
        *_percentiles("wait", "the waits of runs that began", "p50", "p95", "p99"),
        Column("wait_max", REAL, "the longest of them"),
        *_percentiles("run", "the runs that ended", "p50", "p95", "p99"),
        Column("run_max", REAL, "the longest of them"),
        *_percentiles("total", "the times from put to completion", "p50", "p95", "p99"),
        Column("wait_kll", BYTES, "a KLL sketch of `wait_ms`, to be merged over hours and days"),
        Column("run_kll", BYTES, "a KLL sketch of `run_ms`"),
        Column("backlog_change", LONG, "jobs that came, less those that are done, dead or gone"),
    ),
    ("yard", "queue", "minute"),
    (_DATE._replace(meaning="of `minute`"), _HOUR._replace(meaning="of `minute`")),
    1,
)

WORKER_MINUTE: Final = TableSchema(
    "worker_minute",
    "gold",
    "a worker at a queue in a minute in which it began or ended a run",
    (
        _YARD,
        Column("worker", TEXT, "the worker"),
        _QUEUE,
        _MINUTE,
        Column("claimed", LONG, "runs that began"),
        Column("completed", LONG, "runs that ended well"),
        Column("failed", LONG, "runs that failed, were buried, or made a dead letter"),
        Column("lost", LONG, "runs that expired, or were cut off or abandoned"),
        Column("busy_ms", LONG, "sum of `run_ms` of the runs that ended"),
        Column("utilisation", REAL, "`busy_ms` of 60,000: above 1 for several jobs at a time"),
        *_percentiles("run", "the runs that ended", "p50", "p95"),
    ),
    ("yard", "worker", "queue", "minute"),
    (_DATE._replace(meaning="of `minute`"), _HOUR._replace(meaning="of `minute`")),
    1,
)

DLQ_REASON_MINUTE: Final = TableSchema(
    "dlq_reason_minute",
    "gold",
    "a kind of dead letter of a queue in a minute",
    (
        _YARD,
        _QUEUE,
        Column(
            "reason", TEXT, "of a letter its reason; of a job that is dead in its queue the event"
        ),
        Column("error_fingerprint", TEXT, "of the error of the last run; empty without one"),
        _MINUTE,
        Column("count", LONG, "how many"),
        Column("first_seen", TIME, "the first of them"),
        Column("last_seen", TIME, "the last of them"),
        Column("error_class", TEXT, "of the first of them"),
        Column("error_message", TEXT, "of the first of them"),
        Column("sample_job_ids", LONGS, "the first five"),
    ),
    ("yard", "queue", "reason", "error_fingerprint", "minute"),
    (_DATE._replace(meaning="of `minute`"),),
    1,
)

SLO: Final = TableSchema(
    "slo",
    "gold",
    "an objective of a queue in an hour in which it was met or missed",
    (
        _YARD,
        _QUEUE,
        Column("objective", TEXT, "its name in `slo.toml`"),
        Column("hour_at", TIME, "the beginning of the hour, UTC"),
        Column("good", LONG, "how often it was met"),
        Column("bad", LONG, "how often it was missed"),
        Column("ratio", REAL, "`good` of both"),
        Column("target", REAL, "the share that is wanted"),
        Column("burn_1h", REAL, "how many times faster than allowed this hour used the budget"),
        Column("burn_6h", REAL, "the same of the six hours that end with it"),
        Column("budget_left", REAL, "share of the budget of the window that is left; may be < 0"),
    ),
    ("yard", "queue", "objective", "hour_at"),
    (_DATE._replace(meaning="of `hour_at`"),),
    1,
)

TABLES: Final = {
    table.name: table
    for table in (*(EVENTS, ATTEMPTS, JOBS, QUEUE_MINUTE, WORKER_MINUTE, DLQ_REASON_MINUTE, SLO),)
}
