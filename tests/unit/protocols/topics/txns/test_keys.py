"""Keys of staged records: a commit writes those whose keys are new, and stores these keys."""

from typing import Any

import pytest

from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

DAY_MS = 86_400_000

Row = dict[str, object]


@pytest.fixture
def topics(api: TopicsClient) -> None:
    api.put("log", type="log")
    api.put("q", type="queue")


def keyed(*rows: tuple[object, str | None]) -> list[Row]:
    """Return records with their keys; None for one that has none."""
    return [{"data": data} if key is None else {"data": data, "key": key} for data, key in rows]


def stage(api: TopicsClient, topic: str, rows: list[Row], txn: str = "t", part: int = 0) -> Reply:
    place = {"topic": topic, "part": part, "attempt": 0, "chunk": 0}
    return api.ask("POST", f"/v0/txns/{txn}/stage", {**place, "records": rows, "strict": True})


def part(topic: str, rows: int, number: int = 0) -> Row:
    return {"topic": topic, "part": number, "attempt": 0, "chunks": 1, "rows": rows}


def commit(api: TopicsClient, *parts: Row, txn: str = "t", **fields: object) -> Reply:
    return api.ask("POST", f"/v0/txns/{txn}/commit", {"parts": list(parts), **fields})


def write_as_txn(api: TopicsClient, topic: str, rows: list[Row], txn: str) -> Any:
    assert stage(api, topic, rows, txn).status == 200
    return said(commit(api, part(topic, len(rows)), txn=txn))["topics"][topic]


def data_of(api: TopicsClient, topic: str) -> list[object]:
    return [one["data"] for one in api.diff(topic, limit=1000)["records"]]


@pytest.mark.parametrize("name", ["log", "q"])
@pytest.mark.usefixtures("topics")
def test_a_record_whose_key_is_known_is_not_written(
    site: BareTopics, api: TopicsClient, name: str
) -> None:
    api.ok(name, {"records": keyed((0, "a"))})
    rows = keyed((1, None), (2, "b"), (3, "a"), (4, "b"), (5, None), (6, "c"))
    found = write_as_txn(api, name, rows, "t")
    counts = {"written": 4, "duplicates": 2, "left_out": 0}
    assert found == {"first_seq": 2, "last_seq": 5, **counts}
    assert data_of(api, name) == [0, 1, 2, 5, 6]
    # The keys are those of the topic from now on, for any kind of write.
    again = api.ok(name, {"records": keyed((7, "b"), (8, "c"), (9, "d"))})
    assert again["duplicates"] == [[0, 3], [1, 5]]
    found = write_as_txn(api, name, keyed((7, "d"), (8, "c")), "u")
    counts = {"written": 0, "duplicates": 2, "left_out": 0}
    assert found == {"first_seq": 7, "last_seq": 6, **counts}
    site.check()


@pytest.mark.usefixtures("topics")
def test_keys_are_compared_over_all_parts_of_a_topic(api: TopicsClient) -> None:
    stage(api, "log", keyed((1, "a"), (2, "b")), part=1)
    stage(api, "log", keyed((3, "b"), (4, "c")), part=0)
    stage(api, "q", keyed((5, "a"), (6, "b")))
    found = said(commit(api, part("log", 2), part("log", 2, 1), part("q", 2)))["topics"]
    assert (found["log"]["written"], found["log"]["duplicates"]) == (3, 1)
    assert (found["q"]["written"], found["q"]["duplicates"]) == (2, 0)
    assert data_of(api, "log") == [3, 4, 1]


@pytest.mark.parametrize("name", ["log", "q"])
def test_keys_of_a_commit_survive_restarts_and_their_jobs(name: str) -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("log", type="log")
    site.api.put("q", type="queue")
    stage(site.api, name, keyed((1, "a"), (2, "b")))
    site = site.again()
    assert said(commit(site.api, part(name, 2)))["topics"][name]["written"] == 2
    if name == "q":
        site.api.claim("q", max=9, node="w")
        site.api.ok("q/ack", {"node": "w", "seqs": [1, 2]})
    site = site.again()
    assert write_as_txn(site.api, name, keyed((3, "a"), (4, "c")), "u")["duplicates"] == 1
    site.tick(7 * DAY_MS + 1000)
    assert write_as_txn(site.api, name, keyed((5, "a"), (6, "c")), "v")["duplicates"] == 0
    site.check()


@pytest.mark.usefixtures("topics")
def test_a_commit_that_is_sent_again_gives_the_same_counts(api: TopicsClient) -> None:
    stage(api, "log", keyed((1, "a"), (2, "a")))
    first = said(commit(api, part("log", 2)))
    assert first["topics"]["log"]["duplicates"] == 1
    assert said(commit(api, part("log", 2))) == {**first, "duplicate": True}


@pytest.mark.parametrize("name", ["log", "q"])
@pytest.mark.usefixtures("topics")
def test_too_many_keys_refuse_the_whole_commit(
    site: BareTopics, api: TopicsClient, name: str
) -> None:
    kind = "log" if name == "log" else "queue"
    api.put(name, type=kind, key_max=3)
    api.put("other", type="log")
    api.ok(name, {"records": keyed((0, "a"), (0, "b"))})
    stage(api, "other", keyed((1, "x")))
    stage(api, name, keyed((1, "a"), (2, "c"), (3, "d"), (4, "c")))
    parts = (part("other", 1), part(name, 4))
    answer = commit(api, *parts)
    assert answer.refusal == (422, "too_many_keys")
    detail = {"topic": name, "key_max": 3, "keys": 2, "new": 2}
    assert answer.json["error"]["detail"] == detail
    assert data_of(api, "other") == []
    assert data_of(api, name) == [0, 0]
    api.put(name, type=kind, key_max=4)
    assert said(commit(api, *parts))["topics"][name]["written"] == 2
    site.check()


def test_no_memory_for_keys_refuses_the_whole_commit() -> None:
    site = BareTopics(MemoryStorage(), budget=10_000)
    for name in ("log", "other"):
        site.api.put(name, type="log")
    stage(site.api, "other", [{"data": 1}])
    stage(site.api, "log", keyed(*((0, f"k{number}") for number in range(200))))
    answer = commit(site.api, part("other", 1), part("log", 200))
    assert answer.refusal == (507, "storage_full")
    assert data_of(site.api, "log") == data_of(site.api, "other") == []


@pytest.mark.usefixtures("topics")
def test_a_record_with_a_key_counts_as_two(site: BareTopics, api: TopicsClient) -> None:
    site.yard.txns.rows_max = 4
    stage(api, "log", keyed((1, "a"), (2, "b"), (3, None)))
    answer = commit(api, part("log", 3))
    assert answer.refusal == (413, "txn_too_large")
    assert answer.json["error"]["detail"] == {"rows": 5, "max": 4}
    assert data_of(api, "log") == []
    site.yard.txns.rows_max = 5
    assert commit(api, part("log", 3)).status == 200


@pytest.mark.usefixtures("topics")
def test_a_record_that_is_left_out_does_not_use_up_its_key(api: TopicsClient) -> None:
    api.write("q", "job")
    rows: list[Row] = [
        {"data": 1, "key": "a", "with": ["q", 1]},
        {"data": 2, "key": "a"},
        {"data": 3, "key": "a"},
    ]
    found = write_as_txn(api, "log", rows, "t")
    counts = {"written": 1, "duplicates": 1, "left_out": 1}
    assert found == {"first_seq": 1, "last_seq": 1, **counts}
    assert data_of(api, "log") == [2]


@pytest.mark.usefixtures("topics")
def test_duplicates_do_not_count_towards_the_caps(api: TopicsClient) -> None:
    for name, kind in (("few", "queue"), ("short", "log")):
        api.put(name, type=kind, cap_records=2, discard="reject")
        api.ok(name, {"records": keyed((0, "a"))})
        assert write_as_txn(api, name, keyed((1, "a"), (2, "b"), (3, "b")), name)["written"] == 1
        assert data_of(api, name) == [0, 2]
        assert write_as_txn(api, name, keyed((1, "a"), (2, "b")), f"{name}2")["written"] == 0


def test_a_queue_without_configuration_gets_one_with_its_keys(site: BareTopics) -> None:
    worker = site.beanstalk()
    worker.say(b"use tube\r\nput 0 0 60 1\r\nx\r\n")
    api = site.api
    assert write_as_txn(api, "tube", keyed((1, "a"), (2, None)), "t")["written"] == 2
    taken = api.claim("tube", max=9, node="w")["claimed"]
    api.ok("tube/ack", {"node": "w", "seqs": [one["$seq"] for one in taken]})
    assert "tube" in site.yard.queues
    assert write_as_txn(api, "tube", keyed((1, "a")), "u")["duplicates"] == 1
    site.check()


@pytest.mark.parametrize("key", ["", "x" * 257, 7, ["a"]])
@pytest.mark.usefixtures("topics")
def test_keys_that_are_not_allowed(api: TopicsClient, key: object) -> None:
    answer = stage(api, "log", [{"data": 1, "key": key}])
    assert answer.refusal == (400, "invalid_request")


@pytest.mark.usefixtures("topics")
def test_the_longest_labels_fit_beside_a_key(api: TopicsClient) -> None:
    row: Row = {"data": 1, "key": "k" * 256, "tag": "t" * 256, "node": "n" * 128}
    assert write_as_txn(api, "log", [{**row, "with": None}], "t")["written"] == 1
    assert write_as_txn(api, "log", [row], "u")["duplicates"] == 1
