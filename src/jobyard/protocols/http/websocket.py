"""A connection that became a WebSocket: the part that all protocols over it share.

Whole messages are passed to the message receiver one by one. Pings are answered, a close frame or
an invalid frame ends the connection, and a client that is silent for too long is disconnected.
Messages wait while sent data has not left, and while the receiver is busy with an earlier one.
This module does not know what messages mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.protocols.http.call import HttpCall, HttpRefused, UpgradedConnection
from jobyard.wire.http import websocket
from jobyard.wire.http.request import BadHttp
from jobyard.wire.http.websocket import WsMessage, WsReader

if TYPE_CHECKING:
    from jobyard.protocols.http.session import HttpSession

# A client that sends nothing for this long, not even a pong, is considered gone.
SILENCE_MS: Final = 120_000
# Approximate memory of a message in addition to its content.
MESSAGE_WEIGHT: Final = 64

_VERSION_HEADER: Final = b"Sec-WebSocket-Version: 13\r\n"


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class MessageReceiver:
    """Handles the messages of a WebSocket."""

    def heard(self, content: bytes, now_ms: i64, *, is_text: bool) -> None:
        """Handle a whole message."""

    def resume(self, now_ms: i64) -> None:
        """Continue with messages that were received but held back."""

    def pump(self, now_ms: i64) -> None:
        """Send unsolicited messages; called after the received ones are handled."""

    def unread_size(self) -> i64:
        """Return the size of received messages that wait; no more are passed on until it is 0."""
        return 0

    def stop_waiting(self, now_ms: i64) -> None:
        """Send the last messages: the socket closes."""

    def gone(self, now_ms: i64) -> None:
        """Free everything: the connection is gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenMessageReceiver(MessageReceiver):
    """Base for interpreted classes, which cannot implement a compiled trait."""


@final
class _NoReceiver(MessageReceiver):
    """Receiver of a socket that is closed."""


_SILENCE: Final = _NoReceiver()


def handshake(call: HttpCall) -> bytes:
    """Return the header lines that accept a WebSocket; refuse an invalid handshake.

    The caller writes the status line and the end of the head.
    """
    try:
        head = websocket.accept(call.request.headers, b"")
    except BadHttp as bad:
        raise HttpRefused(
            bad.status, "invalid_request", str(bad), headers=_VERSION_HEADER
        ) from None
    return head.partition(b"\r\n")[2][:-2]


@final
class WebSocket(UpgradedConnection):
    """One WebSocket and its message receiver."""

    def __init__(
        self, http: HttpSession, receiver: MessageReceiver, message_max: i64, now_ms: i64
    ) -> None:
        self._http = http
        self._receiver = receiver
        self._reader = WsReader(message_max)
        self._heard_ms: i64 = now_ms
        # While set, output is collected by the caller, and the peer need not be woken.
        self.is_running: bool = False
        # A close frame was sent.
        self.is_over: bool = False

    # -- input ---------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Pass complete messages on, as far as the receiver and the output allow."""
        self._heard_ms = now_ms
        self._reader.feed(data)
        self._proceed(now_ms)

    def drained(self, now_ms: i64) -> None:
        """Continue with messages that were held back."""
        self.is_running = True
        self._receiver.resume(now_ms)
        self.is_running = False
        self._proceed(now_ms)

    def unread_size(self) -> i64:
        """Return the size of complete messages that wait."""
        size = self._receiver.unread_size()
        for message in self._reader.messages:
            size += MESSAGE_WEIGHT + len(message.content)
        return size

    def held_size(self) -> i64:
        """Return the size of complete messages that wait and of the incomplete one."""
        return self._reader.held_bytes + self.unread_size()

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Drop the input and close with the code for "try again later"."""
        self._reader.forget()
        self.end(websocket.CLOSE_TRY_LATER, "out of memory for unfinished messages")

    def has_unread(self) -> bool:
        """Return whether messages wait."""
        return len(self._reader.messages) > 0 or self._receiver.unread_size() > 0

    def _proceed(self, now_ms: i64) -> None:
        messages = self._reader.messages
        receiver = self._receiver
        self.is_running = True
        done = 0
        while done < len(messages) and receiver.unread_size() == 0 and self.has_room():
            self._take(messages[done], now_ms)
            done += 1
        del messages[:done]
        failure = self._reader.failure
        if failure is not None and not messages:
            self.end(failure.code, str(failure))
        if not self.is_over:
            receiver.pump(now_ms)
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
            self._receiver.heard(message.content, now_ms, is_text=opcode == websocket.OP_TEXT)

    # -- output --------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether there is room to send; if not, `drained` is called when there is."""
        return not self.is_over and self._http.has_room()

    def say(self, content: bytes) -> None:
        """Send a text message."""
        self.write(websocket.text(content))

    def say_long(self, pieces: list[bytes]) -> None:
        """Send a text message that is too long to be joined."""
        if self.is_over:
            return
        size = sum([len(piece) for piece in pieces])
        self._http.enough = -1
        self._http.write_long([websocket.text_head(size), *pieces])
        if not self.is_running:
            self._http.peer.wake()

    def write(self, frame: bytes) -> None:
        """Send a frame, unless a close frame was sent."""
        if self.is_over:
            return
        self._http.write(frame)
        if not self.is_running:
            self._http.peer.wake()

    def look(self, now_ms: i64) -> None:
        """Ping the client, or close if it has been silent for too long."""
        if now_ms - self._heard_ms >= SILENCE_MS:
            self.end(websocket.CLOSE_GOING_AWAY, "the client was silent for too long")
        elif self.has_room():
            self._http.enough = 0
            self.write(websocket.ping(b""))

    # -- the end -------------------------------------------------------------------------------

    def end(self, code: i64, reason: str) -> None:
        """Send a close frame and ignore all further input."""
        if self.is_over:
            return
        self.write(websocket.close(code, reason))
        self.is_over = True
        self._http.is_finished = True

    def stop_waiting(self, now_ms: i64) -> None:
        """Send the last messages and close."""
        self._receiver.stop_waiting(now_ms)
        self.end(websocket.CLOSE_GOING_AWAY, "")

    def gone(self, now_ms: i64) -> None:
        """Free everything: the connection is gone."""
        self.is_over = True
        self._reader.forget()
        receiver = self._receiver
        # Break the reference cycle: the receiver refers to this socket.
        self._receiver = _SILENCE
        receiver.gone(now_ms)
