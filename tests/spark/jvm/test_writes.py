"""Writes of a real Spark: batches, streams, bulk enqueue, and a copy of a topic."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobyard.spark import enqueue, mirror
from tests.support.servers.http import HttpYard, Topics


@pytest.fixture
def topics(yard: HttpYard) -> Iterator[Topics]:
    """A caller of the server."""
    found = Topics(yard.address)
    yield found
    found.close()


def create(topics: Topics, name: str, kind: str = "log") -> None:
    assert topics.ask("PUT", f"/v0/topics/{name}", {"type": kind})[0] == 201


def test_a_batch_is_written_once(spark: SparkSession, yard: HttpYard, topics: Topics) -> None:
    create(topics, "w.batch")
    df = spark.range(10_000).selectExpr("to_json(struct(id)) AS value", "'t' AS tag")
    options = {"url": yard.url, "topic": "w.batch"}
    df.repartition(3).write.format("jobyard").mode("append").options(**options).save()
    read = spark.read.format("jobyard").options(**options).load()
    ids = {json.loads(row.value)["id"] for row in read.collect()}
    assert (read.count(), len(ids)) == (10_000, 10_000)
    # The default mode of Spark is refused by Spark itself, with the way out.
    with pytest.raises(Exception, match="Append"):
        df.write.format("jobyard").options(**options).save()


def test_a_stream_is_written_once_over_a_restart(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "w.from")
    create(topics, "w.to")
    for first in (0, 3):
        records = [{"data": n, "meta": {"h": str(n)}} for n in range(first, first + 3)]
        assert topics.ask("POST", "/v0/topics/w.from", {"records": records})[0] == 200
        query = mirror(
            spark,
            "w.from",
            yard.url,
            "w.to",
            checkpoint=str(tmp_path / "checkpoint"),
            source_options={"url": yard.url},
            available_now=True,
        )
        assert query.awaitTermination(60)
    rows = spark.read.format("jobyard").options(url=yard.url, topic="w.to").load().collect()
    assert [row.value for row in rows] == [b"%d" % n for n in range(6)]
    assert [(row.headers["h"], row.headers["origin_seq"]) for row in rows] == [
        (str(n), str(n + 1)) for n in range(6)
    ]


def test_a_run_is_enqueued_once(spark: SparkSession, yard: HttpYard, topics: Topics) -> None:
    create(topics, "w.mails", "queue")
    df = spark.createDataFrame([("a@example.org", 1), ("b@example.org", 2)], "to string, n int")
    first = enqueue(df, "w.mails", run_id="2026-11-16", url=yard.url)
    assert (first.enqueued, first.duplicate, first.rejected) == (2, 0, 0)
    assert enqueue(df, "w.mails", run_id="2026-11-16", url=yard.url) == first
    _, claimed = topics.ask("POST", "/v0/topics/w.mails/claim", {"node": "w", "max": 9})
    assert sorted(job["data"]["n"] for job in claimed["claimed"]) == [1, 2]


@pytest.mark.parametrize("commit", ["staged", "direct"])
def test_keys_count_once_over_writes(
    spark: SparkSession, yard: HttpYard, topics: Topics, commit: str
) -> None:
    name = f"w.keys.{commit}"
    create(topics, name, "queue")
    df = spark.createDataFrame([(1, "x"), (2, "y"), (1, "x")], "n int, s string")
    for enqueued in (2, 0):
        done = enqueue(df, name, key_cols=["n", "s"], commit=commit, url=yard.url)
        assert (done.enqueued, done.duplicate) == (enqueued, 3 - enqueued)
