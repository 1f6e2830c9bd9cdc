"""Transactions: no reader sees what is staged, and a commit happens once, as a whole."""

import json
from typing import Any

import pytest

from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

HOUR_MS = 3_600_000
DAY_MS = 86_400_000


def stage(
    api: TopicsClient,
    topic: str,
    *data: object,
    txn: str = "t",
    part: int = 0,
    attempt: int = 0,
    chunk: int = 0,
    records: list[dict[str, object]] | None = None,
    **fields: object,
) -> Reply:
    rows = [{"data": one} for one in data] if records is None else records
    place = {"topic": topic, "part": part, "attempt": attempt, "chunk": chunk}
    return api.ask("POST", f"/v0/txns/{txn}/stage", {**place, "records": rows, **fields})


def part(topic: str, rows: int, *, number: int = 0, attempt: int = 0, chunks: int = 1) -> Any:
    return {"topic": topic, "part": number, "attempt": attempt, "chunks": chunks, "rows": rows}


def commit(api: TopicsClient, *parts: object, txn: str = "t", **fields: object) -> Reply:
    return api.ask("POST", f"/v0/txns/{txn}/commit", {"parts": list(parts), **fields})


def look(api: TopicsClient, txn: str = "t") -> Any:
    found = said(api.ask("GET", f"/v0/txns/{txn}"))
    del found["rows_max"], found["bytes_max"]
    return found


def abort(api: TopicsClient, txn: str = "t") -> Reply:
    return api.ask("DELETE", f"/v0/txns/{txn}")


def data_of(api: TopicsClient, topic: str) -> list[object]:
    return [one["data"] for one in api.diff(topic, limit=1000)["records"]]


@pytest.fixture
def topics(api: TopicsClient) -> None:
    api.put("log", type="log")
    api.put("q", type="queue")


# -- stages -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("topics")
def test_what_is_staged_is_told_and_not_seen(site: BareTopics, api: TopicsClient) -> None:
    found = said(stage(api, "log", "a", "b", part=3, attempt=7, chunk=2))
    place = {"topic": "log", "txn": "t", "part": 3, "attempt": 7, "chunk": 2}
    counts = {"rows": 2, "bytes": 6, "rows_max": 100_000, "bytes_max": 64 << 20}
    assert found == {**place, **counts, "duplicate": False}
    assert data_of(api, "log") == []
    assert api.state("log")["head_seq"] == 0
    names = [one["topic"] for one in said(api.ask("GET", "/v0/topics"))["topics"]]
    assert names == ["log", "q"]
    until_ms = site.now_ms + HOUR_MS
    counts = {"chunks": 1, "rows": 2, "bytes": 6, "expires_at": until_ms}
    assert look(api) == {"txn": "t", "state": "open", **counts}


@pytest.mark.usefixtures("topics")
def test_a_chunk_that_is_sent_again_is_staged_once(api: TopicsClient) -> None:
    first = said(stage(api, "log", "a", "b"))
    assert said(stage(api, "log", "a", "b")) == {**first, "duplicate": True}
    assert stage(api, "log", "other").refusal == (409, "txn_differs")
    assert said(commit(api, part("log", 2)))["topics"]["log"]["written"] == 2


RECORD: dict[str, object] = {"data": "abc", "meta": {"a": 1}, "tag": "t", "key": "k"}


@pytest.mark.parametrize(
    "other",
    [
        {"data": "abc2"},
        {"data_b64": "YWJj", "data": ...},
        {"meta": {"a": 2}},
        {"tag": "u"},
        {"tag": ..., "node": "t"},
        {"key": "l"},
        {"with": ["q", 1]},
        {"priority": 1},
    ],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_chunk_of_the_same_size_with_other_content(
    other: dict[str, object], *, is_restarted: bool
) -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("log", type="log")
    first = said(stage(site.api, "log", records=[RECORD, {"data": 1}]))
    if is_restarted:
        site = site.again()
    changed = {key: value for key, value in {**RECORD, **other}.items() if value is not ...}
    answer = stage(site.api, "log", records=[changed, {"data": 1}])
    assert answer.refusal == (409, "txn_differs")
    assert stage(site.api, "log", records=[{"data": 1}, RECORD]).refusal == (409, "txn_differs")
    again = said(stage(site.api, "log", records=[RECORD, {"data": 1}]))
    assert again == {**first, "duplicate": True}
    assert said(commit(site.api, part("log", 2)))["topics"]["log"]["written"] == 2
    assert data_of(site.api, "log") == ["abc", 1]
    site.check()


def test_the_split_into_records_is_part_of_the_content(api: TopicsClient) -> None:
    api.put("log", type="log")
    said(stage(api, "log", records=[{"data": 12}, {"data": 3}]))
    answer = stage(api, "log", records=[{"data": 1}, {"data": 23}])
    assert answer.refusal == (409, "txn_differs")


def test_other_content_after_an_abort() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("log", type="log")
    said(stage(site.api, "log", "a"))
    assert abort(site.api).status == 200
    assert not said(stage(site.api, "log", "b"))["duplicate"]
    after = site.again()
    assert stage(after.api, "log", "a").refusal == (409, "txn_differs")
    assert said(stage(after.api, "log", "b"))["duplicate"]
    assert look(after.api)["rows"] == 1
    assert said(commit(after.api, part("log", 1)))["topics"]["log"]["written"] == 1
    assert data_of(after.api, "log") == ["b"]
    after.check()


@pytest.mark.usefixtures("topics")
def test_no_client_can_name_the_log_of_stages(api: TopicsClient) -> None:
    stage(api, "log", "a")
    assert api.post("_stages/diff", {}).refusal == (400, "invalid_request")
    assert api.ask("GET", "/v0/topics/_stages").status == 400
    assert api.ask("DELETE", "/v0/topics/_stages").status == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "none"}, 404),
        ({"topic": "_events"}, 403),
        ({"topic": "-"}, 400),
        ({"part": -1}, 400),
        ({"part": None}, 400),
        ({"attempt": 1 << 63}, 400),
        ({"chunk": 1 << 20}, 400),
        ({"records": []}, 400),
        ({"records": [1]}, 400),
        ({"records": [{}]}, 400),
        ({"records": [{"data": 1, "key": ""}]}, 400),
        ({"records": [{"data_b64": "/"}]}, 400),
        ({"records": [{"data": 1, "with": ["q"]}]}, 400),
        ({"records": [{"data": 1, "with": ["q", 0]}]}, 400),
        ({"records": [{"data": 1, "with": ["", 1]}]}, 400),
        ({"records": [{"data": 1, "with": [1, 1]}]}, 400),
        ({"records": [{"data": 1, "with": ["q", True]}]}, 400),
        ({"records": [{"data": 1, "with": "q"}]}, 400),
        ({"strict": True, "more": 1}, 400),
        ({"strict": True, "records": [{"data": 1, "tags": "x"}]}, 400),
        ({"records": [{"data": 1}] * 10_001}, 400),
    ],
)
@pytest.mark.usefixtures("topics")
def test_a_stage_that_makes_no_sense(
    api: TopicsClient, body: dict[str, object], status: int
) -> None:
    right = {"topic": "log", "part": 0, "attempt": 0, "chunk": 0, "records": [{"data": 1}]}
    answer = api.ask("POST", "/v0/txns/t/stage", {**right, **body})
    assert answer.status == status, answer
    assert answer.code
    assert look(api)["state"] == "unknown"


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "x" * 257, "%C3%A4"])
def test_names_that_are_not_allowed(api: TopicsClient, name: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/stage"), ("POST", "/commit")):
        body: object = {} if method == "POST" else None
        answer = api.ask(method, f"/v0/txns/{name.replace(' ', '%20')}{path}", body)
        assert answer.refusal == (400, "invalid_request")


@pytest.mark.usefixtures("topics")
def test_stages_are_bounded(site: BareTopics, api: TopicsClient) -> None:
    site.yard.txns.staged_max = 10
    assert stage(api, "log", "abc").status == 200
    answer = stage(api, "log", "abcdef", chunk=1)
    assert answer.refusal == (429, "throttled")
    assert answer.json["error"]["detail"] == {"limit": "txn_stage_bytes", "max": 10}
    site.yard.txns.txns_max = 1
    assert stage(api, "log", "x", txn="other").json["error"]["detail"] == {"limit": "txn_max"}
    assert commit(api, txn="other").refusal == (429, "throttled")
    assert commit(api, part("log", 1)).status == 200


# -- commits ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("topics")
def test_a_commit_writes_all_parts_in_order(site: BareTopics, api: TopicsClient) -> None:
    api.write("log", "before")
    stage(api, "log", "c", part=1)
    stage(api, "log", "b", chunk=1)
    records: list[dict[str, object]] = [
        {"data": "j", "tag": "t", "node": "n", "meta": {"m": 1}, "priority": 5},
        {"data": "late", "delay_ms": 500},
    ]
    stage(api, "q", records=records)
    stage(api, "log", "a", "ä")
    site.tick(50)
    parts = [part("log", 3, chunks=2), part("log", 1, number=1), part("q", 2)]
    found = said(commit(api, *parts))
    log = {"first_seq": 2, "last_seq": 5, "written": 4, "duplicates": 0, "left_out": 0}
    queue = {"first_seq": 1, "last_seq": 2, "written": 2, "duplicates": 0, "left_out": 0}
    counts = {"acked": 0, "nacked": 0, "dead_lettered": 0, "skipped": []}
    counts["cursors"] = 0
    outcome = {"topics": {"log": log, "q": queue}, **counts}
    assert found == {"txn": "t", "state": "committed", **outcome, "duplicate": False}
    assert data_of(api, "log") == ["before", "a", "ä", "b", "c"]
    (job,) = api.claim("q", max=5)["claimed"]
    assert (job["data"], job["$tag"], job["meta"]) == ("j", "t", {"m": 1})
    assert job["$ts"] == site.now_ms
    site.tick(500)
    assert [one["data"] for one in api.claim("q")["claimed"]] == ["late"]
    assert look(api) == {"txn": "t", "state": "committed", **outcome}


@pytest.mark.usefixtures("topics")
def test_bytes_are_written_as_bytes(site: BareTopics, api: TopicsClient) -> None:
    rows: list[dict[str, object]] = [{"data_b64": "/wA="}, {"data": "/wA=", "tag": "t"}]
    for topic in ("log", "q"):
        staged = stage(api, topic, records=[*rows, {**rows[0], "tag": "t"}], strict=True)
        assert staged.status == 200
    assert commit(api, part("log", 3), part("q", 3)).status == 200
    wanted = [("/wA=", None), (None, "/wA="), ("/wA=", None)]
    for found in (api.diff("log")["records"], api.claim("q", max=3)["claimed"]):
        assert [(one.get("data_b64"), one.get("data")) for one in found] == wanted
    site.check()


@pytest.mark.usefixtures("topics")
def test_a_commit_that_is_sent_again_changes_nothing(api: TopicsClient) -> None:
    stage(api, "log", "a")
    first = said(commit(api, part("log", 1)))
    assert said(commit(api, part("log", 1))) == {**first, "duplicate": True}
    assert commit(api, part("log", 1, attempt=1)).refusal == (409, "txn_differs")
    assert commit(api).refusal == (409, "txn_differs")
    assert stage(api, "log", "b").refusal == (409, "committed")
    assert abort(api).refusal == (409, "committed")
    assert data_of(api, "log") == ["a"]


@pytest.mark.usefixtures("topics")
def test_a_commit_that_is_sent_again_while_it_is_prepared_happens_once(site: BareTopics) -> None:
    """As a client does whose connection broke."""
    first, second = site.connect(), site.connect()
    for chunk in range(4):
        stage(first, "log", *range(300), chunk=chunk)
    site.yard.tasks.units_per_turn = 100
    site.yard.tasks.first_units = 1
    site.is_slow = True
    site.slice()
    for client in (first, second):
        body = json.dumps({"parts": [part("log", 1200, chunks=4)]}).encode()
        client.send("POST", "/v0/txns/t/commit", body)
        site.settle()
        # The first is half prepared when the second arrives.
        for _ in range(6):
            site.slice()
        assert client.hear() is None
    while site.slice():
        pass
    answers = [client.hear() for client in (first, second)]
    assert [answer is not None and answer.status for answer in answers] == [200, 200]
    told = [answer.json["duplicate"] for answer in answers if answer is not None]
    assert sorted(told) == [False, True]
    assert site.yard.logs["log"].count == 1200


@pytest.mark.usefixtures("topics")
def test_attempts_that_are_not_named_leave_nothing(site: BareTopics, api: TopicsClient) -> None:
    stage(api, "log", "lost", attempt=1)
    stage(api, "log", "won", attempt=2)
    stage(api, "log", "other", part=1, attempt=3)
    assert said(commit(api, part("log", 1, attempt=2)))["topics"]["log"]["written"] == 1
    assert data_of(api, "log") == ["won"]
    site.tick(0)
    assert site.yard.txns.log is not None
    while site.yard.tasks.count():
        site.yard.tasks.proceed(site.now_ms)
    assert site.yard.txns.log.count == 0


@pytest.mark.parametrize(
    ("wanted", "chunk"),
    [
        (part("log", 3, chunks=2), 1),
        (part("log", 2, attempt=1), 0),
        (part("log", 2, number=1), 0),
        (part("q", 2), 0),
    ],
)
@pytest.mark.usefixtures("topics")
def test_a_missing_chunk_changes_nothing(api: TopicsClient, wanted: Any, chunk: int) -> None:
    stage(api, "log", "a", "b")
    answer = commit(api, wanted)
    assert answer.refusal == (409, "incomplete")
    place = {"topic": wanted["topic"], "part": wanted["part"], "chunk": chunk}
    assert answer.json["error"]["detail"] == place
    assert look(api)["state"] == "open"
    assert data_of(api, "log") == []
    assert commit(api, part("log", 2)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {"parts": 1},
        {"parts": [1]},
        {"parts": [{"topic": "log"}]},
        {"parts": [part("log", 1), part("log", 1, attempt=1)]},
        {"acks": [{"queue": "q", "items": []}]},
        {"acks": [{"node": "w", "items": []}]},
        {"acks": [{"queue": "q", "node": "w"}]},
        {"acks": [{"queue": "q", "node": "w", "items": [1]}]},
        {"acks": [{"queue": "q", "node": "w", "items": [[]]}]},
        {"acks": [{"queue": "q", "node": "w", "items": [["1"]]}]},
        {"acks": [{"queue": "q", "node": "w", "items": [[1, 2]]}]},
        {"acks": [{"queue": "q", "node": "w", "items": [[1, "", 3]]}]},
        {"acks": [{"queue": "q", "node": "w", "items": [[1], [1]]}]},
        {"nacks": [{"queue": "q", "node": "w", "items": [[1, "", -5]]}]},
        {"nacks": [{"queue": "q", "node": "w", "items": [[1, "", 0, "x" * 4097]]}]},
        {"nacks": [{"queue": "q", "node": "w", "items": [[1, "", 0, "x", 1]]}]},
        {"dead_letters": [{"queue": "q", "node": "w", "items": [[1, "", 7]]}]},
        {"cursors": [{"topic": "log"}]},
        {"worker": "w", "epoch": 1 << 60},
        {"strict": True, "part": []},
        {"strict": True, "parts": [{**part("log", 0, chunks=0), "x": 1}]},
        {"strict": True, "acks": [{"queue": "q", "node": "w", "items": [], "x": 1}]},
    ],
)
@pytest.mark.usefixtures("topics")
def test_a_commit_that_makes_no_sense(api: TopicsClient, body: dict[str, object]) -> None:
    answer = api.ask("POST", "/v0/txns/t/commit", body)
    assert answer.refusal == (400, "invalid_request"), answer
    assert look(api)["state"] == "unknown"


def test_an_epoch_needs_a_worker(api: TopicsClient) -> None:
    assert commit(api, epoch=1).refusal == (409, "no_worker")
    assert look(api)["state"] == "unknown"


def test_a_commit_of_nothing_is_remembered_too(api: TopicsClient) -> None:
    assert said(commit(api))["topics"] == {}
    assert said(commit(api))["duplicate"]
    assert look(api)["state"] == "committed"


@pytest.mark.usefixtures("topics")
def test_a_commit_that_is_too_large_changes_nothing(site: BareTopics, api: TopicsClient) -> None:
    site.yard.txns.rows_max = 2
    stage(api, "log", 1, 2, 3)
    answer = commit(api, part("log", 3))
    assert answer.refusal == (413, "txn_too_large")
    assert answer.json["error"]["detail"] == {"rows": 3, "max": 2}
    answer = commit(api, acks=[{"queue": "q", "node": "w", "items": [[1]]}])
    assert answer.refusal == (413, "txn_too_large")
    site.yard.txns.rows_max = 19
    answer = commit(api, dead_letters=[{"queue": "q", "node": "w", "items": [[1]]}])
    assert answer.json["error"]["detail"] == {"rows": 20, "max": 19}
    items = [[1, None, 0, "x" * 64 * 17]]
    answer = commit(api, nacks=[{"queue": "q", "node": "w", "items": items}])
    assert answer.json["error"]["detail"] == {"rows": 20, "max": 19}
    site.yard.txns.rows_max = 2
    items = [[1], [2], [3]]
    answer = commit(api, acks=[{"queue": "q", "node": "w", "items": items}])
    assert answer.status == 400
    site.yard.txns.rows_max = 3
    assert commit(api, part("log", 3)).status == 200


@pytest.mark.usefixtures("topics")
def test_one_full_topic_refuses_all_of_it(api: TopicsClient) -> None:
    api.put("full", type="queue", cap_records=2, discard="reject")
    api.write("full", "x")
    stage(api, "log", "a")
    stage(api, "full", 1, 2)
    parts = [part("log", 1), part("full", 2)]
    answer = commit(api, *parts)
    assert answer.refusal == (422, "topic_full")
    assert answer.json["error"]["detail"] == {"topic": "full"}
    assert data_of(api, "log") == []
    assert data_of(api, "full") == ["x"]
    api.ok("full/ack", {"node": "w", "seqs": [api.claim("full")["claimed"][0]["$seq"]]})
    assert commit(api, *parts).status == 200
    assert data_of(api, "full") == [1, 2]
    stage(api, "full", 1, 2, 3, txn="u")
    assert commit(api, part("full", 3), txn="u").refusal == (400, "record_too_large")


@pytest.mark.usefixtures("topics")
def test_old_jobs_and_records_make_room(api: TopicsClient) -> None:
    api.put("few", type="queue", cap_records=3)
    api.put("short", type="log", cap_records=3)
    for name in ("few", "short"):
        api.write(name, "x", "y", "z")
        stage(api, name, 1, 2)
    assert commit(api, part("few", 2), part("short", 2)).status == 200
    assert data_of(api, "few") == data_of(api, "short") == ["z", 1, 2]


@pytest.mark.usefixtures("topics")
def test_a_topic_that_is_gone_refuses_the_commit(api: TopicsClient) -> None:
    stage(api, "log", "a")
    api.ask("DELETE", "/v0/topics/log")
    assert commit(api, part("log", 1)).refusal == (404, "topic_not_found")
    api.put("log", type="queue")
    first = said(commit(api, part("log", 1)))
    assert api.claim("log")["claimed"][0]["data"] == "a"
    api.ask("DELETE", "/v0/topics/log")
    assert said(commit(api, part("log", 1))) == {**first, "duplicate": True}


@pytest.mark.usefixtures("topics")
def test_clients_that_wait_are_served_when_all_of_it_is_there(
    site: BareTopics, api: TopicsClient
) -> None:
    reader, worker = site.connect(), site.connect()
    reader.send("POST", "/v0/topics/log/diff", {"from_seq": 0, "wait_ms": 9000})
    worker.send("POST", "/v0/topics/q/claim", {"node": "w", "max": 5, "wait_ms": 9000})
    stage(api, "log", "a")
    stage(api, "q", 1, 2)
    assert (reader.hear(), worker.hear()) == (None, None)
    assert commit(api, part("log", 1), part("q", 2)).status == 200
    read, taken = reader.hear(), worker.hear()
    assert read is not None
    assert taken is not None
    assert len(read.json["records"]) == 1
    assert [one["$seq"] for one in taken.json["claimed"]] == [1, 2]


@pytest.mark.usefixtures("topics")
def test_routers_pass_on_what_a_commit_writes(site: BareTopics, api: TopicsClient) -> None:
    for source, dest in (("log", "copy"), ("q", "jobs")):
        path = f"/v0/routers/{source}>{dest}"
        assert api.ask("PUT", path, {"source": source, "dest": dest}).status == 201
    stage(api, "log", "a", "b")
    stage(api, "q", 1)
    assert commit(api, part("log", 2), part("q", 1)).status == 200
    site.tick(10)
    assert data_of(api, "copy") == ["a", "b"]
    assert data_of(api, "jobs") == [1]


# -- aborts and expiry ------------------------------------------------------------------------


@pytest.mark.usefixtures("topics")
def test_an_abort_drops_the_stages(api: TopicsClient) -> None:
    stage(api, "log", "a")
    assert said(abort(api)) == {"txn": "t", "state": "aborted"}
    assert look(api) == {"txn": "t", "state": "aborted"}
    assert commit(api, part("log", 1)).refusal == (409, "incomplete")
    assert said(abort(api)) == {"txn": "t", "state": "aborted"}
    assert said(abort(api, "never")) == {"txn": "never", "state": "unknown"}
    assert said(abort(api, "never")) == look(api, "never")
    # The name can be used again.
    stage(api, "log", "b")
    assert look(api)["state"] == "open"
    assert said(commit(api, part("log", 1)))["duplicate"] is False
    assert data_of(api, "log") == ["b"]


@pytest.mark.usefixtures("topics")
def test_stages_expire_after_the_last_call(site: BareTopics, api: TopicsClient) -> None:
    stage(api, "log", "a")
    site.tick(HOUR_MS - 1)
    assert look(api)["expires_at"] == site.now_ms + HOUR_MS
    site.tick(HOUR_MS - 1)
    assert look(api)["state"] == "open"
    site.tick(HOUR_MS + 1)
    assert look(api) == {"txn": "t", "state": "aborted", "expired": True}
    assert said(abort(api)) == look(api)
    assert commit(api, part("log", 1)).refusal == (410, "txn_expired")
    assert commit(api).status == 200


def test_outcomes_are_remembered_for_days(site: BareTopics, api: TopicsClient) -> None:
    assert commit(api).status == 200
    site.tick(7 * DAY_MS - 1)
    assert look(api)["state"] == "committed"
    site.tick(2)
    assert look(api)["state"] == "unknown"
    assert site.yard.txns.decided.count() == 0


# -- a restart --------------------------------------------------------------------------------


def test_stages_and_outcomes_survive_a_restart() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("log", type="log")
    stage(api, "log", "a", "b", txn="open")
    stage(api, "log", "never", txn="open", attempt=1)
    stage(api, "log", "c", txn="done")
    first = said(commit(api, part("log", 1), txn="done"))
    stage(api, "log", "d", txn="off")
    abort(api, "off")
    stage(api, "log", "e", txn="off")
    before = look(api, "open")
    after = site.reboot(1000)
    api = after.api
    seen = look(api, "open")
    assert {**seen, "expires_at": 0} == {**before, "expires_at": 0}
    assert look(api, "off")["rows"] == 1
    assert said(commit(api, part("log", 1), txn="done")) == {**first, "duplicate": True}
    assert said(stage(api, "log", "a", "b", txn="open"))["duplicate"]
    assert commit(api, part("log", 2), txn="open").status == 200
    assert commit(api, part("log", 1), txn="off").status == 200
    assert data_of(api, "log") == ["c", "a", "b", "e"]
    after.check()
    last = after.again()
    assert data_of(last.api, "log") == ["c", "a", "b", "e"]
    while last.yard.tasks.count():
        last.yard.tasks.proceed(last.now_ms)
    assert last.yard.txns.log is not None
    assert last.yard.txns.log.count == 0
    last.check()


# -- keys -------------------------------------------------------------------------------------


def test_a_key_covers_the_topics_of_a_transaction() -> None:
    site = BareTopics(keys="all,mine:read+write:a,see:read")
    everything, mine, reader = site.connect("all"), site.connect("mine"), site.connect("see")
    for name in ("a1", "b1"):
        everything.put(name, type="log")
    assert stage(mine, "a1", 1).status == 200
    assert stage(mine, "b1", 1).refusal == (403, "forbidden")
    assert stage(everything, "b1", 1).status == 200
    assert commit(mine, part("b1", 1)).refusal == (403, "forbidden")
    acks = [{"queue": "b1", "node": "w", "items": []}]
    assert commit(mine, acks=acks).refusal == (403, "forbidden")
    assert abort(mine).refusal == (403, "forbidden")
    assert mine.ask("GET", "/v0/txns/t").refusal == (403, "forbidden")
    assert abort(reader).refusal == (403, "forbidden")
    assert look(reader)["state"] == "open"
    assert commit(everything, part("a1", 1), part("b1", 1)).status == 200
    assert mine.ask("GET", "/v0/txns/t").refusal == (403, "forbidden")
    site.check()


# -- metrics ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("topics")
def test_transactions_are_counted(api: TopicsClient) -> None:
    stage(api, "log", "a", txn="open")
    stage(api, "log", "b", txn="off")
    abort(api, "off")
    commit(api, txn="done")
    commit(api, txn="done")
    found = api.ask("GET", "/v0/metrics", None, {"Accept": "application/json"}).json
    counted = {name[12:]: found[name] for name in found if name.startswith("topics_txns_")}
    assert counted.pop("memory_bytes") > 0
    assert counted == {
        "open": 1,
        "remembered": 2,
        "staged_records": 1,
        "staged_bytes": 3,
        "committed": 1,
        "aborted": 1,
        "expired": 0,
        "repeated": 1,
        "fenced": 0,
    }
    text = api.ask("GET", "/v0/metrics").body.decode()
    assert "# TYPE topics_txns_committed counter" in text
    assert "# TYPE topics_txns_open gauge" in text
