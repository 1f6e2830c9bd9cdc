"""What a user did wrong, as Spark shows it: short, and found again with `error_of`."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from jobyard.spark import JobyardError, enqueue, error_of, mirror, register
from jobyard.spark.session import _is_known
from tests.support.servers.http import HttpYard, Topics


@pytest.fixture
def topics(yard: HttpYard) -> Iterator[Topics]:
    """A caller of the server."""
    found = Topics(yard.address)
    yield found
    found.close()


def create(topics: Topics, name: str, kind: str = "log", count: int = 0) -> None:
    assert topics.ask("PUT", f"/v0/topics/{name}", {"type": kind})[0] == 201
    records = [{"data": {"n": at}, "tag": f"u{at % 2}"} for at in range(count)]
    if records:
        assert topics.ask("POST", f"/v0/topics/{name}", {"records": records})[0] == 200


def count(topics: Topics, name: str) -> int:
    return int(topics.ask("GET", f"/v0/topics/{name}")[1]["count"])


# Of Spark's own text around an error: what failed, a traceback of one frame, a state.
LINES_MAX = 12


def failure(
    call: Callable[[], Any], lines_max: int = LINES_MAX, frames_max: int = 1
) -> JobyardError:
    """Return our error in what Spark raises."""
    with pytest.raises(Exception, match="JobyardError") as caught:
        call()
    found = error_of(caught.value)
    assert found is not None
    text = str(caught.value).partition("JVM stacktrace:")[0]
    assert str(found) in text
    assert len(text.strip().splitlines()) <= lines_max, text
    assert "During handling" not in text
    assert text.count('File "') <= frames_max, text
    return found


def append(df: DataFrame, yard: HttpYard, path: str | None = None, **options: str) -> None:
    df.write.format("jobyard").mode("append").options(url=yard.url, **options).save(path)


def test_a_read_that_is_copied_keeps_all_its_rows(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    create(topics, "m.from", count=20)
    for name in ("m.plain", "m.kafka"):
        create(topics, name)
    plain = spark.read.format("jobyard").options(url=yard.url, topic="m.from").load()
    kafka = spark.read.format("jobyard").options(
        url=yard.url, subscribe="m.from", includeHeaders="true"
    )
    for df, to in ((plain, "m.plain"), (kafka.load(), "m.kafka")):
        error = failure(partial(append, df, yard, topic=to))
        assert (error.code, error.option) == ("bad_option", "keyAs")
        append(df, yard, topic=to, keyAs="tag")
        rows = spark.read.format("jobyard").options(url=yard.url, topic=to).load()
        found = {(json.loads(row.value)["n"], bytes(row.key)) for row in rows.collect()}
        assert found == {(at, b"u%d" % (at % 2)) for at in range(20)}
    create(topics, "m.once")
    append(plain, yard, topic="m.once", keyAs="key")
    assert count(topics, "m.once") == 2


def test_errors_of_each_kind_are_short_and_found(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "m.there", count=3)
    create(topics, "m.jobs", "queue")
    reader = spark.read.format("jobyard").option("url", yard.url)
    df = spark.sql("SELECT '1' AS value")
    # While a plan is made, in its schema and its partitions.
    error = failure(lambda: reader.option("topc", "m.there").load())
    assert (error.option, error.remedy) == ("topc", "Set topic instead.")
    missing = spark.read.format("jobyard").options(url=yard.url, topic="m.none").load()
    assert failure(missing.collect).code == "topic_not_found"
    # Before a write, in its tasks and in its commit.
    assert failure(lambda: append(df, yard, topic="m.none")).code == "topic_not_found"
    assert failure(lambda: append(df, yard, "m.there", topic="m.there")).option == "path"
    rows = spark.sql("SELECT '1' AS value, 'm.none' AS topic")
    assert failure(lambda: append(rows, yard)).topic == "m.none"
    assert failure(lambda: append(df.selectExpr("NULLIF(value, '1') AS value"), yard,
                                  topic="m.there")).code == "bad_rows"  # fmt: skip
    jobs = df.selectExpr("value", "3 AS priority")
    assert failure(lambda: append(jobs, yard, topic="m.there")).code == "not_a_queue"
    append(jobs, yard, topic="m.jobs")
    # Spark's own words, which the documents explain.
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE") as caught:
        df.write.format("jobyard").options(url=yard.url, topic="m.there").save()
    assert error_of(caught.value) is None

    def run(**options: str) -> None:
        stream = spark.readStream.format("jobyard").options(url=yard.url, **options).load()
        place = str(tmp_path / "-".join(options))
        query = stream.writeStream.format("noop").option("checkpointLocation", place)
        query.trigger(availableNow=True).start().awaitTermination(300)

    for options, option in (
        ({"topic": "m.there", "endingOffsets": "latest"}, "endingOffsets"),
        ({"jobs": "m.jobs"}, "jobs"),
        ({"topic": "m.none"}, "topic"),
    ):
        # Spark shows two frames of its own, and describes the query.
        assert failure(partial(run, **options), 30, 3).option == option


def test_bulk_enqueue_refuses_what_would_not_be_jobs(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    create(topics, "m.log", count=3)
    create(topics, "m.queue", "queue")
    df = spark.range(4).selectExpr("concat('o', id) AS order_id", "id AS n")

    def refusal(rows: DataFrame, queue: str, **given: Any) -> JobyardError:
        with pytest.raises(JobyardError) as caught:
            enqueue(rows, queue, url=yard.url, **given)
        assert len(str(caught.value).splitlines()) == 3
        return caught.value

    assert refusal(df, "m.log").code == "not_a_queue"
    assert count(topics, "m.log") == 3
    misspelt = refusal(df.selectExpr("'1' AS value", "5 AS prioritee"), "m.queue")
    assert "did you mean priority?" in misspelt.message
    assert refusal(df, "m.queue", key_cols="ordr_id").remedy == "Did you mean order_id?"
    assert refusal(df, "m.queue", Kommit="direct").option == "Kommit"
    read = spark.read.format("jobyard").options(url=yard.url, topic="m.log").load()
    assert refusal(read, "m.queue").option == "keyAs"
    for enqueued in (4, 0):
        done = enqueue(df, "m.queue", key_cols="order_id", url=yard.url)
        assert (done.enqueued, done.duplicate) == (enqueued, 4 - enqueued)
    # What identifies a row need not be written.
    keyed = df.selectExpr("to_json(struct(n)) AS value", "order_id")
    assert enqueue(keyed, "m.queue", key_cols=["order_id"], url=yard.url).duplicate == 4


def copy(spark: SparkSession, yard: HttpYard, name: str, folder: Path, **more: Any) -> list[Any]:
    """Copy a topic and return what has come."""
    query = mirror(
        spark, name, yard.url, f"{name}.copy", checkpoint=str(folder / name),
        source_options={"url": yard.url}, available_now=True, **more,
    )  # fmt: skip
    assert query.awaitTermination(300)
    read = spark.read.format("jobyard").options(url=yard.url, topic=f"{name}.copy").load()
    return list(read.orderBy("seq").select("seq", "value", "headers").collect())


def test_a_copy_keeps_headers_and_leaves_out_an_origin_without_room(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    metas: list[dict[str, Any]] = [
        {"origin_country": "DE", "n": None, "origin_seq": "old"},
        {f"h{at}": "v" for at in range(61)},
        {f"h{at}": "v" for at in range(62)},
        {"h": "\u00e4" * 2700},
        {"h": "x" * 16_370},
    ]
    records: list[dict[str, Any]] = [{"data": 1, "meta": meta} for meta in metas]
    records += [{"data": "x" * ((1 << 20) - 2 - less)} for less in (0, 60, 200)]
    create(topics, "m.full")
    create(topics, "m.full.copy")
    for record in records:
        assert topics.ask("POST", "/v0/topics/m.full", {"records": [record]})[0] == 200
    rows = copy(spark, yard, "m.full", tmp_path)
    assert len(rows) == len(records)
    have_origin = ["origin_topic" in (row.headers or {}) for row in rows]
    assert have_origin == [True, True, False, True, False, False, False, True]
    origin = {"origin_topic": "m.full", "origin_seq": "1"}
    first = dict(rows[0].headers)
    assert first.pop("origin_ts").isdecimal()
    assert first == {"origin_country": "DE", "n": None, **origin}
    for row, meta in zip(rows[1:], metas[1:], strict=False):
        kept = {name: text for name, text in row.headers.items() if name in meta}
        assert kept == meta


def test_a_copy_sends_no_token_of_the_source_to_another_server(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sent: list[dict[str, str]] = []

    def options(writer: Any, **given: str) -> Any:
        sent.append(given)
        return writer

    monkeypatch.setattr("pyspark.sql.streaming.readwriter.DataStreamWriter.options", options)
    monkeypatch.setattr("pyspark.sql.streaming.readwriter.DataStreamWriter.start", lambda _: None)
    create(topics, "m.token", count=1)
    for target, given in (
        (yard.url, {}),
        ("http://other:6790", {}),
        ("http://other:6790", {"Token": "of-the-target"}),
    ):
        mirror(spark, "m.token", target, "x", checkpoint=str(tmp_path),
               source_options={"url": yard.url}, target_options=given)  # fmt: skip
    assert sent == [{}, {"tokenEnv": "JOBYARD_TARGET_TOKEN"}, {"Token": "of-the-target"}]


def test_the_format_is_registered_only_where_spark_has_not_found_it(spark: SparkSession) -> None:
    assert _is_known(spark)
    assert register(spark) is spark


def test_a_table_of_the_catalog_is_written(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    create(topics, "m.table")
    df = spark.range(2).select(col("id").alias("value"))
    spark.sql(f"CREATE TEMPORARY VIEW m_table USING jobyard "
              f"OPTIONS (url '{yard.url}', topic 'm.table')")  # fmt: skip
    append(df, yard, topic="m.table")
    assert spark.table("m_table").count() == 2
