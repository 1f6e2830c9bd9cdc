"""Topics with many jobs, and many topics: others are served meanwhile."""

import json

from tests.support.bare_topics import BareTopics, said
from tests.support.memory_storage import MemoryStorage


def slow_down(site: BareTopics) -> None:
    """Let a turn have little room for long work."""
    site.yard.tasks.units_per_turn = 100
    site.others.is_slow = True
    site.others.slice()


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
    while site.others.slice():
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
    while site.others.slice():
        turns += 1
        assert other.ask("GET", "/v0/topics/t001").status == 200
    assert turns > 10
    answer = client.hear()
    assert answer is not None
    page = json.loads(answer.body)
    assert [line["topic"] for line in page["topics"]] == [f"t{at:03}" for at in range(120)]
    cursor = page["next_cursor"]
    client.send("GET", f"/v0/topics?page_size=120&cursor={cursor}")
    while site.others.slice():
        pass
    answer = client.hear()
    assert answer is not None
    rest = json.loads(answer.body)
    assert [line["topic"] for line in rest["topics"]] == [f"t{at:03}" for at in range(120, 150)]
    assert "next_cursor" not in rest
