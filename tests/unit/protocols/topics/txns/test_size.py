"""How much a commit has, by its own count and by the limits of the server."""

from typing import Any

import pytest

from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said


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
