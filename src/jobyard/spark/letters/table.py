"""The dead letters and dead jobs of a queue as one table, and their kinds.

A job that is given up becomes a record of the log that its queue names (`dead_letter`), or stays
dead in the queue. Users want to see both, so both are rows here, with the same columns. Changes
nothing.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from jobyard.client.calls import topic_path
from jobyard.client.errors import JobyardError
from jobyard.spark.error_text import class_of, fingerprint_of, message_of
from jobyard.spark.options import Connecting, Given, connecting, take_token

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Rows of the two kinds: a record of the log of dead letters, or a job that is dead in its queue.
LETTER: Final = "letter"
DEAD_JOB: Final = "job"
# How the server marks dead letters in the meta of their records.
_MARK: Final = "$dead_letter_"
# How many of a kind a report names.
SAMPLES_MAX: Final = 5
_CONNECTING_OPTIONS: Final = ("url", "token", "tokenEnv", "tokenFile", "timeoutMs", "maxRetries")
_COLUMNS: Final = (
    *("kind", "queue", "letter_topic", "seq", "job_id", "queue_seq", "client_id", "name"),
    *("died_at", "reason", "deliveries", "error", "tag", "headers", "value"),
)


def dlq(spark: "SparkSession", queue: str, **options: object) -> "DataFrame":
    """Return the dead letters and dead jobs of a queue; `options` say how the server is reached.

    Columns: `kind` (letter or job), `queue`, `letter_topic` and `seq` (the record of a letter),
    `job_id`, `queue_seq`, `client_id`, `name`, `died_at`, `reason`, `deliveries`, `error`,
    `error_class`, `error_message`, `error_fingerprint`, `tag`, `headers`, `value`.
    """
    plain = {name: str(value) for name, value in options.items()}
    log = _letter_log(connecting_of(plain), queue)
    found = _jobs(spark, queue, plain)
    if log:
        found = _letters(spark, queue, log, plain).unionByName(found)
    error = "`error`"
    kind = class_of(error)
    message = message_of(error, "`error_class`")
    return (
        found.withColumn("error_class", f.expr(kind))
        .withColumn("error_message", f.expr(message))
        .withColumn("error_fingerprint", f.expr(fingerprint_of("`error_class`", "`error_message`")))
    )


def dlq_report(spark: "SparkSession", queue: str, **options: object) -> "DataFrame":
    """Return the kinds of dead letters of a queue, the most frequent first.

    One row for each reason, class of error and fingerprint: `count`, `first_seen`, `last_seen`,
    `error_message` of the newest, and up to five `sample_seqs` (of letters) and `sample_job_ids`.
    """
    age = f.struct("died_at", "seq", "job_id")
    return (
        dlq(spark, queue, **options)
        .groupBy("queue", "reason", "error_class", "error_fingerprint")
        .agg(
            f.count(f.lit(1)).alias("count"),
            f.min("died_at").alias("first_seen"),
            f.max("died_at").alias("last_seen"),
            f.max_by("error_message", age).alias("error_message"),
            _samples("seq").alias("sample_seqs"),
            _samples("job_id").alias("sample_job_ids"),
        )
        .orderBy(f.desc("count"), "reason", "error_class", "error_fingerprint")
    )


def _samples(name: str) -> "Column":
    return f.slice(f.sort_array(f.collect_set(name)), 1, SAMPLES_MAX)


def connecting_of(options: dict[str, str]) -> Connecting:
    """Return how the server is reached; refuse other options."""
    rest, token = take_token(options)
    return connecting(Given(rest, _CONNECTING_OPTIONS), token)


def _letter_log(reached: Connecting, queue: str) -> str:
    """Return the log of dead letters of a queue; empty if it has none, or none exists yet."""
    with reached.client() as client:
        state = client.get(topic_path(queue)).fields
        if state.get("type") != "queue":
            raise JobyardError(
                "not_a_queue",
                f"{queue} is a log: only queues have dead letters",
                url=reached.url,
                option="queue",
                remedy="Name the queue whose letters you want, not the log that has them.",
            )
        config = state.get("config")
        name = config.get("dead_letter") if isinstance(config, dict) else None
        if not isinstance(name, str) or not name:
            return ""
        try:
            client.get(topic_path(name))
        except JobyardError as error:
            if error.code != "topic_not_found":
                raise
            return ""
        return name


def _letters(spark: "SparkSession", queue: str, log: str, options: dict[str, str]) -> "DataFrame":
    records = spark.read.format("jobyard").options(**options).option("topic", log).load()
    mark = {name: f.col("headers").getItem(_MARK + name)
            for name in ("from", "deliveries", "src_seq", "job_id", "reason", "error",
                         "client_id", "name")}  # fmt: skip
    return records.where(mark["from"] == queue).select(
        f.lit(LETTER).alias("kind"),
        mark["from"].alias("queue"),
        f.col("topic").alias("letter_topic"),
        "seq",
        _number(mark["job_id"]).alias("job_id"),
        _number(mark["src_seq"]).alias("queue_seq"),
        mark["client_id"].alias("client_id"),
        mark["name"].alias("name"),
        f.col("ts").alias("died_at"),
        mark["reason"].alias("reason"),
        _number(mark["deliveries"]).alias("deliveries"),
        mark["error"].alias("error"),
        f.col("key").cast("string").alias("tag"),
        f.map_filter("headers", lambda name, _: ~name.startswith(_MARK)).alias("headers"),
        "value",
    )


def _number(text: "Column") -> "Column":
    # Clients can write to the log too: what is not a number is not known.
    return text.try_cast("bigint")


def _jobs(spark: "SparkSession", queue: str, options: dict[str, str]) -> "DataFrame":
    jobs = spark.read.format("jobyard").options(**options)
    found = jobs.option("jobs", queue).option("states", "dead").load()
    return found.select(
        f.lit(DEAD_JOB).alias("kind"),
        "queue",
        f.lit(None).cast("string").alias("letter_topic"),
        f.lit(None).cast("bigint").alias("seq"),
        "job_id",
        "queue_seq",
        "client_id",
        "name",
        f.col("finished_at").alias("died_at"),
        f.lit(None).cast("string").alias("reason"),
        "deliveries",
        "error",
        "tag",
        f.from_json("meta", "map<string,string>").alias("headers"),
        "value",
    ).select(*_COLUMNS)
