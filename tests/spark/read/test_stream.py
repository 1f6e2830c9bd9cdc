"""Streams of logs on a real server, driven as Spark drives them: only columns without `value`."""

import json
import threading
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import StructType

from jobyard.client import JobyardError
from jobyard.client.errors import Code
from jobyard.spark.read import stream
from jobyard.spark.read.states import TopicExtent, TopicStates
from tests.support.clients.spark import Query, schema, source_of
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.scripted import Reply, ScriptedHttp, refused, said
from tests.support.values.pickled import sent

ALL = ReadAllAvailable()


def write(topics: Topics, topic: str, count: int) -> None:
    assert topics.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}] * count})[0] < 300


@pytest.fixture
def query(yard: HttpYard) -> Any:
    made: list[Query] = []

    def start(at: Any = None, **options: str) -> Query:
        made.append(Query(yard.url, at, **options))
        return made[-1]

    yield start
    for each in made:
        each.stop()


def test_a_stream_reads_what_comes(query: Any, topics: Topics) -> None:
    write(topics, "s1", 3)
    run = query(topic="s1")
    assert run.batch() == []
    write(topics, "s1", 2)
    assert run.batch() == [("s1", 4), ("s1", 5)]
    assert run.batch() == []
    assert run.reader.reportLatestOffset() == run.at
    assert run.reader.initialOffset()["t"]["s1"]["0"] == 4


def test_limits_cut_batches_and_all_available_ignores_them(query: Any, topics: Topics) -> None:
    write(topics, "s2", 25)
    run = query(topic="s2", startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert run.limit == ReadMaxRows(10)
    assert [len(batch) for batch in run.until_end()] == [10, 10, 5]
    write(topics, "s2", 25)
    again = query(run.at, topic="s2", maxOffsetsPerTrigger="10")
    assert len(again.batch(ALL)) == 25


def test_a_run_that_ends_reads_nothing_newer(query: Any, topics: Topics) -> None:
    write(topics, "s3", 10)
    run = query(topic="s3", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    run.reader.prepareForTriggerAvailableNow()
    write(topics, "s3", 10)
    found = [run.batch() for _ in range(4)]
    assert [len(batch) for batch in found] == [4, 4, 2, 0]
    assert [len(batch) for batch in query(run.at, topic="s3").until_end()] == [10]


def test_a_limit_of_bytes_is_met_on_average(query: Any, topics: Topics) -> None:
    records = [{"data": "x" * 998}] * 100
    assert topics.ask("POST", "/v0/topics/s4", {"records": records})[0] == 201
    run = query(topic="s4", startingOffsets="earliest", maxBytesPerTrigger="10000")
    assert run.limit == ReadMaxBytes(10_000)
    assert [len(batch) for batch in run.until_end()] == [10] * 10


def test_a_batch_waits_for_enough_but_not_for_ever(query: Any, topics: Topics) -> None:
    write(topics, "s5", 5)
    given = {"topic": "s5", "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    run = query(**given, maxTriggerDelay="1d")
    assert run.limit == ReadMinRows(10)
    assert run.batch() == []
    write(topics, "s5", 6)
    deadline = time.monotonic() + 60
    found: list[tuple[str, int]] = []
    while not found and time.monotonic() < deadline:
        found = run.batch()
    assert len(found) == 11
    write(topics, "s5", 3)
    hasty = query(**given, maxTriggerDelay="0ms")
    assert len(hasty.batch()) == 14
    # A run that must end does not wait for more.
    assert len(query(run.at, topic="s5", minOffsetsPerTrigger="10").until_end()[0]) == 3


def test_the_same_offsets_give_the_same_rows(query: Any, topics: Topics) -> None:
    write(topics, "s6", 10)
    run = query(topic="s6", startingOffsets="earliest")
    start, end = run.at, run.plan()
    first = run.rows(start, end)
    write(topics, "s6", 10)
    again = query(end, topic="s6", maxOffsetsPerTrigger="1")
    assert again.rows(start, end) == first
    assert run.rows(end, end) == []


def test_new_topics_are_found_and_read_from_their_beginning(query: Any, topics: Topics) -> None:
    write(topics, "p-a", 4)
    run = query(topicsPattern="p-.*", maxOffsetsPerTrigger="3")
    assert [row for batch in run.until_end() for row in batch] == []
    write(topics, "p-a", 2)
    write(topics, "p-b", 5)
    again = query(run.at, topicsPattern="p-.*", maxOffsetsPerTrigger="3")
    batches = again.until_end()
    assert sorted(row for batch in batches for row in batch) == [
        *(("p-a", seq) for seq in (5, 6)),
        *(("p-b", seq) for seq in range(1, 6)),
    ]
    assert all(len(batch) <= 3 for batch in batches)
    assert topics.ask("DELETE", "/v0/topics/p-a")[0] == 200
    write(topics, "p-b", 1)
    rest = query(again.at, topicsPattern="p-.*")
    assert rest.until_end() == [[("p-b", 6)]]
    assert set(rest.at["t"]) == {"p-b"}


def fails(run: Query) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        run.until_end()
    assert caught.value.code == Code.DATA_LOSS
    return caught.value


def test_a_topic_that_was_made_again_is_a_loss(query: Any, topics: Topics) -> None:
    write(topics, "s7", 10)
    run = query(topic="s7")
    assert topics.ask("DELETE", "/v0/topics/s7")[0] == 200
    assert "s7 was deleted" in str(fails(query(run.at, topic="s7")))
    calm = query(run.at, topic="s7", failOnDataLoss="false")
    assert calm.until_end() == []
    write(topics, "s7", 20)
    assert "made again" in str(fails(query(run.at, topic="s7")))
    assert "made again" in str(fails(query(run.at, topicsPattern="s7")))
    calm = query(run.at, topic="s7", failOnDataLoss="false")
    assert [row[1] for batch in calm.until_end() for row in batch] == list(range(1, 21))


def test_offsets_between_lives_of_a_topic_fail_before_a_task(query: Any, topics: Topics) -> None:
    write(topics, "s8", 10)
    run = query(topic="s8", startingOffsets="earliest")
    end = run.plan()
    assert topics.ask("DELETE", "/v0/topics/s8")[0] == 200
    write(topics, "s8", 20)
    with pytest.raises(JobyardError, match="made again"):
        run.rows(run.at, end)


def test_a_cursor_left_behind_is_a_loss(query: Any, topics: Topics) -> None:
    assert topics.ask("PUT", "/v0/topics/s9", {"cap_records": 60})[0] == 201
    run = query(topic="s9")
    write(topics, "s9", 100)
    error = None
    with pytest.raises(JobyardError) as caught:
        query(run.at, topic="s9").until_end()
    error = caught.value
    assert (error.code, error.topic) == (Code.DATA_LOSS, "s9")
    assert "records 1 to 40 of s9 are gone" in str(error)
    calm = query(run.at, topic="s9", failOnDataLoss="false")
    assert [row[1] for batch in calm.until_end() for row in batch] == list(range(41, 101))
    assert calm.reader.reportLatestOffset()["lost"] == {
        "s9": {"seqs": 40, "gaps": [{"from": 1, "to": 40, "why": "cap"}]}
    }


def test_a_topic_that_is_missing_at_the_start_is_an_error(yard: HttpYard) -> None:
    reader = source_of(yard.url, topic="nowhere").streamReader(schema=StructType())
    with pytest.raises(JobyardError, match="there is no topic nowhere"):
        reader.initialOffset()
    reader.stop()


def state(head: int) -> bytes:
    fields = {
        "topic": "a", "type": "log", "head_seq": head, "earliest_seq": 1, "count": head,
        "bytes": head, "incarnation": "7",
    }  # fmt: skip
    return said(json.dumps(fields).encode())


def test_a_quiet_stream_waits_at_the_server() -> None:
    with ScriptedHttp([state(5), *[state(5)] * 9, state(6)]) as server:
        run = Query(server.url, topic="a", maxOffsetsPerTrigger="10")
        assert run.plan() == run.at
        ends = [run.plan() for _ in range(10)]
        assert [end["t"]["a"]["0"] for end in ends] == [6] * 9 + [7]
        targets = [each.target for each in server.heard]
        assert targets[1:] == ["/v0/topics/a?after_seq=5&wait_ms=1000"] * 10
        assert server.connections == 1
        run.stop()


def test_calls_of_a_quiet_stream_begin_an_interval_apart() -> None:
    """Also if the server answers at once, as one that stops does."""
    with ScriptedHttp([state(5)] * 7) as server:
        run = Query(server.url, topic="a", pollIntervalMs="50")
        # Its first batch takes no call, unless what was found is older than an interval.
        assert run.plan() == run.at
        begin = time.monotonic()
        for _ in range(6):
            run.plan()
        assert time.monotonic() - begin >= 0.2
        run.stop()


class Counted(TopicStates):
    """Counts the calls of a query."""

    count = 0

    def all(self, after_seq: int = -1, wait_ms: int = 0) -> dict[str, TopicExtent]:
        Counted.count += 1
        return super().all(after_seq, wait_ms)


def test_a_quiet_stream_asks_once_for_news(
    query: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "TopicStates", Counted)
    write(topics, "s11", 3)
    run = query(topic="s11", pollIntervalMs="200")
    Counted.count = 0
    begin = time.monotonic()
    assert [run.batch() for _ in range(2)] == [[], []]
    assert Counted.count <= 5 * (time.monotonic() - begin)
    found: list[list[tuple[str, int]]] = []
    before = Counted.count
    reader = threading.Thread(target=lambda: found.append(run.batch()), daemon=True)
    reader.start()
    deadline = time.monotonic() + 60
    while Counted.count == before and time.monotonic() < deadline:
        reader.join(0.005)
    write(topics, "s11", 2)
    reader.join(60)
    assert found == [[("s11", 4), ("s11", 5)]]
    assert Counted.count == before + 1


def test_events_are_awaited_too(
    query: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "TopicStates", Counted)
    run = query(topic="_events", pollIntervalMs="200")
    Counted.count = 0
    # Records of a log are no news of jobs.
    write(topics, "s12", 2)
    begin = time.monotonic()
    assert run.plan() == run.at
    assert Counted.count <= 5 * (time.monotonic() - begin)
    topics.ask("PUT", "/v0/topics/q12", {"type": "queue"})
    write(topics, "q12", 1)
    assert run.plan() != run.at


def test_a_stream_with_much_to_read_asks_rarely() -> None:
    with ScriptedHttp([state(1000)] * 2) as server:
        source = source_of(
            server.url, topic="a", startingOffsets="earliest", maxOffsetsPerTrigger="10",
            pollIntervalMs="60000",
        )  # fmt: skip
        reader = source.streamReader(schema=schema(source, "seq"))
        at = reader.initialOffset()
        for _ in range(50):
            at = reader.latestOffset(at, ReadMaxRows(10))
        assert at["t"]["a"]["0"] == 501
        assert len(server.heard) == 1
        reader.stop()


def test_a_cursor_follows_what_spark_has_finished() -> None:
    moved = said(b"{}")
    unchanged = refused("409 Conflict", "wrong_incarnation")
    replies: list[Reply] = [state(5), unchanged, state(9), moved, state(9), moved, state(9)]
    with ScriptedHttp(replies) as server:
        run = Query(server.url, topic="a", consumer="etl", hold="true")
        # Nothing is finished yet: neither where the query begins nor the end of a planned batch.
        assert run.plan() == run.at
        end = run.plan()
        assert end["t"]["a"]["0"] == 10
        assert [each.method for each in server.heard] == ["GET", "PUT", "GET"]
        # Whether the key may hold; of no topic's incarnation, so that it changes nothing.
        asked = json.loads(server.heard[1].body)
        assert asked == {"seq": 0, "incarnation": "none", "hold": True}
        run.reader.commit(run.at)
        # Planned and not finished: Spark asks for it again.
        assert run.plan() == end
        run.reader.commit(end)
        puts = [each for each in server.heard if each.method == "PUT"][1:]
        assert [each.target for each in puts] == ["/v0/topics/a/cursors/etl"] * 2
        assert [json.loads(each.body) for each in puts] == [
            {"seq": seq, "incarnation": "7", "hold": True} for seq in (5, 9)
        ]
        run.stop()


@pytest.mark.parametrize("code", ["404 cursor_behind", "404 topic_not_found",
                                  "409 wrong_incarnation", "416 out_of_range"])  # fmt: skip
def test_a_cursor_that_cannot_be_moved_stops_nobody(code: str) -> None:
    status, _, word = code.partition(" ")
    with ScriptedHttp([state(5), refused(f"{status} X", word)]) as server:
        run = Query(server.url, topic="a", consumer="etl")
        run.reader.commit(run.at)
        run.reader.commit(run.at)
        assert len(server.heard) == 2
        run.stop()


def test_a_cursor_that_may_not_be_set_is_an_error() -> None:
    with ScriptedHttp([state(5), refused("403 Forbidden", "forbidden")]) as server:
        run = Query(server.url, topic="a", consumer="etl")
        with pytest.raises(JobyardError) as caught:
            run.reader.commit(run.at)
        assert (caught.value.code, caught.value.topic) == ("forbidden", "a")
        run.stop()


def test_each_topic_has_a_cursor_of_this_name(query: Any, topics: Topics) -> None:
    for topic, count in (("c-a", 3), ("c-b", 5)):
        write(topics, topic, count)
    run = query(topicsPattern="c-.*", startingOffsets="earliest", consumer="etl.1")
    start = run.at
    assert len(run.batch()) == 8
    # Nothing is finished by having been read.
    assert topics.ask("GET", "/v0/topics/c-a/cursors/etl.1")[0] == 404
    run.reader.commit(run.at)
    for topic, count in (("c-a", 3), ("c-b", 5)):
        assert topics.ask("GET", f"/v0/topics/{topic}/cursors/etl.1")[1]["seq"] == count
    # A checkpoint that is gone begins again, and the cursor does not go back.
    query(start, topicsPattern="c-.*", consumer="etl.1").reader.commit(start)
    assert topics.ask("GET", "/v0/topics/c-a/cursors/etl.1")[1]["seq"] == 3


def test_a_run_that_goes_on_moves_the_cursor_to_where_it_begins(query: Any, topics: Topics) -> None:
    write(topics, "c2", 3)
    run = query(topic="c2", startingOffsets="earliest", consumer="etl")
    run.until_end()
    # What Spark stored as finished, and did not tell before the query ended.
    assert query(run.at, topic="c2", consumer="etl").until_end() == []
    assert topics.ask("GET", "/v0/topics/c2/cursors/etl")[1]["seq"] == 3


@pytest.mark.parametrize(
    ("begin", "is_empty"),
    [
        ({}, True),
        ({"startingOffsets": "-2"}, True),
        ({"startingOffsets": '{"first":{"0":-1}}'}, True),
        ({"startingTimestamp": "-1d"}, True),
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"first":{"0":3}}'}, False),
        ({"startingTimestamp": "0"}, False),
    ],
)
def test_a_first_batch_that_would_begin_elsewhere_when_repeated_is_empty(
    query: Any, topics: Topics, begin: dict[str, str], *, is_empty: bool
) -> None:
    topics.ask("DELETE", "/v0/topics/first")
    write(topics, "first", 10)
    run = query(topic="first", **begin)
    start = run.at["t"]["first"]["0"]
    write(topics, "first", 5)
    end = run.plan()
    found = run.rows(run.at, end)
    assert (found == []) == is_empty
    # The driver dies; the next one asks anew where the batch began, and repeats it.
    again = query(topic="first", **begin)
    write(topics, "first", 5)
    assert again.rows(again.at, end) == found
    again.at = end
    found += [row for batch in again.until_end() for row in batch]
    assert [seq for _, seq in found] == list(range(start, 21))


def test_only_the_driver_is_connected(query: Any, topics: Topics) -> None:
    write(topics, "s10", 1)
    run = query(topic="s10")
    copy = sent(run.reader)
    assert copy._driver is None
    copy.stop()


def test_a_gap_is_in_the_progress_of_its_own_batch_and_logged_once(
    query: Any, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    assert topics.ask("PUT", "/v0/topics/s13", {"cap_records": 5})[0] == 201
    write(topics, "s13", 20)
    given = {
        "topic": "s13", "startingOffsets": '{"s13":{"0":1}}', "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "9", "minPartitions": "4",
    }  # fmt: skip
    whole = {"s13": {"seqs": 15, "gaps": [{"from": 1, "to": 15, "why": "cap"}]}}
    run = query(**given)
    found = []
    for _ in range(3):
        end = run.plan()
        # Spark asks for the progress before it knows what tasks found.
        assert run.reader.reportLatestOffset()["lost"] == whole
        found += run.rows(run.at, end)
        run.at = end
    assert found == [("s13", seq) for seq in range(16, 21)]
    assert caplog.text.count("are gone") == 1
