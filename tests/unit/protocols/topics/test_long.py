"""Topics with many jobs, and many topics: others are served meanwhile."""

import json

import pytest

from jobyard.engine.jobs.listing import SORTED_AT_ONCE
from tests.support.clients.topics import said
from tests.support.doors.topics import BareTopics
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage


def slow_down(site: BareTopics) -> None:
    """Limit the long work of a turn."""
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()


def test_a_queue_is_deleted_at_once_and_freed_in_slices() -> None:
    site = BareTopics(MemoryStorage())
    client, other = site.connect(), site.connect()
    client.put("t", type="queue")
    client.write("t", *range(300))
    seq = int(client.claim("t", max=3, lease_ms=60_000)["claimed"][0]["$seq"])
    assert seq == 1
    slow_down(site)
    assert said(client.ask("DELETE", "/v0/topics/t"))["deleted"]
    (grave,) = site.yard.condemned.values()
    assert grave.jobs_count() > 200
    assert other.ask("GET", "/v0/topics/t").status == 404
    other.put("t", type="queue")
    other.write("t", "new")
    assert other.state("t")["count"] == 1
    assert other.claim("t")["claimed"][0]["$seq"] == 1
    turns = 1
    while site.slice():
        turns += 1
        assert other.state("t")["count"] == 1
    assert turns > 5
    assert site.yard.jobs.count == 1


def test_many_topics_are_listed_in_slices() -> None:
    site = BareTopics()
    client, other = site.connect(), site.connect()
    for at in range(150):
        client.put(f"t{at:03}", type="queue" if at % 2 else "log")
    slow_down(site)
    client.send("GET", "/v0/topics?page_size=120")
    assert client.hear() is None
    turns = 1
    while site.slice():
        turns += 1
        assert other.ask("GET", "/v0/topics/t001").status == 200
    assert turns > 10
    answer = client.hear()
    assert answer is not None
    page = json.loads(answer.body)
    assert [line["topic"] for line in page["topics"]] == [f"t{at:03}" for at in range(120)]
    cursor = page["next_cursor"]
    client.send("GET", f"/v0/topics?page_size=120&cursor={cursor}")
    while site.slice():
        pass
    answer = client.hear()
    assert answer is not None
    rest = json.loads(answer.body)
    assert [line["topic"] for line in rest["topics"]] == [f"t{at:03}" for at in range(120, 150)]
    assert "next_cursor" not in rest


def test_a_topic_that_goes_while_a_page_is_made_ends_no_list() -> None:
    site = BareTopics()
    client, other = site.connect(), site.connect()
    for at in range(30):
        client.put(f"t{at:03}", type="log")
    slow_down(site)
    client.send("GET", "/v0/topics?page_size=20")
    assert client.hear() is None
    assert said(other.ask("DELETE", "/v0/topics/t019"))["deleted"]
    while site.slice():
        pass
    answer = client.hear()
    assert answer is not None
    names = [line["topic"] for line in answer.json["topics"]]
    assert names == [f"t{at:03}" for at in range(21) if at != 19]
    site.is_slow = False
    site.yard.tasks.units_per_turn = 2000
    site.slice()
    rest = other.ask("GET", f"/v0/topics?cursor={answer.json['next_cursor']}").json
    assert [line["topic"] for line in rest["topics"]] == [f"t{at:03}" for at in range(21, 30)]


def told_later(site: BareTopics, path: str, asked: object) -> tuple[dict[str, object], list[int]]:
    """Ask for something long; return its answer and how much the topic held in each turn."""
    client, other = site.connect(), site.connect()
    slow_down(site)
    client.send("POST", path, asked)
    assert client.hear() is None
    other.post("t", {"records": [{"data": "new", "tag": "a"}]})
    counts = [int(other.state("t")["count"])]
    while site.slice():
        counts.append(int(other.state("t")["count"]))
    answer = client.hear()
    assert answer is not None
    return said(answer), counts


@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize("asked", [{"match": "a"}, {"before_seq": 4001}, {"match": "a*"}])
def test_many_records_are_deleted_in_slices(kind: str, asked: dict[str, object]) -> None:
    site = BareTopics(MemoryStorage())
    client = site.connect()
    client.put("t", type=kind)
    size = 6000 if kind == "log" else 4500
    for start in range(0, size, 500):
        one = {"data": start, "tag": "a" if start < 4000 else "b"}
        assert client.post("t", {"records": [one] * 500}).status == 200
    answer, counts = told_later(site, "/v0/topics/t/delete", asked)
    assert answer["deleted"] == 4000
    # What came meanwhile stays, whatever its tag.
    assert (answer["count"], answer["head_seq"]) == (size - 4000 + 1, size + 1)
    assert answer["earliest_seq"] == 4001
    assert len(set(counts)) > 2
    assert counts == sorted(counts, reverse=True)
    recount(site.yard)


def test_a_log_that_goes_while_its_records_are_deleted_is_not_found() -> None:
    site = BareTopics(MemoryStorage())
    client, other = site.connect(), site.connect()
    client.put("t", type="log")
    client.write("t", *range(6000))
    slow_down(site)
    client.send("POST", "/v0/topics/t/delete", {"before_seq": 6000})
    assert client.hear() is None
    assert said(other.ask("DELETE", "/v0/topics/t"))["deleted"]
    other.write("t", "new")
    while site.slice():
        pass
    answer = client.hear()
    assert answer is not None
    assert answer.status == 404
    assert other.state("t")["count"] == 1
    recount(site.yard)


def test_a_queue_is_deleted_whole_if_the_client_disconnects_meanwhile() -> None:
    site = BareTopics(MemoryStorage())
    client, other, worker = site.connect(), site.connect(), site.bunqueue()
    client.put("t", type="queue")
    # Running jobs are removed one by one: more of them than fit into a turn.
    for _ in range(0, SORTED_AT_ONCE + 1, 1000):
        client.write("t", *range(1000))
        assert len(worker.ok("PULLB", queue="t", count=1000)["jobs"]) == 1000
    slow_down(site)
    client.send("DELETE", "/v0/topics/t")
    assert client.hear() is None
    client.close()
    while site.slice():
        pass
    assert site.yard.jobs.count == 0
    assert other.ask("GET", "/v0/topics/t").status == 404
    recount(site.yard)
