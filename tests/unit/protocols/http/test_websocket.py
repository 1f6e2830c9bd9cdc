"""The common behaviour of every WebSocket: order, waiting, pings, silence, the end."""

import pytest

from jobyard.engine.state.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.limits import STREAM_MAX
from jobyard.protocols.http.routes import Area, Routes
from jobyard.protocols.http.session import HttpSession
from jobyard.protocols.http.websocket import (
    MESSAGE_WEIGHT,
    SILENCE_MS,
    OpenMessageReceiver,
    WebSocket,
)
from jobyard.wire.http.websocket import (
    CLOSE_GOING_AWAY,
    CLOSE_NORMAL,
    CLOSE_TOO_LARGE,
    OP_BINARY,
    OP_CLOSE,
    OP_PING,
    OP_PONG,
    OP_TEXT,
    close,
    ping,
    pong,
    text,
)
from tests.support.clients.http_text import ws_frame
from tests.support.site.connection import Ears

NOW_MS = 1_700_000_000_000
MESSAGE_MAX = 1000


class Parrot(OpenMessageReceiver):
    """Echoes its input, and sends what it was asked to."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.busy_with = b""
        self.line: WebSocket | None = None

    def heard(self, content: bytes, now_ms: int, *, is_text: bool) -> None:  # noqa: ARG002
        assert self.line is not None
        self.story.append("text" if is_text else "binary")
        if content == b"hold":
            self.busy_with = content
        else:
            self.line.say(content)

    def resume(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("resume")

    def pump(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("pump")

    def unread_size(self) -> int:
        return len(self.busy_with)

    def stop_waiting(self, now_ms: int) -> None:  # noqa: ARG002
        assert self.line is not None
        self.line.say(b"bye")

    def gone(self, now_ms: int) -> None:  # noqa: ARG002
        self.story.append("gone")


class Wire:
    """A connection that is a WebSocket already."""

    def __init__(self) -> None:
        journal = Journal(None, 1 << 20, ids_ahead=False)
        yard = Yard(journal, Bodies(journal, 1 << 20))
        self.ear = Ears()
        self.session = HttpSession(HttpDoor(yard, Routes(Area()), Stopwatch()), self.ear)
        self.parrot = Parrot()
        self.line = WebSocket(self.session, self.parrot, MESSAGE_MAX, NOW_MS)
        self.parrot.line = self.line
        self.session.take_over(101, b"", self.line)
        self.session.take_output()

    def send(self, *frames: bytes) -> bytes:
        """Send frames at once; return the answers to them."""
        self.session.receive(b"".join(frames), NOW_MS)
        return self.session.take_output()

    def resume(self) -> bytes:
        self.session.resume(NOW_MS)
        return self.session.take_output()


def test_messages_are_heard_in_order_and_pumped_behind() -> None:
    wire = Wire()
    said = wire.send(ws_frame(OP_TEXT, b"a"), ws_frame(OP_PING, b"?"), ws_frame(OP_BINARY, b"b"))
    assert said == text(b"a") + pong(b"?") + text(b"b")
    assert wire.parrot.story == ["text", "binary", "pump"]


def test_messages_wait_for_one_that_is_held_back() -> None:
    wire = Wire()
    assert wire.send(ws_frame(OP_TEXT, b"hold"), ws_frame(OP_TEXT, b"next")) == b""
    assert wire.line.has_unread()
    assert wire.session.unread_size() == len(b"hold") + MESSAGE_WEIGHT + len(b"next")
    wire.parrot.busy_with = b""
    assert wire.resume() == text(b"next")
    assert wire.parrot.story == ["text", "pump", "resume", "text", "pump"]
    assert not wire.line.has_unread()


def test_messages_wait_while_nothing_is_read() -> None:
    wire = Wire()
    wire.ear.unsent = STREAM_MAX + 1
    assert wire.send(ws_frame(OP_TEXT, b"a")) == b""
    assert wire.session.is_stalled
    wire.ear.unsent = 0
    assert wire.resume() == text(b"a")


def test_what_is_said_out_of_turn_is_taken_before_the_turn_ends() -> None:
    wire = Wire()
    wire.send(ws_frame(OP_TEXT, b"a"))
    assert wire.ear.wakes == 0
    wire.line.say(b"news")
    assert wire.ear.wakes == 1


@pytest.mark.parametrize("unsent", [0, STREAM_MAX])
def test_the_other_side_is_asked_though_not_all_has_left(unsent: int) -> None:
    wire = Wire()
    wire.ear.unsent = unsent
    wire.line.look(NOW_MS + SILENCE_MS - 1)
    assert wire.session.take_output() == ping(b"")


def test_it_is_not_asked_behind_what_it_does_not_read_and_given_up_when_silent() -> None:
    wire = Wire()
    wire.ear.unsent = STREAM_MAX + 1
    wire.line.look(NOW_MS + SILENCE_MS - 1)
    assert wire.session.take_output() == b""
    wire.line.look(NOW_MS + SILENCE_MS)
    reason = "the client was silent for too long"
    assert wire.session.take_output() == close(CLOSE_GOING_AWAY, reason)
    assert wire.session.is_finished


def test_after_a_close_nothing_is_heard_or_said() -> None:
    wire = Wire()
    code = CLOSE_NORMAL.to_bytes(2, "big")
    said = wire.send(ws_frame(OP_CLOSE, code), ws_frame(OP_TEXT, b"a"))
    assert said == close(CLOSE_NORMAL, "")
    wire.line.say(b"more")
    wire.line.end(CLOSE_GOING_AWAY, "")
    assert wire.session.take_output() == b""
    assert wire.parrot.story == []


def test_what_is_no_frame_ends_it_behind_the_messages_before() -> None:
    wire = Wire()
    said = wire.send(ws_frame(OP_TEXT, b"a"), ws_frame(OP_TEXT, b"x" * (MESSAGE_MAX + 1)))
    assert said == text(b"a") + close(CLOSE_TOO_LARGE, "message too large")
    assert wire.session.is_finished


def test_a_pong_is_only_a_sign_of_life() -> None:
    wire = Wire()
    assert wire.send(ws_frame(OP_PONG, b"")) == b""
    assert wire.parrot.story == ["pump"]


def test_the_last_words_come_before_the_goodbye() -> None:
    wire = Wire()
    wire.session.half_close(NOW_MS)
    assert wire.session.take_output() == text(b"bye") + close(CLOSE_GOING_AWAY, "")
    wire.session.closed(NOW_MS)
    assert wire.parrot.story == ["gone"]
