"""Writes of a real Spark: batches, streams, bulk enqueue, and a copy of a topic."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobyard.spark import JobyardError, enqueue, mirror
from jobyard.spark.mirror import OFFSETS_PER_TRIGGER
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
        assert query.awaitTermination(300)
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


def test_a_copy_is_made_in_transactions_that_the_target_can_hold(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "w.many")
    create(topics, "w.copied")
    records = {"records": [{"data": n} for n in range(10_000)]}
    for _ in range(11):
        assert topics.ask("POST", "/v0/topics/w.many", records)[0] == 200
    query = mirror(
        spark,
        "w.many",
        yard.url,
        "w.copied",
        checkpoint=str(tmp_path / "checkpoint"),
        source_options={"url": yard.url},
        available_now=True,
    )
    assert query.awaitTermination(300)
    assert topics.ask("GET", "/v0/topics/w.copied")[1]["head_seq"] == 110_000
    sizes = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    assert sizes == [OFFSETS_PER_TRIGGER, OFFSETS_PER_TRIGGER, 10_000]


EMPTY = {
    "no partitions": "SELECT id FROM range(3) WHERE false",
    "empty partitions": "SELECT id FROM range(3) WHERE rand() > 2",
}


@pytest.mark.parametrize("query", list(EMPTY))
def test_an_empty_run_is_done_and_remembered(
    spark: SparkSession, yard: HttpYard, topics: Topics, query: str
) -> None:
    name = f"w.{query.replace(' ', '-')}"
    create(topics, name, "queue")
    df = spark.sql(EMPTY[query])
    done = enqueue(df, name, run_id=name, url=yard.url)
    assert (done.enqueued, done.duplicate, done.rejected) == (0, 0, 0)
    assert enqueue(spark.range(5).toDF("id"), name, run_id=name, url=yard.url) == done
    assert topics.ask("GET", f"/v0/topics/{name}")[1]["count"] == 0
    assert enqueue(df, name, url=yard.url).enqueued == 0
    df.selectExpr("CAST(id AS STRING) AS value").write.format("jobyard").mode("append").options(
        url=yard.url, topic=name
    ).save()


def test_a_run_belongs_to_its_queue(spark: SparkSession, yard: HttpYard, topics: Topics) -> None:
    for name in ("w.mine", "w.yours"):
        create(topics, name, "queue")
    df = spark.range(2).toDF("id")
    enqueue(df, "w.mine", run_id="owned", url=yard.url)
    with pytest.raises(JobyardError, match=r"was committed for w\.mine"):
        enqueue(df, "w.yours", run_id="owned", url=yard.url)
    for run_id in ("", "a b", "x" * 253):
        with pytest.raises(JobyardError, match="Write 1 to 252 letters"):
            enqueue(df, "w.mine", run_id=run_id, url=yard.url)
    with pytest.raises(JobyardError, match="topic_not_found"):
        enqueue(df, "w.nowhere", url=yard.url)


def test_rejected_rows_are_told_again(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "w.some", "queue")
    df = spark.sql("SELECT IF(id < 3, NULL, CAST(id AS STRING)) AS value FROM range(0, 10, 1, 2)")
    given = {"run_id": "some", "bad_rows_path": f"file://{tmp_path}/bad", "url": yard.url}
    first = enqueue(df, "w.some", **given)
    assert (first.enqueued, first.duplicate, first.rejected) == (7, 0, 3)
    assert enqueue(df, "w.some", **given) == first
    assert spark.read.parquet(f"{tmp_path}/bad").count() == 3


def staged(topics: Topics) -> int:
    """Return how many records are staged on the server."""
    lines = topics.ask("GET", "/v0/metrics")[1].decode().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("topics_txns_staged_rec")))


def test_nothing_stays_staged_of_what_fails(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    create(topics, "w.fails", "queue")
    # A full chunk of each partition is staged before the row that fails.
    df = spark.sql(
        "SELECT IF(id % 8000 = 7999, raise_error('no'), CAST(id AS STRING)) AS value "
        "FROM range(0, 16000, 1, 2)"
    )
    with pytest.raises(PySparkException, match="no"):
        enqueue(df, "w.fails", url=yard.url)
    assert staged(topics) == 0
    with pytest.raises(PySparkException, match="no"):
        df.write.format("jobyard").mode("append").options(url=yard.url, topic="w.fails").save()
    assert staged(topics) == 0
    # A commit that is refused: more than fits.
    many = spark.sql("SELECT CAST(id AS STRING) AS value FROM range(0, 120000, 1, 3)")
    with pytest.raises(JobyardError, match="txn_too_large"):
        enqueue(many, "w.fails", url=yard.url)
    assert staged(topics) == 0
    with pytest.raises(PySparkException, match="txn_too_large"):
        many.write.format("jobyard").mode("append").options(url=yard.url, topic="w.fails").save()
    assert staged(topics) == 0
    assert topics.ask("GET", "/v0/topics/w.fails")[1]["count"] == 0


def test_nothing_stays_staged_of_a_batch_of_a_stream_that_fails(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "w.stream.fails")
    spark.range(0, 16_000, 1, 2).write.parquet(str(tmp_path / "from"))
    stream = spark.readStream.schema("id long").parquet(str(tmp_path / "from"))
    failing = stream.selectExpr(
        "IF(id % 8000 = 7999, raise_error('no'), CAST(id AS STRING)) AS value"
    )
    query = (
        failing.writeStream.format("jobyard")
        .options(url=yard.url, topic="w.stream.fails")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="no"):
        query.awaitTermination(300)
    assert staged(topics) == 0


VALUES = """
named_struct('i', 1, 'n', CAST(NULL AS INT), 's', 'ä"\\n/\\u0001\\u2028', 'b', true,
 'f', CAST(0.1 AS FLOAT), 'd', 1.0E10D, 'dd', 123456789.125D, 'small', 1.0E-5D, 'neg', -0.0D,
 'nan', double('NaN'), 'inf', double('-Infinity'), 'fnan', float('NaN'), 'fl', CAST(1E10 AS FLOAT),
 'dec', CAST(1.50 AS DECIMAL(10,2)), 'dz', CAST(0 AS DECIMAL(38,18)), 'byte', CAST(1 AS TINYINT),
 'big', 9223372036854775807L, 'bin', X'00ff', 'date', DATE'2020-02-03', 'old', DATE'0001-01-01',
 'ts', TIMESTAMP'2020-02-03 04:05:06.789123', 'summer', TIMESTAMP'2020-07-03 04:05:06',
 'before', TIMESTAMP'1969-12-31 23:59:59.999999', 'ntz', TIMESTAMP_NTZ'2020-02-03 04:05:06.789123',
 'm', MAP('a', 1, 'b', CAST(NULL AS INT)), 'mi', MAP(1, 'x'), 'md', MAP(DATE'2020-02-03', 1),
 'mt', MAP(TIMESTAMP'2020-02-03 04:05:06', 1), 'mb', MAP(true, 1), 'mf', MAP(1.0E10D, 1),
 'mdec', MAP(CAST(1.5 AS DECIMAL(5,2)), 1), 'mff', MAP(CAST(0.1 AS FLOAT), 1),
 'a', ARRAY(1, NULL, 2), 'aa', ARRAY(ARRAY(1), ARRAY(CAST(NULL AS INT)), NULL),
 'as', ARRAY(named_struct('x', CAST(NULL AS INT), 'y', 1), NULL), 'na', CAST(NULL AS ARRAY<INT>),
 'st', named_struct('x', CAST(NULL AS INT)), 'em', MAP('x', MAP('y', ARRAY(DATE'2020-02-03'))))
"""


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_values_are_written_as_to_json_shows_them(
    spark: SparkSession, yard: HttpYard, topics: Topics, zone: str
) -> None:
    create(topics, f"w.json.{zone[:3]}")
    options = {"url": yard.url, "topic": f"w.json.{zone[:3]}"}
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.sql(f"SELECT {VALUES} AS value")
        shown = [row[0] for row in df.selectExpr("to_json(value)").collect()]
        df.write.format("jobyard").mode("append").options(**options).save()
        for kind in ("ARRAY(1.5D, NULL)", "MAP('a', DATE'2020-02-03')"):
            top = spark.sql(f"SELECT {kind} AS value")
            shown += [row[0] for row in top.selectExpr("to_json(value)").collect()]
            top.write.format("jobyard").mode("append").options(**options).save()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.read.format("jobyard").options(**options).load().orderBy("seq").collect()
    assert [bytes(row.value).decode() for row in rows] == shown


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
