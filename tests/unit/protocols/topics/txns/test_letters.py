"""Letters and errors of a commit that find no room: no job is lost, and its records enter."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

WHY = "why"


def made(site: BareTopics, letters: dict[str, object], *data: object) -> TopicsClient:
    """Make a queue, and the log for its letters, with some jobs."""
    site.api.put("letters", type="log", **letters)
    site.api.put("q", type="queue", dead_letter="letters", max_deliveries=9)
    site.api.write("q", *data)
    return site.api


def claimed(api: TopicsClient) -> list[list[object]]:
    found = api.claim("q", max=9, node="w")["claimed"]
    return [[one["$seq"], one["lease_id"], WHY] for one in found]


def staged(api: TopicsClient, topic: str, *records: Mapping[str, object]) -> dict[str, object]:
    """Stage some records; return the part that a commit names."""
    place: dict[str, object] = {"topic": topic, "part": 0, "attempt": 0}
    chunk = {**place, "chunk": 0, "records": list(records)}
    said(api.ask("POST", "/v0/txns/t/stage", chunk))
    return {**place, "chunks": 1, "rows": len(records)}


def commit(api: TopicsClient, items: list[list[object]], *parts: object, **more: object) -> Reply:
    group = [{"queue": "q", "node": "w", "items": items}]
    body = {"parts": list(parts), "dead_letters": group, **more}
    return api.ask("POST", "/v0/txns/t/commit", body)


def data_of(api: TopicsClient, topic: str) -> list[object]:
    return [one["data"] for one in api.diff(topic, limit=1000)["records"]]


def dead_in(site: BareTopics, name: str = "q") -> list[tuple[int, str]]:
    """Return the dead jobs of a queue, with their errors."""
    jobs = [item.job for item in site.yard.queues[name].dead.live()]  # type: ignore[attr-defined]
    return [(int(job.key), job.details.last_error) for job in jobs]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    ("caps", "sent"),
    [({"cap_records": 2}, 2), ({"cap_bytes": 400}, 2), ({"cap_bytes": 10}, 0)],
)
def test_a_letter_that_its_log_refuses_is_a_dead_job(
    caps: dict[str, object], sent: int, *, is_restarted: bool
) -> None:
    site = BareTopics(MemoryStorage())
    api = made(site, {**caps, "discard": "reject"}, "a", "b", "c")
    api.put("results", type="log")
    held = claimed(api)
    found = said(commit(api, held, staged(api, "results", {"data": 1, "with": ["q", 3]})))
    assert (found["dead_lettered"], found["skipped"]) == (3, [])
    assert found["topics"]["results"]["written"] == 1
    if is_restarted:
        site = site.again()
    assert data_of(site.api, "letters") == ["a", "b", "c"][:sent]
    assert dead_in(site) == [(seq, WHY) for seq in range(sent + 1, 4)]
    site.api.put("letters", type="log")
    assert site.api.ok("q/redrive", {})["redriven"] == 3
    back = [one["data"] for one in site.api.claim("q", max=9)["claimed"]]
    assert back == [*"abc"[sent:], *"abc"[:sent]]
    site.check()


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_letters_leave_room_for_records_of_the_same_log(rows: int) -> None:
    site = BareTopics(MemoryStorage())
    api = made(site, {"cap_records": 5, "discard": "reject"}, "a", "b", "c")
    held = claimed(api)
    part = staged(api, "letters", *[{"data": number} for number in range(rows)])
    found = said(commit(api, held, part))
    assert (found["dead_lettered"], found["skipped"]) == (3, [])
    assert found["topics"]["letters"]["written"] == rows
    sent = min(5 - rows, 3)
    assert data_of(api, "letters") == [*"abc"[:sent], *range(rows)]
    assert dead_in(site) == [(seq, WHY) for seq in range(sent + 1, 4)]
    # What was kept for the commit is given back.
    api.ok("letters/delete", {"before_seq": 99})
    api.write("letters", *range(5))
    site.check()


def test_letters_leave_room_for_the_bytes_of_records_too() -> None:
    site = BareTopics(MemoryStorage())
    api = made(site, {"cap_bytes": 1000, "discard": "reject"}, "a")
    held = claimed(api)
    assert commit(api, held, staged(api, "letters", {"data": "x" * 990})).status == 200
    assert data_of(api, "letters") == ["x" * 990]
    assert dead_in(site) == [(1, WHY)]
    site.check()


def test_records_may_drop_the_letters_of_their_own_commit() -> None:
    site = BareTopics(MemoryStorage())
    api = made(site, {"cap_records": 4}, "a", "b", "c")
    held = claimed(api)
    part = staged(api, "letters", *[{"data": number} for number in range(3)])
    assert said(commit(api, held, part))["dead_lettered"] == 3
    assert data_of(api, "letters") == ["c", 0, 1, 2]
    assert dead_in(site) == []
    site.check()


def test_records_that_fit_into_memory_one_topic_at_a_time() -> None:
    site = BareTopics(MemoryStorage(), budget=60_000)
    names = ("one", "two")
    parts: list[object] = []
    for name in names:
        site.api.put(name, type="log", durability="ephemeral")
        parts.append(staged(site.api, name, {"data": "x" * 35_000}))
    answer = commit(site.api, [], *parts)
    assert answer.refusal == (507, "storage_full")
    assert data_of(site.api, "one") == data_of(site.api, "two") == []
    assert said(commit(site.api, [], parts[0]))["topics"]["one"]["written"] == 1
    site.check()


def test_errors_leave_memory_for_the_records() -> None:
    site = BareTopics(MemoryStorage(), budget=60_000)
    api = made(site, {"durability": "ephemeral"}, *["x" * 100] * 9)
    api.put("one", type="log", durability="ephemeral")
    held = claimed(api)
    part = staged(api, "one", {"data": "y" * 40_000})
    nacks: list[Any] = [[seq, lease, 0, "z" * 4096] for seq, lease, _ in held[:6]]
    letters: list[list[object]] = [[seq, lease, "z" * 4096] for seq, lease, _ in held[6:]]
    groups = [{"queue": "q", "node": "w", "items": nacks}]
    found = said(commit(api, letters, part, nacks=groups))
    assert (found["nacked"], found["dead_lettered"], found["skipped"]) == (6, 3, [])
    assert data_of(api, "one") == ["y" * 40_000]
    assert len(dead_in(site)) + len(data_of(api, "letters")) == 3
    assert site.yard.bodies.pinned <= 60_000
    site.check()
