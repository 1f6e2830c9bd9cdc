"""Before authentication: little input, little time, and slow guesses."""

from typing import Any

from jobyard.model.secrets import digest_of
from jobyard.protocols.login_attempts import (
    FAILURES_PER_S,
    FREE_FAILURES,
    STRANGER_MS,
    STRANGER_SIZE_MAX,
)
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.servers.bunqueue import frame, pack, unpack
from tests.support.site.connection import Ears


class Guest(Ears):
    """A peer with an address."""

    def host(self) -> str:
        return "10.0.0.1"


class Knocker:
    """A connection whose bytes the test chooses."""

    def __init__(self, site: BareBunqueue) -> None:
        self.site = site
        self.session = site.entrance.enter(Guest(site.woken, self))

    def resume(self) -> None:
        self.session.resume(self.site.now_ms)

    def say(self, data: bytes) -> list[Any]:
        self.session.receive(data, self.site.now_ms)
        return self.hear()

    def hear(self) -> list[Any]:
        """Return the answers that have come."""
        self.site.settle()
        data = self.session.take_output()
        answers = []
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            answers.append(unpack(data[4:end]))
            data = data[end:]
        return answers

    def is_over(self) -> bool:
        return self.session.is_finished

    def guess(self, token: str = "wrong") -> list[Any]:
        return self.say(frame(pack({"cmd": "Auth", "token": token})))


def guarded() -> BareBunqueue:
    site = BareBunqueue()
    site.door.tokens = [digest_of(b"right")]
    site.tick(1)
    return site


def test_a_long_frame_is_refused_by_its_length_alone() -> None:
    knocker = Knocker(guarded())
    answers = knocker.say((STRANGER_SIZE_MAX + 1).to_bytes(4, "big"))
    assert answers[0]["error"].endswith("exceeds maximum 16384 before authentication")
    assert knocker.session.is_finished
    assert knocker.session.held_size() <= 4


def test_a_frame_of_usual_size_is_heard_and_one_who_is_known_may_send_long_ones() -> None:
    knocker = Knocker(guarded())
    long = frame(pack({"cmd": "PUSH", "queue": "q", "data": "x" * 100_000}))
    assert knocker.guess("right") == [{"ok": True}]
    assert knocker.say(long)[0]["ok"] is True


def test_there_is_so_much_time() -> None:
    site = guarded()
    late = Knocker(site)
    quick = Knocker(site)
    assert quick.guess("right") == [{"ok": True}]
    site.tick(STRANGER_MS - 1)
    assert not late.is_over()
    site.tick(2)
    assert late.is_over()
    assert late.hear() == [{"ok": False, "error": "Authentication timed out"}]
    assert not quick.session.is_finished


def test_without_a_token_there_is_no_limit() -> None:
    site = BareBunqueue()
    knocker = Knocker(site)
    site.tick(STRANGER_MS * 2)
    assert not knocker.session.is_finished
    assert knocker.say((STRANGER_SIZE_MAX + 1).to_bytes(4, "big")) == []
    assert not knocker.session.is_finished


def test_guesses_are_answered_later_and_later() -> None:
    site = guarded()
    knocker = Knocker(site)
    for _ in range(FREE_FAILURES):
        assert knocker.guess()[0]["error"] == "Invalid token"
    assert knocker.guess() == []
    # Commands sent ahead do not run before the refusal was sent.
    assert knocker.guess("right") == []
    site.tick(249)
    assert knocker.hear() == []
    site.tick(1)
    assert [one["ok"] for one in knocker.hear()] == [False, True]


def test_who_knows_the_token_waits_for_nobody() -> None:
    site = guarded()
    for _ in range(20):
        Knocker(site).guess()
    assert Knocker(site).guess("right") == [{"ok": True}]


def test_past_a_rate_no_token_of_the_address_is_compared() -> None:
    site = guarded()
    for _ in range(FAILURES_PER_S):
        Knocker(site).guess()
    refusal = "Too many failed attempts, try again later"
    assert Knocker(site).guess("right") == [{"ok": False, "error": refusal}]
    other = site.connect()
    assert other.ask("Auth", token="right")["ok"] is True
    site.tick(1000)
    assert Knocker(site).guess("right") == [{"ok": True}]
    assert site.door.shared_limits.attempts.failed_count == FAILURES_PER_S


def test_one_who_waits_for_a_refusal_cannot_send_on() -> None:
    knocker = Knocker(guarded())
    for _ in range(FREE_FAILURES + 1):
        knocker.guess()
    knocker.say(frame(pack({"cmd": "Auth", "token": "x"})) * 2000)
    assert knocker.session.is_finished
    knocker.session.closed(0)
    assert knocker.session.held_size() == 0


def test_a_client_that_left_gets_nothing_more() -> None:
    site = guarded()
    knocker = Knocker(site)
    for _ in range(FREE_FAILURES + 1):
        knocker.guess()
    knocker.session.closed(site.now_ms)
    site.tick(STRANGER_MS * 2)
    assert knocker.session.take_output() == b""
