"""The WebSocket of the topics API: its commands, its refusals, its bounds."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from jobyard.model.topic.log_chunk import LOG_CHUNK_ROWS
from jobyard.protocols.http.limits import STREAM_MAX
from jobyard.protocols.http.websocket import SILENCE_MS
from jobyard.protocols.topics.follow.socket import PING_MS
from jobyard.protocols.topics.follow.watch import TOPICS_MAX
from jobyard.wire.http.websocket import (
    CLOSE_GOING_AWAY,
    CLOSE_NORMAL,
    CLOSE_PROTOCOL_ERROR,
    CLOSE_UNSUPPORTED,
    OP_BINARY,
    OP_CLOSE,
    OP_PING,
    OP_PONG,
    OP_TEXT,
)
from tests.support.clients.http_text import handshake, ws_frame, ws_frames
from tests.support.doors.streams import StreamsSite
from tests.support.site.storage import MemoryStorage

if TYPE_CHECKING:
    from tests.support.clients.streams import Line


class Talk:
    """One socket."""

    def __init__(self, site: StreamsSite, key: str = "") -> None:
        self.site = site
        self.line: Line = site.connect(key)
        self.line.send("GET", "/v0/ws", **handshake())
        head = self.line.end_turn()
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert head.endswith(b"\r\n\r\n")

    def send(self, opcode: int, content: bytes) -> None:
        self.line.session.receive(ws_frame(opcode, content), self.site.now_ms)

    def frames(self) -> list[tuple[int, bytes]]:
        """Return what came since."""
        return ws_frames(self.line.end_turn())

    def heard(self) -> list[Any]:
        """Return the messages that came since."""
        return [json.loads(content) for opcode, content in self.frames() if opcode == OP_TEXT]

    def say(self, op: str, **fields: object) -> list[Any]:
        """Send a command; return what is answered."""
        self.send(OP_TEXT, json.dumps({"op": op, **fields}).encode())
        return self.heard()


def data_of(messages: list[Any]) -> list[object]:
    return [
        record["data"]
        for message in messages
        if message["op"] == "record"
        for record in message["records"]
    ]


def ops(messages: list[Any]) -> list[str]:
    return [message["op"] for message in messages]


# -- commands --------------------------------------------------------------------------------------


def test_what_is_published_is_answered_like_a_write() -> None:
    site = StreamsSite()
    talk = Talk(site)
    records = [{"data": 1, "tag": "t"}, {"data": 2}]
    assert talk.say("publish", topic="a", records=records, node="n", request_id="x") == [
        {
            "op": "ack",
            "request_id": "x",
            "topic": "a",
            "first_seq": 1,
            "last_seq": 2,
            "seqs": [1, 2],
            "head_seq": 2,
            "count": 2,
            "created": True,
            "deduped": False,
        }
    ]
    assert [record["$node"] for record in site.read("a")] == ["n", "n"]
    once = {"topic": "a", "records": [{"data": 3}], "idempotency_key": "k", "return_seqs": False}
    first = talk.say("publish", **once)[0]
    again = talk.say("publish", **once)[0]
    assert (first["first_seq"], first["deduped"]) == (3, False)
    assert (again["first_seq"], again["deduped"]) == (3, True)
    assert "seqs" not in first


def test_a_topic_is_made_as_a_publisher_says_or_not_at_all() -> None:
    site = StreamsSite()
    talk = Talk(site)
    records = [{"data": 1}]
    assert talk.say("publish", topic="a", records=records, create=False)[0]["code"] == (
        "topic_not_found"
    )
    talk.say("publish", topic="q", records=records, config={"type": "queue"})
    assert "q" in site.yard.queues
    bad = talk.say("publish", topic="b", records=records, config={"type": "heap"})[0]
    assert bad["code"] == "invalid_request"
    assert "b" not in site.yard.logs


def test_a_subscriber_sees_what_is_there_and_what_comes() -> None:
    site = StreamsSite()
    site.write("a", 1, 2)
    talk = Talk(site)
    said = talk.say("subscribe", topic="a", from_seq=1, request_id=7)
    assert said[0] == {
        "op": "subscribed",
        "request_id": 7,
        "topics": {"a": {"from_seq": 1, "head_seq": 2, "earliest_seq": 1}},
    }
    assert ops(said[1:]) == ["record", "caught_up"]
    assert said[1] == {
        "op": "record",
        "topic": "a",
        "records": [{"$seq": 2, "$ts": site.now_ms, "data": 2}],
        "from_seq": 1,
        "to_seq": 2,
        "head_seq": 2,
    }
    assert said[2] == {"op": "caught_up", "topic": "a", "head_seq": 2}
    site.write("a", 3)
    assert data_of(talk.heard()) == [3]


def test_several_topics_are_subscribed_to_at_once() -> None:
    site = StreamsSite()
    site.write("a", 1)
    site.write("b", 1)
    talk = Talk(site)
    topics = {"a": {}, "b": {"tail": True}, "c": {}}
    assert talk.say("subscribe", topics=topics)[0]["code"] == "topic_not_found"
    said = talk.say("subscribe", topics=topics, lenient=True)
    assert list(said[0]["topics"]) == ["a", "b"]
    assert ops(said[1:]) == ["record", "caught_up", "caught_up"]
    assert talk.say("subscribe", topic="c", lenient=True)[0]["topics"] == {}


def test_a_subscriber_does_not_hear_itself() -> None:
    talk = Talk(StreamsSite())
    talk.say("publish", topic="a", records=[{"data": 0}])
    talk.say("subscribe", topic="a", tail=True, node="me", include_tags=True)
    assert data_of(talk.say("publish", topic="a", records=[{"data": 1}], node="me")) == []
    said = talk.say("publish", topic="a", records=[{"data": 2, "tag": "t"}], node="you")
    assert ops(said) == ["ack", "record", "caught_up"]
    assert said[1]["records"][0]["$tag"] == "t"


def test_a_topic_is_followed_no_more() -> None:
    site = StreamsSite()
    for topic in ("a", "b", "c"):
        site.write(topic, 0)
    talk = Talk(site)
    talk.say("subscribe", topics={"a": {}, "b": {}, "c": {}})
    assert talk.say("unsubscribe", topic="a", request_id=1) == [
        {"op": "unsubscribed", "request_id": 1, "topics": ["a"]}
    ]
    assert talk.say("unsubscribe", topics=["a", "b"])[0]["topics"] == ["b"]
    for topic in ("a", "b", "c"):
        site.write(topic, 1)
    assert data_of(talk.heard()) == [1]
    assert site.yard.logs["a"].readers == {}


def test_a_topic_that_is_subscribed_to_twice_is_read_from_the_new_place() -> None:
    site = StreamsSite()
    site.write("a", 1, 2)
    talk = Talk(site)
    assert data_of(talk.say("subscribe", topic="a")) == [1, 2]
    assert data_of(talk.say("subscribe", topic="a", from_seq=1)) == [2]
    site.write("a", 3)
    assert data_of(talk.heard()) == [3]


def test_losses_and_ends_are_reported() -> None:
    site = StreamsSite()
    site.ask("PUT", "/v0/topics/a", {"cap_records": 1})
    site.write("a", 1)
    site.write("a", 2)
    talk = Talk(site)
    said = talk.say("subscribe", topic="a")
    assert ops(said) == ["subscribed", "tombstone", "record", "caught_up"]
    assert (said[1]["reason"], said[1]["gap_to"]) == ("from_seq_too_old", 1)
    site.ask("DELETE", "/v0/topics/a")
    assert talk.heard() == [
        {"op": "topic_deleted", "topic": "a", "head_seq": 2, "reason": "deleted"}
    ]


def test_a_ping_is_answered() -> None:
    site = StreamsSite()
    talk = Talk(site)
    assert talk.say("ping", request_id={"a": 1}) == [
        {"op": "pong", "request_id": {"a": 1}, "ts": site.now_ms}
    ]
    talk.send(OP_PING, b"hello")
    assert talk.frames() == [(OP_PONG, b"hello")]


@pytest.mark.parametrize(
    "command",
    [
        {},
        {"op": 1},
        {"op": "claim"},
        {"op": "publish", "records": [{"data": 1}]},
        {"op": "publish", "topic": "a", "records": []},
        {"op": "publish", "topic": "a", "records": [{}]},
        {"op": "publish", "topic": "/", "records": [{"data": 1}]},
        {"op": "publish", "topic": "a", "records": [{"data": 1}], "return_seqs": 1},
        {"op": "subscribe"},
        {"op": "subscribe", "topics": {}},
        {"op": "subscribe", "topics": {f"t{i}": {} for i in range(TOPICS_MAX + 1)}},
        {"op": "unsubscribe"},
        {"op": "unsubscribe", "topics": [1]},
    ],
)
def test_a_command_that_makes_no_sense_is_refused_and_the_socket_stays(command: object) -> None:
    talk = Talk(StreamsSite())
    talk.send(OP_TEXT, json.dumps(command).encode())
    said = talk.heard()
    assert (ops(said)[-1], said[-1]["code"]) == ("error", "invalid_request")
    talk.send(OP_TEXT, b"[")
    assert talk.heard()[0]["code"] == "invalid_request"
    assert ops(talk.say("ping")) == ["pong"]


def test_a_full_topic_is_told_in_its_own_words() -> None:
    site = StreamsSite()
    site.ask("PUT", "/v0/topics/a", {"cap_records": 1, "discard": "reject"})
    talk = Talk(site)
    talk.say("publish", topic="a", records=[{"data": 1}])
    said = talk.say("publish", topic="a", records=[{"data": 2}], request_id=2)[0]
    assert (said["request_id"], said["code"]) == (2, "topic_full")
    assert said["detail"]["cap_records"] == 1


def test_nothing_is_published_any_more_in_drain_mode() -> None:
    site = StreamsSite()
    site.write("a", 1)
    talk = Talk(site)
    site.http.is_draining = True
    assert talk.say("publish", topic="a", records=[{"data": 2}])[0]["code"] == "shutting_down"
    assert data_of(talk.say("subscribe", topic="a")) == [1]


def test_a_socket_follows_only_so_many_topics() -> None:
    site = StreamsSite()
    for i in range(TOPICS_MAX + 1):
        site.write(f"t{i}", 1)
    talk = Talk(site)
    talk.say("subscribe", topics={f"t{i}": {"tail": True} for i in range(TOPICS_MAX)})
    assert talk.say("subscribe", topic=f"t{TOPICS_MAX}")[0]["code"] == "invalid_request"
    assert talk.say("subscribe", topic="t0")[0]["op"] == "subscribed"


# -- permissions -----------------------------------------------------------------------------------

KEYS = "all,reader:r,writer:w,narrow::n."


def test_every_command_needs_its_right() -> None:
    site = StreamsSite(KEYS)
    all_may = Talk(site, "all")
    for topic in ("a", "n.a"):
        assert ops(all_may.say("publish", topic=topic, records=[{"data": 1}])) == ["ack"]
    records = [{"data": 1}]
    for key, op, topic, answer in (
        ("reader", "subscribe", "a", "subscribed"),
        ("reader", "publish", "a", "forbidden"),
        ("writer", "subscribe", "a", "forbidden"),
        ("writer", "publish", "a", "ack"),
        ("narrow", "publish", "a", "forbidden"),
        ("narrow", "subscribe", "a", "forbidden"),
        ("narrow", "publish", "n.a", "ack"),
    ):
        said = Talk(site, key).say(op, topic=topic, records=records)[0]
        assert said.get("code", said["op"]) == answer, (key, op, topic)
    config = {"type": "queue"}
    said = Talk(site, "writer").say("publish", topic="b", records=records, config=config)[0]
    assert said["code"] == "forbidden"


def test_a_key_is_shown_in_the_head_and_nowhere_else() -> None:
    site = StreamsSite(KEYS)
    for path in ("/v0/ws", "/v0/ws?token=all"):
        line = site.connect()
        line.send("GET", path, **handshake())
        assert line.end_turn().startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Origin": "http://x"}, 101),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Sec_WebSocket_Version": "12"}, 426),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Upgrade": "other"}, 426),
    ],
)
def test_a_handshake_must_be_one(changed: dict[str, str], status: int) -> None:
    line = StreamsSite().connect()
    line.send("GET", "/v0/ws", **{**handshake(), **changed})
    assert line.end_turn().startswith(b"HTTP/1.1 %d " % status)


def test_who_does_not_ask_for_a_socket_is_told_to() -> None:
    line = StreamsSite().connect()
    line.send("GET", "/v0/ws")
    assert b"\r\nUpgrade: websocket\r\n" in line.end_turn()


# -- bounds and ends -------------------------------------------------------------------------------


def test_a_socket_that_is_not_read_is_sent_no_more_than_a_little() -> None:
    site = StreamsSite()
    for _ in range(60):
        site.write("a", "x" * 50_000)
    talk = Talk(site)
    seen = data_of(talk.say("subscribe", topic="a"))
    assert 0 < len(seen) < 20
    talk.line.ears.unsent = STREAM_MAX + 1
    talk.line.ears.wakes = 1
    assert talk.frames() == []
    talk.send(OP_TEXT, b'{"op":"ping"}')
    assert talk.frames() == []
    assert talk.line.session.unread_size() > 0
    talk.line.ears.unsent = 0
    pongs = 0
    while len(seen) < 60:
        talk.line.ears.wakes = 1
        said = talk.heard()
        pongs += ops(said).count("pong")
        seen += data_of(said)
    assert pongs == 1


def test_a_close_is_answered_and_the_end() -> None:
    site = StreamsSite()
    site.write("a", 1)
    talk = Talk(site)
    talk.say("subscribe", topic="a")
    talk.send(OP_CLOSE, CLOSE_NORMAL.to_bytes(2, "big"))
    assert talk.frames() == [(OP_CLOSE, CLOSE_NORMAL.to_bytes(2, "big"))]
    assert talk.line.session.is_finished
    talk.line.close()
    assert site.yard.logs["a"].readers == {}
    assert site.door.limits.streams_count == 0
    assert len(site.yard.timers.items) == 0


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (ws_frame(OP_BINARY, b"x"), CLOSE_UNSUPPORTED),
        (b"\x81\x01x", CLOSE_PROTOCOL_ERROR),
    ],
)
def test_what_is_no_command_ends_the_socket(frame: bytes, code: int) -> None:
    talk = Talk(StreamsSite())
    talk.line.session.receive(frame, talk.site.now_ms)
    opcode, content = talk.frames()[0]
    assert (opcode, int.from_bytes(content[:2], "big")) == (OP_CLOSE, code)
    assert talk.line.session.is_finished


def test_a_silent_socket_is_asked_and_then_given_up() -> None:
    site = StreamsSite()
    talk = Talk(site)
    for _ in range(SILENCE_MS // PING_MS - 1):
        site.jump(PING_MS)
        assert talk.frames() == [(OP_PING, b"")]
    site.jump(PING_MS)
    assert talk.frames()[0][0] == OP_CLOSE
    assert talk.line.session.is_finished


def test_a_socket_that_answers_stays() -> None:
    site = StreamsSite()
    talk = Talk(site)
    for _ in range(10):
        site.jump(PING_MS)
        assert talk.frames() == [(OP_PING, b"")]
        talk.send(OP_PONG, b"")


def test_a_server_that_stops_says_goodbye() -> None:
    talk = Talk(StreamsSite())
    talk.line.session.end_input(talk.site.now_ms)
    frame = talk.line.session.take_output()
    assert frame == bytes((0x88, 2)) + CLOSE_GOING_AWAY.to_bytes(2, "big")


def test_a_topic_whose_text_is_damaged_is_read_no_further_and_others_are() -> None:
    storage = MemoryStorage()
    site = StreamsSite(storage=storage)
    site.yard.bodies._budget = 0
    for first in range(0, 2 * LOG_CHUNK_ROWS, 512):
        site.write("a", *range(first, first + 512))
        site.commit()
    site.write("b", 1)
    chunk = site.yard.logs["a"].chunks[0]
    assert chunk.is_cold
    name = site.yard.journal.segments[int(chunk.segments[2])].name
    storage.flip(name, int(chunk.offsets[2]) + 10, 1)
    talk = Talk(site)
    heard = talk.say("subscribe", topics={"a": {"from_seq": 2}, "b": {"from_seq": 1}})
    told = [one for one in heard if one["op"] == "error"]
    assert [(one["topic"], one["code"], one["first_seq"]) for one in told] == [("a", "corrupt", 3)]
    site.write("b", 2)
    assert data_of(talk.heard()) == [2]
