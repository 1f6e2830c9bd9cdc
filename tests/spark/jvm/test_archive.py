"""Archives through Spark: reads and streams over the seam, and replays."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobyard.client import YardClient
from jobyard.lake.archive import Archive, archive
from jobyard.spark import JobyardError, replay
from tests.support.clients.archives import WrittenTopic, files_of
from tests.support.clients.spark import read_batch
from tests.support.servers.http import HttpYard, Topics


@pytest.fixture
def topics(yard: HttpYard) -> Iterator[Topics]:
    found = Topics(yard.address)
    yield found
    found.close()


def copy(yard: HttpYard, topic: str, folder: Path) -> None:
    with YardClient(yard.url) as client:
        archive(client, topic, folder)


def options(yard: HttpYard, topic: str, folder: Path, **more: object) -> dict[str, Any]:
    return {"url": yard.url, "topic": topic, "archivePath": str(folder), **more}


def test_a_table_and_a_stream_go_over_the_seam(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "seam", cap_records=20)
    folder = tmp_path / "archive"
    copy(yard, "seam", folder)
    topic.fill(300)
    copy(yard, "seam", folder)
    topic.fill(50)
    given = options(yard, "seam", folder)
    rows = spark.read.format("jobyard").options(**given).load().orderBy("seq").collect()
    assert [(row.seq, bytes(row.value)) for row in rows] == [
        (row["seq"], row["value"]) for row in topic.rows
    ]
    for end in (350, 380):
        query = (
            spark.readStream.format("jobyard").options(**given, maxOffsetsPerTrigger=70)
            .option("startingOffsets", "earliest").load().select("seq")
            .writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        found = [row.seq for row in spark.read.parquet(str(tmp_path / "out")).collect()]
        assert sorted(found) == list(range(1, end + 1))
        topic.fill(30)
        copy(yard, "seam", folder)


def test_other_programs_read_the_files(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "plain:name")
    topic.fill(40)
    copy(yard, "plain:name", tmp_path)
    rows = spark.read.parquet(str(tmp_path)).orderBy("seq").collect()
    assert [(row.seq, bytes(row.value), row.topic) for row in rows] == [
        (row["seq"], row["value"], "plain:name") for row in topic.rows
    ]
    assert rows[0].date == rows[0].ts.date()


def test_a_damaged_file_fails_the_query_with_its_name(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    WrittenTopic(topics, "spoilt").fill(40)
    copy(yard, "spoilt", tmp_path)
    (file,) = files_of(tmp_path, "spoilt")
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    given = options(yard, "spoilt", tmp_path, archiveOnly="true")
    with pytest.raises(Exception, match=rf"archive_damaged\] {file} is damaged"):
        spark.read.format("jobyard").options(**given).load().collect()


def test_a_replay_writes_each_record_once_in_order(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "old")
    topic.fill(90)
    copy(yard, "old", tmp_path)
    topic.remove()
    topic.make()
    topic.fill(10)
    copy(yard, "old", tmp_path)
    topics.ask("PUT", "/v0/topics/new", {})
    lives = [each.incarnation for each in _lives(tmp_path, "old")]
    # A part of it, as if the replay had been killed there; then all, twice.
    done = replay(
        spark, str(tmp_path), "old", 1, 41, "new", incarnation=lives[0], batch_seqs=25,
        url=yard.url,
    )  # fmt: skip
    assert (done.written, done.duplicate) == (40, 0)
    for wanted in ((60, 40), (0, 100)):
        done = replay(spark, str(tmp_path), "old", None, None, "new", batch_seqs=25, url=yard.url)
        assert (done.written, done.duplicate) == wanted
    rows = read_batch(yard.url, "seq key value headers node", topic="new")
    assert [row["value"] for row in rows] == [row["value"] for row in topic.rows]
    assert [(row["key"] or b"").decode() for row in rows] == [
        row["tag"] or "" for row in topic.rows
    ]
    assert [row["node"] for row in rows] == [row["node"] for row in topic.rows]
    for row, original in zip(rows, topic.rows, strict=True):
        headers = dict(row["headers"])
        assert headers.pop("origin_topic") == "old"
        assert headers.pop("origin_seq") == str(original["seq"])
        moment = dt.datetime.fromtimestamp(int(headers.pop("origin_ts")) / 1000, dt.UTC)
        assert moment.year >= 2024
        assert headers == {name: str(value) for name, value in (original["meta"] or {}).items()}


def _lives(folder: Path, topic: str) -> Any:
    return Archive(folder, topic).index().lives


@pytest.mark.parametrize(
    ("given", "option"),
    [
        (("_events", None, None), "topic"),
        (("said", "soon", None), "from_ and to"),
        (("said", dt.datetime(2026, 1, 1), None), "from_ and to"),  # noqa: DTZ001
    ],
)
def test_what_is_no_replay_is_said(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path, given: Any, option: str
) -> None:
    topics.ask("DELETE", "/v0/topics/said")
    WrittenTopic(topics, "said").fill(1)
    copy(yard, "said", tmp_path)
    topic, begin, end = given
    with pytest.raises(JobyardError) as caught:
        replay(spark, str(tmp_path), topic, begin, end, "new", url=yard.url)
    assert caught.value.option == option
