"""How much a commit has, by its own count and by the limits of the server."""

from typing import Any

import pytest

from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage


@pytest.fixture(autouse=True)
def topics(api: TopicsClient) -> None:
    api.put("log", type="log")
    api.put("q", type="queue")


def stage(
    api: TopicsClient, topic: str, data: list[object], *, txn: str = "t", chunk: int = 0
) -> Reply:
    place = {"topic": topic, "part": 0, "attempt": 0, "chunk": chunk}
    records = [{"data": one} for one in data]
    return api.ask("POST", f"/v0/txns/{txn}/stage", {**place, "records": records})


def part(topic: str, rows: int, *, chunks: int = 1) -> Any:
    return {"topic": topic, "part": 0, "attempt": 0, "chunks": chunks, "rows": rows}


def commit(api: TopicsClient, *parts: object, txn: str = "t", **fields: object) -> Reply:
    return api.ask("POST", f"/v0/txns/{txn}/commit", {"parts": list(parts), **fields})


def look(api: TopicsClient, txn: str = "t") -> Any:
    return said(api.ask("GET", f"/v0/txns/{txn}"))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_part_with_other_records_than_wanted_changes_nothing(
    api: TopicsClient, rows: int
) -> None:
    stage(api, "log", ["a"], chunk=0)
    stage(api, "log", ["b"], chunk=1)
    answer = commit(api, part("log", rows, chunks=2))
    assert answer.refusal == (409, "incomplete")
    told = answer.json["error"]
    assert told["message"] == f"part 0 of topic log has 2 records, not {rows}"
    assert told["detail"] == {"topic": "log", "part": 0, "rows": 2, "wanted": rows}
    assert look(api)["state"] == "open"
    assert commit(api, part("log", 2, chunks=2)).status == 200


# -- bytes ------------------------------------------------------------------------------------


def test_a_commit_has_a_limit_of_bytes(site: BareTopics, api: TopicsClient) -> None:
    site.yard.txns.bytes_max = 10
    sizes = [said(stage(api, "log", ["abc"], chunk=chunk))["bytes"] for chunk in range(3)]
    assert sizes == [5, 5, 5]
    answer = commit(api, part("log", 3, chunks=3))
    assert answer.refusal == (413, "txn_too_large")
    assert answer.json["error"]["detail"] == {"bytes": 15, "max": 10}
    assert look(api)["state"] == "open"
    assert api.state("log")["count"] == 0
    assert commit(api, part("log", 2, chunks=2)).status == 200
    assert api.state("log")["count"] == 2


def test_the_bytes_of_all_topics_count(site: BareTopics, api: TopicsClient) -> None:
    site.yard.txns.bytes_max = 9
    stage(api, "log", ["abc"])
    stage(api, "q", ["abc"])
    both = [part("log", 1), part("q", 1)]
    assert commit(api, *both).refusal == (413, "txn_too_large")
    site.yard.txns.bytes_max = 10
    assert commit(api, *both).status == 200


@pytest.mark.parametrize("has_log", [True, False])
def test_the_data_of_dead_letters_count(
    site: BareTopics, api: TopicsClient, *, has_log: bool
) -> None:
    if has_log:
        api.put("q", type="queue", dead_letter="letters")
    api.write("q", "x" * 100, "y" * 100)
    api.claim("q", max=2)
    site.yard.txns.bytes_max = 150
    letters = [{"queue": "q", "node": "w", "items": [[1], [2]]}]
    answer = commit(api, dead_letters=letters)
    if has_log:
        assert answer.refusal == (413, "txn_too_large")
        assert answer.json["error"]["detail"] == {"bytes": 204, "max": 150}
        letters[0]["items"] = [[1]]
        answer = commit(api, dead_letters=letters, acks=[{**letters[0], "items": [[2]]}])
    # Without a log for letters nothing is copied.
    assert answer.status == 200


def test_every_answer_says_how_much_a_commit_may_have() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    site.yard.txns.rows_max, site.yard.txns.bytes_max = 77, 88
    api.put("log", type="log")
    api.put("q", type="queue")
    api.put("slow", type="queue", claim_jitter_ms=10)
    api.write("q", 1, 2, 3)
    told = [
        said(stage(api, "log", ["a"])),
        look(api),
        look(api, "never"),
        api.claim("q", worker="m"),
        api.claim("q", claim_id="c"),
        said(api.ask("GET", "/v0/topics/q/claims/c")),
    ]
    for one in told:
        assert (one["rows_max"], one["bytes_max"]) == (77, 88), one
    assert "rows_max" not in api.claim("q")
    for queue in ("q", "slow"):
        waiting = site.connect()
        body = {"node": "w", "worker": "m", "wait_ms": 500}
        waiting.send("POST", f"/v0/topics/{queue}/claim", body)
        site.tick(501)
        answer = waiting.hear()
        assert answer is not None
        assert said(answer)["bytes_max"] == 88
