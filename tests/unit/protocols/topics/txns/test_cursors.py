"""Cursors that a commit sets: with its records and ends of runs, or not at all."""

from typing import Any

import pytest

from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.site import ALL_HISTORY
from tests.support.site.storage import MemoryStorage

KEYS = "all,narrow:read+write:log,plain:read+write"


@pytest.fixture
def log(api: TopicsClient) -> str:
    """A log with five records."""
    api.put("log", type="log")
    api.write("log", *range(5))
    return "log"


def to(seq: object, topic: str = "log", cursor: str = "c", **more: object) -> dict[str, object]:
    return {"topic": topic, "cursor": cursor, "seq": seq, **more}


def commit(
    api: TopicsClient, *cursors: object, txn: str = "t", rest: dict[str, object] | None = None
) -> Reply:
    body = {"cursors": list(cursors), **(rest or {})}
    return api.ask("POST", f"/v0/txns/{txn}/commit", body)


def shown(api: TopicsClient, topic: str = "log") -> Any:
    return said(api.ask("GET", f"/v0/topics/{topic}/cursors"))["cursors"]


def seqs(api: TopicsClient, topic: str = "log") -> dict[str, int]:
    return {one["cursor"]: one["seq"] for one in shown(api, topic)}


@pytest.mark.usefixtures("log")
def test_cursors_are_set_as_they_would_be_one_by_one(api: TopicsClient) -> None:
    api.put("q", type="queue")
    life = api.state("log")["incarnation"]
    found = said(commit(api, to(3, incarnation=life), to(2, cursor="d"), to(0, "q")))
    assert found["cursors"] == 3
    in_commit = shown(api)[0]
    assert (seqs(api), seqs(api, "q")) == ({"c": 3, "d": 2}, {"c": 0})
    said(api.ask("PUT", "/v0/topics/log/cursors/e", {"seq": 3}), 201)
    assert shown(api)[2] == {**in_commit, "cursor": "e"}


@pytest.mark.usefixtures("log")
def test_a_commit_again_sets_no_cursor_again(api: TopicsClient) -> None:
    first = said(commit(api, to(3)))
    said(api.ask("PUT", "/v0/topics/log/cursors/c", {"seq": 4}))
    assert said(commit(api, to(3))) == {**first, "duplicate": True}
    assert seqs(api) == {"c": 4}
    assert commit(api, to(4)).refusal == (409, "txn_differs")
    assert commit(api, to(3, force=True)).refusal == (409, "txn_differs")
    assert commit(api, to(3, hold=False)).refusal == (409, "txn_differs")
    assert commit(api).refusal == (409, "txn_differs")
    api.ask("DELETE", "/v0/topics/log")
    assert said(commit(api, to(3))) == {**first, "duplicate": True}


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        (to(1), (409, "cursor_behind")),
        (to(6), (416, "out_of_range")),
        (to(3, incarnation="7"), (409, "wrong_incarnation")),
        (to(3, "none"), (404, "topic_not_found")),
        (to(3, "_events"), (404, "topic_not_found")),
        (to(1, "q", hold=True), (409, "not_a_log")),
        (to(-1), (400, "invalid_request")),
        (to(None), (400, "invalid_request")),
        (to("3"), (400, "invalid_request")),
        (to(3, "-"), (400, "invalid_request")),
        (to(3, cursor=""), (400, "invalid_request")),
        (to(3, cursor="a b"), (400, "invalid_request")),
        (to(3, cursor="d"), (400, "invalid_request")),
        (to(3, hold=1), (400, "invalid_request")),
        (to(3, force=1), (400, "invalid_request")),
        ({"topic": "log", "cursor": "c"}, (400, "invalid_request")),
        (7, (400, "invalid_request")),
    ],
)
@pytest.mark.usefixtures("log")
def test_a_cursor_that_is_refused_refuses_the_commit(
    api: TopicsClient, wrong: object, refusal: tuple[int, str]
) -> None:
    api.put("q", type="queue")
    api.write("q", 1)
    (job,) = api.claim("q", node="w")["claimed"]
    said(api.ask("PUT", "/v0/topics/log/cursors/c", {"seq": 2}), 201)
    place = {"topic": "log", "part": 0, "attempt": 0}
    said(api.ask("POST", "/v0/txns/t/stage", {**place, "chunk": 0, "records": [{"data": 1}]}))
    rest: dict[str, object] = {
        "parts": [{**place, "chunks": 1, "rows": 1}],
        "acks": [{"queue": "q", "node": "w", "items": [[1, job["lease_id"]]]}],
    }
    assert commit(api, to(3, cursor="d"), wrong, rest=rest).refusal == refusal
    assert seqs(api) == {"c": 2}
    assert (api.state("log")["count"], api.state("q")["queue"]["in_flight"]) == (5, 1)
    found = said(commit(api, to(1, force=True), to(3, cursor="d"), rest=rest))
    assert (found["cursors"], found["acked"]) == (2, 1)
    assert seqs(api) == {"c": 1, "d": 3}


@pytest.mark.usefixtures("log")
def test_a_commit_sets_each_cursor_once_and_not_too_many(api: TopicsClient) -> None:
    assert commit(api, to(1), to(2)).refusal == (400, "invalid_request")
    many = [to(1, cursor=f"c{number}") for number in range(1001)]
    assert commit(api, *many).refusal == (400, "invalid_request")
    assert said(commit(api, *many[:1000]))["cursors"] == 1000
    assert commit(api, to(1), txn="u").refusal == (429, "throttled")
    assert said(commit(api, to(2, cursor="c7"), txn="u"))["cursors"] == 1


@pytest.mark.usefixtures("log")
def test_new_cursors_count_towards_the_limit(site: BareTopics, api: TopicsClient) -> None:
    site.topics.limits.cursors = 2
    api.put("other", type="log")
    three = [to(0), to(0, cursor="d"), to(0, "other")]
    answer = commit(api, *three)
    assert answer.refusal == (429, "throttled")
    assert answer.json["error"]["detail"] == {"limit": "max_cursors", "max": 2}
    assert shown(api) == []
    assert said(commit(api, *three[1:]))["cursors"] == 2
    site.topics.limits.cursors = 1
    assert said(commit(api, *three[1:]))["duplicate"]
    assert said(commit(api, *three[1:], txn="u"))["cursors"] == 2


def test_holds_stay_as_they_are_and_need_an_administrator() -> None:
    site = BareTopics(keys=KEYS)
    every, narrow, plain = (site.connect(key) for key in ("all", "narrow", "plain"))
    every.put("log", type="log")
    every.put("other", type="log")
    every.write("log", 1, 2, 3)
    assert commit(narrow, to(0, "other")).refusal == (403, "forbidden")
    assert commit(plain, to(0, hold=True)).refusal == (403, "forbidden")
    assert commit(plain, to(1)).status == 200
    assert not shown(every)[0]["hold"]
    assert commit(every, to(1, hold=True), txn="u").status == 200
    assert commit(plain, to(2), txn="v").refusal == (403, "forbidden")
    assert commit(every, to(2), txn="v").status == 200
    assert (shown(every)[0]["seq"], shown(every)[0]["hold"]) == (2, True)
    assert commit(plain, to(3, hold=False), txn="w").refusal == (403, "forbidden")
    assert commit(every, to(3, hold=False), txn="w").status == 200
    assert not shown(every)[0]["hold"]


def test_a_cursor_of_history_and_all_of_it_survives_a_restart() -> None:
    storage = MemoryStorage()
    site = BareTopics(storage, window=ALL_HISTORY)
    site.api.put("q", type="queue")
    site.api.write("q", 1)
    site.commit()
    head = site.api.state("_events")["head_seq"]
    assert head > 0
    first = said(commit(site.api, to(head, "_events", hold=True), to(1, "q")))
    assert site.journal.history.hold_seq == head
    site.commit()
    after = BareTopics(storage.killed(), site.now_ms, window=ALL_HISTORY)
    assert (seqs(after.api, "_events"), seqs(after.api, "q")) == ({"c": head}, {"c": 1})
    assert after.journal.history.hold_seq == head
    again = said(commit(after.api, to(head, "_events", hold=True), to(1, "q")))
    assert again == {**first, "duplicate": True}
    after.check()
