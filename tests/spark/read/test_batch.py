"""Batch reads of logs on a real server, without Spark: only columns that need no `value`."""

import json
import sys
import time
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan

from jobyard.client import JobyardError
from jobyard.client.errors import Code
from jobyard.spark.source import plans_with_filters
from tests.support.clients.spark import read_batch, schema, source_of
from tests.support.servers.http import HttpYard, Topics


def write(topics: Topics, topic: str, count: int, **config: Any) -> None:
    assert topics.ask("PUT", f"/v0/topics/{topic}", config)[0] in (200, 201)
    records = [{"data": {"i": at}, "tag": f"t{at % 3}"} for at in range(count)]
    assert topics.ask("POST", f"/v0/topics/{topic}", {"records": records})[0] == 200


def seqs(url: str, **options: str) -> list[int]:
    return [row["seq"] for row in read_batch(url, "seq", **options)]


def fails(url: str, **options: str) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        read_batch(url, "seq", **options)
    assert len(str(caught.value).splitlines()) <= 3
    return caught.value


def test_a_topic_is_a_table(yard: HttpYard, topics: Topics) -> None:
    write(topics, "table", 1000)
    rows = read_batch(yard.url, topic="table", minPartitions="3")
    assert [row["seq"] for row in rows] == list(range(1, 1001))
    assert {row["topic"] for row in rows} == {"table"}
    assert [row["key"] for row in rows[:3]] == [b"t0", b"t1", b"t2"]
    assert abs(rows[0]["ts"].timestamp() - time.time()) < 3600


def test_a_topic_that_is_sent_compressed_is_the_same_table(yard: HttpYard, topics: Topics) -> None:
    write(topics, "packed", 5000)
    plain = read_batch(yard.url, topic="packed")
    assert read_batch(yard.url, topic="packed", compress="zstd", minPartitions="3") == plain
    assert len(plain) == 5000


def test_an_empty_topic_has_no_rows(yard: HttpYard, topics: Topics) -> None:
    topics.ask("PUT", "/v0/topics/empty", {})
    assert seqs(yard.url, topic="empty") == []


def test_many_topics_are_read_in_one_go(yard: HttpYard, topics: Topics) -> None:
    for name, count in (("many-a", 5), ("many-b", 7), ("many-c", 1)):
        write(topics, name, count)
    topics.ask("PUT", "/v0/topics/many-q", {"type": "queue"})
    rows = read_batch(yard.url, topics="many-a, many-b")
    assert [(row["topic"], row["seq"]) for row in rows] == [
        *(("many-a", seq) for seq in range(1, 6)),
        *(("many-b", seq) for seq in range(1, 8)),
    ]
    rows = read_batch(yard.url, topicsPattern="many-[a-z]")
    assert len(rows) == 13
    chosen = read_batch(yard.url, filters=[EqualTo(("topic",), "many-b")], topicsPattern="many-.*")
    assert {row["topic"] for row in chosen} == {"many-b"}
    assert read_batch(yard.url, topicsPattern="nothing-.*") == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": "earliest"}, (1, 100)),
        ({"startingOffsets": '{"where":{"0":40}}'}, (40, 100)),
        ({"startingOffsets": '{"where":{"0":-2}}', "endingOffsets": "latest"}, (1, 100)),
        ({"startingOffsets": "-10"}, (91, 100)),
        ({"startingOffsets": "-1000"}, (1, 100)),
        ({"endingOffsets": '{"where":{"0":40}}'}, (1, 39)),
        ({"startingOffsets": '{"where":{"0":101}}'}, (101, 100)),
        ({"startingOffsets": "-10", "endingOffsets": "-5"}, (91, 95)),
        ({"startingOffsets": "-5", "endingOffsets": "-10"}, (96, 95)),
        ({"startingTimestamp": "0"}, (1, 100)),
        ({"startingTimestamp": "-1d"}, (1, 100)),
        ({"startingTimestamp": "2100-01-01"}, (101, 100)),
        ({"endingTimestamp": "2000-01-01"}, (1, 0)),
    ],
)
def test_where_a_read_starts_and_ends(
    yard: HttpYard, topics: Topics, options: dict[str, str], wanted: tuple[int, int]
) -> None:
    if topics.ask("GET", "/v0/topics/where")[0] == 404:
        write(topics, "where", 100)
    assert seqs(yard.url, topic="where", **options) == list(range(wanted[0], wanted[1] + 1))


@pytest.mark.parametrize(
    ("options", "code", "option"),
    [
        ({"topic": "none"}, "topic_not_found", "topic"),
        ({"topics": "bad,none"}, "topic_not_found", "topic"),
        ({"topic": "bad", "startingOffsets": '{"bad":{"0":9}}'}, "bad_option", "startingOffsets"),
        ({"topic": "bad", "startingOffsets": '{"bat":{"0":1}}'}, "bad_option", "startingOffsets"),
        (
            {"topics": "bad,bad2", "endingOffsets": '{"bad":{"0":1}}'},
            "bad_option",
            "endingOffsets",
        ),
        (
            {"topic": "bad", "startingOffsets": '{"v":1,"t":{"bad":{"id":"1","0":1}}}'},
            "data_loss",
            "failOnDataLoss",
        ),
        ({"topic": "bad-q"}, "bad_option", "topic"),
    ],
)
def test_what_is_wrong_is_said_before_tasks_run(
    yard: HttpYard, topics: Topics, options: dict[str, str], code: str, option: str
) -> None:
    for name in ("bad", "bad2"):
        topics.ask("PUT", f"/v0/topics/{name}", {})
    topics.ask("PUT", "/v0/topics/bad-q", {"type": "queue"})
    error = fails(yard.url, **options)
    assert (error.code, error.option) == (code, option)


def test_what_was_dropped_is_a_loss_and_what_was_deleted_is_not(
    yard: HttpYard, topics: Topics
) -> None:
    write(topics, "capped", 100, cap_records=60)
    assert seqs(yard.url, topic="capped") == list(range(41, 101))
    given = {"topic": "capped", "startingOffsets": '{"capped":{"0":30}}'}
    error = fails(yard.url, **given)
    assert error.code == Code.DATA_LOSS
    assert "records 30 to 40 of capped are gone (cap)" in str(error)
    assert seqs(yard.url, **given, failOnDataLoss="false") == list(range(41, 101))
    write(topics, "holes", 100)
    assert topics.ask("POST", "/v0/topics/holes/delete", {"before_seq": 51})[0] == 200
    assert seqs(yard.url, topic="holes", startingOffsets='{"holes":{"0":1}}') == list(
        range(51, 101)
    )


def test_a_filter_reads_less_and_changes_nothing(yard: HttpYard, topics: Topics) -> None:
    write(topics, "filtered", 500)
    filters = [GreaterThan(("seq",), 100), LessThan(("seq",), 120), In(("seq",), (7, 110, 400))]
    rows = read_batch(yard.url, "seq", filters=filters, topic="filtered")
    assert [row["seq"] for row in rows] == list(range(101, 120))
    assert read_batch(yard.url, "seq", filters=[EqualTo(("seq",), 0)], topic="filtered") == []


def test_filters_are_taken_only_where_that_is_wanted_and_spark_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kind(**options: str) -> str:
        source = source_of("http://h:1", topic="a", **options)
        return type(source.reader(schema=schema(source))).__name__

    assert not plans_with_filters()
    assert (kind(), kind(pushdown="true")) == ("BatchReader", "BatchReader")
    program = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.setitem(sys.modules, program, ModuleType(program))
    assert (kind(), kind(pushdown="true")) == ("BatchReader", "PushingBatchReader")


def test_a_server_that_is_not_there(unused_url: str) -> None:
    error = fails(unused_url, topic="a", maxRetries="0")
    assert (error.code, error.option) == (Code.UNREACHABLE, "url")


def test_a_server_of_another_kind(yard: HttpYard) -> None:
    address = yard.addresses["beanstalk"]
    assert isinstance(address, tuple)
    error = fails(f"http://127.0.0.1:{address[1]}", topic="a", maxRetries="0")
    assert error.code == Code.NOT_JOBYARD


def test_a_reader_that_is_left_early_ends(yard: HttpYard, topics: Topics) -> None:
    write(topics, "left", 5000)
    source = source_of(yard.url, topic="left", minPartitions="1")
    reader = source.reader(schema=schema(source, "seq"))
    rows = reader.read(reader.partitions()[0])
    assert next(rows).num_rows > 0
    rows.close()
    assert json.dumps(seqs(yard.url, topic="left")) == json.dumps(list(range(1, 5001)))
