"""Seqs and times of large writes: predicted while reading, and right when they are entered."""

import itertools
from typing import Any

import pytest

from jobyard.engine.logs.logs import STAMPED_AGAIN_MAX
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

COUNT = 900
UNITS = 100
LONG = "x" * 200


def slow_site(
    storage: MemoryStorage | None = None,
) -> tuple[BareTopics, TopicsClient, TopicsClient]:
    """A port where a turn has little room for long work, and two callers."""
    site = BareTopics(storage)
    site.yard.tasks.units_per_turn = UNITS
    site.journal.summed_at_once = 1000
    site.is_slow = True
    site.slice()
    return site, site.connect(), site.connect()


def send(client: TopicsClient, **fields: object) -> None:
    """Begin a large write."""
    records = [{"data": f"{at} {LONG}", "meta": {"data": at}} for at in range(COUNT)]
    client.send("POST", "/v0/topics/t", {"records": records, **fields})
    assert client.hear() is None


def all_records(client: TopicsClient) -> list[Any]:
    """Read a log from its beginning."""
    found: list[Any] = []
    while True:
        page = client.diff("t", from_seq=len(found), limit=1000, include_meta=True)
        if not page["records"]:
            return found
        found += page["records"]


def check(client: TopicsClient, before: list[object], after: list[object]) -> None:
    """Check that the log holds what others wrote, and the large write in one piece."""
    found = all_records(client)
    assert [one["$seq"] for one in found] == list(range(1, len(before) + COUNT + len(after) + 1))
    large = [f"{at} {LONG}" for at in range(COUNT)]
    assert [one["data"] for one in found] == [*before, *large, *after]
    metas = [one.get("meta") for one in found[len(before) : len(before) + COUNT]]
    assert metas == [{"data": at} for at in range(COUNT)]
    times = [one["$ts"] for one in found]
    assert times == sorted(times)


def finish(site: BareTopics, client: TopicsClient) -> Any:
    while client.unread == b"":
        site.slice()
    answer = client.hear()
    assert answer is not None
    return answer


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("slices", [1, 10])
def test_who_writes_between_two_slices_comes_first(slices: int, *, is_durable: bool) -> None:
    site, client, other = slow_site(MemoryStorage() if is_durable else None)
    other.write("t", "first")
    send(client)
    for _ in range(slices):
        assert site.slice()
    site.tick(50)
    assert other.write("t", "second", "third")["last_seq"] == 3
    answer = finish(site, client)
    assert (answer.json["first_seq"], answer.json["last_seq"]) == (4, COUNT + 3)
    assert other.write("t", "fourth")["first_seq"] == COUNT + 4
    check(other, ["first", "second", "third"], ["fourth"])
    if is_durable:
        check(site.after_a_crash().connect(), ["first", "second", "third"], ["fourth"])


def test_a_large_write_ends_though_others_write_without_a_pause() -> None:
    site, client, other = slow_site()
    other.put("t")
    send(client)
    numbers = []
    for number in itertools.count():
        site.tick(1)
        other.write("t", number)
        numbers.append(number)
        site.slice()
        if client.unread:
            break
    assert len(numbers) > 2 * STAMPED_AGAIN_MAX
    answer = client.hear()
    assert answer is not None
    assert answer.json["first_seq"] == len(numbers) + 1
    check(other, [*numbers], [])


def test_a_log_that_was_deleted_meanwhile_is_created_again() -> None:
    site, client, other = slow_site()
    other.write("t", "first", "second")
    send(client)
    for _ in range(10):
        assert site.slice()
    assert other.ask("DELETE", "/v0/topics/t").status == 200
    answer = finish(site, client)
    assert (answer.status, answer.json["first_seq"]) == (201, 1)
    check(other, [], [])


def test_a_log_that_was_deleted_and_made_meanwhile_gets_the_records() -> None:
    site, client, other = slow_site()
    other.write("t", "first", "second")
    send(client)
    for _ in range(10):
        assert site.slice()
    assert other.ask("DELETE", "/v0/topics/t").status == 200
    other.write("t", "new")
    answer = finish(site, client)
    assert (answer.status, answer.json["first_seq"]) == (200, 2)
    check(other, ["new"], [])


def test_a_large_write_that_finds_no_room_leaves_nothing() -> None:
    storage = MemoryStorage()
    site, client, other = slow_site(storage)
    other.write("t", "first")
    send(client, idempotency_key="k")
    assert site.slice()
    site.commit()
    site.journal.spares.clear()
    storage.capacity = sum(len(file.seen) for file in storage.files.values())
    assert finish(site, client).refusal == (507, "storage_full")
    assert other.state("t")["count"] == 1
    storage.capacity = 1 << 40
    site.tick(1000)
    send(client, idempotency_key="k")
    assert not finish(site, client).json["deduped"]
    check(other, ["first"], [])
    check(site.after_a_crash().connect(), ["first"], [])


def test_the_records_of_a_large_write_are_read_before_it_is_summed_and_written() -> None:
    storage = MemoryStorage()
    site, client, other = slow_site(storage)
    send(client)
    finish(site, client)
    other.write("t", "behind")
    site.journal.seal_batch()
    assert site.journal.has_unsummed()
    log = site.yard.logs["t"]
    chunk = log.chunks[0]
    for slot in (0, 7, COUNT - 1, COUNT):
        text = chunk.text_at(slot)
        place = (int(chunk.segments[slot]), int(chunk.offsets[slot]), len(text))
        assert site.journal.read(*place) == text
    killed = BareTopics(storage.killed())
    assert "t" not in killed.yard.logs, "nothing of it is on the disk yet"
    check(site.after_a_crash().connect(), [], ["behind"])


def test_what_routers_copy_lies_in_the_batch_of_a_large_write() -> None:
    storage = MemoryStorage()
    site, client, other = slow_site(storage)
    other.put("t")
    assert other.ask("PUT", "/v0/routers/r", {"source": "t", "dest": "copy"}).status in {200, 201}
    send(client)
    finish(site, client)
    while site.slice():
        pass
    again = site.after_a_crash().connect()
    check(again, [], [])
    assert again.state("copy")["count"] == COUNT
