"""One request of a session, and the ways to answer it.

A route answers a call at once or later, turns it into a stream, or takes over the connection. This
module does not know what the request means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.errors import Refused, TextDamaged

if TYPE_CHECKING:
    from jobyard.protocols.http.routes import Area, Route
    from jobyard.protocols.http.session import HttpSession
    from jobyard.wire.http.request import HttpRequest

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain; charset=utf-8"
EVENT_STREAM: Final = "text/event-stream"


class HttpRefused(Refused):
    """A call that is refused, with its status and error code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        detail: dict[str, object] | None = None,
        headers: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.detail = detail
        # Further header lines, each with its CRLF.
        self.headers = headers


def corrupt(damage: TextDamaged) -> HttpRefused:
    """Return the refusal of a read of damaged text."""
    detail: dict[str, object] = {"first_seq": damage.first_seq, "last_seq": damage.last_seq}
    return HttpRefused(500, "corrupt", str(damage), detail)


def refuse_encoded(call: HttpCall) -> None:
    """Refuse a compressed body: decompression is not supported."""
    encoding = call.header("content-encoding")
    if encoding and encoding.lower() != "identity":
        raise HttpRefused(415, "unsupported_media_type", "the body must not be compressed")


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class PendingCall:
    """A call that waits; notified when it must stop waiting or can continue."""

    def stop_waiting(self, now_ms: i64) -> None:
        """Answer now, or end the stream."""

    def gone(self, now_ms: i64) -> None:
        """Free everything: the connection is gone."""

    def drained(self, now_ms: i64) -> None:
        """Continue: sent data has left, or there is something new to send."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenPendingCall(PendingCall):
    """Base for interpreted classes, which cannot implement a compiled trait."""


@trait
class UndoIfUnsent:
    """Undoes what an answer reports if the answer is never sent."""

    def lost(self, now_ms: i64) -> None:
        """Undo it: the client did not get the answer."""


@trait
class Slot:
    """A limited resource that a call holds until it is answered."""

    def free(self) -> None:
        """Give the slot back."""


@mypyc_attr(allow_interpreted_subclasses=True)
class UpgradedConnection:
    """A connection that no longer speaks HTTP."""

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Handle input."""

    def stop_waiting(self, now_ms: i64) -> None:
        """End the connection in good order."""

    def gone(self, now_ms: i64) -> None:
        """Free everything: the connection is gone."""

    def drained(self, now_ms: i64) -> None:
        """Continue: sent data has left, or there is something new to send."""

    def unread_size(self) -> i64:
        """Return the size of complete input that waits to be handled."""
        return 0

    def held_size(self) -> i64:
        """Return the size of stored input, complete or not."""
        return 0

    def refuse_input(self, now_ms: i64) -> None:
        """Drop stored input and close: all connections together hold too much."""


@final
class HttpCall:
    """One request and the answer to it."""

    def __init__(self, session: HttpSession, request: HttpRequest, area: Area, now_ms: i64) -> None:
        self.session = session
        self.request = request
        # The area of the path, even if no route matches.
        self.area = area
        self.now_ms: i64 = now_ms
        # Of the path; None if it cannot be decoded.
        self.segments: list[str] | None = None
        self.params: list[str] = []
        self.route: Route | None = None
        # The authenticated caller; its type belongs to the area.
        self.identity: object = None
        self.pending: PendingCall | None = None
        # Freed when the call ends for any reason.
        self.slot: Slot | None = None
        self.is_answered: bool = False
        self.is_streaming: bool = False
        # Of an answer that is being compressed.
        self.unpacked_size: i64 = 0
        # Call `drained` when the session resumes: there may be more to send.
        self.has_more: bool = False
        self._started_us: i64 = session.door.stopwatch.read_us()

    def begin(self, now_ms: i64) -> None:
        """Start the time of the call again: until now its body was being received."""
        self.now_ms = now_ms
        self._started_us = self.session.door.stopwatch.read_us()

    def elapsed_us(self) -> i64:
        """Return how long the call has been served."""
        return self.session.door.stopwatch.read_us() - self._started_us

    def header(self, name: str) -> str:
        """Return a header; empty if it was not sent."""
        return self.request.headers.get(name, "")

    def answering_area(self) -> Area:
        """Return the area that formats a refusal of this call."""
        route = self.route
        return self.area if route is None else route.area

    def is_head(self) -> bool:
        """Return whether this is a HEAD request."""
        return self.request.method == "HEAD"

    def await_batch(self, number: i64, *, is_synced: bool = False) -> None:
        """Let what is written next wait only for batch `number`; `is_synced`: on the disk.

        Answers without this call, and all refusals, wait for everything that was appended.
        """
        session = self.session
        session.enough = max(session.enough, number)
        if is_synced and session.door.yard.journal.is_answered_early():
            session.await_synced(number)

    # -- answers -------------------------------------------------------------------------------

    def answer(
        self, status: i64, body: bytes, content_type: str = JSON_TYPE, headers: bytes = b""
    ) -> None:
        """Answer with a whole body."""
        assert not self.is_answered
        self.is_answered = True
        self.pending = None
        self.session.write_answer(self, status, body, content_type, headers)

    def answer_long(self, pieces: list[bytes]) -> None:
        """Answer with a JSON body that is too long to be joined."""
        assert not self.is_answered
        self.is_answered = True
        self.pending = None
        self.session.write_long_answer(self, pieces)

    def answer_refusal(self, refused: HttpRefused) -> None:
        """Answer with a refusal."""
        route = self.route
        assert route is not None
        self.session.enough = -1
        self.answer(refused.status, route.area.refusal(refused), JSON_TYPE, refused.headers)

    def wait(self, pending: PendingCall) -> None:
        """Answer later; later calls on the connection wait too."""
        self.pending = pending

    # -- streams -------------------------------------------------------------------------------

    def begin_stream(
        self, pending: PendingCall, content_type: str = EVENT_STREAM, headers: bytes = b""
    ) -> None:
        """Begin to answer with a stream.

        A HEAD request is answered by that, and the stream never begins: it would send nothing, and
        nothing would end it.
        """
        if self.is_head():
            self.answer_stream_head(content_type, headers)
            return
        self.pending = pending
        self.is_streaming = True
        self.has_more = True
        self.session.write_stream_head(self, content_type, headers)

    def answer_stream_head(self, content_type: str, headers: bytes) -> None:
        """Answer with the head of a stream only."""
        self.is_answered = True
        self.pending = None
        self.session.write_stream_head(self, content_type, headers)

    def wake(self) -> None:
        """Make sure that `drained` is called before this turn ends: there is more to send."""
        self.has_more = True
        self.session.peer.wake()

    def unsent_size(self) -> i64:
        """Return the size of sent data that has not left yet."""
        return self.session.unsent_size()

    def send(self, data: bytes) -> None:
        """Send more of a stream."""
        self.session.write_chunk(self, data)

    def has_room(self) -> bool:
        """Return whether a stream may send more; if not, it must wait for `drained`."""
        return self.session.has_room()

    def end_stream(self, trailers: bytes = b"") -> None:
        """End a stream in good order; trailers are header lines, each with its CRLF."""
        assert self.is_streaming
        self.is_answered = True
        self.pending = None
        self.session.write_stream_end(self, trailers)

    def break_stream(self) -> None:
        """Break off a stream that cannot be completed, so that clients see it is incomplete."""
        assert self.is_streaming
        self.is_answered = True
        self.pending = None
        self.session.break_off(self)

    def free_slot(self) -> None:
        """Free the slot of this call."""
        slot = self.slot
        if slot is not None:
            self.slot = None
            slot.free()

    def take_over(self, status: i64, headers: bytes, other: UpgradedConnection) -> None:
        """Switch to another protocol, which gets all further input of the connection."""
        self.is_answered = True
        self.session.take_over(status, headers, other)
