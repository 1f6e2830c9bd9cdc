"""One HTTP connection without a socket: order, keep-alive, waiting, streams, bad input."""

from typing import final

import pytest

from jobyard.engine.jobs.tick import tick
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.protocols.http.call import HttpCall, HttpRefused, OpenPendingCall, UpgradedConnection
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.http.limits import BODY_GRACE_MS, HEAD_MS_MAX, LINGER_MS, STREAM_MAX
from jobyard.protocols.http.routes import Area, Route, Routes
from jobyard.protocols.session import Session
from tests.support.site.connection import Ears

NOW_MS = 1_700_000_000_000
PUT = b"PUT /hello/a HTTP/1.1\r\nHost: x\r\n\r\n"


class Plain(Area):
    """Callers with a token may do everything."""

    def admit(self, call: HttpCall, route: Route) -> None:
        if route.action and call.header("authorization") != "Bearer right":
            raise HttpRefused(401, "unauthorized", "no")

    def refusal(self, refused: HttpRefused) -> bytes:
        return f"{refused.code}: {refused}".encode()


class Later(OpenPendingCall):
    """A call that is answered on the test's request."""

    def __init__(self, call: HttpCall) -> None:
        self.call = call
        self.story: list[str] = []
        call.wait(self)

    def stop_waiting(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("hurry")
        self.call.answer(200, b"hurried", "text/plain")

    def gone(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("gone")

    def drained(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("drained")


class Echo(UpgradedConnection):
    """Another protocol, which echoes its input."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.story: list[str] = []

    def receive(self, data: bytes, now_ms: int) -> None:  # noqa: ARG002
        self.session.out.write(data)

    def stop_waiting(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("hurry")

    def gone(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("gone")

    def drained(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("drained")


@final
class Site:
    """A port with a few routes, and one connection to it."""

    def __init__(self) -> None:
        journal = Journal(None, 1 << 20, ids_ahead=False)
        self.yard = Yard(journal, Bodies(journal, 1 << 20))
        area = Plain()
        routes = Routes(area)
        self.waiting: list[Later] = []
        self.streams: list[Later] = []
        self.echo: Echo | None = None
        for method, pattern, serve, action in (
            ("GET", "/hello/{name}", self._hello, ""),
            ("POST", "/hello/{name}", self._hello, ""),
            ("GET", "/secret", self._hello, "read"),
            ("GET", "/wait", lambda call: self.waiting.append(Later(call)), ""),
            ("GET", "/other", self._other, ""),
            ("GET", "/no", self._no, ""),
            ("GET", "/never", self._never, ""),
        ):
            routes.add(Route(method, pattern, serve, area, action=action))
        routes.add(Route("GET", "/stream", self._stream, area, is_stream=True))
        self.door = HttpDoor(self.yard, routes, Stopwatch())
        self.ears = Ears()
        self.session = HttpEntrance(self.door).enter(self.ears)
        self.now_ms = NOW_MS

    def _hello(self, call: HttpCall) -> None:
        text = f"{call.request.method} {','.join(call.params)} {len(call.request.body)}"
        call.answer(200, text.encode(), "text/plain")

    def _stream(self, call: HttpCall) -> None:
        later = Later(call)
        call.begin_stream(later)
        call.send(b"first")
        self.streams.append(later)

    def _other(self, call: HttpCall) -> None:
        self.echo = Echo(call.session)
        call.take_over(101, b"Upgrade: echo\r\n", self.echo)

    def _no(self, _: HttpCall) -> None:
        raise HttpRefused(409, "conflict", "not so", headers=b"X-Why: so\r\n")

    def _never(self, _: HttpCall) -> None:
        raise Refused("the verb says no")

    def say(self, data: bytes) -> bytes:
        self.session.receive(data, self.now_ms)
        return self.hear()

    def hear(self) -> bytes:
        self.session.resume(self.now_ms)
        return self.session.take_output()

    def is_over(self) -> bool:
        return self.session.is_finished

    def tick(self, ms: int) -> bytes:
        self.now_ms += ms
        tick(self.yard, self.now_ms)
        return self.hear()


def get(path: str, headers: str = "", version: str = "1.1") -> bytes:
    host = "Host: x\r\n" if version == "1.1" else ""
    return f"GET {path} HTTP/{version}\r\n{host}{headers}\r\n".encode()


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def test_a_request_is_answered_and_the_next_may_come() -> None:
    site = Site()
    answer = site.say(get("/hello/a%20b"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 9\r\n" in answer
    assert body_of(answer) == b"GET a b 0"
    assert not site.session.is_finished
    assert body_of(site.say(get("/hello/c"))) == b"GET c 0"


def test_requests_sent_ahead_are_answered_in_order_wherever_they_are_cut() -> None:
    stream = get("/hello/1") + b"POST /hello/2 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    stream += get("/hello/3")
    whole = Site().say(stream)
    assert whole.count(b"HTTP/1.1 200 OK") == 3
    assert whole.index(b"GET 1 0") < whole.index(b"POST 2 3") < whole.index(b"GET 3 0")
    for cut in range(1, len(stream)):
        site = Site()
        assert site.say(stream[:cut]) + site.say(stream[cut:]) == whole


def test_a_head_request_gets_the_head_alone() -> None:
    answer = Site().say(b"HEAD /hello/a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"Content-Length: 8\r\n" in answer
    assert body_of(answer) == b""


@pytest.mark.parametrize(
    ("request_bytes", "status", "body"),
    [
        (get("/nowhere"), b"404", b"not_found: no such path"),
        (get("/hello/a/b"), b"404", b"not_found: no such path"),
        (get("/hello/%ff"), b"400", b"invalid_request: malformed path"),
        (PUT, b"405", b"method_not_allowed: this path supports GET, HEAD, OPTIONS, POST"),
        (get("/secret"), b"401", b"unauthorized: no"),
        (get("/no"), b"409", b"conflict: not so"),
        (get("/never"), b"400", b"invalid_request: the verb says no"),
    ],
)  # fmt: skip
def test_a_refusal_has_its_status_and_the_connection_stays_open(
    request_bytes: bytes, status: bytes, body: bytes
) -> None:
    site = Site()
    answer = site.say(request_bytes)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert body_of(answer) == body
    assert not site.session.is_finished
    assert b"200" in site.say(get("/secret", "Authorization: Bearer right\r\n"))


def test_what_is_allowed_is_told() -> None:
    site = Site()
    assert b"Allow: GET, HEAD, OPTIONS, POST\r\n" in site.say(PUT)
    answer = site.say(b"OPTIONS /hello/a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 204")
    assert b"Allow: GET, HEAD, OPTIONS, POST\r\n" in answer


@pytest.mark.parametrize(
    "request_bytes", [get("/hello/a", "Connection: close\r\n"), get("/hello/a", version="1.0")]
)
def test_a_connection_that_is_not_kept_ends_with_its_answer(request_bytes: bytes) -> None:
    site = Site()
    assert body_of(site.say(request_bytes + get("/hello/b"))) == b"GET a 0"
    assert site.session.is_finished


def test_what_is_no_request_is_refused_after_those_before_it() -> None:
    site = Site()
    answer = site.say(get("/hello/a") + b"what is this\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 400 " in answer
    assert b"Connection: close" in answer
    assert site.session.is_finished


def test_a_body_is_asked_for_when_the_client_waits_to_be_asked() -> None:
    site = Site()
    head = b"POST /hello/a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert site.say(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert body_of(site.say(b"ab")) == b"POST a 2"


def test_calls_behind_one_that_waits_are_answered_after_it() -> None:
    site = Site()
    assert site.say(get("/wait") + get("/hello/b")) == b""
    assert site.session.unread_size() > 0
    site.waiting[0].call.answer(200, b"now", "text/plain")
    assert site.ears.wakes == 1
    answer = site.hear()
    assert answer.index(b"now") < answer.index(b"GET b 0")


def test_who_leaves_is_waited_for_no_more() -> None:
    site = Site()
    site.say(get("/wait"))
    site.session.closed(site.now_ms)
    assert site.waiting[0].story == ["gone"]
    assert site.door.sessions_count == 0


def test_who_sends_no_more_is_answered_at_once() -> None:
    site = Site()
    site.say(get("/wait") + get("/wait"))
    site.session.end_input(site.now_ms)
    assert site.session.take_output().count(b"hurried") == 2
    assert site.session.is_finished


def test_a_stream_is_sent_in_chunks_until_it_ends() -> None:
    site = Site()
    answer = site.say(get("/stream"))
    assert b"Transfer-Encoding: chunked\r\n" in answer
    assert body_of(answer) == b"5\r\nfirst\r\n"
    call = site.streams[0].call
    call.send(b"second")
    assert site.ears.wakes == 1
    assert site.hear() == b"6\r\nsecond\r\n"
    call.end_stream()
    assert site.hear() == b"0\r\n\r\n"
    assert body_of(site.say(get("/hello/b"))) == b"GET b 0"


def test_a_stream_to_an_old_client_ends_with_the_connection() -> None:
    site = Site()
    answer = site.say(get("/stream", version="1.0"))
    assert b"chunked" not in answer
    assert body_of(answer) == b"first"
    site.streams[0].call.end_stream()
    assert site.hear() == b""
    assert site.session.is_finished


def test_a_stream_that_nobody_reads_waits_until_its_output_has_gone() -> None:
    site = Site()
    site.say(get("/stream"))
    call = site.streams[0].call
    site.streams[0].story.clear()
    while call.has_room():
        call.send(b"x" * 100_000)
    assert site.session.is_stalled
    assert len(site.session.out) < STREAM_MAX + 100_100
    site.session.take_output()
    site.session.resume(site.now_ms)
    assert site.streams[0].story == ["drained"]
    assert call.has_room()


def test_what_has_not_left_the_connection_counts_against_a_stream() -> None:
    site = Site()
    site.say(get("/stream"))
    site.ears.unsent = STREAM_MAX + 1
    assert not site.streams[0].call.has_room()
    assert site.session.is_stalled


def test_a_stream_continues_when_it_has_something_to_send() -> None:
    site = Site()
    site.say(get("/stream"))
    site.streams[0].story.clear()
    wakes = site.ears.wakes
    site.streams[0].call.wake()
    assert site.ears.wakes == wakes + 1
    site.hear()
    assert site.streams[0].story == ["drained"]


def test_the_head_of_a_stream_is_all_of_it_where_only_that_is_asked_for() -> None:
    site = Site()
    answer = site.say(b"HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"text/event-stream" in answer
    assert body_of(answer) == b""
    assert body_of(site.say(get("/hello/a"))) == b"GET a 0"
    assert site.streams[0].story == []
    assert site.session.take_output() == b""


def test_a_connection_that_was_taken_over_speaks_http_no_more() -> None:
    site = Site()
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    answer = site.say(get("/other", upgrade) + b"early")
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\n")
    assert answer.endswith(b"early")
    assert site.say(b"GET / HTTP/1.1\r\n") == b"GET / HTTP/1.1\r\n"
    site.session.closed(site.now_ms)
    assert site.echo is not None
    assert site.echo.story == ["drained", "drained", "gone"]


def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    site = Site()
    site.say(b"GET /hello/a HTTP/1.1\r\n")
    for _ in range(HEAD_MS_MAX // 1000 - 1):
        assert site.tick(1000) == b""
        assert site.say(b"x") == b""
    answer = site.tick(1000)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert site.session.is_finished


def test_a_body_may_take_as_long_as_it_flows() -> None:
    site = Site()
    site.say(b"POST /hello/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(49):
        assert site.tick(1000) == b""
        assert site.say(b"x" * 2000) == b""
    assert body_of(site.say(b"x" * 2000)) == b"POST a 100000"
    assert site.tick(BODY_GRACE_MS * 10) == b""
    site.say(b"POST /hello/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(BODY_GRACE_MS // 1000):
        assert site.tick(1000) == b""
        site.say(b"x")
    assert site.tick(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /hello/a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"POST /hello/a HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000, b"431"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"505"),
    ],
)
def test_who_sends_too_much_may_send_on_for_a_while_to_hear_why_not(
    head: bytes, status: bytes
) -> None:
    site = Site()
    assert site.say(head).startswith(b"HTTP/1.1 " + status)
    assert not site.is_over()
    assert site.say(b"x" * 100_000) == b""
    assert site.session.unread_size() == 0
    assert site.tick(LINGER_MS) == b""
    assert site.is_over()

    site = Site()
    site.say(head)
    site.session.end_input(site.now_ms)
    assert site.is_over()


def test_a_request_that_all_hold_too_much_for_is_refused() -> None:
    site = Site()
    site.say(b"POST /hello/a HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
    assert site.say(b"x" * 2_000_000) == b""
    assert site.session.held_size() == 2_000_000
    site.session.refuse_input(site.now_ms)
    answer = site.session.take_output()
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nRetry-After: 1\r\n" in answer
    assert site.session.held_size() == 0
    assert site.say(b"x" * 100_000) == b""
    assert site.session.held_size() == 0


def test_a_body_that_stays_out_is_forgotten_with_its_connection() -> None:
    site = Site()
    site.say(b"POST /hello/a HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + b"x" * 99)
    assert site.session.held_size() == 99
    site.session.closed(site.now_ms)
    assert site.session.held_size() == 0
