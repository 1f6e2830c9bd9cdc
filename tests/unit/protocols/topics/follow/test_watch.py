"""Watching topics: what is shown, where a stream continues, and what happens to slow readers."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest

from jobyard.protocols.http.limits import STREAM_MAX
from jobyard.protocols.topics.follow.watch import TOPICS_MAX, WATCH_IDLE_MS
from tests.support.clients.streams import StreamEvent
from tests.support.doors.streams import StreamsSite
from tests.support.site.storage import MemoryStorage

RETRY = StreamEvent("", "retry", 2000)


def begin(site: StreamsSite, topics: dict[str, object], key: str = "", **more: object) -> str:
    """Make a watch; return the path of its stream."""
    status, answer = site.ask("POST", "/v0/watch", {"topics": topics, **more}, key)
    assert status == 200, answer
    path = answer["stream_url"]
    assert isinstance(path, str)
    return path


def shown(events: list[StreamEvent], topic: str = "") -> list[object]:
    """Return the data of all records in some events."""
    return [
        record["data"]
        for event in events
        if event.name == "record" and topic in ("", event.data["topic"])
        for record in event.data["records"]
    ]


def names(events: list[StreamEvent]) -> list[str]:
    return [event.name for event in events]


def place(event: StreamEvent) -> Any:
    """Return the cursors that an id holds."""
    assert "=" not in event.id
    return json.loads(urlsafe_b64decode(event.id + "=" * (-len(event.id) % 4)))


def made_id(cursors: object) -> str:
    return urlsafe_b64encode(json.dumps(cursors).encode()).decode().rstrip("=")


# -- making a watch --------------------------------------------------------------------------------


def test_a_watch_tells_where_it_begins() -> None:
    site = StreamsSite()
    site.write("a", 1, 2, 3)
    site.write("b", 1)
    topics = {"a": {"from_seq": 1}, "b": {"tail": True}}
    status, answer = site.ask("POST", "/v0/watch", {"topics": topics})
    assert status == 200
    assert answer["wid"].startswith("wid_")
    assert len(urlsafe_b64decode(answer["wid"][4:] + "==")) == 16
    assert answer["stream_url"] == f"/v0/watch/{answer['wid']}"
    assert answer["session_ttl_ms"] == 300_000
    assert answer["topics"] == {
        "a": {"from_seq": 1, "head_seq": 3, "earliest_seq": 1},
        "b": {"from_seq": 1, "head_seq": 1, "earliest_seq": 1},
    }
    assert "server_total_ms" in answer["performance"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": []},
        {"topics": {}},
        {"topics": {"a": 1}},
        {"topics": {"a": {"from_seq": -1}}},
        {"topics": {"a": {"tail": 1}}},
        {"topics": {"/": {}}},
        {"topics": {f"t{i}": {} for i in range(TOPICS_MAX + 1)}},
        {"topics": {"a": {}}, "consistency": "weak"},
        {"topics": {"a": {}}, "include_data": 1},
        {"topics": {"a": {}}, "node": 1},
    ],
)
def test_a_watch_that_asks_for_nonsense_is_refused(body: object) -> None:
    site = StreamsSite()
    site.write("a", 1)
    status, answer = site.ask("POST", "/v0/watch", body)
    assert (status, answer["error"]["code"]) == (400, "invalid_request")
    assert site.door.watches == {}


def test_a_topic_that_is_not_there_is_refused_or_left_out() -> None:
    site = StreamsSite()
    site.write("a", 1)
    body: dict[str, object] = {"topics": {"a": None, "b": {}}}
    status, answer = site.ask("POST", "/v0/watch", body)
    assert (status, answer["error"]["code"]) == (404, "topic_not_found")
    status, answer = site.ask("POST", "/v0/watch?lenient=true", body)
    assert status == 200
    assert list(answer["topics"]) == ["a"]


def test_lenience_is_for_topics_that_are_not_there_and_not_for_wrong_words() -> None:
    body: dict[str, object] = {"topics": {"nothing": {"tail": {}}}}
    status, answer = StreamsSite().ask("POST", "/v0/watch?lenient=true", body)
    assert (status, answer["error"]["code"]) == (400, "invalid_request")


def test_there_are_only_so_many_watches() -> None:
    site = StreamsSite()
    site.write("a", 1)
    site.door.limits.watches = 1
    begin(site, {"a": {}})
    status, answer = site.ask("POST", "/v0/watch", {"topics": {"a": {}}})
    assert (status, answer["error"]["code"]) == (429, "throttled")
    assert answer["error"]["detail"] == {"limit": "max_watch_sessions", "max": 1}


# -- what is shown ---------------------------------------------------------------------------------


def test_a_stream_shows_what_is_there_and_then_what_comes() -> None:
    site = StreamsSite()
    site.write("a", 1, 2)
    line = site.connect()
    events = line.open_stream(begin(site, {"a": {}}))
    assert events[0] == RETRY
    assert names(events[1:]) == ["record", "caught-up"]
    assert events[1].data == {
        "topic": "a",
        "records": [
            {"$seq": 1, "$ts": site.now_ms, "data": 1},
            {"$seq": 2, "$ts": site.now_ms, "data": 2},
        ],
        "from_seq": 0,
        "to_seq": 2,
        "head_seq": 2,
    }
    assert place(events[1]) == {"a": 2}
    assert events[2].data == {"topic": "a", "head_seq": 2}
    site.write("a", 3)
    events = line.events()
    assert names(events) == ["record", "caught-up"]
    assert (shown(events), place(events[0])) == ([3], {"a": 3})
    assert line.events() == []


def test_what_comes_in_one_turn_is_shown_together() -> None:
    site = StreamsSite()
    site.write("a", 0)
    line = site.connect()
    line.open_stream(begin(site, {"a": {"tail": True}}))
    for i in range(5):
        site.write("a", i)
    events = line.events()
    assert names(events) == ["record", "caught-up"]
    assert shown(events) == [0, 1, 2, 3, 4]


def test_ids_name_the_place_in_every_topic() -> None:
    site = StreamsSite()
    site.write("a", 1)
    site.write("b", 1, 2)
    line = site.connect()
    events = line.open_stream(begin(site, {"a": {}, "b": {"from_seq": 1}}))
    assert place(events[1]) == {"a": 1, "b": 1}
    last = [event for event in events if event.name == "record"][-1]
    assert place(last) == {"a": 1, "b": 2}


def test_a_long_topic_is_shown_in_turns_with_others() -> None:
    site = StreamsSite()
    site.write("a", *range(10))
    site.write("b", *range(2))
    line = site.connect()
    events = line.open_stream(begin(site, {"a": {}, "b": {}}, limit=4))
    told = [(event.name, event.data["topic"]) for event in events[1:]]
    assert told == [
        ("record", "a"),
        ("record", "b"),
        ("caught-up", "b"),
        ("record", "a"),
        ("record", "a"),
        ("caught-up", "a"),
    ]
    assert shown(events, "a") == list(range(10))


def test_a_reader_sees_what_it_asks_for() -> None:
    site = StreamsSite()
    site.write("a", 1, tag="t", node="me", meta={"k": 1})
    site.write("a", 2, tag="t", node="you", meta={"k": 2})
    path = begin(site, {"a": {}}, node="me", include_tags=True, include_data=False)
    events = site.connect().open_stream(path)
    assert events[1].data["records"] == [
        {"$seq": 2, "$ts": site.now_ms, "$tag": "t", "$node": "you", "meta": {"k": 2}}
    ]
    path = begin(site, {"a": {}}, include_meta=False)
    assert "meta" not in site.connect().open_stream(path)[1].data["records"][0]


def test_own_records_move_the_cursor_without_a_word() -> None:
    site = StreamsSite()
    site.write("a", 1, node="me")
    line = site.connect()
    path = begin(site, {"a": {}}, node="me")
    events = line.open_stream(path)
    assert names(events[1:]) == ["caught-up"]
    assert place(events[1]) == {"a": 1}


def test_a_late_reader_learns_what_it_missed() -> None:
    site = StreamsSite()
    site.ask("PUT", "/v0/topics/a", {"cap_records": 2})
    site.write("a", 1, 2)
    site.write("a", 3)
    line = site.connect()
    events = line.open_stream(begin(site, {"a": {}}))
    assert names(events[1:]) == ["tombstone", "record", "caught-up"]
    assert events[1].data == {
        "topic": "a",
        "reason": "from_seq_too_old",
        "gap_from": 1,
        "gap_to": 1,
        "earliest_seq": 2,
        "head_seq": 3,
    }
    # A reader that sees only this has not seen what follows.
    assert place(events[1]) == {"a": 1}
    assert (events[2].data["from_seq"], place(events[2])) == (1, {"a": 3})
    for i in range(4, 8):
        site.write("a", i)
    events = line.events()
    assert names(events) == ["tombstone", "record", "caught-up"]
    assert (events[0].data["reason"], events[0].data["gap_to"]) == ("cap", 5)


def test_a_topic_that_is_deleted_ends_alone() -> None:
    site = StreamsSite()
    site.write("a", 1)
    site.write("b", 1)
    line = site.connect()
    path = begin(site, {"a": {}, "b": {}})
    line.open_stream(path)
    site.ask("DELETE", "/v0/topics/a")
    events = line.events()
    assert names(events) == ["topic-deleted"]
    assert events[0].data == {"topic": "a", "head_seq": 1, "reason": "deleted"}
    assert place(events[0]) == {"b": 1}
    site.write("a", 2)
    site.write("b", 2)
    assert shown(line.events()) == [2]
    line.close()
    assert names(site.connect().open_stream(path)[1:]) == ["caught-up"]


def test_a_topic_created_again_between_two_streams_was_deleted() -> None:
    site = StreamsSite()
    site.write("a", 1)
    path = begin(site, {"a": {}})
    site.ask("DELETE", "/v0/topics/a")
    site.write("a", 2)
    assert names(site.connect().open_stream(path)[1:]) == ["topic-deleted"]


def test_jobs_of_a_queue_are_shown_as_they_come() -> None:
    site = StreamsSite()
    site.ask("PUT", "/v0/topics/q", {"type": "queue"})
    site.write("q", 1)
    line = site.connect()
    events = line.open_stream(begin(site, {"q": {}}, include_tags=True))
    assert names(events[1:]) == ["record", "caught-up"]
    site.write("q", 2, tag="t")
    events = line.events()
    assert names(events) == ["record", "caught-up"]
    record = events[0].data["records"][0]
    assert (record["$seq"], record["$tag"], record["data"]) == (2, "t", 2)
    status, _ = site.ask("POST", "/v0/topics/q/claim", {"node": "n", "max": 9})
    assert status == 200
    assert line.events() == []
    site.ask("DELETE", "/v0/topics/q")
    site.jump(15_000)
    deleted = line.events()[-1]
    assert (deleted.name, deleted.data["head_seq"]) == ("topic-deleted", 2)
    line.close()
    assert not site.yard.bus.is_on


def test_a_reader_of_a_queue_is_told_what_it_missed_and_shown_what_ran_meanwhile() -> None:
    site = StreamsSite()
    site.ask("PUT", "/v0/topics/q", {"type": "queue", "cap_records": 2})
    site.write("q", 1, 2)
    site.ask("POST", "/v0/topics/q/claim", {"node": "n"})
    site.write("q", 3, 4)
    line = site.connect()
    events = line.open_stream(begin(site, {"q": {}}))
    assert names(events[1:]) == ["tombstone", "record", "caught-up"]
    assert (events[1].data["reason"], events[1].data["gap_to"]) == ("from_seq_too_old", 2)
    assert place(events[1]) == {"q": 0}
    assert (events[2].data["from_seq"], shown(events)) == (0, [1, 3, 4])
    ahead = site.connect().open_stream(begin(site, {"q": {"from_seq": 99}}))
    assert names(ahead[1:]) == ["tombstone", "record", "caught-up"]
    assert ahead[1].data["reason"] == "recreated"


def test_a_quiet_stream_says_that_it_is_there() -> None:
    site = StreamsSite()
    site.write("a", 1)
    line = site.connect()
    line.open_stream(begin(site, {"a": {}}, heartbeat_ms=1))
    site.jump(999)
    assert line.events() == []
    site.jump(1)
    assert line.events() == [StreamEvent("", "", f"hb {site.now_ms}")]
    site.jump(600)
    site.write("a", 2)
    assert names(line.events()) == ["record", "caught-up"]
    site.jump(400)
    assert line.events() == []
    site.jump(600)
    assert names(line.events()) == [""]


def test_ids_that_no_head_could_hold_are_left_out() -> None:
    site = StreamsSite()
    topics = [f"{i}-" + "x" * 200 for i in range(30)]
    for topic in topics:
        site.write(topic, 1)
    line = site.connect()
    path = begin(site, {topic: {} for topic in topics})
    events = line.open_stream(path)
    assert len(shown(events)) == 30
    assert {event.id for event in events} == {""}
    line.close()
    assert shown(site.connect().open_stream(path)) == []


# -- streams end and begin -------------------------------------------------------------------------


def test_the_next_stream_continues_where_the_last_one_was() -> None:
    site = StreamsSite()
    site.write("a", 1, 2)
    path = begin(site, {"a": {}})
    line = site.connect()
    assert shown(line.open_stream(path)) == [1, 2]
    line.close()
    site.write("a", 3)
    assert shown(site.connect().open_stream(path)) == [3]


def test_a_reader_may_go_back_and_not_ahead() -> None:
    site = StreamsSite()
    site.write("a", 1, 2, 3)
    site.write("b", 1, 2, 3)
    path = begin(site, {"a": {}, "b": {"from_seq": 1}})
    site.connect().open_stream(path)
    last_id = made_id({"a": 1, "b": 99, "c": 0})
    events = site.connect().open_stream(path, Last_Event_ID=last_id)
    assert shown(events, "a") == [2, 3]
    assert shown(events, "b") == []


@pytest.mark.parametrize(
    "last_id", ["17", "%%%", made_id([]), made_id({"a": -1}), made_id({"a": "0"}), "e" * 4000]
)
def test_an_unknown_last_event_id_is_ignored(last_id: str) -> None:
    site = StreamsSite()
    site.write("a", 1)
    path = begin(site, {"a": {}})
    site.connect().open_stream(path)
    assert shown(site.connect().open_stream(path, Last_Event_ID=last_id)) == []


def test_a_second_stream_ends_the_first() -> None:
    site = StreamsSite()
    site.write("a", 1)
    path = begin(site, {"a": {}})
    first = site.connect()
    first.open_stream(path)
    second = site.connect()
    second.open_stream(path)
    assert first.end_turn().endswith(b"0\r\n\r\n")
    site.write("a", 2)
    assert first.end_turn() == b""
    assert shown(second.events()) == [2]
    first.close()
    site.write("a", 3)
    assert shown(second.events()) == [3]


def test_a_watch_that_nobody_comes_back_to_is_forgotten() -> None:
    site = StreamsSite()
    site.write("a", 1)
    path = begin(site, {"a": {}})
    site.jump(WATCH_IDLE_MS - 1)
    line = site.connect()
    line.open_stream(path)
    site.jump(2 * WATCH_IDLE_MS)
    assert len(site.door.watches) == 1
    line.close()
    site.jump(WATCH_IDLE_MS - 1)
    assert len(site.door.watches) == 1
    site.jump(1)
    assert site.door.watches == {}
    status, answer = site.ask("GET", path)
    assert (status, answer["error"]["code"]) == (404, "not_found")


def test_a_reader_that_vanishes_leaves_nothing_behind() -> None:
    site = StreamsSite()
    site.write("a", 1)
    line = site.connect()
    line.open_stream(begin(site, {"a": {}}))
    line.close()
    assert site.yard.logs["a"].readers == {}
    timers = len(site.yard.timers.items)
    site.jump(WATCH_IDLE_MS)
    assert len(site.yard.timers.items) == timers - 1 == 0


def test_a_stream_is_told_that_the_server_stops() -> None:
    site = StreamsSite()
    site.write("a", 1)
    line = site.connect()
    line.open_stream(begin(site, {"a": {}}))
    line.session.end_input(site.now_ms)
    heard = line.session.take_output()
    assert b"event: error" in heard
    assert b"server_shutting_down" in heard
    assert heard.endswith(b"0\r\n\r\n")
    assert line.session.is_finished


# -- slow readers ----------------------------------------------------------------------------------


def slow_site(count: int) -> tuple[StreamsSite, str]:
    site = StreamsSite()
    for _ in range(count):
        site.write("a", "x" * 50_000)
    return site, begin(site, {"a": {}})


def test_a_reader_that_does_not_read_is_sent_no_more_than_a_little() -> None:
    site, path = slow_site(60)
    line = site.connect()
    events = line.open_stream(path)
    assert line.session.is_stalled
    assert 0 < len(shown(events)) < 20
    seen = shown(events)
    line.ears.unsent = STREAM_MAX + 1
    line.ears.wakes = 1
    assert line.events() == []
    line.ears.unsent = 0
    line.ears.wakes = 1
    while more := shown(line.events()):
        seen += more
        line.ears.wakes = 1
    assert len(seen) == 60
    assert not line.session.is_stalled


def test_heartbeats_do_not_pile_up() -> None:
    site = StreamsSite()
    site.write("a", 1)
    line = site.connect()
    line.open_stream(begin(site, {"a": {}}))
    line.ears.unsent = 1
    for _ in range(100):
        site.jump(15_000)
    assert len(line.session.out) == 0


def test_what_never_left_the_connection_is_shown_to_the_next_stream() -> None:
    site = StreamsSite()
    site.write("a", 1)
    path = begin(site, {"a": {}})
    line = site.connect()
    line.open_stream(path)
    site.write("a", 2)
    assert shown(line.events()) == [2]
    # All of this has been sent when the stream next continues, so only what follows is uncertain.
    site.write("a", 3)
    assert shown(line.events()) == [3]
    line.ears.unsent = 10
    line.close()
    assert shown(site.connect().open_stream(path)) == [3]


def test_a_stream_that_takes_over_shows_what_the_one_before_did_not_get_rid_of() -> None:
    site = StreamsSite()
    site.write("a", 1)
    path = begin(site, {"a": {}})
    first = site.connect()
    first.open_stream(path)
    site.write("a", 2)
    assert shown(first.events()) == [2]
    first.ears.unsent = 10
    second = site.connect()
    assert shown(second.open_stream(path)) == [2]


# -- permissions -----------------------------------------------------------------------------------

KEYS = "all,reader:r,other:r,narrow:r:n.|m.,writer:w"


@pytest.mark.parametrize(
    ("key", "topic", "status"),
    [
        ("reader", "a", 200),
        ("writer", "a", 403),
        ("nobody", "a", 401),
        ("narrow", "a", 403),
        ("narrow", "m.a", 200),
    ],
)
def test_a_watch_needs_the_right_to_read_what_it_names(key: str, topic: str, status: int) -> None:
    site = StreamsSite(KEYS)
    for name in ("a", "m.a"):
        site.ask("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}, "all")
    assert site.ask("POST", "/v0/watch", {"topics": {topic: {}}}, key)[0] == status


def test_a_watch_opens_only_with_the_key_that_made_it() -> None:
    site = StreamsSite(KEYS)
    site.ask("POST", "/v0/topics/a", {"records": [{"data": 1}]}, "all")
    path = begin(site, {"a": {}}, "reader")
    assert site.ask("GET", path)[0] == 401
    assert site.ask("GET", path, key="other")[0] == 401
    assert shown(site.connect("reader").open_stream(path)) == [1]
    assert shown(site.connect().open_stream(f"{path}?token=reader")) == []


def test_a_stream_is_refused_to_clients_that_do_not_accept_events() -> None:
    site = StreamsSite()
    site.write("a", 1)
    path = begin(site, {"a": {}})
    line = site.connect()
    line.send("GET", path, Accept="application/json")
    assert line.end_turn().startswith(b"HTTP/1.1 406 ")
    assert site.yard.logs["a"].readers == {}


def test_what_is_shown_waits_for_its_batch() -> None:
    site = StreamsSite(storage=MemoryStorage())
    site.write("a", 1)
    line = site.connect()
    line.open_stream(begin(site, {"a": {}}))
    site.journal.commit()
    site.write("a", 2)
    assert shown(line.events()) == [2]
    assert line.session.awaits == site.yard.logs["a"].batch == site.journal.open_number
