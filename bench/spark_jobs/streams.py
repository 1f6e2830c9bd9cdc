"""Streams: a whole topic in large batches, and many micro-batches of a few rows."""

import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["drain", "micro_batches", "rate_batches"]

# The first ones make what the later ones use.
BATCHES_SKIPPED: Final = 3
END_SECONDS_MAX: Final = 600
LOOK_S: Final = 0.05


def drain(spark: SparkSession, options: Mapping[str, str], checkpoint: str) -> dict[str, float]:
    """Read all there is, in as many batches as the options say."""
    began = time.monotonic()
    table = spark.readStream.format("jobyard").options(**options).load()
    query = _whole(table.writeStream.format("noop"), checkpoint)
    seconds = time.monotonic() - began
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    within = sum(each["durationMs"]["triggerExecution"] for each in batches) / 1000
    return {
        "seconds": seconds,
        "around_seconds": seconds - within,
        "rows": sum(each["numInputRows"] for each in batches),
        "batches": len(batches),
    }


def micro_batches(
    spark: SparkSession, options: Mapping[str, str], target: Mapping[str, str], checkpoint: str
) -> dict[str, float]:
    """Move all there is from one topic to another, and return what a batch took."""
    table = spark.readStream.format("jobyard").options(**options).load().select("value")
    query = _whole(table.writeStream.format("jobyard").options(**target), checkpoint)
    return _of_a_batch(list(query.recentProgress))


def rate_batches(spark: SparkSession, rows: int, batches: int, checkpoint: str) -> dict[str, float]:
    """Run batches of Spark's own rows into the sink that drops them."""
    table = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=rows, numPartitions=2)
        .load()
    )
    query = table.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        while query.isActive and len(query.recentProgress) < batches:
            time.sleep(LOOK_S)
        return _of_a_batch(list(query.recentProgress)[:batches])
    finally:
        query.stop()


def _whole(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(END_SECONDS_MAX):
        raise RuntimeError("a stream did not end")
    return query


def _of_a_batch(progress: list[Any]) -> dict[str, float]:
    full = [each for each in progress if each["numInputRows"]][BATCHES_SKIPPED:]
    times = [float(each["durationMs"]["triggerExecution"]) for each in full]
    return {"ms": median(times), "batches": len(full), "rows": full[0]["numInputRows"]}
