"""Large writes: read in slices while others are served, and written at one moment."""

import json
from typing import Any

import pytest

from jobyard.protocols.topics.records.writes import BODY_AT_ONCE, RECORDS_MAX
from jobyard.wire.http.websocket import OP_TEXT
from tests.support.clients.http import Reply
from tests.support.clients.http_text import handshake, ws_frame, ws_frames
from tests.support.clients.topics import TopicsClient
from tests.support.doors.streams import StreamsSite
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

COUNT = 2500
UNITS = 100


def slow_site() -> tuple[BareTopics, TopicsClient, TopicsClient]:
    """A port where a turn has little room for long work, and two callers."""
    site = BareTopics()
    site.yard.tasks.units_per_turn = UNITS
    site.is_slow = True
    site.slice()
    return site, site.connect(), site.connect()


def turns_to_end(site: BareTopics) -> int:
    """Run long work to its end; return the number of turns. Each does about its units."""
    turns = 1
    while True:
        before = site.yard.tasks.units_done
        is_left = site.slice()
        assert site.yard.tasks.units_done - before <= 2 * UNITS
        if not is_left:
            return turns
        turns += 1


def answer_of(site: BareTopics, client: TopicsClient) -> Reply:
    """Return the answer that comes at the end of long work."""
    turns_to_end(site)
    answer = client.hear()
    assert answer is not None
    return answer


def records(count: int = COUNT) -> list[dict[str, object]]:
    """Return distinguishable records."""
    return [{"data": {"at": at}, "tag": f"t{at}", "meta": {"k": "\u00e4"}} for at in range(count)]


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_large_write_is_read_in_slices_and_written_at_one_moment(kind: str) -> None:
    site, client, other = slow_site()
    client.put("t", type=kind)
    client.send("POST", "/v0/topics/t", {"records": records(), "node": "n"})
    assert client.hear() is None
    turns = 1
    while site.slice():
        turns += 1
        assert other.state("t")["count"] in {0, COUNT}
        assert other.write("other", turns)["last_seq"] == turns - 1
    assert turns > 15
    answer = client.hear()
    assert answer is not None
    assert answer.json["first_seq"] == 1
    assert answer.json["last_seq"] == COUNT
    assert len(answer.json["seqs"]) == COUNT
    if kind == "log":
        page = other.diff("t", from_seq=COUNT - 1, include_tags=True)["records"]
        assert page[0]["data"] == {"at": COUNT - 1}
        assert page[0]["$node"] == "n"
    else:
        claimed = other.claim("t")["claimed"][0]
        assert claimed["data"] == {"at": 0}
    assert other.state("t")["count"] == COUNT


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_large_write_is_entered_in_a_turn_of_its_own_and_freed_later(kind: str) -> None:
    site, client, other = slow_site()
    client.put("t", type=kind)
    client.send("POST", "/v0/topics/t", {"records": records()})
    tasks = site.yard.tasks
    before = tasks.units_done
    while not client.unread:
        before = tasks.units_done
        site.slice()
    assert tasks.units_done - before <= 1
    assert tasks.count() > 0
    assert turns_to_end(site) > COUNT // UNITS // 2
    assert other.state("t")["count"] == COUNT


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_topic_is_made_by_a_large_write(kind: str) -> None:
    site, client, other = slow_site()
    body = {"config": {"type": kind}, "records": records()}
    client.send("POST", "/v0/topics/t", body)
    assert answer_of(site, client).status == 201
    assert other.state("t")["type"] == kind
    assert other.state("t")["count"] == COUNT


def test_a_topic_that_became_another_meanwhile_gets_what_it_takes() -> None:
    site, client, other = slow_site()
    client.send("POST", "/v0/topics/t", {"records": records()})
    for _ in range(5):
        assert site.slice()
    other.put("t", type="queue")
    assert answer_of(site, client).json["last_seq"] == COUNT
    assert other.claim("t")["claimed"][0]["data"] == {"at": 0}


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b'{"records":[' + b"[]," * BODY_AT_ONCE + b"1]}", (400, "invalid_request")),
        (b'{"records":[' + b'{"data":1},' * 9000 + b"]}", (400, "invalid_request")),
        (b'{"records":[' + b'{"data":1},' * 9000 + b'{"tag":"x"}]}', (400, "invalid_request")),
        (
            b'{"records":[' + b'{"data":1},' * RECORDS_MAX + b'{"data":1}]}',
            (400, "batch_too_large"),
        ),
        (b'{"records":[]' + b" " * BODY_AT_ONCE + b"}", (400, "invalid_request")),
        (b'{"records":1' + b" " * BODY_AT_ONCE + b"}", (400, "invalid_request")),
        (b"[" + b" " * BODY_AT_ONCE + b"]", (400, "invalid_request")),
        (b'{"a":1,"a":2' + b" " * BODY_AT_ONCE + b"}", (400, "invalid_request")),
        (
            json.dumps({"records": [{"data": "x" * ((1 << 20) + 1)}]}).encode(),
            (400, "record_too_large"),
        ),
        (
            json.dumps({"records": [{"data": 1, "meta": {"x": "y" * 70_000}}]}).encode(),
            (400, "record_too_large"),
        ),
        (
            json.dumps({"records": [{"data": 1, "meta": "y" * 70_000}]}).encode(),
            (400, "invalid_request"),
        ),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_large_write_that_is_bad_changes_nothing(body: bytes, refusal: tuple[int, str]) -> None:
    site, client, other = slow_site()
    client.send("POST", "/v0/topics/t", body)
    assert answer_of(site, client).refusal == refusal
    assert other.ask("GET", "/v0/topics/t").status == 404


def test_requests_behind_a_large_write_wait_for_it() -> None:
    site, client, _ = slow_site()
    client.send("POST", "/v0/topics/t", {"records": records()})
    client.send("GET", "/v0/topics/t")
    assert answer_of(site, client).json["count"] == COUNT
    state = client.hear()
    assert state is not None
    assert state.json["count"] == COUNT


def test_who_leaves_before_all_was_read_has_written_nothing() -> None:
    site, client, other = slow_site()
    client.send("POST", "/v0/topics/t", {"records": records()})
    assert site.yard.tasks.count() == 1
    client.close()
    assert site.yard.tasks.count() == 0
    assert other.ask("GET", "/v0/topics/t").status == 404


def test_the_key_of_a_large_write_holds() -> None:
    site, client, _ = slow_site()
    body = {"records": records(), "idempotency_key": "k"}
    client.send("POST", "/v0/topics/t", body)
    assert not answer_of(site, client).json["deduped"]
    client.send("POST", "/v0/topics/t", body)
    again = answer_of(site, client).json
    assert again["deduped"]
    assert again["last_seq"] == COUNT


# -- over a socket -----------------------------------------------------------------------------


class Talk:
    """One socket of a port where a turn has little room for long work."""

    def __init__(self) -> None:
        self.site = StreamsSite()
        self.site.yard.tasks.units_per_turn = UNITS
        self.site.yard.tasks.proceed(self.site.now_ms)
        self.line = self.site.connect()
        self.line.send("GET", "/v0/ws", **handshake())
        assert self.line.end_turn().startswith(b"HTTP/1.1 101 ")

    def say(self, content: object) -> None:
        """Send a command."""
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.line.session.receive(ws_frame(OP_TEXT, text), self.site.now_ms)

    def heard(self) -> list[Any]:
        """Return the messages that came since."""
        frames = ws_frames(self.line.end_turn())
        return [json.loads(content) for opcode, content in frames if opcode == OP_TEXT]

    def finish(self) -> int:
        """Run long work to its end; return the number of turns."""
        turns = 1
        while self.site.yard.tasks.proceed(self.site.now_ms):
            turns += 1
        return turns


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_long_publication_is_read_in_slices_and_commands_behind_it_wait(kind: str) -> None:
    talk = Talk()
    body = {"op": "publish", "topic": "t", "records": records(), "config": {"type": kind}}
    talk.say({**body, "request_id": "long"})
    talk.say({"op": "ping", "request_id": "ping"})
    assert talk.heard() == []
    assert talk.finish() > 15
    ack, pong = talk.heard()
    assert (ack["op"], ack["request_id"], ack["last_seq"]) == ("ack", "long", COUNT)
    assert (pong["op"], pong["request_id"]) == ("pong", "ping")


@pytest.mark.parametrize(
    "message",
    [
        b"[" + b"1," * BODY_AT_ONCE + b"1]",
        b'{"op":"ping","x":[' + b"1," * BODY_AT_ONCE + b"]}",
        b'{"op":"publish","topic":"t","records":[' + b"1," * BODY_AT_ONCE + b"1]}",
        b'{"op":"publish","records":[' + b'{"data":1},' * 9000 + b'{"data":1}]}',
        b'{"op":"what","x":[' + b"1," * BODY_AT_ONCE + b"1]}",
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_long_command_that_makes_no_sense_is_refused_and_the_socket_stays(
    message: bytes,
) -> None:
    talk = Talk()
    talk.say(message)
    talk.finish()
    (refusal,) = talk.heard()
    assert (refusal["op"], refusal["code"]) == ("error", "invalid_request")
    talk.say({"op": "ping"})
    assert talk.heard()[0]["op"] == "pong"


def test_who_leaves_while_a_command_is_read_costs_nothing_more() -> None:
    talk = Talk()
    talk.say({"op": "publish", "topic": "t", "records": records()})
    assert talk.site.yard.tasks.count() == 1
    talk.line.session.closed(talk.site.now_ms)
    assert talk.site.yard.tasks.count() == 0
    assert "t" not in talk.site.yard.logs


@pytest.mark.parametrize("is_socket", [False, True])
@pytest.mark.parametrize("topic", ["strict", "loose"])
def test_a_large_write_to_a_topic_of_class_fsync_waits_for_the_disk(
    topic: str, *, is_socket: bool
) -> None:
    """Also one that a router copies there at once, like a small one."""
    long = [{"data": [1] * BODY_AT_ONCE}]
    site = BareTopics(MemoryStorage(), ids_ahead=True)
    client = site.connect()
    client.put("loose")
    client.put("strict", durability="fsync")
    lead = {"source": "loose", "dest": "strict"}
    assert client.ask("PUT", "/v0/routers/r", lead).status == 201
    site.commit()
    site.journal.take_command_sync_batch()
    site.yard.tasks.units_per_turn = UNITS
    site.is_slow = True
    site.slice()
    writer = site.connect()
    if is_socket:
        writer.send("GET", "/v0/ws", **handshake())
        content = json.dumps({"op": "publish", "topic": topic, "records": long}).encode()
        writer.feed(ws_frame(OP_TEXT, content))
    else:
        writer.send("POST", f"/v0/topics/{topic}", {"records": long})
    assert writer.session.awaits_synced == 0
    while site.slice():
        pass
    assert site.connect().state("strict")["count"] == 1
    assert writer.session.awaits_synced == site.journal.open_number
    assert site.journal.command_sync_batch == 0, "the request is left for another connection"
