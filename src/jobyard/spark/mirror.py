"""Copies a topic from one yard to another: each record once, in order, with its origin.

A stream whose batches are transactions of the target. Partitions are ranges of seqs in rising
order, and a commit writes its parts in that order.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A batch is one transaction of the target, which holds 100,000 records by default.
OFFSETS_PER_TRIGGER: Final = 50_000


def mirror(  # noqa: PLR0913  a copy has two ends
    spark: "SparkSession",
    source_topic: str,
    target_url: str,
    target_topic: str,
    *,
    checkpoint: str,
    source_options: dict[str, str] | None = None,
    target_options: dict[str, str] | None = None,
    available_now: bool = False,
) -> "StreamingQuery":
    """Start the copy and return its query.

    With `available_now` it ends when everything that is there by then is copied. The headers of a
    copy name its original: `origin_topic`, `origin_seq`, `origin_ts` (milliseconds). A batch has at
    most 50,000 records, unless `source_options` have another `maxOffsetsPerTrigger`.
    """
    reader = spark.readStream.format("jobyard").option("topic", source_topic)
    reader = reader.option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
    reader = reader.options(**(source_options or {}))
    writer = copies(reader.load()).writeStream.format("jobyard").option("url", target_url)
    writer = writer.option("topic", target_topic).options(**(target_options or {}))
    writer = writer.option("checkpointLocation", checkpoint)
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="1 second").start()


def copies(rows: "DataFrame", *more: "Column") -> "DataFrame":
    """Return records of a topic as they are written to another one, with where they are from."""
    origin = f.create_map(
        f.lit("origin_topic"), f.col("topic"),
        f.lit("origin_seq"), f.col("seq").cast("string"),
        f.lit("origin_ts"), f.unix_millis("ts").cast("string"),
    )  # fmt: skip
    own = f.map_filter("headers", lambda name, _: ~name.startswith("origin_"))
    return rows.select(
        "value",
        f.col("key").cast("string").alias("tag"),
        "node",
        f.map_concat(f.coalesce(own, f.create_map().cast("map<string,string>")), origin).alias(
            "headers"
        ),
        *more,
    )
