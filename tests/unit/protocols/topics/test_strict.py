"""Calls that ask for unknown fields to be refused."""

import json

import pytest

from tests.support.clients.http import Reply
from tests.support.doors.topics import BareTopics


def made() -> BareTopics:
    site = BareTopics()
    site.api.put("q", type="queue")
    site.api.ok("q", {"records": [{"data": at} for at in range(4)]})
    return site


def assert_names(answer: Reply, field: str) -> None:
    assert answer.refusal == (400, "invalid_request")
    assert answer.json["error"]["detail"] == {"field": field}
    assert field in answer.json["error"]["message"]


HELD: dict[str, object] = {"node": "n", "seqs": [1]}
CALLS: list[tuple[str, dict[str, object]]] = [
    ("", {"records": [{"data": 1}]}),
    ("/claim", {"node": "n"}),
    ("/claim", {"node": "n", "claim_id": "c", "worker": "w", "epoch": 1}),
    ("/ack", HELD),
    ("/nack", HELD),
    ("/dead-letter", HELD),
    ("/extend", {**HELD, "lease_ms": 1000}),
    ("/extend", {**HELD, "lease_ms": 1000, "worker": "w", "epoch": 1}),
    ("/redrive", {}),
    ("/purge", {}),
    ("/diff", {}),
]


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_an_unknown_field_is_refused_if_that_is_asked_for(
    path: str, body: dict[str, object]
) -> None:
    site = made()
    before = site.yard.changes()
    assert_names(site.api.post(f"q{path}", {**body, "nosuch": 1, "strict": True}), "nosuch")
    assert site.yard.changes() == before
    assert site.api.post(f"q{path}", {**body, "nosuch": 1, "strict": False}).status == 200
    assert site.api.post(f"q{path}", {**body, "nosuch": 1}).status == 200
    assert site.api.post(f"q{path}", {**body, "strict": True}).status == 200
    assert site.api.post(f"q{path}", {**body, "strict": 1}).status == 400


def test_every_field_that_is_known_may_be_sent() -> None:
    site = made()
    record = {"data": 1, "meta": {}, "tag": "t", "node": "n", "key": "k"}
    record |= {"delay_ms": 0, "priority": 1}
    config = {"type": "queue", "key_max": 5}
    body = {"records": [record], "node": "n", "create": True, "config": config, "strict": True}
    assert site.api.post("new", body).status == 201
    assert site.api.post("q", {"records": [{"data": 1}], "idempotency_key": "k"}).status == 200
    claim = {"node": "n", "max": 1, "lease_ms": 1000, "wait_ms": 0, "strict": True}
    (lease,) = site.api.ok("q/claim", claim)["claimed"]
    held = {"node": "n", "seqs": [lease["$seq"]], "lease_ids": [lease["lease_id"]]}
    assert site.api.post("q/extend", {**held, "lease_ms": 1, "strict": True}).status == 200
    ended = {**held, "error": "why", "strict": True}
    assert site.api.post("q/nack", {**ended, "delay_ms": 0}).status == 200
    assert site.api.post("q/dead-letter", ended).status == 200
    assert site.api.post("q/ack", {**held, "strict": True}).status == 200
    assert site.api.post("q/redrive", {"max": 1, "strict": True}).status == 200


@pytest.mark.parametrize("count", [1, 3000])
def test_a_record_has_no_other_fields_either(count: int) -> None:
    site = made()
    records: list[dict[str, object]] = [{"data": "x" * 30} for _ in range(count)]
    records[-1]["kye"] = "k"
    assert_names(site.api.post("q", {"records": records, "strict": True}), "kye")
    assert site.api.post("q", {"records": records}).status == 200


def test_neither_has_the_configuration() -> None:
    site = made()
    body = {"records": [{"data": 1}], "config": {"key_windw_ms": 5}, "strict": True}
    assert_names(site.api.post("new", body), "key_windw_ms")
    assert "new" not in site.yard.logs


@pytest.mark.parametrize("count", [1, 3000])
def test_a_long_write_is_checked_as_a_short_one(count: int) -> None:
    site = made()
    body = {"records": [{"data": "x" * 30}] * count, "recods": [], "strict": True}
    assert_names(site.api.post("q", body), "recods")


def test_a_long_name_is_shown_in_part() -> None:
    site = made()
    answer = site.api.post("q/claim", {"node": "n", "x" * 5000: 1, "strict": True})
    assert answer.status == 400
    assert len(json.dumps(answer.json)) < 500


PLACE: dict[str, object] = {"topic": "q", "part": 0, "attempt": 0}
GROUP: dict[str, object] = {"queue": "q", "node": "n", "items": []}
SET: dict[str, object] = {"node": "n", "claim_id": "c", "strict": True}
STAGE: dict[str, object] = {**PLACE, "chunk": 0, "records": [{"data": 1}]}
PART: dict[str, object] = {**PLACE, "chunks": 1, "rows": 1}
IN_TRANSACTIONS: list[tuple[str, dict[str, object]]] = [
    ("txns/t/stage", {**STAGE, "nosuch": 1}),
    ("txns/t/stage", {**STAGE, "records": [{"data": 1}, {"data": 1, "nosuch": 1}]}),
    ("txns/t/commit", {"nosuch": []}),
    ("txns/t/commit", {"parts": [PART, {**PART, "part": 1, "nosuch": 1}]}),
    ("txns/t/commit", {"acks": [GROUP, {**GROUP, "nosuch": 1}]}),
    ("txns/t/commit", {"nacks": [{**GROUP, "nosuch": 1}]}),
    ("txns/t/commit", {"dead_letters": [{**GROUP, "nosuch": 1}]}),
    ("txns/t/commit", {"cursors": [{"topic": "q", "cursor": "c", "seq": 1, "nosuch": 1}]}),
    ("topics/q/claims/c/extend", {"lease_ms": 1000, "nosuch": 1}),
]


@pytest.mark.parametrize(("path", "body"), IN_TRANSACTIONS)
def test_calls_of_transactions_refuse_unknown_fields_at_any_depth(
    path: str, body: dict[str, object]
) -> None:
    site = made()
    site.api.ok("q/claim", SET)
    before = site.yard.changes()
    assert_names(site.api.ask("POST", f"/v0/{path}", {**body, "strict": True}), "nosuch")
    assert site.yard.changes() == before
    if "parts" not in body:
        assert site.api.ask("POST", f"/v0/{path}", body).status == 200


def test_every_known_field_of_a_transaction_may_be_sent() -> None:
    site = made()
    record = {"data": 1, "meta": {}, "tag": "t", "node": "n", "key": "k", "with": ["q", 1]}
    records = [{**record, "delay_ms": 0, "priority": 1}, {"data_b64": ""}]
    driver: dict[str, object] = {"worker": "w", "epoch": 1, "strict": True}
    site.api.ok("q/claim", {**SET, **driver, "max": 3})
    extend = {**driver, "lease_ms": 1000}
    assert site.api.ask("POST", "/v0/topics/q/claims/c/extend", extend).status == 200
    staged = {**STAGE, "records": records, "strict": True}
    assert site.api.ask("POST", "/v0/txns/t/stage", staged).status == 200
    ends = {
        "acks": [{**GROUP, "items": [[1, ""]]}],
        "nacks": [{**GROUP, "items": [[2, "", 0, "why"]]}],
        "dead_letters": [{**GROUP, "items": [[3, "", "why"]]}],
    }
    cursor = {"topic": "q", "cursor": "c", "seq": 1, "incarnation": "", "force": True}
    set_there = {"cursors": [{**cursor, "hold": False}]}
    body = {**driver, **ends, **set_there, "parts": [{**PART, "rows": 2}]}
    answer = site.api.ask("POST", "/v0/txns/t/commit", body)
    assert (answer.status, answer.json["skipped"]) == (200, [])


PUTS: list[tuple[str, dict[str, object]]] = [
    ("q", {"type": "queue"}),
    ("log", {"type": "log"}),
    ("q/cursors/c", {"seq": 0}),
]


@pytest.mark.parametrize(("path", "body"), PUTS)
def test_an_unknown_setting_is_refused_too(path: str, body: dict[str, object]) -> None:
    site = made()
    path = f"/v0/topics/{path}"
    assert_names(site.api.ask("PUT", path, {**body, "nosuch": 1, "strict": True}), "nosuch")
    for more in ({"nosuch": 1, "strict": False}, {"nosuch": 1}, {"strict": True}):
        assert site.api.ask("PUT", path, {**body, **more}).status in {200, 201}
    assert site.api.ask("PUT", path, {**body, "strict": 1}).status == 400


def test_every_setting_and_every_part_of_a_query_is_known() -> None:
    site = made()
    state = site.api.state("q")["config"]
    assert site.api.ask("PUT", "/v0/topics/q", {**state, "strict": True}).status == 200
    cursor = {"seq": 0, "incarnation": None, "hold": False, "force": True, "strict": True}
    assert site.api.ask("PUT", "/v0/topics/q/cursors/c", cursor).status == 201
    query = {"from_seq": 0, "limit": 1, "max_batch_bytes": 9, "node": "n", "wait_ms": 0}
    query |= {"include_tags": True, "include_meta": True, "strict": True}
    assert site.api.post("q/diff", query).status == 200
    assert site.api.post("q/purge", {"max": 1, "strict": True}).status == 200
