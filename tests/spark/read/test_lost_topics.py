"""Topics that are not what they were: deleted, made again, expired, of another data directory.

Each fate comes once between the planning and the reading of a batch, and once between two runs of
a stream.
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobyard.client import JobyardError
from jobyard.client.errors import Code
from jobyard.spark.read.losses import GAPS_MAX, Losses, LossRule, Why, deleted, dropped
from tests.support.clients.spark import Query, rows_of, schema, source_of
from tests.support.servers.http import HttpYard, Topics
from tests.support.values.pickled import sent

COUNT = 100
CALM = {"failOnDataLoss": "false"}
Lines = list[tuple[str, int]]


class Place:
    """A server that can lose its data directory and keep its address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.yard = HttpYard("--data", str(self.folder))
        self.topics = Topics(self.yard.address)

    @property
    def url(self) -> str:
        return self.yard.url

    def empty(self) -> None:
        """Start anew where the server was, with nothing."""
        port = self.yard.address[1]
        self.close()
        shutil.rmtree(self.folder)
        self.yard = HttpYard("--data", str(self.folder), "--http", f"127.0.0.1:{port}")
        self.topics = Topics(self.yard.address)

    def write(self, topic: str, count: int, **config: object) -> None:
        assert self.topics.ask("PUT", f"/v0/topics/{topic}", config)[0] in (200, 201)
        records = {"records": [{"data": 1}] * count}
        assert self.topics.ask("POST", f"/v0/topics/{topic}", records)[0] == 200

    def delete(self, topic: str) -> None:
        assert self.topics.ask("DELETE", f"/v0/topics/{topic}")[0] == 200

    def close(self) -> None:
        self.topics.close()
        self.yard.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("place"))
    yield made
    made.close()


Make = Callable[..., Query]


@pytest.fixture
def made(place: Place) -> Iterator[Make]:
    """Start runs of queries, which end with the test."""
    queries: list[Query] = []

    def start(at: Any, **options: str) -> Query:
        queries.append(Query(place.url, at, **options))
        return queries[-1]

    yield start
    for each in queries:
        each.stop()


def delete(place: Place, topic: str) -> None:
    place.delete(topic)


def make_again(place: Place, topic: str) -> None:
    place.delete(topic)
    place.write(topic, 2 * COUNT)


def expire(place: Place, topic: str) -> None:
    place.write(topic, 2 * COUNT, cap_records=COUNT)


def empty(place: Place, topic: str) -> None:
    place.empty()
    place.write(topic, 2 * COUNT)


Fate = Callable[[Place, str], None]
# What the error says, and the seqs that a stream then still finds, which had read a half.
FATES: list[tuple[Fate, str, list[int]]] = [
    (delete, "was deleted: what followed from record", []),
    (make_again, "was deleted and made again", list(range(1, 2 * COUNT + 1))),
    (expire, "are gone (cap)", list(range(2 * COUNT + 1, 3 * COUNT + 1))),
    (empty, "another yard or data directory", list(range(1, 2 * COUNT + 1))),
]
each_fate = pytest.mark.parametrize(("fate", "said"), [each[:2] for each in FATES])
each_fate_and_rest = pytest.mark.parametrize(("fate", "said", "left"), FATES)


def lost(call: Callable[[], object], topic: str) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        call()
    error = caught.value
    assert (error.code, error.topic, error.option) == (Code.DATA_LOSS, topic, "failOnDataLoss")
    assert len(str(error).splitlines()) <= 3
    assert set(error.detail) == {"from", "to", "why"}
    return error


def half(topic: str) -> dict[str, str]:
    return {"topic": topic, "startingOffsets": f'{{"{topic}":{{"0":{COUNT // 2 + 1}}}}}'}


@each_fate
def test_a_batch_loses_a_topic_between_plan_and_read(place: Place, fate: Fate, said: str) -> None:
    topic = f"batch-{fate.__name__}"
    place.write(topic, COUNT)
    source = source_of(place.url, **half(topic))
    reader = source.reader(schema=schema(source, "topic seq"))
    partitions = list(reader.partitions())
    calm = source_of(place.url, **half(topic), **CALM).reader(schema=schema(source, "topic seq"))
    fate(place, topic)
    error = lost(lambda: rows_of(reader, partitions), topic)
    assert said in str(error)
    assert error.detail["from"] == COUNT // 2 + 1
    # What is asked for is a range of the topic that was.
    assert rows_of(calm, partitions) == []


@each_fate_and_rest
def test_a_batch_that_is_given_offsets_of_another_life(
    place: Place, fate: Fate, said: str, left: list[int]
) -> None:
    topic = f"given-{fate.__name__}"
    place.write(topic, COUNT)
    id_now = place.topics.ask("GET", f"/v0/topics/{topic}")[1]["incarnation"]
    offsets = f'{{"v":1,"t":{{"{topic}":{{"id":"{id_now}","0":{COUNT // 2 + 1}}}}}}}'
    fate(place, topic)

    def read(**options: str) -> list[int]:
        source = source_of(place.url, topic=topic, startingOffsets=offsets, **options)
        reader = source.reader(schema=schema(source, "topic seq"))
        return [row["seq"] for row in rows_of(reader, list(reader.partitions()))]

    if fate is delete:
        # A topic that is not there cannot be read, whatever was said of offsets.
        with pytest.raises(JobyardError, match="there is no topic"):
            read(**CALM)
        return
    assert said in str(lost(read, topic))
    assert read(**CALM) == left


@pytest.mark.parametrize("runs", ["until end", "for ever"])
@each_fate_and_rest
def test_a_stream_loses_a_topic_between_two_runs(
    place: Place, made: Make, fate: Fate, said: str, left: list[int], runs: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    topic = f"stream-{fate.__name__}-{runs.replace(' ', '-')}"
    place.write(topic, COUNT // 2)
    first = made(None, topic=topic, startingOffsets="earliest")
    assert len(first.batch()) == COUNT // 2
    place.write(topic, COUNT // 2)
    fate(place, topic)

    def run(**options: str) -> tuple[Lines, Any]:
        query = made(first.at, topic=topic, **options)
        if runs == "until end":
            rows = [row for batch in query.until_end() for row in batch]
        else:
            rows = [row for _ in range(3) for row in query.batch()]
        return rows, query.reader.reportLatestOffset()

    error = lost(run, topic)
    assert said in str(error)
    assert error.detail["from"] == COUNT // 2 + 1
    with caplog.at_level(logging.WARNING, "jobyard.spark"):
        rows, told = run(**CALM)
    assert rows == [(topic, seq) for seq in left]
    (gap,) = told["lost"][topic]["gaps"] if told is not None else [error.detail]
    assert gap == error.detail
    # However often the driver looks.
    assert caplog.text.count(said) == 1


@each_fate
def test_a_batch_that_is_repeated_loses_its_topic(
    place: Place, made: Make, fate: Fate, said: str
) -> None:
    topic = f"repeated-{fate.__name__}"
    place.write(topic, COUNT)
    first = made(None, topic=topic, startingOffsets="earliest")
    start, end = first.at, first.plan()
    fate(place, topic)
    # A driver that begins anew repeats the batch before it plans another.
    again = made(start, topic=topic)
    # Before a task begins.
    assert said in str(lost(lambda: again.reader.partitions(start, end), topic))
    calm = made(start, topic=topic, **CALM)
    assert calm.rows(start, end) == []
    if fate is expire:
        told = (calm.reader.reportLatestOffset() or {})["lost"][topic]
        assert told == {"seqs": COUNT, "gaps": [{"from": 1, "to": COUNT, "why": "cap"}]}


def test_topics_of_a_pattern_end_quietly(
    place: Place, made: Make, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("ends-a", "ends-b"):
        place.write(name, 10)
    run = made(None, topicsPattern="ends-.*", startingOffsets="earliest")
    start, end = run.at, run.plan()
    place.delete("ends-a")
    with caplog.at_level(logging.WARNING, "jobyard.spark"):
        # In a batch that was planned, as one of an earlier run is, and in those that follow.
        for driver in (run, made(start, topicsPattern="ends-.*")):
            assert driver.rows(start, end) == [("ends-b", seq) for seq in range(1, 11)]
            driver.at = end
            assert driver.until_end() == [[]]
            assert set(driver.at["t"]) == {"ends-b"}
            assert "lost" not in (driver.reader.reportLatestOffset() or {})
    assert caplog.text == ""
    source = source_of(place.url, topicsPattern="ends-.*")
    reader = source.reader(schema=schema(source, "topic seq"))
    partitions = list(reader.partitions())
    place.delete("ends-b")
    assert rows_of(reader, partitions) == []


def test_a_topic_of_a_pattern_that_was_made_again_is_a_loss(place: Place, made: Make) -> None:
    place.write("anew-a", 10)
    run = made(None, topicsPattern="anew-.*", startingOffsets="earliest")
    run.batch()
    make_again(place, "anew-a")
    again = made(run.at, topicsPattern="anew-.*")
    assert "made again" in str(lost(again.until_end, "anew-a"))
    calm = made(run.at, topicsPattern="anew-.*", **CALM)
    assert [row[1] for batch in calm.until_end() for row in batch] == list(range(1, 2 * COUNT + 1))


def test_an_older_copy_of_a_data_directory_is_a_loss(place: Place, made: Make) -> None:
    topic = "copied"
    place.write(topic, 10)
    run = made(None, topic=topic, startingOffsets="earliest")
    run.batch()
    run.at["t"][topic]["0"] = 31
    for until_end in (True, False):
        again = made(run.at, topic=topic)
        error = lost(again.until_end if until_end else again.batch, topic)
        assert "copied ends at seq 10, before 31" in str(error)
    calm = made(run.at, topic=topic, **CALM)
    assert calm.batch() == []
    place.write(topic, 5)
    assert calm.batch() == [(topic, seq) for seq in range(11, 16)]


def test_a_cursor_of_a_lost_topic_stops_nobody(place: Place, made: Make) -> None:
    topic = "cursed"
    place.write(topic, 10)
    run = made(None, topic=topic, startingOffsets="earliest", consumer="etl")
    run.batch()
    make_again(place, topic)
    calm = made(run.at, topic=topic, consumer="etl", **CALM)
    assert sum(map(len, calm.until_end())) == 2 * COUNT
    calm.reader.commit(calm.at)
    assert place.topics.ask("GET", f"/v0/topics/{topic}/cursors/etl")[1]["seq"] == 2 * COUNT


def test_losses_are_counted_once_and_shown_in_part() -> None:
    losses = Losses(LossRule(is_fatal=False))
    for first in range(1, 10 * GAPS_MAX, 10):
        for _ in range(3):
            losses.meet(dropped("a", first, first + 4, "ttl"))
    losses.meet(deleted("b", 7))
    assert losses.form() == {
        "a": {
            "seqs": 5 * GAPS_MAX,
            "gaps": [
                {"from": first, "to": first + 4, "why": "ttl"}
                for first in range(1, 10 * GAPS_MAX, 10)
            ],
        },
        "b": {"seqs": 0, "gaps": [{"from": 7, "to": None, "why": Why.DELETED}]},
    }
    losses.meet(dropped("a", 1000, 1000, "ttl"))
    shown = losses.form()["a"]
    assert isinstance(shown, dict)
    assert (len(shown["gaps"]), shown["seqs"]) == (GAPS_MAX, 5 * GAPS_MAX + 1)


def test_a_loss_is_an_error_that_can_be_sent() -> None:
    with pytest.raises(JobyardError) as caught:
        Losses(LossRule()).meet(dropped("a", 3, 9, "cap"))
    copy = sent(caught.value)
    assert copy.detail == {"from": 3, "to": 9, "why": "cap"}
    assert str(copy).startswith("[data_loss] records 3 to 9 of a are gone (cap)\nat option")
