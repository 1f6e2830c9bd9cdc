"""Answers of many MiB: complete and in order, in pieces that are never joined."""

import gzip
import json
from typing import Any

import msgspec
import pytest

from jobyard.protocols.bunqueue.commands.dlq import ENTRIES_MAX
from jobyard.protocols.bunqueue.long_answers import LongList
from jobyard.protocols.session import OUTPUT_MAX, PIECE_SIZE
from jobyard.wire.msgpack.write import Raw, encode
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.http import WebSocket
from tests.support.clients.http_text import dechunked
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.doors.http import BareHttp
from tests.support.site.storage import MemoryStorage

JOBS = 300
TEXT = "x" * 10_000
# More than what may be written at once, and the jobs that are longest.
PIECE_MAX = OUTPUT_MAX + PIECE_SIZE + 12_000


def fill(client: BunqueueClient, **fields: object) -> None:
    """Push jobs whose answer takes some MiB."""
    jobs = [{"data": [at, TEXT], **fields} for at in range(JOBS)]
    client.ok("PUSHB", queue="q", jobs=jobs)


@pytest.fixture
def site() -> BareBunqueue:
    site = BareBunqueue(MemoryStorage())
    fill(site.connect())
    return site


def send(site: BareBunqueue, client: BunqueueClient, *commands: dict[str, object]) -> None:
    """Send commands, and take no answer."""
    frames = [encode(command) for command in commands]
    client.session.receive(
        b"".join(len(one).to_bytes(4, "big") + one for one in frames), site.now_ms
    )


def frames_in(data: bytes) -> list[Any]:
    """Return all answers in what was sent."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(msgspec.msgpack.decode(data[4 : 4 + size]))
        assert len(data) >= 4 + size
        data = data[4 + size :]
    return found


def test_a_long_page_is_written_in_pieces(site: BareBunqueue) -> None:
    client = site.connect()
    site.is_slow = True
    send(site, client, {"cmd": "GetJobs", "queue": "q", "limit": 10**6, "reqId": "r"})
    while client.session.unread_size() == 0 and not client.session.has_long():
        assert site.yard.tasks.count() > 0
        site.yard.tasks.proceed(site.now_ms)
    pieces = client.session.take_pieces()
    assert len(pieces) > 4
    assert max(map(len, pieces)) < PIECE_MAX
    [answer] = frames_in(b"".join(pieces))
    assert [job["data"] for job in answer.pop("jobs")] == [[at, TEXT] for at in range(JOBS)]
    assert answer == {"ok": True, "reqId": "r"}


def test_it_waits_for_all_that_was_appended_and_commands_behind_it_for_it(
    site: BareBunqueue,
) -> None:
    client = site.connect()
    site.yard.tasks.units_per_turn = 10**9
    site.slice()
    send(
        site,
        client,
        {"cmd": "Ping"},
        {"cmd": "PUSH", "queue": "other", "data": 1},
        {"cmd": "GetJobs", "queue": "q", "limit": 10**6},
        {"cmd": "Count", "queue": "q"},
    )
    session = client.session
    assert session.is_stalled
    answers = frames_in(session.take_output())
    assert session.awaits == site.yard.journal.newest()
    assert [answer["ok"] for answer in answers] == [True] * 3
    assert len(answers[2]["jobs"]) == JOBS
    session.resume(site.now_ms)
    assert frames_in(session.take_output()) == [{"ok": True, "count": JOBS}]


def test_all_ids_of_a_large_clean_are_reported() -> None:
    site = BareBunqueue()
    client = site.connect()
    count = PIECE_SIZE // 20
    before: set[str] = set()
    for _ in range(0, count, 1000):
        before.update(client.ok("PUSHB", queue="q", jobs=[{"data": 1}] * 1000)["ids"])
    answer = client.ok("Clean", queue="q", grace=0, limit=10**6)
    assert (set(answer["ids"]), answer["count"]) == (before, len(before))


def test_a_list_that_is_not_long_is_a_value_like_any_other() -> None:
    listed = LongList()
    assert isinstance(listed.value(), Raw)
    listed.add(encode("a"))
    listed.add(encode(2))
    value = listed.value()
    assert isinstance(value, Raw)
    assert msgspec.msgpack.decode(value.data) == ["a", 2]


def test_items_longer_than_a_piece_are_pieces_of_their_own() -> None:
    items = ["a", "b" * PIECE_SIZE, "c", "d" * (3 * PIECE_SIZE), "e" * PIECE_SIZE]
    listed = LongList()
    for item in items:
        listed.add(encode(item))
    assert listed.size() == sum(len(encode(item)) for item in items)
    value = listed.value()
    assert not isinstance(value, Raw)
    assert len(value.pieces) == 6
    assert msgspec.msgpack.decode(b"".join(value.pieces)) == items
    assert msgspec.msgpack.decode(encode({"nested": value})) == {"nested": items}


# -- over HTTP ---------------------------------------------------------------------------------


@pytest.fixture
def port() -> BareHttp:
    port = BareHttp()
    fill(port.connect())
    return port


PATH = f"/queues/q/jobs/list?limit={JOBS}"


def test_a_long_answer_over_http_has_its_length_and_comes_in_pieces(port: BareHttp) -> None:
    client = port.call()
    port.is_slow = True
    client.session.receive(f"GET {PATH} HTTP/1.1\r\nHost: yard\r\n\r\n".encode(), port.now_ms)
    while not client.session.has_long():
        assert port.yard.tasks.count() > 0
        port.yard.tasks.proceed(port.now_ms)
    pieces = client.session.take_pieces()
    assert len(pieces) > 4
    assert max(map(len, pieces)) < PIECE_MAX
    head, _, body = b"".join(pieces).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
    shown = json.loads(body)
    assert [job["data"] for job in shown.pop("jobs")] == [[at, TEXT] for at in range(JOBS)]
    assert shown == {"ok": True}


def test_an_answer_is_compressed_for_clients_that_accept_it(port: BareHttp) -> None:
    client = port.call()
    client.send("GET", PATH, Accept_Encoding="gzip")
    head, _, body = client.unread.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head.split(b"\r\n")
    content, is_whole = dechunked(body)
    assert is_whole
    assert len(json.loads(gzip.decompress(content))["jobs"]) == JOBS
    client.unread = b""
    assert client.ask("GET", "/ping").status == 200


def test_its_head_alone_can_be_asked_for(port: BareHttp) -> None:
    client = port.call()
    size = len(client.ask("GET", PATH).body)
    client.send("HEAD", PATH)
    reply = client.hear(is_head=True)
    assert reply is not None
    assert (reply.status, reply.headers["content-length"], client.unread) == (200, str(size), b"")
    assert client.ask("GET", "/ping").status == 200


def test_pipelined_requests_behind_it_are_answered_behind_it(port: BareHttp) -> None:
    client = port.call()
    heads = [f"GET {path} HTTP/1.1\r\nHost: yard\r\n\r\n" for path in (PATH, PATH, "/ping")]
    client.feed("".join(heads).encode())
    sizes = []
    for _ in range(3):
        reply = client.hear()
        assert reply is not None
        # It has left.
        client.resume()
        port.settle()
        sizes.append(len(reply.body))
    assert sizes[0] == sizes[1] > OUTPUT_MAX > sizes[2]


def test_dead_jobs_are_listed_whole(port: BareHttp) -> None:
    tcp = port.connect()
    for at in range(300):
        tcp.bury("dead", ["y" * 3000, at])
    told = port.call().ok("GET", "/queues/dead/dlq")
    assert (told["total"], set(told)) == (300, {"total", "entries"})
    assert [entry["job"]["data"][1] for entry in told["entries"]] == list(range(300))
    assert port.call().ok("GET", "/queues/dead/dlq?limit=2")["total"] == 300
    assert port.call().ok("GET", "/queues/none/dlq") == {"entries": [], "total": 0}
    both = tcp.ok("Dlq", queue="dead")
    assert [entry["job"] for entry in both["entries"]] == both["jobs"]
    assert len(both["jobs"]) == 300 < ENTRIES_MAX


# -- over a WebSocket --------------------------------------------------------------------------


def test_a_long_answer_over_a_websocket_keeps_its_place(port: BareHttp) -> None:
    socket = WebSocket(port)
    port.is_slow = True
    port.slice()
    socket.say({"cmd": "PUSH", "queue": "other", "data": 1, "reqId": 1})
    socket.say({"cmd": "GetJobs", "queue": "q", "limit": JOBS, "reqId": 2})
    socket.say({"cmd": "Count", "queue": "q", "reqId": 3})
    socket.say({"cmd": "Count", "queue": "other", "reqId": 4})
    others = 0
    while port.slice():
        others += 1
        assert WebSocket(port).answer("Ping")["ok"] is True
    assert others > 10
    answers = [one for one in socket.messages() if "reqId" in one]
    assert [one["reqId"] for one in answers] == [1, 2, 3, 4]
    assert [job["data"] for job in answers[1]["jobs"]] == [[at, TEXT] for at in range(JOBS)]
    assert [one["count"] for one in answers[2:]] == [JOBS, 1]


def test_who_leaves_a_websocket_meanwhile_costs_nothing_more(port: BareHttp) -> None:
    port.is_slow = True
    for turns in (1, 6, 12):
        port.slice()
        socket = WebSocket(port)
        socket.say({"cmd": "GetJobs", "queue": "q", "limit": JOBS})
        for _ in range(turns):
            assert port.slice()
        socket.session.closed(port.now_ms)
        assert port.yard.tasks.count() == 0
