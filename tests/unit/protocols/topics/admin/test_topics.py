"""Topics made, shown, listed and removed."""

from base64 import urlsafe_b64encode

import pytest

from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

DEFAULTS = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "key_window_ms": 604_800_000,
    "key_max": 10_000_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


# -- making ----------------------------------------------------------------------------------------


def test_a_topic_is_made_once_and_then_configured(api: TopicsClient) -> None:
    made = said(api.ask("PUT", "/v0/topics/t", {}), 201)
    assert made == {"topic": "t", "created": True, "config": DEFAULTS}
    again = said(api.ask("PUT", "/v0/topics/t", {"ttl_ms": 5}), 200)
    assert again == {"topic": "t", "created": False, "config": {**DEFAULTS, "ttl_ms": 5}}


def test_a_topic_needs_no_body_to_be_made(api: TopicsClient) -> None:
    assert said(api.ask("PUT", "/v0/topics/t"), 201)["config"] == DEFAULTS


def test_what_is_left_out_goes_back_to_its_default(api: TopicsClient) -> None:
    given = {
        "type": "queue",
        "ttl_ms": 1,
        "cap_records": 2,
        "cap_bytes": 3,
        "discard": "reject",
        "durable": True,
        "priority": -1000,
        "auto_priority": False,
        "auto_create": False,
        "idempotency_window_ms": 0,
        "key_window_ms": 1,
        "key_max": 0,
        "dedupe_node": False,
        "lease_ms": 100,
        "claim_jitter_ms": 5000,
        "max_deliveries": 7,
        "dead_letter": "t.dlq",
        "leases_durable": True,
    }
    assert api.put("t", **given)["config"] == {**DEFAULTS, **given, "durability": "fsync"}
    assert api.put("t", type="queue")["config"] == {**DEFAULTS, "type": "queue"}
    assert api.state("t")["config"] == {**DEFAULTS, "type": "queue"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"durable": True}, (True, "fsync")),
        ({"durable": False}, (False, "disk")),
        ({"durability": "fsync"}, (True, "fsync")),
        ({"durability": "memory", "durable": True}, (False, "memory")),
        ({"durability": "ephemeral"}, (False, "ephemeral")),
    ],
)
def test_the_class_that_is_named_wins(
    api: TopicsClient, given: dict[str, object], found: tuple[bool, str]
) -> None:
    config = api.put("t", **given)["config"]
    assert (config["durable"], config["durability"]) == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"lease_ms": 0}, ("lease_ms", 100)),
        ({"lease_ms": 99}, ("lease_ms", 100)),
        ({"lease_ms": 86_400_001}, ("lease_ms", 86_400_000)),
        ({"claim_jitter_ms": 5001}, ("claim_jitter_ms", 5000)),
        ({"dead_letter": None}, ("dead_letter", None)),
        ({"ttl_ms": None}, ("ttl_ms", 0)),
    ],
)
def test_what_may_not_be_so_long_is_made_to_fit(
    api: TopicsClient, given: dict[str, object], found: tuple[str, object]
) -> None:
    assert api.put("t", **given)["config"][found[0]] == found[1]


@pytest.mark.parametrize(
    "body",
    [
        {"type": "stack"},
        {"type": 1},
        {"ttl_ms": -1},
        {"ttl_ms": "1"},
        {"ttl_ms": 1.5},
        {"ttl_ms": True},
        {"ttl_ms": 1 << 63},
        {"cap_records": [1]},
        {"cap_bytes": -1},
        {"discard": "new"},
        {"durable": 1},
        {"durability": "paper"},
        {"priority": 1001},
        {"priority": -1001},
        {"auto_create": "yes"},
        {"dedupe_node": 0},
        {"lease_ms": {}},
        {"max_deliveries": -1},
        {"dead_letter": "no name"},
        {"dead_letter": 5},
        {"dead_letter": "t"},
        [],
        "text",
        b"{",
        b'{"ttl_ms": NaN}',
        b'{"ttl_ms": 1,}',
        b"\xff",
    ],
)
def test_a_bad_configuration_makes_nothing(api: TopicsClient, body: object) -> None:
    assert api.ask("PUT", "/v0/topics/t", body).refusal == (400, "invalid_request")
    assert api.ask("GET", "/v0/topics/t").refusal == (404, "topic_not_found")
    api.put("t", cap_records=5)
    assert api.ask("PUT", "/v0/topics/t", body).refusal == (400, "invalid_request")
    assert api.state("t")["config"]["cap_records"] == 5


def test_fields_nobody_knows_are_passed_over(api: TopicsClient) -> None:
    made = api.put("t", colour="red", ttl=5, shape={"a": [1]})
    assert made["config"] == DEFAULTS


@pytest.mark.parametrize(("first", "second"), [("log", "queue"), ("queue", "log")])
def test_the_type_of_a_topic_stays(api: TopicsClient, first: str, second: str) -> None:
    api.put("t", type=first)
    answer = api.ask("PUT", "/v0/topics/t", {"type": second, "ttl_ms": 1})
    assert answer.refusal == (409, "topic_exists_incompatible")
    assert answer.json["error"]["detail"] == {"type": first}
    assert api.state("t")["config"]["ttl_ms"] == 0


def test_no_type_is_the_type_of_a_log(api: TopicsClient) -> None:
    api.put("t", type="queue")
    answer = api.ask("PUT", "/v0/topics/t", {})
    assert answer.refusal == (409, "topic_exists_incompatible")


@pytest.mark.parametrize("name", ["a", "0", "A.b_c:d-e", "x" * 255, "t..", "a:::"])
def test_names_that_topics_may_have(api: TopicsClient, name: str) -> None:
    assert api.put(name)["topic"] == name
    assert api.state(name)["topic"] == name


@pytest.mark.parametrize(
    "name", ["x" * 256, ".a", "_a", "-a", ":a", "a%20b", "a%2Fb", "a%00", "%C3%A4", "a@b", "a*"]
)
def test_names_that_topics_may_not_have(api: TopicsClient, name: str) -> None:
    for method, path, body in (
        ("PUT", "", {}),
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "", {"records": [{"data": 1}]}),
        ("POST", "/diff", {}),
        ("POST", "/delete", {"before_seq": 1}),
        ("POST", "/claim", {"node": "w"}),
        ("GET", "/work?node=w", None),
    ):
        answer = api.ask(method, f"/v0/topics/{name}{path}", body)
        assert answer.refusal == (400, "invalid_request"), (method, path)


def test_names_are_distinguished_by_every_letter(api: TopicsClient) -> None:
    api.put("T")
    assert api.ask("GET", "/v0/topics/t").refusal == (404, "topic_not_found")


def test_a_tighter_cap_lets_old_records_go(api: TopicsClient) -> None:
    api.write("t", 1, 2, 3, 4)
    api.put("t", cap_records=1)
    assert [one["data"] for one in api.diff("t", from_seq=3)["records"]] == [4]
    assert api.state("t")["count"] == 1


def test_a_queue_that_others_only_look_at_is_in_nobodys_way(
    site: BareTopics, api: TopicsClient
) -> None:
    site.beanstalk().say(b"use looked-at\r\n")
    assert names(api) == []
    assert api.ask("GET", "/v0/topics/default").refusal == (404, "topic_not_found")
    assert api.put("default")["created"]
    assert api.write("looked-at", 1)["created"]
    assert api.state("looked-at")["type"] == "log"


# -- showing ---------------------------------------------------------------------------------------


def test_the_state_of_a_fresh_log(api: TopicsClient) -> None:
    api.put("t")
    state = api.state("t")
    assert state.pop("incarnation").isdecimal()
    assert state == {
        "topic": "t",
        "type": "log",
        "head_seq": 0,
        "head_row_seq": 0,
        "earliest_seq": 1,
        "next_seq": 1,
        "count": 0,
        "bytes": 0,
        "config": DEFAULTS,
        "effective_priority": 0,
        "last_write_ts": None,
        "last_read_ts": None,
    }


def test_the_state_of_a_log_in_use(site: BareTopics, api: TopicsClient) -> None:
    api.put("t", priority=7)
    site.tick(50)
    api.write("t", "ab", "cd", "e")
    site.tick(100)
    api.diff("t")
    api.ok("t/delete", {"before_seq": 2})
    state = api.state("t")
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (3, 2, 4)
    assert (state["count"], state["bytes"]) == (2, 7)
    assert state["last_write_ts"] == site.now_ms - 100
    assert state["last_read_ts"] == site.now_ms
    assert state["effective_priority"] == 7


def test_the_state_of_a_queue(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    assert set(api.state("q")) >= {"topic", "type", "head_seq", "earliest_seq", "next_seq"}
    assert api.state("q")["queue"] == {
        "ready": 0,
        "in_flight": 0,
        "delayed": 0,
        "dead_lettered": 0,
    }
    assert api.state("q")["last_write_ts"] is api.state("q")["last_read_ts"] is None
    api.write("q", 1, 22, 333, 4444)
    site.tick(100)
    api.diff("q")
    api.claim("q", max=2)
    api.ok("q/ack", {"node": "w", "seqs": [1]})
    api.ok("q/nack", {"node": "w", "seqs": [2], "delay_ms": 5000})
    api.claim("q")
    state = api.state("q")
    assert state["last_write_ts"] == site.now_ms - 100
    assert state["last_read_ts"] == site.now_ms
    assert state["type"] == "queue"
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (4, 2, 5)
    assert (state["count"], state["bytes"]) == (3, 9)
    counts = state["queue"]
    assert (counts["ready"], counts["in_flight"], counts["delayed"]) == (1, 1, 1)
    site.tick(5000)
    assert api.state("q")["queue"]["ready"] == 2


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_what_is_too_old_is_not_counted(site: BareTopics, api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind, ttl_ms=10)
    api.write("t", 1, 2)
    site.tick(11)
    assert said(api.ask("GET", "/v0/topics"))["topics"][0]["count"] == 0
    api.write("t", 1, 2)
    site.tick(11)
    assert api.state("t")["count"] == 0


def test_a_topic_that_is_not_there(api: TopicsClient) -> None:
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/diff", {}),
        ("POST", "/delete", {"before_seq": 1}),
        ("POST", "/claim", {"node": "w"}),
        ("POST", "/ack", {"node": "w", "seqs": []}),
        ("POST", "/nack", {"node": "w", "seqs": []}),
        ("POST", "/dead-letter", {"node": "w", "seqs": []}),
        ("POST", "/extend", {"node": "w", "seqs": [], "lease_ms": 1}),
        ("POST", "/redrive", {}),
        ("POST", "/purge", {}),
        ("GET", "/work?node=w", None),
    ):
        answer = api.ask(method, f"/v0/topics/t{path}", body)
        assert answer.refusal == (404, "topic_not_found"), (method, path)
    assert "t" not in names(api)


# -- listing ---------------------------------------------------------------------------------------


def names(api: TopicsClient, query: str = "") -> list[str]:
    answer = said(api.ask("GET", f"/v0/topics{query}"))
    return [line["topic"] for line in answer["topics"]]


def test_a_line_of_the_list(api: TopicsClient) -> None:
    api.put("a", durable=True, priority=3)
    api.write("a", 1, 2)
    api.put("b", type="queue")
    api.write("b", "x")
    answer = said(api.ask("GET", "/v0/topics?page_size=2"))
    assert set(answer) == {"topics"}
    assert answer["topics"] == [
        {
            "topic": "a",
            "type": "log",
            "head_seq": 2,
            "earliest_seq": 1,
            "count": 2,
            "bytes": 2,
            "durable": True,
            "effective_priority": 3,
            "incarnation": said(api.ask("GET", "/v0/topics/a"))["incarnation"],
        },
        {
            "topic": "b",
            "type": "queue",
            "head_seq": 1,
            "earliest_seq": 1,
            "count": 1,
            "incarnation": said(api.ask("GET", "/v0/topics/b"))["incarnation"],
            "bytes": 3,
            "durable": False,
            "effective_priority": 0,
        },
    ]


def test_topics_are_listed_in_order_page_by_page(api: TopicsClient) -> None:
    made = [f"t{number}" for number in range(9)]
    for at, name in enumerate(reversed(made)):
        api.put(name, type="queue" if at % 2 else "log")
    for size in (1, 2, 3, 8, 9, 10):
        found: list[str] = []
        query = f"?prefix=t&page_size={size}"
        cursor = ""
        while True:
            answer = said(api.ask("GET", f"/v0/topics{query}{cursor}"))
            page = [line["topic"] for line in answer["topics"]]
            assert 0 < len(page) <= size
            found += page
            if "next_cursor" not in answer:
                break
            cursor = f"&cursor={answer['next_cursor']}"
        assert found == made


def test_the_list_can_be_narrowed(api: TopicsClient) -> None:
    for name in ("a", "ab", "abc", "b", "A"):
        api.put(name)
    assert names(api, "?prefix=ab") == ["ab", "abc"]
    assert names(api, "?prefix=zz") == []
    assert names(api, "?prefix=a&page_size=0") == ["a"]
    assert names(api, "?prefix=a&page_size=5000") == ["a", "ab", "abc"]


def test_a_topic_stands_once_in_the_list(site: BareTopics, api: TopicsClient) -> None:
    api.put("t")
    site.beanstalk().say(b"use t\r\nwatch t\r\n")
    assert names(api, "?prefix=t") == ["t"]


@pytest.mark.parametrize(
    "query",
    [
        "?cursor=x",
        "?cursor=!!!!",
        "?cursor=dA",
        "?cursor=dA==dA==",
        "?cursor=" + urlsafe_b64encode(b"\xff\xfe").decode(),
        "?cursor=" + urlsafe_b64encode(b"no name").decode(),
        "?cursor=%C3%A4",
        "?page_size=x",
        "?page_size=-1",
        "?page_size=%C2%B2",
    ],
)
def test_a_list_that_cannot_be(api: TopicsClient, query: str) -> None:
    api.put("t")
    assert api.ask("GET", f"/v0/topics{query}").refusal == (400, "invalid_request")


# -- removing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_topic_is_removed_with_all_it_holds(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind)
    api.write("t", 1, 2)
    gone = {"topic": "t", "deleted": True, "routers_removed": []}
    assert said(api.ask("DELETE", "/v0/topics/t")) == gone
    assert api.ask("GET", "/v0/topics/t").refusal == (404, "topic_not_found")
    assert "t" not in names(api)
    assert said(api.ask("DELETE", "/v0/topics/t")) == {**gone, "deleted": False}
    api.put("t", type=kind)
    assert api.write("t", 3)["seqs"] == [1]


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_only_an_empty_topic_is_removed_if_so_asked(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind)
    api.write("t", 1)
    answer = api.ask("DELETE", "/v0/topics/t?if_empty=true")
    assert answer.refusal == (409, "topic_not_empty")
    assert api.state("t")["count"] == 1
    api.ok("t/delete", {"before_seq": 2})
    assert said(api.ask("DELETE", "/v0/topics/t?if_empty=true"))["deleted"]


def test_a_topic_whose_records_are_too_old_is_empty(site: BareTopics, api: TopicsClient) -> None:
    api.put("t", ttl_ms=10)
    api.write("t", 1)
    site.tick(11)
    assert said(api.ask("DELETE", "/v0/topics/t?if_empty=true"))["deleted"]


def test_a_topic_may_change_its_type_when_it_was_removed_between(api: TopicsClient) -> None:
    api.put("t", type="queue")
    api.write("t", 1)
    api.ask("DELETE", "/v0/topics/t")
    assert api.put("t", type="log")["created"]
    assert api.write("t", 2)["seqs"] == [1]


def test_topics_outlive_a_restart_with_their_configuration() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("log", ttl_ms=60_000, durable=True)
    site.api.put("queue", type="queue", lease_ms=777)
    site.api.put("gone")
    site.api.ask("DELETE", "/v0/topics/gone")
    site = site.after_a_crash()
    assert names(site.api) == ["log", "queue"]
    log = {**DEFAULTS, "ttl_ms": 60_000, "durable": True, "durability": "fsync"}
    assert site.api.state("log")["config"] == log
    assert site.api.state("queue")["config"] == {**DEFAULTS, "type": "queue", "lease_ms": 777}


def test_a_log_becomes_ephemeral_or_lasting_while_it_is_empty() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("t", durability="ephemeral", cap_records=10)
    api.write("t", 1, 2)
    refused = api.ask("PUT", "/v0/topics/t", {"durable": True})
    assert refused.refusal == (409, "topic_not_empty")
    assert api.put("t", durability="ephemeral")["config"]["durability"] == "ephemeral"
    api.ok("t/delete", {"before_seq": 3})
    assert api.put("t", durable=True)["config"]["durability"] == "fsync"
    assert api.write("t", 3)["seqs"] == [3]
    assert api.ask("PUT", "/v0/topics/t", {"durability": "ephemeral"}).status == 409
    site = site.after_a_crash()
    assert [record["data"] for record in site.api.diff("t")["records"]] == [3]


def test_an_ephemeral_log_keeps_its_name_and_its_seqs_over_a_restart() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", durability="ephemeral")
    site.api.write("t", 1, 2)
    site = site.after_a_crash()
    page = site.api.diff("t", from_seq=1)
    assert page["records"] == []
    assert page["tombstone"]["gap_from"] == 2
    assert page["caught_up"]
    assert site.api.write("t", 3)["first_seq"] > 2
    assert site.api.state("t")["config"]["durability"] == "ephemeral"


@pytest.mark.parametrize("durability", ["ephemeral", "memory"])
def test_a_queue_is_remembered_whatever_its_class(durability: str) -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("q", type="queue", durability=durability)
    site.api.write("q", 1)
    assert site.after_a_crash().api.claim("q")["count"] == 1


# -- what an answer waits for ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_what_is_told_of_a_topic_of_class_fsync_is_on_the_disk(kind: str) -> None:
    site = BareTopics(MemoryStorage(), ids_ahead=True)
    site.api.put("loose", type=kind)
    site.api.put("strict", type=kind, durability="fsync")
    site.commit()
    for name in ("loose", "strict"):
        site.api.write(name, 1)
    looker = site.connect()
    assert looker.state("loose")["count"] == 1
    assert looker.session.awaits_synced == 0
    assert looker.state("strict")["count"] == 1
    assert looker.session.awaits_synced == site.journal.open_number
