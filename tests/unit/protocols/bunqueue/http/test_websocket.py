"""WebSockets: commands as JSON, subscriptions, and how a socket begins and ends."""

import pytest

from jobyard.model.secrets import digest_of
from jobyard.protocols.bunqueue.http.command_events import PATTERNS
from jobyard.protocols.bunqueue.http.websocket import SOCKETS_MAX
from jobyard.protocols.bunqueue.session import COMMANDS_WAITING_MAX
from jobyard.protocols.http.websocket import SILENCE_MS
from jobyard.protocols.session import OUTPUT_MAX
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.http import WebSocket
from tests.support.clients.http_text import handshake, ws_frame
from tests.support.doors.http import BareHttp
from tests.support.site.storage import MemoryStorage

CLOSE = 8
PING = 9
PONG = 10


@pytest.fixture
def site() -> BareHttp:
    return BareHttp()


@pytest.fixture
def tcp(site: BareHttp) -> BunqueueClient:
    return site.connect()


@pytest.fixture
def socket(site: BareHttp) -> WebSocket:
    return WebSocket(site)


# -- commands ----------------------------------------------------------------------------------


def test_any_command_may_be_sent_as_json(socket: WebSocket) -> None:
    answer = socket.answer("PUSH", queue="q", data={"n": 1}, reqId="r1")
    assert (answer["ok"], answer["reqId"]) == (True, "r1")
    job = socket.answer("PULL", queue="q", reqId=2)
    assert (job["job"]["id"], job["reqId"]) == (answer["id"], 2)
    assert socket.answer("ACK", id=answer["id"], result=[1]) == {"ok": True}
    assert socket.answer("GetResult", id=answer["id"])["result"] == [1]
    assert socket.answer("Nope", reqId="x") == {
        "ok": False, "error": "Unknown command: Nope", "reqId": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"{", "Invalid JSON"),
        (b"", "Invalid JSON"),
        (b'{"cmd": NaN}', "Invalid JSON"),
        (b"[" * 5000, "Invalid JSON"),
        (b"[1]", "Invalid command"),
        (b"null", "Invalid command"),
        (b"{}", "Invalid command"),
        (b'{"cmd":{}}', "Invalid command"),
        (b'{"cmd":5}', "Unknown command: 5"),
    ],
)
def test_what_is_no_command_is_refused(socket: WebSocket, message: bytes, error: str) -> None:
    socket.say(message)
    assert socket.messages() == [{"ok": False, "error": error}]
    assert socket.answer("Ping")["ok"] is True


def test_a_message_may_come_in_pieces_and_as_binary(socket: WebSocket) -> None:
    text = b'{"cmd":"Ping"}'
    socket.feed(ws_frame(1, text[:5], is_last=False) + ws_frame(0, text[5:]))
    socket.feed(ws_frame(2, text))
    whole = ws_frame(1, text)
    for at in range(len(whole)):
        socket.feed(whole[at : at + 1])
    assert [one["ok"] for one in socket.messages()] == [True] * 3


def test_what_comes_with_the_handshake_is_not_lost(site: BareHttp) -> None:
    caller = site.call()
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in handshake().items()]
    head = "\r\n".join(["GET /ws HTTP/1.1", "Host: yard", *lines, "", ""]).encode()
    caller.feed(head + ws_frame(1, b'{"cmd":"Ping","reqId":"early"}'))
    assert caller.unread.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert caller.unread.endswith(b'"reqId":"early"}')


def test_jobs_go_back_when_the_socket_closes(socket: WebSocket, tcp: BunqueueClient) -> None:
    job_id = tcp.push("q")
    assert socket.answer("PULL", queue="q")["job"]["id"] == job_id
    socket.answer("RegisterWorker", name="w", queues=["q"], workerId="w1")
    assert tcp.state(job_id) == "active"
    socket.close()
    assert tcp.state(job_id) == "waiting"
    assert tcp.ok("ListWorkers")["data"]["workers"] == []


def test_a_pull_waits_and_others_go_on(
    site: BareHttp, socket: WebSocket, tcp: BunqueueClient
) -> None:
    socket.say({"cmd": "PULL", "queue": "q", "timeout": 5000, "reqId": "slow"})
    assert socket.answer("Ping", reqId="quick")["reqId"] == "quick"
    job_id = tcp.push("q")
    answers = [one for one in socket.messages() if "ok" in one]
    assert [(one["reqId"], one["job"]["id"]) for one in answers] == [("slow", job_id)]
    site.check()


def test_a_socket_may_answer_itself(site: BareHttp, socket: WebSocket) -> None:
    socket.say({"cmd": "PULL", "queue": "q", "timeout": 5000, "reqId": "pull"})
    socket.say({"cmd": "PUSH", "queue": "q", "data": 1, "reqId": "push"})
    answers = {one["reqId"]: one for one in socket.messages() if "ok" in one}
    assert answers["pull"]["job"]["id"] == answers["push"]["id"]
    site.check()


def test_commands_beyond_those_that_may_wait_are_held_back(
    site: BareHttp, socket: WebSocket, tcp: BunqueueClient
) -> None:
    for number in range(COMMANDS_WAITING_MAX + 5):
        socket.say({"cmd": "PULL", "queue": "q", "timeout": 60000, "reqId": number})
    socket.say({"cmd": "Ping", "reqId": "last"})
    assert socket.messages() == []
    assert socket.session.unread_size() > 0
    ids = [tcp.push("q") for _ in range(COMMANDS_WAITING_MAX + 5)]
    answers = {one["reqId"]: one for one in socket.messages() if "ok" in one}
    assert "last" in answers
    assert {one["job"]["id"] for one in answers.values() if "job" in one} == set(ids)
    assert socket.session.unread_size() == 0
    site.check()


def test_a_socket_that_does_not_read_is_not_read_from(socket: WebSocket) -> None:
    socket.session.out.write(b"x" * (OUTPUT_MAX + 1))
    socket.session.receive(ws_frame(1, b'{"cmd":"Ping"}') * 3, 0)
    assert socket.session.is_stalled
    assert socket.session.unread_size() > 0
    socket.session.take_output()
    socket.resume()
    assert [one["ok"] for one in socket.messages()] == [True] * 3


def test_requests_of_one_socket_are_counted(site: BareHttp, socket: WebSocket) -> None:
    site.door.requests_max = 2
    assert socket.answer("Ping")["ok"] is True
    assert socket.answer("Ping")["ok"] is True
    assert socket.answer("Ping")["error"] == "Rate limit exceeded"


# -- events ------------------------------------------------------------------------------------


def test_who_never_subscribed_hears_events_as_they_are(
    site: BareHttp, socket: WebSocket, tcp: BunqueueClient
) -> None:
    job_id = tcp.finish("q", result={"n": 1})
    site.tick(20_000)
    told = socket.messages()
    assert [one["eventType"] for one in told] == ["pushed", "pulled", "completed"]
    assert told[2] == {
        "eventType": "completed",
        "queue": "q",
        "jobId": job_id,
        "timestamp": told[0]["timestamp"],
        "data": {"n": 1},
    }


def test_who_subscribed_hears_what_was_asked_for(
    site: BareHttp, socket: WebSocket, tcp: BunqueueClient
) -> None:
    answer = socket.answer("Subscribe", events=["job:completed", "queue:*"], reqId="s")
    assert answer == {"ok": True, "subscribed": ["job:completed", "queue:*"], "reqId": "s"}
    now = site.door.wall_ms(site.now_ms)
    job_id = tcp.finish("q", result={"n": 1})
    site.tick(10)
    created, done, counts = socket.messages()
    assert created == {"event": "queue:created", "ts": now, "data": {"queue": "q"}}
    assert done == {
        "event": "job:completed",
        "ts": now,
        "data": {"queue": "q", "jobId": job_id, "timestamp": now},
    }
    assert counts["event"] == "queue:counts"
    assert counts["data"]["completed"] == 1
    tcp.ok("Pause", queue="q")
    assert [one["event"] for one in socket.messages()] == ["queue:paused"]


def test_a_star_means_everything(site: BareHttp, socket: WebSocket, tcp: BunqueueClient) -> None:
    socket.answer("Subscribe", events=["*"])
    tcp.push("q")
    site.tick(10_000)
    assert {one["event"] for one in socket.messages()} == {
        *("queue:created", "job:pushed", "queue:counts", "stats:snapshot", "health:status"),
    }


def test_subscriptions_add_up_and_end(socket: WebSocket, tcp: BunqueueClient) -> None:
    assert socket.answer("Unsubscribe") == {"ok": True, "subscribed": []}
    socket.answer("Subscribe", events=["job:*"])
    answer = socket.answer("Subscribe", events=["dlq:*", "job:*"])
    assert answer["subscribed"] == ["job:*", "dlq:*"]
    answer = socket.answer("Unsubscribe", events=["job:*", 5], reqId=1)
    assert answer == {"ok": True, "subscribed": ["dlq:*"], "reqId": 1}
    tcp.push("q")
    assert socket.messages() == []
    assert socket.answer("Unsubscribe", events=[])["subscribed"] == []
    tcp.bury("r")
    assert socket.messages() == []


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([], "events must be a non-empty array"),
        (None, "events must be a non-empty array"),
        ("job:*", "events must be a non-empty array"),
        (["job:*", "nope", "job:nope"], "Invalid: nope, job:nope"),
        ([5], "Invalid: 5"),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    socket: WebSocket, tcp: BunqueueClient, events: object, error: str
) -> None:
    answer = socket.answer("Subscribe", events=events, reqId="s")
    assert answer == {"ok": False, "error": error, "reqId": "s"}
    tcp.push("q")
    assert [one["eventType"] for one in socket.messages()] == ["pushed"]


def test_everything_that_is_told_can_be_subscribed_to(
    site: BareHttp, socket: WebSocket, tcp: BunqueueClient
) -> None:
    socket.answer("Subscribe", events=["*"])
    tcp.bury("q")
    tcp.ok("RetryDlq", queue="q")
    tcp.push("q", delay=100)
    tcp.ok("Pause", queue="q")
    tcp.ok("Obliterate", queue="q")
    site.tick(30_000)
    assert {one["event"] for one in socket.messages()} <= PATTERNS


def test_a_subscriber_of_one_queue_gets_only_its_events(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    socket = WebSocket(site, "/ws/queues/a")
    tcp.push("b")
    tcp.push("a")
    assert [one["queue"] for one in socket.messages()] == ["a"]


def test_events_of_a_queue_may_be_asked_for_as_on_the_bunqueue_door(
    socket: WebSocket, tcp: BunqueueClient
) -> None:
    socket.answer("Subscribe", events=["auth:*"])
    socket.answer("SubscribeEvents", queue="q")
    tcp.push("q")
    (told,) = socket.messages()
    assert (told["type"], told["event"]["eventType"]) == ("event", "pushed")


def test_events_wait_for_the_disk() -> None:
    site = BareHttp(MemoryStorage())
    socket = WebSocket(site)
    tcp = site.connect()
    tcp.push("q")
    assert [one["eventType"] for one in socket.messages()] == ["pushed"]
    assert socket.session.awaits == site.yard.journal.newest()
    assert socket.session.awaits > 0


def test_what_finds_no_room_is_not_told(socket: WebSocket, tcp: BunqueueClient) -> None:
    socket.session.out.write(b"x" * (OUTPUT_MAX + 1))
    tcp.push("q")
    tcp.push("q")
    assert len(socket.session.take_output()) == OUTPUT_MAX + 1
    socket.resume()
    tcp.push("q")
    assert [one["eventType"] for one in socket.messages()] == ["pushed"]


# -- beginning and end -------------------------------------------------------------------------


def test_pings_are_answered(socket: WebSocket) -> None:
    socket.feed(ws_frame(PING, b"there?"))
    assert socket.frames() == [(PONG, b"there?")]


def test_a_silent_socket_is_asked_and_then_given_up(site: BareHttp, socket: WebSocket) -> None:
    site.tick(30_000)
    assert socket.frames() == [(PING, b"")]
    socket.feed(ws_frame(PONG, b""))
    site.tick(SILENCE_MS - 30_000)
    assert [opcode for opcode, _content in socket.frames()] == [PING] * 3
    assert not socket.session.is_finished
    site.tick(30_000)
    ((opcode, content),) = socket.frames()
    assert (opcode, content[:2]) == (CLOSE, (1001).to_bytes(2, "big"))
    assert socket.session.is_finished


def test_a_close_is_answered_and_is_the_end(socket: WebSocket, tcp: BunqueueClient) -> None:
    socket.feed(ws_frame(CLOSE, b"\x03\xe8bye") + ws_frame(1, b'{"cmd":"Ping"}'))
    assert socket.frames() == [(CLOSE, b"\x03\xe8")]
    assert socket.session.is_finished
    tcp.push("q")
    assert socket.frames() == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x01x", 1002),
        (ws_frame(3, b""), 1002),
        (ws_frame(1, b"\xff"), 1007),
        (b"\x81\xff\x00\x00\x00\x00\x00\x10\x00\x01", 1009),
    ],
)
def test_what_is_no_frame_ends_the_socket(socket: WebSocket, data: bytes, code: int) -> None:
    socket.feed(ws_frame(1, b'{"cmd":"Ping"}') + data)
    first, last = socket.frames()
    assert first[0] == 1
    assert (last[0], last[1][:2]) == (CLOSE, code.to_bytes(2, "big"))
    assert socket.session.is_finished


def test_a_server_that_stops_answers_and_says_goodbye(site: BareHttp, socket: WebSocket) -> None:
    socket.say({"cmd": "PULL", "queue": "q", "timeout": 5000, "reqId": "p"})
    socket.session.end_input(site.now_ms)
    (opcode, content), (last, code) = socket.frames()
    assert (opcode, content) == (1, b'{"ok":true,"job":null,"reqId":"p"}')
    assert (last, code) == (CLOSE, (1001).to_bytes(2, "big"))
    assert socket.session.is_finished


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Upgrade": "h2c"}, 400),
        ({"Connection": "close"}, 400),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Key": "short"}, 400),
    ],
)
def test_what_does_not_ask_for_a_socket_gets_none(
    site: BareHttp, changes: dict[str, str], status: int
) -> None:
    caller = site.call()
    reply = caller.ask("GET", "/ws", **{**handshake(), **changes})
    assert reply.status == status
    if status == 426:
        assert reply.headers["sec-websocket-version"] == "13"
    assert site.door.sockets_count == 0


def test_another_path_is_no_socket_and_reads_no_further(site: BareHttp) -> None:
    caller = site.call()
    reply = caller.ask("GET", "/ping", **handshake())
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert caller.session.is_finished


def test_a_socket_needs_a_token(site: BareHttp) -> None:
    site.door.tokens = [digest_of(b"right")]
    assert site.call().ask("GET", "/ws", **handshake()).status == 401
    socket = WebSocket(site, "/ws?token=right")
    assert socket.answer("Stats")["ok"] is True


def test_no_more_than_so_many_sockets_are_served(site: BareHttp) -> None:
    sockets = [WebSocket(site) for _ in range(SOCKETS_MAX)]
    caller = site.call()
    assert caller.ok("GET", "/health")["connections"] == {"tcp": 0, "ws": SOCKETS_MAX, "sse": 0}
    reply = site.call().ask("GET", "/ws", **handshake())
    assert (reply.status, reply.error) == (503, "Too many WebSocket connections")
    sockets.pop().close()
    WebSocket(site)
