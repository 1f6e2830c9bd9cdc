"""Checkpoints that were copied, deleted, or given to another query, as the reader sees them.

Of a checkpoint a reader gets nothing but offsets.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobyard.client import JobyardError
from jobyard.client.errors import Code
from tests.support.clients.spark import Query
from tests.support.servers.http import HttpYard, Topics

Make = Callable[..., Query]
CALM = {"failOnDataLoss": "false"}


@pytest.fixture
def made(yard: HttpYard) -> Iterator[Make]:
    queries: list[Query] = []

    def start(at: Any = None, **options: str) -> Query:
        queries.append(Query(yard.url, at, **options))
        return queries[-1]

    yield start
    for each in queries:
        each.stop()


def write(topics: Topics, topic: str, count: int) -> None:
    assert topics.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}] * count})[0] < 300


def rows(query: Query) -> list[tuple[str, int]]:
    return [row for batch in query.until_end() for row in batch]


def refused(call: Callable[[], object], code: str) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        call()
    assert caught.value.code == code
    assert len(str(caught.value).splitlines()) <= 3
    return caught.value


@pytest.mark.parametrize("options", [{}, CALM])
def test_a_checkpoint_of_another_topic_is_refused(
    made: Make, topics: Topics, options: dict[str, str]
) -> None:
    for topic in ("k-a", "k-b"):
        write(topics, topic, 10)
    first = made(topic="k-a", startingOffsets="earliest")
    start, end = first.at, first.plan()
    for others in ({"topic": "k-b"}, {"topicsPattern": "k-[b-z]"}, {"topic": "_events"}):
        other = made(end, **others, **options, consumer="thief")
        for call in (other.plan, other.until_end, lambda run=other: run.rows(start, end)):
            error = refused(call, Code.BAD_OFFSETS)
            assert error.option == "checkpointLocation"
            assert "they are of k-a, which the query does not read" in str(error)
    # Its cursors stay where they are.
    assert topics.ask("GET", "/v0/topics/k-a/cursors/thief")[0] == 404


def test_topics_may_be_added_to_a_query(made: Make, topics: Topics) -> None:
    for topic in ("add-a", "add-b"):
        write(topics, topic, 3)
    run = made(topic="add-a", startingOffsets="earliest")
    assert len(rows(run)) == 3
    assert rows(made(run.at, topics="add-a,add-b")) == [("add-b", seq) for seq in (1, 2, 3)]


def test_a_topic_that_is_taken_out_of_a_query_is_a_loss(made: Make, topics: Topics) -> None:
    for topic in ("out-a", "out-b"):
        write(topics, topic, 3)
    run = made(topics="out-a,out-b", startingOffsets="earliest")
    assert len(rows(run)) == 6
    write(topics, "out-a", 1)
    error = refused(made(run.at, topic="out-a").until_end, Code.DATA_LOSS)
    assert (error.topic, error.detail["from"]) == ("out-b", 4)
    assert "not among the topics of the query" in str(error)
    calm = made(run.at, topic="out-a", **CALM)
    assert rows(calm) == [("out-a", 4)]
    assert set(calm.at["t"]) == {"out-a"}


def test_a_checkpoint_of_another_server_is_a_loss(
    made: Make, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = HttpYard("--data", str(tmp_path_factory.mktemp("other")))
    caller = Topics(other.address)
    try:
        for each in (topics, caller):
            write(each, "twins", 10)
            each.ask("PUT", "/v0/topics/twin-jobs", {"type": "queue"})
            write(each, "twin-jobs", 10)
        for topic in ("twins", "_events"):
            theirs = Query(other.url, topic=topic, startingOffsets="earliest")
            assert rows(theirs)
            theirs.stop()
            error = refused(made(theirs.at, topic=topic).until_end, Code.DATA_LOSS)
            assert "another yard or data directory" in str(error)
            # What this server has is read from its beginning.
            found = rows(made(theirs.at, topic=topic, **CALM))
            assert found == rows(made(topic=topic, startingOffsets="earliest"))
    finally:
        caller.close()
        other.close()


def test_a_copied_checkpoint_continues_for_both(made: Make, topics: Topics) -> None:
    write(topics, "copies", 5)
    run = made(topic="copies", startingOffsets="earliest", consumer="etl")
    assert len(rows(run)) == 5
    copy = json.loads(json.dumps(run.at))
    write(topics, "copies", 5)
    wanted = [("copies", seq) for seq in range(6, 11)]
    assert rows(made(run.at, topic="copies", consumer="etl")) == wanted
    # The cursor is further already, which is the other one's doing and no error.
    assert rows(made(copy, topic="copies", consumer="etl")) == wanted


def test_a_deleted_checkpoint_begins_where_the_options_say(made: Make, topics: Topics) -> None:
    write(topics, "fresh", 5)
    assert len(rows(made(topic="fresh", startingOffsets="earliest"))) == 5
    assert len(rows(made(topic="fresh", startingOffsets="earliest"))) == 5
    late = made(topic="fresh")
    assert late.batch() == []
    write(topics, "fresh", 1)
    assert rows(late) == [("fresh", 6)]


@pytest.mark.parametrize(
    "form", [{"logOffset": 3}, {"v": 2, "t": {}}, 17, {"v": 1, "t": {"a": {"0": 1}}}]
)
def test_a_checkpoint_of_another_source_is_refused(made: Make, topics: Topics, form: Any) -> None:
    write(topics, "sound", 1)
    for call in (made(form, topic="sound").plan, made(form, topic="sound").until_end):
        assert refused(call, Code.BAD_OFFSETS).option == "checkpointLocation"
