"""Before authentication: no body is read or requested, and guesses are slow."""

import pytest

from jobyard.engine.jobs.tick import tick
from jobyard.model.secrets import digest_of
from jobyard.protocols.bunqueue.http.api import API_BODY_MAX
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.http.session import HttpSession
from jobyard.protocols.login_attempts import FAILURES_PER_S, FREE_FAILURES, STRANGER_MS
from jobyard.protocols.session import Peer
from tests.support.doors.http import BareHttp

LONG = 1_000_000


class Guest(Peer):
    """A peer with an address."""

    def host(self) -> str:
        return "10.0.0.1"


class Knocker:
    """A connection whose bytes the test chooses."""

    def __init__(self, site: BareHttp) -> None:
        self.site = site
        self.session = HttpEntrance(site.http).enter(Guest())

    def say(self, data: bytes) -> bytes:
        self.session.receive(data, self.site.now_ms)
        return self.session.take_output()

    def wait(self, ms: int) -> bytes:
        self.site.now_ms += ms
        tick(self.site.yard, self.site.now_ms)
        self.session.resume(self.site.now_ms)
        return self.session.take_output()


def head(
    method: str = "POST",
    path: str = "/queues/q/jobs",
    *,
    size: int = LONG,
    token: str = "",
    lines: str = "",
) -> bytes:
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n{shown}{lines}\r\n"
    ).encode()


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:12])


@pytest.fixture
def site() -> BareHttp:
    made = BareHttp()
    made.door.tokens = [digest_of(b"right")]
    return made


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (head(), 401),
        (head(token="wrong"), 401),
        (head(path="/nowhere", token="right"), 404),
        (head("PATCH", token="right"), 405),
        (head().replace(b"Content-Length: 1000000", b"Transfer-Encoding: chunked") + b"9\r\n", 401),
    ],
)
def test_the_body_of_a_refused_call_is_not_read(site: BareHttp, said: bytes, told: int) -> None:
    knocker = Knocker(site)
    assert status(knocker.say(said)) == told
    # What still comes is thrown away, so that the answer can be read.
    assert knocker.say(b"x" * 50_000) == b""
    assert knocker.session.held_size() == 0
    assert not knocker.session.is_finished
    knocker.wait(6000)
    assert knocker.session.is_finished


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (head(lines="Expect: 100-continue\r\n"), 401),
        (head(path="/nowhere", token="right", lines="Expect: 100-continue\r\n"), 404),
        (head(token="right", lines="Expect: 100-continue\r\n"), 100),
    ],
)
def test_only_who_may_send_a_body_is_asked_for_it(site: BareHttp, said: bytes, told: int) -> None:
    assert status(Knocker(site).say(said)) == told


def test_who_may_send_a_body_is_admitted_once(site: BareHttp) -> None:
    site.door.requests_max = 1
    knocker = Knocker(site)
    body = b'{"data":"' + b"x" * 100_000 + b'"}'
    assert knocker.say(head(size=len(body), token="right")) == b""
    assert knocker.say(body[:70_000]) == b""
    assert status(knocker.say(body[70_000:])) == 200
    assert status(knocker.say(head(size=2, token="right") + b"{}")) == 429


def test_a_request_behind_another_is_looked_at_in_its_turn(site: BareHttp) -> None:
    knocker = Knocker(site)
    first = head("GET", "/queues/q/jobs?timeout=500", size=0, token="right")
    assert knocker.say(first + head()) == b""
    assert status(knocker.wait(500)) == 200


def test_guesses_are_answered_later_and_later(site: BareHttp) -> None:
    guess = head("GET", "/stats", size=0, token="wrong")
    knocker = Knocker(site)
    for _ in range(FREE_FAILURES):
        assert status(knocker.say(guess)) == 401
    assert knocker.say(guess) == b""
    assert knocker.wait(249) == b""
    assert status(knocker.wait(1)) == 401
    right = head("GET", "/stats", size=0, token="right")
    assert status(knocker.say(right)) == 200
    # The same for one whose body was not read; nothing of it is kept meanwhile.
    assert knocker.say(head(token="wrong") + b"x" * 9000) == b""
    assert knocker.session.held_size() == 0
    assert knocker.say(b"x" * 50_000) == b""
    assert knocker.session.held_size() == 0
    assert status(knocker.wait(500)) == 401


def test_a_connection_that_sends_nothing_is_closed(site: BareHttp) -> None:
    tick(site.yard, site.now_ms)
    silent, talker = Knocker(site), Knocker(site)
    assert status(talker.say(head("GET", "/health", size=0))) == 200
    silent.wait(STRANGER_MS + 1)
    assert silent.session.is_finished
    assert not talker.session.is_finished
    site.door.tokens = []
    site.http.idle_ms = 60_000
    job_waiter = Knocker(site)
    job_waiter.wait(STRANGER_MS + 1)
    assert not job_waiter.session.is_finished
    # Without tokens it is an idle connection like any other.
    job_waiter.wait(60_000)
    assert job_waiter.session.is_finished


def test_who_shows_no_key_does_not_guess(site: BareHttp) -> None:
    knocker = Knocker(site)
    for _ in range(FREE_FAILURES + 20):
        assert status(knocker.say(head("GET", "/stats", size=0))) == 401
    assert site.http.shared_limits.attempts.failed_count == 0


def test_past_a_rate_no_key_of_the_address_is_compared(site: BareHttp) -> None:
    for _ in range(FAILURES_PER_S):
        Knocker(site).say(head("GET", "/stats", size=0, token="wrong"))
    knocker = Knocker(site)
    answer = knocker.say(head("GET", "/stats", size=0, token="right"))
    assert status(answer) == 429
    assert b"\r\nRetry-After: 1\r\n" in answer
    site.now_ms += 1000
    assert status(knocker.say(head("GET", "/stats", size=0, token="right"))) == 200


def test_a_client_that_left_gets_nothing_more(site: BareHttp) -> None:
    for said in (head("GET", "/stats", size=0, token="wrong"), head(token="wrong")):
        knocker = Knocker(site)
        for _ in range(FREE_FAILURES):
            Knocker(site).say(head("GET", "/stats", size=0, token="wrong"))
        assert knocker.say(said) == b""
        knocker.session.closed(site.now_ms)
        assert knocker.wait(20_000) == b""


def test_a_body_that_no_command_takes_is_refused_by_its_length(site: BareHttp) -> None:
    knocker = Knocker(site)
    assert status(knocker.say(head(size=API_BODY_MAX + 1, token="right"))) == 413
    assert knocker.say(b"x" * 50_000) == b""
    assert knocker.session.held_size() == 0
    knocker = Knocker(site)
    chunked = head(token="right").replace(b"Content-Length: 1000000", b"Transfer-Encoding: chunked")
    assert knocker.say(chunked + b"%x\r\n" % (API_BODY_MAX - 10) + b"x" * 70_000) == b""
    for _ in range((API_BODY_MAX - 70_010) // 1_000_000):
        assert knocker.say(b"x" * 1_000_000) == b""
    left = (API_BODY_MAX - 70_010) % 1_000_000
    assert status(knocker.say(b"x" * left + b"\r\nb\r\n")) == 413
    assert knocker.session.held_size() == 0


def test_a_short_bound_is_for_one_body_alone(site: BareHttp) -> None:
    """What comes behind a request of one area may be for another, which takes more."""
    knocker = Knocker(site)
    chunked = head(token="right").replace(b"Content-Length: 1000000", b"Transfer-Encoding: chunked")
    assert knocker.say(chunked + b"2\r\n{") == b""
    assert status(knocker.say(b"}\r\n0\r\n\r\n")) == 400
    assert isinstance(knocker.session, HttpSession)
    reader = knocker.session._reader
    assert reader._chunks_max == site.http.body_max
