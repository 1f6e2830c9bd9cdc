"""Records written to a topic: answers, limits, keys, and nothing of what was refused."""

import json
from typing import Any

import pytest

from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

KINDS = ["log", "queue"]


@pytest.fixture(params=KINDS)
def topic(api: TopicsClient, request: pytest.FixtureRequest) -> str:
    """A topic of either type."""
    api.put("t", type=request.param)
    return "t"


def records(api: TopicsClient, name: str = "t", **query: object) -> list[Any]:
    found: list[Any] = api.diff(name, include_tags=True, **query)["records"]
    return found


def record(size: int) -> dict[str, object]:
    """Return a record whose data has this many bytes."""
    return {"data": "x" * (size - 2)}


# -- answers ---------------------------------------------------------------------------------------


def test_a_write_is_answered_with_its_seqs(api: TopicsClient, topic: str) -> None:
    assert api.write(topic, "a", "b") == {
        "topic": "t",
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": False,
        "deduped": False,
    }
    assert api.write(topic, "c")["seqs"] == [3]


def test_seqs_are_left_out_when_they_are_not_wanted(api: TopicsClient, topic: str) -> None:
    body = {"records": [{"data": 1}, {"data": 2}]}
    answer = said(api.post(f"{topic}?return_seqs=false", body))
    assert "seqs" not in answer
    assert (answer["first_seq"], answer["last_seq"]) == (1, 2)
    assert said(api.post(f"{topic}?return_seqs=true", body))["seqs"] == [3, 4]


def test_a_write_makes_the_topic_it_names(api: TopicsClient) -> None:
    answer = said(api.post("new", {"records": [{"data": 1}]}), 201)
    assert answer["created"]
    assert answer["seqs"] == [1]
    assert api.state("new")["type"] == "log"
    assert said(api.post("new", {"records": [{"data": 1}]}), 200)["created"] is False


def test_a_write_makes_no_topic_when_it_may_not(api: TopicsClient) -> None:
    body = {"records": [{"data": 1}], "create": False}
    assert api.post("new", body).refusal == (404, "topic_not_found")
    assert api.ask("GET", "/v0/topics/new").status == 404
    api.put("new")
    assert api.ok("new", body)["seqs"] == [1]


def test_a_write_configures_only_what_it_makes(api: TopicsClient) -> None:
    config = {"type": "queue", "lease_ms": 500}
    assert api.write("new", 1, config=config)["created"]
    state = api.state("new")
    assert (state["type"], state["config"]["lease_ms"]) == ("queue", 500)
    assert not api.write("new", 2, config={"lease_ms": 900})["created"]
    assert api.state("new")["config"]["lease_ms"] == 500


@pytest.mark.parametrize(
    "config",
    [{"type": "stack"}, {"ttl_ms": -1}, 5, "x", [], {"dead_letter": "new"}, {"dead_letter": "a b"}],
)
def test_a_write_with_a_bad_configuration_makes_nothing(api: TopicsClient, config: object) -> None:
    body = {"records": [{"data": 1}], "config": config}
    assert api.post("new", body).refusal == (400, "invalid_request")
    assert api.ask("GET", "/v0/topics/new").status == 404


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "config",
    [
        {"cap_records": 1, "discard": "reject"},
        {"cap_bytes": 1, "discard": "reject"},
    ],
)
def test_a_write_larger_than_what_it_would_make_makes_nothing(
    api: TopicsClient, kind: str, config: dict[str, object]
) -> None:
    body = {"records": [{"data": 1}, {"data": 2}], "config": {"type": kind, **config}}
    assert api.post("new", body).refusal == (400, "record_too_large")
    assert api.ask("GET", "/v0/topics/new").refusal == (404, "topic_not_found")


# -- what a record is ------------------------------------------------------------------------------

VERBATIM = [
    b"null",
    b"0",
    b"-0.0",
    b"1e400",
    b"123456789012345678901234567890.10",
    b"1.0",
    b"true",
    b'""',
    b'"\\u00e4\\/\\ud800"',
    b'"\xc3\xa4 \xf0\x9f\x98\x80"',
    b"[ ]",
    b'{ "b" : 1,\t"a":\r\n[ 1 , 2 ] , "b":2 }',
    b'{"$seq":7,"data":1,"meta":{}}',
]


@pytest.mark.parametrize("data", VERBATIM)
def test_data_comes_back_as_it_was_sent(api: TopicsClient, topic: str, data: bytes) -> None:
    body = b'{ "records" : [ { "data" :  ' + data + b' , "tag":"t"} , {"data":' + data + b"} ] }"
    api.ok(topic, body)
    page = api.post(f"{topic}/diff", {}).body
    assert page.count(b'"data":' + data + b"}") == 2
    if topic == "t" and api.state(topic)["type"] == "queue":
        claimed = api.post(f"{topic}/claim", {"node": "w", "max": 2}).body
        assert claimed.count(b'"data":' + data + b"}") == 2


@pytest.mark.parametrize("meta", [b"{}", b'{ "a" : 1.10,\n "b":{"c":[ ]} }', b'{"\\u0061":null}'])
def test_meta_comes_back_as_it_was_sent(api: TopicsClient, topic: str, meta: bytes) -> None:
    api.ok(topic, b'{"records":[{"meta": ' + meta + b' ,"data":1}]}')
    assert b'"data":1,"meta":' + meta + b"}" in api.post(f"{topic}/diff", {}).body
    without = api.post(f"{topic}/diff", {"include_meta": False}).body
    assert b'"data":1}' in without
    assert b"meta" not in without


def test_what_was_not_said_of_a_record_is_not_shown(api: TopicsClient, topic: str) -> None:
    sent = [
        {"data": 1},
        {"data": 2, "tag": None, "node": None, "meta": None},
        {"data": 3, "tag": "", "node": ""},
        {"data": 4, "tag": "t", "node": "n", "meta": {"m": 1}},
    ]
    api.ok(topic, {"records": sent})
    found = records(api)
    for one in found[:3]:
        assert set(one) == {"$seq", "$ts", "data"}
    assert found[3]["$tag"] == "t"
    assert found[3]["$node"] == "n"
    assert found[3]["meta"] == {"m": 1}
    plain = api.diff(topic)["records"][3]
    assert set(plain) == {"$seq", "$ts", "$node", "data", "meta"}


def test_the_node_of_a_write_is_that_of_its_records(api: TopicsClient, topic: str) -> None:
    api.ok(topic, {"node": "all", "records": [{"data": 1}, {"data": 2, "node": "own"}]})
    assert [one["$node"] for one in records(api)] == ["all", "own"]


def test_tags_and_nodes_may_be_any_text(api: TopicsClient, topic: str) -> None:
    odd = 'ä "\\ \u2028\n\x00'
    api.ok(topic, {"records": [{"data": 1, "tag": odd, "node": odd}]})
    (found,) = records(api)
    assert (found["$tag"], found["$node"]) == (odd, odd)
    assert api.diff(topic, node=odd)["records"] == []
    assert api.ok(f"{topic}/delete", {"match": ["tag", "Eq", odd]})["deleted"] == 1


def test_the_time_of_a_record_is_that_of_its_write(site: BareTopics, topic: str) -> None:
    site.api.write(topic, 1)
    site.tick(1500)
    site.api.write(topic, 2)
    first, second = (one["$ts"] for one in records(site.api))
    assert (first, second) == (site.now_ms - 1500, site.now_ms)


def test_fields_nobody_knows_are_passed_over(api: TopicsClient, topic: str) -> None:
    body = {"records": [{"data": 1, "colour": "red", "$seq": 9, "$tag": "x"}], "shape": [1]}
    assert api.ok(topic, body)["seqs"] == [1]
    assert set(records(api)[0]) == {"$seq", "$ts", "data"}


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        1,
        None,
        {"records": None},
        {"records": {}},
        {"records": "x"},
        {"records": []},
        {"records": [1]},
        {"records": [[]]},
        {"records": [None]},
        {"records": [{}]},
        {"records": [{"tag": "x"}]},
        {"records": [{"data": 1}, {}]},
        {"records": [{"data": 1, "tag": 5}]},
        {"records": [{"data": 1, "tag": {}}]},
        {"records": [{"data": 1, "node": 5}]},
        {"records": [{"data": 1, "meta": 5}]},
        {"records": [{"data": 1, "meta": []}]},
        {"records": [{"data": 1, "meta": "x"}]},
        {"records": [{"data": 1}], "node": 5},
        {"records": [{"data": 1}], "idempotency_key": 5},
        {"records": [{"data": 1}], "create": "yes"},
        b"{",
        b"",
        b"\xff",
        b'{"records":[{"data":1}]} x',
        b'{"records":[{"data":01}]}',
        b'{"records":[{"data":NaN}]}',
        b'{"records":[{"data":"\n"}]}',
        b'{"records":[{"data":' + b"[" * 200 + b"]" * 200 + b"}]}",
    ],
)
def test_an_invalid_write_changes_nothing(api: TopicsClient, topic: str, body: object) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = api.post(topic, raw, {"Content-Type": "application/json"})
    assert answer.refusal == (400, "invalid_request")
    assert api.state(topic)["head_seq"] == 0
    answer = api.post("new", raw, {"Content-Type": "application/json"})
    assert answer.refusal == (400, "invalid_request")
    assert api.ask("GET", "/v0/topics/new").status == 404


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tag": "x" * 256}, ""),
        ({"tag": "x" * 257}, "invalid_request"),
        ({"tag": "ä" * 128}, ""),
        ({"tag": "ä" * 128 + "x"}, "invalid_request"),
        ({"node": "x" * 128}, ""),
        ({"node": "x" * 129}, "invalid_request"),
        ({"meta": {str(at): 1 for at in range(64)}}, ""),
        ({"meta": {str(at): 1 for at in range(65)}}, "record_too_large"),
        ({"meta": {"m": "x" * (16_384 - 9)}}, ""),
        ({"meta": {"m": "x" * (16_384 - 8)}}, "record_too_large"),
    ],
)
def test_the_limits_of_a_record(
    api: TopicsClient, topic: str, fields: dict[str, object], code: str
) -> None:
    answer = api.post(topic, {"records": [{"data": 1}, {"data": 2, **fields}]})
    if code:
        assert answer.refusal == (400, code)
        assert api.state(topic)["head_seq"] == 0
    else:
        assert said(answer)["seqs"] == [1, 2]


def test_the_limits_of_a_write(api: TopicsClient, topic: str) -> None:
    body = {"records": [{"data": 1}], "node": "x" * 128, "idempotency_key": "x" * 256}
    assert api.ok(topic, body)["seqs"] == [1]
    for change in ({"node": "x" * 129}, {"idempotency_key": "x" * 257}):
        assert api.post(topic, {**body, **change}).refusal == (400, "invalid_request")
    assert api.state(topic)["head_seq"] == 1


def test_data_and_meta_are_a_mebibyte_at_most(api: TopicsClient, topic: str) -> None:
    most = 1 << 20
    assert api.ok(topic, {"records": [record(most)]})["seqs"] == [1]
    assert api.post(topic, {"records": [record(most + 1)]}).refusal == (400, "record_too_large")
    meta = {"a": 1}
    size = len(json.dumps(meta))
    fits = {**record(most - size), "meta": meta}
    assert api.ok(topic, {"records": [fits]})["seqs"] == [2]
    over = {**record(most - size + 1), "meta": meta}
    assert api.post(topic, {"records": [over]}).refusal == (400, "record_too_large")
    assert api.state(topic)["head_seq"] == 2


def test_a_write_has_ten_thousand_records_at_most(api: TopicsClient, topic: str) -> None:
    one = [{"data": 1}]
    assert api.ok(topic, {"records": one * 10_000})["last_seq"] == 10_000
    assert api.post(topic, {"records": one * 10_001}).refusal == (400, "batch_too_large")
    assert api.state(topic)["head_seq"] == 10_000


# -- a topic that is full --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caps", [{"cap_records": 3}, {"cap_bytes": 9}])
def test_a_full_topic_refuses_what_is_new_if_it_is_told_to(
    api: TopicsClient, kind: str, caps: dict[str, int]
) -> None:
    api.put("t", type=kind, discard="reject", **caps)
    api.write("t", "a", "b")
    answer = api.post("t", {"records": [{"data": "c"}, {"data": "d"}]})
    assert answer.refusal == (422, "topic_full")
    detail = answer.json["error"]["detail"]
    assert detail == {
        "cap_records": caps.get("cap_records", 0),
        "cap_bytes": caps.get("cap_bytes", 0),
        "count": 2,
        "bytes": 6,
        "earliest_seq": 1,
        "head_seq": 2,
    }
    assert [one["data"] for one in records(api)] == ["a", "b"]
    assert api.write("t", "c")["seqs"] == [3]
    assert api.post("t", {"records": [{"data": "d"}]}).refusal == (422, "topic_full")
    api.ok("t/delete", {"before_seq": 2})
    assert api.write("t", "d")["seqs"] == [4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caps", [{"cap_records": 3}, {"cap_bytes": 9}])
@pytest.mark.parametrize("is_new", [True, False])
def test_of_a_write_larger_than_the_topic_the_newest_stay(
    api: TopicsClient, kind: str, caps: dict[str, int], *, is_new: bool
) -> None:
    config = {"type": kind, **caps}
    body: dict[str, object] = {"records": [{"data": data} for data in "abcde"], "config": config}
    first = 1
    if not is_new:
        api.put("t", **config)
        api.write("t", "x", "y")
        first = 3
    written = api.ok("t", body, 201 if is_new else 200)
    assert written["seqs"] == list(range(first, first + 5))
    assert (written["count"], written["head_seq"]) == (5, first + 4)
    page = api.diff("t")
    assert [one["data"] for one in page["records"]] == ["c", "d", "e"]
    assert page["tombstone"]["reason"] == "cap"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, first + 1)
    assert (page["earliest_seq"], api.state("t")["count"]) == (first + 2, 3)
    if kind == "queue":
        assert [one["$seq"] for one in api.claim("t", max=9)["claimed"]] == [
            first + 2 + at for at in range(3)
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_larger_than_the_topic_goes_at_once(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind, cap_bytes=4)
    assert api.write("t", "abcdef")["seqs"] == [1]
    page = api.diff("t")
    assert (page["records"], page["tombstone"]["gap_to"], page["caught_up"]) == ([], 1, True)
    assert api.write("t", "a")["seqs"] == [2]
    assert [one["data"] for one in api.diff("t", from_seq=1)["records"]] == ["a"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caps", [{"cap_records": 1}, {"cap_bytes": 4}])
def test_a_write_larger_than_a_topic_that_lets_nothing_go_is_refused_for_good(
    api: TopicsClient, kind: str, caps: dict[str, int]
) -> None:
    api.put("t", type=kind, discard="reject", **caps)
    body = {"records": [{"data": "a"}, {"data": "b"}]}
    assert api.post("t", body).refusal == (400, "record_too_large")
    assert api.write("t", "a")["seqs"] == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_topic_lets_the_oldest_go_otherwise(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind, cap_records=2)
    for data in "abc":
        api.write("t", data)
    assert [one["data"] for one in records(api)] == ["b", "c"]
    assert api.state("t")["count"] == 2


# -- writes with a key -----------------------------------------------------------------------------


def test_a_write_is_made_once_for_one_key(site: BareTopics, topic: str) -> None:
    api = site.api
    first = api.write(topic, 1, 2, idempotency_key="k")
    again = api.write(topic, 1, 2, idempotency_key="k")
    assert again == {**first, "deduped": True}
    assert api.write(topic, 5, idempotency_key="k")["seqs"] == [1, 2]
    assert api.write(topic, 5, idempotency_key="K")["seqs"] == [3]
    assert api.write(topic, 6)["seqs"] == [4]
    late = api.write(topic, 1, 2, idempotency_key="k")
    assert late == {**first, "head_seq": 4, "deduped": True}
    assert len(records(api)) == 4


def test_a_key_counts_for_one_topic(api: TopicsClient) -> None:
    api.put("queue", type="queue")
    for name in ("a", "b", "queue"):
        assert not api.write(name, 1, idempotency_key="k")["deduped"]


def test_a_key_is_forgotten_when_its_window_is_over(site: BareTopics, topic: str) -> None:
    site.api.write(topic, 1, idempotency_key="k")
    site.tick(119_999)
    assert site.api.write(topic, 1, idempotency_key="k")["deduped"]
    site.tick(1)
    assert site.api.write(topic, 1, idempotency_key="k")["seqs"] == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_the_window_is_what_was_configured(site: BareTopics, kind: str) -> None:
    site.api.put("none", type=kind, idempotency_window_ms=0)
    site.api.put("short", type=kind, idempotency_window_ms=10)
    for name in ("none", "short"):
        site.api.write(name, 1, idempotency_key="k")
    assert not site.api.write("none", 1, idempotency_key="k")["deduped"]
    assert site.api.write("short", 1, idempotency_key="k")["deduped"]
    site.tick(10)
    assert not site.api.write("short", 1, idempotency_key="k")["deduped"]


def test_a_key_may_stand_in_the_head_but_that_of_the_body_wins(
    api: TopicsClient, topic: str
) -> None:
    head = {"Idempotency-Key": "head"}
    one = {"records": [{"data": 1}]}
    both = {**one, "idempotency_key": "body"}
    assert said(api.post(topic, one, head))["seqs"] == [1]
    assert said(api.post(topic, one, head))["deduped"]
    assert said(api.post(topic, both, head))["seqs"] == [2]
    assert said(api.post(topic, both))["deduped"]
    assert said(api.post(topic, {**one, "idempotency_key": "head"}))["seqs"] == [1]
    assert said(api.post(topic, {**one, "idempotency_key": ""}, head))["deduped"]


@pytest.mark.parametrize("key", ["x" * 257, "ä" * 129])
def test_a_key_in_the_head_may_not_be_longer_either(
    api: TopicsClient, topic: str, key: str
) -> None:
    body = {"records": [{"data": 1}]}
    refusal = (400, "invalid_request")
    assert api.post(topic, body, {"Idempotency-Key": key}).refusal == refusal
    assert api.state(topic)["head_seq"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_with_a_known_key_is_answered_though_the_topic_is_full(
    api: TopicsClient, kind: str
) -> None:
    api.put("t", type=kind, cap_records=1, discard="reject")
    first = api.write("t", 1, idempotency_key="k")
    assert api.write("t", 1, idempotency_key="k") == {**first, "deduped": True}


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_was_refused_leaves_no_key(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind, cap_records=1, discard="reject")
    api.write("t", 1)
    body = {"records": [{"data": 2}], "idempotency_key": "k"}
    assert api.post("t", body).status == 422
    api.ok("t/delete", {"before_seq": 2})
    answer = api.ok("t", body)
    assert (answer["deduped"], answer["seqs"]) == (False, [2])


def test_keys_go_with_their_topic(api: TopicsClient, topic: str) -> None:
    api.write(topic, 1, idempotency_key="k")
    api.ask("DELETE", "/v0/topics/t")
    assert not api.write(topic, 1, idempotency_key="k")["deduped"]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_outlive_a_restart_but_not_their_window(kind: str) -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", type=kind, durable=True)
    first = site.api.write("t", 1, 2, idempotency_key="k")
    site.tick(60_000)
    site = site.after_a_crash()
    assert site.api.write("t", 1, 2, idempotency_key="k") == {**first, "deduped": True}
    site = site.after_a_crash(60_001)
    assert site.api.write("t", 1, idempotency_key="k")["seqs"] == [3]


# -- delays and priorities of jobs -----------------------------------------------------------------


def test_a_job_may_be_written_for_later(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": 1, "delay_ms": 500}, {"data": 2}]})
    assert api.state("q")["queue"]["delayed"] == 1
    assert [one["data"] for one in api.claim("q", max=9)["claimed"]] == [2]
    site.tick(500)
    assert [one["data"] for one in api.claim("q", max=9)["claimed"]] == [1]


def test_a_job_of_a_higher_priority_goes_first(api: TopicsClient) -> None:
    api.put("q", type="queue")
    priorities = (0, -5, 7, 7, 1_000_000, -1_000_000)
    api.ok("q", {"records": [{"data": one, "priority": one} for one in priorities]})
    found = [api.claim("q")["claimed"][0]["$seq"] for _ in priorities]
    assert found == [5, 3, 4, 1, 2, 6]


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_ms": -1},
        {"delay_ms": "1"},
        {"delay_ms": 365 * 86_400_000 + 1},
        {"priority": "high"},
        {"priority": 1.5},
        {"priority": True},
        {"priority": 1_000_001},
        {"priority": -1_000_001},
        {"priority": 1 << 64},
    ],
)
def test_a_job_with_a_bad_delay_or_priority_is_not_written(
    api: TopicsClient, fields: dict[str, object]
) -> None:
    api.put("q", type="queue")
    body = {"records": [{"data": 1}, {"data": 2, **fields}]}
    assert api.post("q", body).refusal == (400, "invalid_request")
    assert api.state("q")["count"] == 0


# -- what an answer waits for ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_waits_for_its_batch(kind: str) -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    answer = api.ask("PUT", "/v0/topics/t", {"type": kind, "durable": True})
    assert api.session.awaits == site.journal.open_number
    site.commit()
    answer = api.post("t", {"records": [{"data": 1}], "idempotency_key": "k"})
    assert answer.json["performance"]["fsync_ms"] > 0
    assert api.session.awaits == site.journal.open_number
    other = site.connect()
    assert other.write("t", 1, idempotency_key="k")["deduped"]
    assert other.session.awaits == site.journal.open_number
    reader = site.connect()
    assert len(reader.diff("t")["records"]) == 1
    assert reader.session.awaits == site.journal.open_number
    site.check()


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_tells_of_later_writes_waits_for_them(kind: str) -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", type=kind, durable=True, cap_records=2, discard="reject")
    site.api.write("t", 1, idempotency_key="k")
    site.commit()
    site.api.write("t", 2)
    again = site.connect()
    assert again.write("t", 1, idempotency_key="k")["head_seq"] == 2
    assert again.session.awaits == site.journal.open_number
    refused = site.connect()
    assert refused.post("t", {"records": [{"data": 3}]}).json["error"]["detail"]["head_seq"] == 2
    assert refused.session.awaits == site.journal.open_number
