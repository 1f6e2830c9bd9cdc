"""What only Spark itself can show: schemas that it accepts, plans, errors, streams, restarts."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobyard.spark import register
from tests.support.servers.cutting import CuttingProxy
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.patience import PATIENCE_S

ROWS = 20_000
SECRET = "tok-51ab-very-secret"


def write(yard: HttpYard, topic: str, count: int, **config: Any) -> None:
    topics = Topics(yard.address)
    topics.ask("PUT", f"/v0/topics/{topic}", config)
    for start in range(0, count, 10_000):
        records = [
            {"data": {"i": at}, "tag": f"t{at % 5}", "meta": {"n": str(at % 3)}}
            for at in range(start, min(start + 10_000, count))
        ]
        path = f"/v0/topics/{topic}?return_seqs=false"
        assert topics.ask("POST", path, {"records": records})[0] < 300
    topics.close()


def read(spark: SparkSession, yard: HttpYard, **options: Any) -> DataFrame:
    return spark.read.format("jobyard").options(url=yard.url, **options).load()


@pytest.fixture(scope="module")
def clicks(yard: HttpYard) -> str:
    write(yard, "visits", ROWS)
    return "visits"


def test_a_topic_is_a_table(spark: SparkSession, yard: HttpYard, clicks: str) -> None:
    table = read(spark, yard, topic=clicks).selectExpr(
        "count(*) n", "min(seq) a", "max(seq) b", "count(distinct key) k",
        "sum(get_json_object(string(value), '$.i')) s", "count(headers['n']) h",
    )  # fmt: skip
    assert table.first() == (ROWS, 1, ROWS, 5, ROWS * (ROWS - 1) / 2, ROWS)


def test_an_empty_topic_has_the_same_schema(
    spark: SparkSession, yard: HttpYard, clicks: str
) -> None:
    write(yard, "empty", 0)
    empty = read(spark, yard, topic="empty")
    assert empty.schema == read(spark, yard, topic=clicks).schema
    assert empty.count() == 0


def test_a_schema_chooses_columns(spark: SparkSession, yard: HttpYard, clicks: str) -> None:
    chosen = spark.read.format("jobyard").schema("seq long, key binary")
    found = chosen.options(url=yard.url, topic=clicks, startingOffsets="-2").load()
    assert [row.asDict() for row in found.orderBy("seq").collect()] == [
        {"seq": ROWS - 1, "key": bytearray(b"t3")},
        {"seq": ROWS, "key": bytearray(b"t4")},
    ]


def test_a_job_for_kafka_runs(spark: SparkSession, yard: HttpYard, clicks: str) -> None:
    found = read(spark, yard, subscribe=clicks, includeHeaders="true", startingOffsets="earliest")
    row = found.selectExpr(
        "CAST(key AS STRING) k", "CAST(value AS STRING) v", "offset", "timestampType t",
        "headers[0].key h",
    ).where("offset = 3").first()  # fmt: skip
    assert row == ("t2", '{"i": 2}', 3, 1, "n")


@pytest.mark.parametrize("setting", ["true", "false"])
def test_filters_never_change_a_result(
    spark: SparkSession, yard: HttpYard, clicks: str, setting: str
) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, setting)
    try:
        # One table for several queries, which Spark plans once.
        table = read(spark, yard, topic=clicks)
        found = table.where("seq > 100 AND seq <= 110 AND key = 't1'").select("seq").collect()
        assert sorted(row.seq for row in found) == [102, 107]
        assert table.where("seq IN (5, 6) OR seq = 9").count() == 3
        assert table.where("seq > 5 AND seq < 3").count() == 0
        assert table.where("seq = 1").union(table.where("seq = 2")).count() == 2
        assert table.count() == ROWS
        once = read(spark, yard, topic=clicks, pushdown="true").where("seq = 7")
        assert [row.seq for row in once.collect()] == [7]
        # One seq is one task, where it was known before.
        assert (once.rdd.getNumPartitions() == 1) == (setting == "true")
    finally:
        spark.conf.set(name, "true")


def test_spark_still_keeps_what_one_query_pushed_for_the_next(
    spark: SparkSession, yard: HttpYard, clicks: str
) -> None:
    """A failure is good news: see decision 50 for what may change then."""
    table = read(spark, yard, topic=clicks, pushdown="true")
    assert table.where("seq = 1").count() == 1
    assert table.count() == 1


def test_a_task_that_dies_is_repeated(spark: SparkSession, yard: HttpYard, clicks: str) -> None:
    def die_once(batches: Any) -> Any:
        import os  # noqa: PLC0415  it runs elsewhere

        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None
        for at, batch in enumerate(batches):
            yield pa.RecordBatch.from_arrays([batch.column("seq")], names=["seq"])
            if at == 0 and context.attemptNumber() == 0:
                os._exit(1)

    table = read(spark, yard, topic=clicks, minPartitions=2)
    found = table.mapInArrow(die_once, "seq long").collect()
    assert [row.seq for row in found] == list(range(1, ROWS + 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topci": "a"}, "did you mean topic?"),
        ({"topic": "nowhere"}, "there is no topic nowhere"),
        ({"topic": "clicks", "failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"topic": "clicks", "jobs": "clicks"}, "only one of"),
    ],
)
def test_what_is_wrong_is_said_before_a_task_runs(
    spark: SparkSession, yard: HttpYard, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, yard, token=SECRET, **options).collect()
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_token_is_in_no_plan(spark: SparkSession, yard: HttpYard, clicks: str) -> None:
    table = read(spark, yard, topic=clicks, token=SECRET)
    table.createOrReplaceTempView("secret_clicks")
    plans = spark.sql("EXPLAIN EXTENDED SELECT * FROM secret_clicks WHERE seq = 1").first()
    assert plans is not None
    assert SECRET not in plans[0]


def test_a_limit_leaves_the_reader_early(spark: SparkSession, yard: HttpYard, clicks: str) -> None:
    assert len(read(spark, yard, topic=clicks, minPartitions=1).limit(3).collect()) == 3


def test_a_registered_format_is_the_one_that_is_found(
    spark: SparkSession, yard: HttpYard, clicks: str
) -> None:
    assert register(spark) is spark
    assert read(spark, yard, topic=clicks).where("seq <= 5").count() == 5


def stream_of(spark: SparkSession, yard: HttpYard, **options: Any) -> DataFrame:
    return spark.readStream.format("jobyard").options(url=yard.url, **options).load()


def run(table: DataFrame, folder: Path) -> StreamingQuery:
    """Run a query until there is nothing new, into Parquet files."""
    query = (
        table.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(PATIENCE_S) * 3)
    return query


def test_a_stream_goes_on_where_it_ended(
    spark: SparkSession, yard: HttpYard, tmp_path: Path
) -> None:
    write(yard, "stream", 250)
    table = stream_of(
        spark, yard, topic="stream", startingOffsets="earliest", maxOffsetsPerTrigger=100,
        token=SECRET,
    ).select("seq")  # fmt: skip
    query = run(table, tmp_path)
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert [each["numInputRows"] for each in progress] == [100, 100, 50]
    end = progress[-1]["sources"][0]["endOffset"]
    end = json.loads(end) if isinstance(end, str) else end
    assert end["t"]["stream"]["0"] == 251
    write(yard, "stream", 30)
    run(table, tmp_path)
    seqs = [row.seq for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(seqs) == list(range(1, 281))
    stored = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert stored
    assert all(SECRET.encode() not in path.read_bytes() for path in stored)


def test_a_stream_of_a_topic_that_was_made_again_fails(
    spark: SparkSession, yard: HttpYard, tmp_path: Path
) -> None:
    write(yard, "again", 10)
    table = stream_of(spark, yard, topic="again", startingOffsets="earliest").select("seq")
    run(table, tmp_path)
    topics = Topics(yard.address)
    assert topics.ask("DELETE", "/v0/topics/again")[0] == 200
    topics.close()
    write(yard, "again", 20)
    with pytest.raises(StreamingQueryException, match="made again"):
        run(table, tmp_path)
    calm = stream_of(spark, yard, topic="again", failOnDataLoss="false").select("seq")
    query = run(calm, tmp_path)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 30
    latest = query.recentProgress[-1]["sources"][0]["latestOffset"]
    latest = json.loads(latest) if isinstance(latest, str) else latest
    assert latest["lost"]["again"]["gaps"] == [{"from": 11, "to": None, "why": "made again"}]


def test_a_checkpoint_of_another_topic_is_refused(
    spark: SparkSession, yard: HttpYard, tmp_path: Path
) -> None:
    for topic in ("mine", "theirs"):
        write(yard, topic, 10)
    run(stream_of(spark, yard, topic="mine", startingOffsets="earliest").select("seq"), tmp_path)
    other = stream_of(spark, yard, topic="theirs").select("seq")
    with pytest.raises(StreamingQueryException, match="which the query does not read"):
        run(other, tmp_path)
    # A copy continues where the original was.
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy" / "checkpoint")
    write(yard, "mine", 5)
    run(stream_of(spark, yard, topic="mine").select("seq"), tmp_path / "copy")
    # By file: the sink's own list of them begins with what the original wrote.
    files = [str(path) for path in (tmp_path / "copy" / "out").glob("*.parquet")]
    seqs = [row.seq for row in spark.read.parquet(*files).collect()]
    assert sorted(seqs) == [11, 12, 13, 14, 15]


def test_a_slow_python_function_behind_a_read_loses_nothing(
    spark: SparkSession, yard: HttpYard, tmp_path: Path
) -> None:
    # More than is read ahead and fits into the buffers in between, so that the reader must pause.
    topics = Topics(yard.address)
    for _ in range(12):
        records = [{"data": "x" * 1_000_000}] * 10
        path = "/v0/topics/large?return_seqs=false"
        assert topics.ask("POST", path, {"records": records})[0] < 300
    topics.close()
    gone = tmp_path / "gone"

    def slowly(batches: Any) -> Any:
        import threading  # noqa: PLC0415  it runs elsewhere
        import time  # noqa: PLC0415

        deadline = time.monotonic() + PATIENCE_S
        for at, batch in enumerate(batches):
            while at == 0 and not gone.exists():
                assert time.monotonic() < deadline
                threading.Event().wait(0.01)
            yield pa.RecordBatch.from_arrays([batch.column("seq")], names=["seq"])

    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(size, 5)
    with CuttingProxy(yard.address, 1, share=0.0, patience_s=0.2) as proxy:

        def tell() -> None:
            if proxy.lost_patience.wait(PATIENCE_S):
                gone.touch()

        threading.Thread(target=tell, daemon=True).start()
        try:
            table = spark.read.format("jobyard").options(
                url=proxy.url, topic="large", minPartitions=1
            ).load()  # fmt: skip
            found = table.mapInArrow(slowly, "seq long").collect()
        finally:
            spark.conf.unset(size)
        assert proxy.lost_patience.is_set()
    assert [row.seq for row in found] == list(range(1, 121))
