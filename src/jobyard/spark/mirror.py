"""Copies a topic from one yard to another: each record once, in order, with its origin.

A stream whose batches are transactions of the target. Partitions are ranges of seqs in rising
order, and a commit writes its parts in that order.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from jobyard.client.address import parse_url
from jobyard.spark.options import TARGET_TOKEN_VARIABLE, URL_VARIABLE
from jobyard.spark.write.records import HEADERS_COUNT_MAX, HEADERS_SIZE_MAX, VALUE_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A batch is one transaction of the target, which holds 100,000 records by default.
OFFSETS_PER_TRIGGER: Final = 50_000
# Half of the bytes of a transaction, because a batch is cut by the mean size of records.
BYTES_PER_TRIGGER: Final = 32 << 20
ORIGIN: Final = ("origin_topic", "origin_seq", "origin_ts")


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
    copy name its original: `origin_topic`, `origin_seq`, `origin_ts` (milliseconds), unless a
    record has no room for them. A batch has at most 50,000 records and about 32 MiB, unless
    `source_options` have another `maxOffsetsPerTrigger` or `maxBytesPerTrigger`. The token of the
    environment is that of the source, and is not sent to another server: `target_options` or
    JOBYARD_TARGET_TOKEN have that of the target.
    """
    to_target = dict(target_options or {})
    reached = next((to_target[name] for name in to_target if name.lower() == "url"), target_url)
    if not _has_token(to_target):
        if _is_source(reached, source_options or {}):
            to_target.update(_token_in(source_options or {}))
        else:
            to_target["tokenEnv"] = TARGET_TOKEN_VARIABLE
    reader = spark.readStream.format("jobyard").option("topic", source_topic)
    reader = reader.option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
    reader = reader.option("maxBytesPerTrigger", BYTES_PER_TRIGGER)
    reader = reader.options(**(source_options or {}))
    writer = copies(reader.load()).writeStream.format("jobyard").option("url", target_url)
    writer = writer.option("topic", target_topic).options(**to_target)
    writer = writer.option("checkpointLocation", checkpoint)
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="1 second").start()


def copies(rows: "DataFrame", *more: "Column") -> "DataFrame":
    """Return records of a topic as they are written to another one, with where they are from."""
    return rows.select(
        # Written by nobody; it names a record that cannot be written.
        "seq",
        "value",
        f.col("key").cast("string").alias("tag"),
        "node",
        _headers().alias("headers"),
        *more,
    )


def _headers() -> "Column":
    """Return the headers of a copy: its own, with the origin where there is room for it.

    A record that was written with the largest value or the most headers would have no place on the
    target with three more, and would end the copy for ever.
    """
    topic, seq, ts = ORIGIN
    origin = f.create_map(
        f.lit(topic), f.col("topic"),
        f.lit(seq), f.col("seq").cast("string"),
        f.lit(ts), f.unix_millis("ts").cast("string"),
    )  # fmt: skip
    none = f.create_map().cast("map<string,string>")
    # Those of a copy of a copy name the record that was copied last.
    own = f.coalesce(f.map_filter("headers", lambda name, _: ~name.isin(*ORIGIN)), none)
    both = f.map_concat(own, origin)
    size = f.octet_length(f.to_json(both))
    has_room = (
        (f.size(both) <= HEADERS_COUNT_MAX)
        & (size <= HEADERS_SIZE_MAX)
        & (size + f.octet_length("value") <= VALUE_MAX)
    )
    # Not even an empty map instead of none: it has two bytes.
    return f.when(has_room, both).otherwise(f.col("headers"))


def _has_token(options: Mapping[str, str]) -> bool:
    return bool(_token_in(options))


def _token_in(options: Mapping[str, str]) -> dict[str, str]:
    names = ("token", "tokenenv", "tokenfile")
    return {name: value for name, value in options.items() if name.lower() in names}


def _is_source(target_url: str, source: Mapping[str, str]) -> bool:
    """Return whether a copy stays on one server."""
    given = [value for name, value in source.items() if name.lower() == "url"]
    url = given[-1] if given else os.environ.get(URL_VARIABLE, "")
    return url != "" and parse_url(url) == parse_url(target_url)
