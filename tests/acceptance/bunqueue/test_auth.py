"""Tokens, and the number of requests a connection may make."""

from collections.abc import Iterator

import pytest

from tests.support.servers.bunqueue import ORIGINAL, Client, Yard, pack, running

pytestmark = pytest.mark.skipif(bool(ORIGINAL), reason="needs servers with settings of their own")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Yard]:
    """A server with two tokens."""
    with running("--memory", env={"AUTH_TOKENS": "alpha,beta-2"}) as yard:
        yield yard


@pytest.fixture
def stranger(guarded: Yard) -> Iterator[Client]:
    with Client(guarded.bunqueue) as made:
        yield made


@pytest.mark.parametrize(
    "cmd", ["Ping", "Hello", "PUSH", "PULL", "Stats", "SubscribeEvents", "UnsubscribeEvents", "No"]
)
def test_before_a_token_nothing_is_done(stranger: Client, cmd: str) -> None:
    assert stranger.refused(cmd, queue="q", data=1) == "Not authenticated"


@pytest.mark.parametrize("token", ["wrong", "", "alp", "alpha ", "alpha,beta-2", None, 5, []])
def test_a_wrong_token_is_refused(stranger: Client, token: object) -> None:
    stranger.refused("Auth", token=token)
    assert stranger.refused("Ping") == "Not authenticated"


def test_a_wrong_text_is_called_an_invalid_token(stranger: Client) -> None:
    assert stranger.refused("Auth", token="wrong") == "Invalid token"


def test_a_token_is_required(stranger: Client) -> None:
    stranger.refused("Auth")


@pytest.mark.parametrize("token", ["alpha", "beta-2"])
def test_a_right_token_opens_the_connection(stranger: Client, token: str) -> None:
    assert stranger.ok("Auth", token=token) == {}
    job_id = stranger.push(f"q-{token}", 1)
    assert stranger.pull(f"q-{token}")["id"] == job_id


def test_each_connection_needs_its_own(guarded: Yard, stranger: Client) -> None:
    stranger.ok("Auth", token="alpha")
    with Client(guarded.bunqueue) as second:
        assert second.refused("Ping") == "Not authenticated"


def test_a_later_wrong_token_takes_nothing_away(stranger: Client) -> None:
    stranger.ok("Auth", token="alpha")
    assert stranger.refused("Auth", token="wrong") == "Invalid token"
    assert stranger.ok("Ping")


def test_a_token_and_its_first_command_may_come_together(stranger: Client) -> None:
    auth, ping = stranger.send("Auth", token="alpha"), stranger.send("Ping")
    assert stranger.receive(auth)["ok"] is True
    assert stranger.receive(ping)["ok"] is True


def test_bad_frames_are_answered_as_ever(stranger: Client) -> None:
    stranger.send_payload(b"\xc0")
    assert stranger.receive() == {"ok": False, "error": "Invalid command format"}
    stranger.send_payload(pack({"reqId": "x"}))
    assert stranger.receive() == {"ok": False, "error": "Invalid command", "reqId": "x"}


def test_an_open_server_knows_no_token(client: Client) -> None:
    assert client.refused("Auth", token="alpha") == "Invalid token"
    assert client.ok("Ping")


@pytest.fixture(scope="module")
def thrifty() -> Iterator[Yard]:
    """A server that takes twenty requests per connection and half a second."""
    env = {"RATE_LIMIT_MAX_REQUESTS": "20", "RATE_LIMIT_WINDOW_MS": "500"}
    with running("--memory", env=env) as yard:
        yield yard


def test_a_connection_has_a_number_of_requests(thrifty: Yard) -> None:
    with Client(thrifty.bunqueue) as busy, Client(thrifty.bunqueue) as calm:
        requests = [busy.send("Ping") for _ in range(25)]
        answers = [busy.receive(request) for request in requests]
        assert [answer["ok"] for answer in answers] == [True] * 20 + [False] * 5
        assert {answer["error"] for answer in answers[20:]} == {"Rate limit exceeded"}
        assert calm.ok("Ping")


def test_the_number_comes_back_with_time(thrifty: Yard) -> None:
    with Client(thrifty.bunqueue) as busy, Client(thrifty.bunqueue) as clock:
        for _ in range(20):
            busy.ok("Ping")
        assert busy.refused("Ping") == "Rate limit exceeded"
        clock.ok("PULL", queue="clock", timeout=700)
        assert busy.ok("Ping")


def test_bad_frames_count_too(thrifty: Yard) -> None:
    with Client(thrifty.bunqueue) as busy:
        for _ in range(20):
            busy.send_payload(b"\xc0")
            assert busy.receive()["ok"] is False
        assert busy.refused("Ping") == "Rate limit exceeded"


def test_the_usual_number_is_generous(client: Client) -> None:
    for _ in range(30):
        for _ in range(500):
            client.send("Ping")
        for _ in range(500):
            assert client.receive()["ok"] is True
