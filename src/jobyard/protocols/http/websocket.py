"""A connection that became a WebSocket: what is the same whoever speaks over it.

Whole messages are given to the talk one by one, pings are answered, a close and bytes that are no
frame end it, and who is silent for too long is given up. Messages wait while what was sent has not
left, and while the talk is still busy with one before them. Knows nothing of what is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.protocols.http.call import Call, HttpRefused, TakenOver
from jobyard.wire.http import websocket
from jobyard.wire.http.request import BadHttp
from jobyard.wire.http.websocket import WsMessage, WsReader

if TYPE_CHECKING:
    from jobyard.protocols.http.session import HttpSession

# Of whom nothing is heard for so long, not even an answer to a ping, is not there.
SILENCE_MS: Final = 120_000
# What a message weighs beside its content.
MESSAGE_WEIGHT: Final = 64

_VERSION_HEADER: Final = b"Sec-WebSocket-Version: 13\r\n"


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Talk:
    """What is said over a WebSocket."""

    def heard(self, content: bytes, now_ms: i64, *, is_text: bool) -> None:
        """Take a whole message."""

    def resume(self, now_ms: i64) -> None:
        """Go on with what was held back of messages that were heard."""

    def pump(self, now_ms: i64) -> None:
        """Say what nobody asked for just now; called behind the messages."""

    def unread_size(self) -> i64:
        """Return how much of what was heard waits; while some does no more is given."""
        return 0

    def hurry(self, now_ms: i64) -> None:
        """Say what is still to be said: the socket closes."""

    def gone(self, now_ms: i64) -> None:
        """Let go of everything."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenTalk(Talk):
    """A talk that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class _Silence(Talk):
    """Nothing is said any more."""


_SILENCE: Final = _Silence()


def handshake(call: Call) -> bytes:
    """Return the lines that make the connection of a call a WebSocket; refuse what asks for none.

    The status line and the end of the head are written by who hands the connection over.
    """
    try:
        head = websocket.accept(call.request.headers, b"")
    except BadHttp as bad:
        raise HttpRefused(
            bad.status, "invalid_request", str(bad), headers=_VERSION_HEADER
        ) from None
    return head.partition(b"\r\n")[2][:-2]


@final
class WebSocket(TakenOver):
    """One WebSocket, and the talk over it."""

    def __init__(self, http: HttpSession, talk: Talk, message_max: i64, now_ms: i64) -> None:
        self._http = http
        self._talk = talk
        self._reader = WsReader(message_max)
        self._heard_ms: i64 = now_ms
        # What is written meanwhile is taken at once.
        self.is_running: bool = False
        # The last word was said.
        self.is_over: bool = False

    # -- what comes ----------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Have every complete message heard that may be."""
        self._heard_ms = now_ms
        self._reader.feed(data)
        self._go_on(now_ms)

    def drained(self, now_ms: i64) -> None:
        """Go on with what was held back."""
        self.is_running = True
        self._talk.resume(now_ms)
        self.is_running = False
        self._go_on(now_ms)

    def unread_size(self) -> i64:
        """Return the size of messages that were sent ahead of what can be heard."""
        size = self._talk.unread_size()
        for message in self._reader.messages:
            size += MESSAGE_WEIGHT + len(message.content)
        return size

    def held_size(self) -> i64:
        """Return the size of messages that wait, and of what has come of the next."""
        return self._reader.held_bytes + self.unread_size()

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Hear no more, and say that it may be tried again."""
        self._reader.forget()
        self.end(websocket.CLOSE_TRY_LATER, "out of memory for unfinished messages")

    def has_unread(self) -> bool:
        """Tell whether messages wait."""
        return len(self._reader.messages) > 0 or self._talk.unread_size() > 0

    def _go_on(self, now_ms: i64) -> None:
        messages = self._reader.messages
        talk = self._talk
        self.is_running = True
        done = 0
        while done < len(messages) and talk.unread_size() == 0 and self.has_room():
            self._take(messages[done], now_ms)
            done += 1
        del messages[:done]
        failure = self._reader.failure
        if failure is not None and not messages:
            self.end(failure.code, str(failure))
        if not self.is_over:
            talk.pump(now_ms)
        self.is_running = False

    def _take(self, message: WsMessage, now_ms: i64) -> None:
        self._http.changes_before = self._http.door.yard.changes()
        opcode = message.opcode
        if opcode == websocket.OP_PING:
            self._http.enough = 0
            self.write(websocket.pong(message.content))
        elif opcode == websocket.OP_CLOSE:
            self.end(message.code, "")
        elif opcode != websocket.OP_PONG:
            self._talk.heard(message.content, now_ms, is_text=opcode == websocket.OP_TEXT)

    # -- what goes -----------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Tell whether more may be said; if not, it goes on when there is room."""
        return not self.is_over and self._http.has_room()

    def say(self, content: bytes) -> None:
        """Send a text."""
        self.write(websocket.text(content))

    def say_long(self, pieces: list[bytes]) -> None:
        """Send a text that is too long to be put together."""
        if self.is_over:
            return
        size = sum([len(piece) for piece in pieces])
        self._http.enough = -1
        self._http.write_long([websocket.text_head(size), *pieces])
        if not self.is_running:
            self._http.peer.stirred()

    def write(self, frame: bytes) -> None:
        """Send a frame, if the last word was not said yet."""
        if self.is_over:
            return
        self._http.write(frame)
        if not self.is_running:
            self._http.peer.stirred()

    def look(self, now_ms: i64) -> None:
        """Ask whether the other side is still there, or give it up."""
        if now_ms - self._heard_ms >= SILENCE_MS:
            self.end(websocket.CLOSE_GOING_AWAY, "nothing was heard for too long")
        elif self.has_room():
            self._http.enough = 0
            self.write(websocket.ping(b""))

    # -- the end -------------------------------------------------------------------------------

    def end(self, code: i64, reason: str) -> None:
        """Say the last word; whatever comes after it counts no more."""
        if self.is_over:
            return
        self.write(websocket.close(code, reason))
        self.is_over = True
        self._http.is_finished = True

    def hurry(self, now_ms: i64) -> None:
        """Say goodbye."""
        self._talk.hurry(now_ms)
        self.end(websocket.CLOSE_GOING_AWAY, "")

    def gone(self, now_ms: i64) -> None:
        """Let go of everything."""
        self.is_over = True
        self._reader.forget()
        talk = self._talk
        # It knows this line, and must not be kept by it.
        self._talk = _SILENCE
        talk.gone(now_ms)
