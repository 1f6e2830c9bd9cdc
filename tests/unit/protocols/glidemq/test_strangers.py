"""Before authentication: little input, little time, and slow guesses."""

from jobyard.protocols.glidemq.entrance import GlidemqEntrance
from jobyard.protocols.login_attempts import FAILURES_PER_S, FREE_FAILURES, STRANGER_MS
from jobyard.protocols.session import Peer
from tests.support.clients.resp import pack
from tests.support.doors.glidemq import BareGlidemq

WRONG = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
OK = b"+OK\r\n"


class Guest(Peer):
    """A peer with an address."""

    def host(self) -> str:
        return "10.0.0.1"


class Knocker:
    """A connection whose bytes the test chooses."""

    def __init__(self, site: BareGlidemq) -> None:
        self.site = site
        self.session = GlidemqEntrance(site.door).enter(Guest())

    def say(self, data: bytes) -> bytes:
        self.session.receive(data, self.site.now_ms)
        return self.session.take_output()

    def is_over(self) -> bool:
        return self.session.is_finished

    def guess(self, password: str = "wrong") -> bytes:
        return self.say(pack("AUTH", password))

    def wait(self, ms: int) -> bytes:
        self.site.tick(ms)
        self.session.resume(self.site.now_ms)
        return self.session.take_output()


def guarded() -> BareGlidemq:
    site = BareGlidemq(password=b"right")
    site.tick(1)
    return site


def test_there_is_so_much_time() -> None:
    site = guarded()
    late = Knocker(site)
    quick = Knocker(site)
    assert quick.guess("right") == OK
    site.tick(STRANGER_MS - 1)
    assert not late.is_over()
    assert late.wait(2) == b"-ERR authentication timed out\r\n"
    assert late.is_over()
    assert not quick.session.is_finished


def test_little_is_held_of_one_who_has_not_said_the_password() -> None:
    knocker = Knocker(guarded())
    assert knocker.say(b"*2\r\n$4\r\nAUTH\r\n$16384\r\n" + b"x" * 16_384) == b""
    assert not knocker.session.is_finished
    assert knocker.say(b"\r\n") == WRONG
    answer = knocker.say(b"*3\r\n$9000\r\n" + b"x" * 9000 + b"\r\n$9000\r\n")
    assert answer == b"-ERR Protocol error: unauthenticated bulk length\r\n"
    assert knocker.session.is_finished


def test_guesses_are_answered_later_and_later() -> None:
    site = guarded()
    knocker = Knocker(site)
    for _ in range(FREE_FAILURES):
        assert knocker.guess() == WRONG
    assert knocker.guess() == b""
    # Commands sent ahead do not run before the refusal was sent.
    assert knocker.guess("right") == b""
    assert knocker.wait(249) == b""
    assert knocker.wait(1) == WRONG + OK
    assert Knocker(site).guess("right") == OK, "who knows the password waits for nobody"


def test_a_guess_with_hello_is_held_back_too() -> None:
    knocker = Knocker(guarded())
    for _ in range(FREE_FAILURES):
        assert knocker.say(pack("HELLO", "3", "AUTH", "default", "wrong")) == WRONG
    assert knocker.say(pack("HELLO", "3", "AUTH", "default", "wrong")) == b""
    assert knocker.wait(250) == WRONG


def test_past_a_rate_no_password_of_the_address_is_compared() -> None:
    site = guarded()
    for _ in range(FAILURES_PER_S):
        Knocker(site).guess()
    refusal = b"-ERR too many failed attempts, try again later\r\n"
    assert Knocker(site).guess("right") == refusal
    site.tick(1000)
    assert Knocker(site).guess("right") == OK


def test_one_who_waits_for_a_refusal_cannot_send_on() -> None:
    knocker = Knocker(guarded())
    for _ in range(FREE_FAILURES + 1):
        knocker.guess()
    knocker.say(pack("AUTH", "x") * 2000)
    assert knocker.session.is_finished
    knocker.session.closed(0)
    assert knocker.session.held_size() == 0
