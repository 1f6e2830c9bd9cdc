"""One request on its way through a session, and the ways to answer it.

Whoever serves a call answers it at once, or later, or turns it into a stream, or takes the
connection over. Knows nothing of what is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.errors import Refused, TextDamaged

if TYPE_CHECKING:
    from jobyard.protocols.http.routes import Area, Route
    from jobyard.protocols.http.session import HttpSession
    from jobyard.wire.http.request import HttpRequest

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
EVENT_STREAM: Final = "text/event-stream"


class HttpRefused(Refused):
    """A call that cannot be served, with the status to say so."""

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
        # Further lines of the head, each with its end.
        self.headers = headers


def corrupt(damage: TextDamaged) -> HttpRefused:
    """Return the refusal of a read that met damaged text."""
    detail: dict[str, object] = {"first_seq": damage.first_seq, "last_seq": damage.last_seq}
    return HttpRefused(500, "corrupt", str(damage), detail)


def refuse_encoded(call: Call) -> None:
    """Refuse a body that is compressed; all are read as they come."""
    encoding = call.header("content-encoding")
    if encoding and encoding.lower() != "identity":
        raise HttpRefused(415, "unsupported_media_type", "the body must not be compressed")


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Pending:
    """What a call waits for: told when the waiting must end."""

    def hurry(self, now_ms: i64) -> None:
        """Answer now, or end the stream: nothing more is to be waited for."""

    def gone(self, now_ms: i64) -> None:
        """Let go of everything: nobody is there to be answered."""

    def drained(self, now_ms: i64) -> None:
        """Go on: what was sent so far has left, or something has come that can be sent."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenPending(Pending):
    """A wait that need not be compiled: an interpreted class cannot have a compiled trait."""


@trait
class Regret:
    """What is to be undone where an answer was written and never left."""

    def lost(self, now_ms: i64) -> None:
        """Undo it: nobody was told."""


@trait
class Slot:
    """Something of which there are only so many, held for as long as a call is not answered."""

    def free(self) -> None:
        """Make room for another."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TakenOver:
    """A connection that no longer speaks HTTP."""

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Take what has come."""

    def hurry(self, now_ms: i64) -> None:
        """Say goodbye."""

    def gone(self, now_ms: i64) -> None:
        """Let go of everything."""

    def drained(self, now_ms: i64) -> None:
        """Go on: what was sent so far has left, or something has come that can be sent."""

    def unread_size(self) -> i64:
        """Return how much was sent ahead of what can be done."""
        return 0

    def held_size(self) -> i64:
        """Return how much is kept of what was sent."""
        return 0

    def refuse_input(self, now_ms: i64) -> None:
        """Give up what is kept, and say goodbye: all connections together keep too much."""


@final
class Call:
    """One request and the answer to it."""

    def __init__(self, session: HttpSession, request: HttpRequest, area: Area, now_ms: i64) -> None:
        self.session = session
        self.request = request
        # Who answers for the path, known or not.
        self.area = area
        self.now_ms: i64 = now_ms
        # Of the path; None where it cannot be decoded.
        self.segments: list[str] | None = None
        self.params: list[str] = []
        self.route: Route | None = None
        # Who asks, in the words of the API that let them in.
        self.identity: object = None
        self.pending: Pending | None = None
        # Freed when the call has ended, however it does.
        self.slot: Slot | None = None
        self.is_answered: bool = False
        self.is_streaming: bool = False
        # Of an answer that is still to be compressed.
        self.unpacked_size: i64 = 0
        # There may be something to send whenever the connection is called back.
        self.has_more: bool = False
        self._started_us: i64 = session.door.stopwatch.read_us()

    def begin(self, now_ms: i64) -> None:
        """Begin to be served; what came before was the body on its way."""
        self.now_ms = now_ms
        self._started_us = self.session.door.stopwatch.read_us()

    def elapsed_us(self) -> i64:
        """Return for how long the call has been served."""
        return self.session.door.stopwatch.read_us() - self._started_us

    def header(self, name: str) -> str:
        """Return a header, or nothing if it was not sent."""
        return self.request.headers.get(name, "")

    def answering_area(self) -> Area:
        """Return who says no, if that is to be said."""
        route = self.route
        return self.area if route is None else route.area

    def is_head(self) -> bool:
        """Tell whether only the head of the answer is asked for."""
        return self.request.method == "HEAD"

    def await_batch(self, number: i64, *, is_synced: bool = False) -> None:
        """Say that batch `number` is enough for what is written next; `is_synced`: on the disk.

        What is written without such a word, and every refusal, waits for all that was appended.
        """
        session = self.session
        session.enough = max(session.enough, number)
        if is_synced and session.door.yard.journal.is_answered_early():
            session.await_synced(number)

    # -- answers -------------------------------------------------------------------------------

    def answer(
        self, status: i64, body: bytes, content_type: str = JSON, headers: bytes = b""
    ) -> None:
        """Answer with a whole body."""
        assert not self.is_answered
        self.is_answered = True
        self.pending = None
        self.session.write_answer(self, status, body, content_type, headers)

    def answer_long(self, pieces: list[bytes]) -> None:
        """Answer with a body of JSON that is too long to be put together."""
        assert not self.is_answered
        self.is_answered = True
        self.pending = None
        self.session.write_long_answer(self, pieces)

    def answer_refusal(self, refused: HttpRefused) -> None:
        """Answer that the call cannot be served after all."""
        route = self.route
        assert route is not None
        self.session.enough = -1
        self.answer(refused.status, route.area.refusal(refused), JSON, refused.headers)

    def wait(self, pending: Pending) -> None:
        """Leave the answer for later; calls behind this one on the connection wait too."""
        self.pending = pending

    # -- streams -------------------------------------------------------------------------------

    def begin_stream(
        self, pending: Pending, content_type: str = EVENT_STREAM, headers: bytes = b""
    ) -> None:
        """Answer with a body that has no end yet.

        Where only the head is asked for that is all, and the call is answered: nothing more would
        be sent, and nobody would be there to end the stream.
        """
        if self.is_head():
            self.answer_stream_head(content_type, headers)
            return
        self.pending = pending
        self.is_streaming = True
        self.has_more = True
        self.session.write_stream_head(self, content_type, headers)

    def answer_stream_head(self, content_type: str, headers: bytes) -> None:
        """Answer as a stream begins, and end there."""
        self.is_answered = True
        self.pending = None
        self.session.write_stream_head(self, content_type, headers)

    def stir(self) -> None:
        """See that `drained` is called before this turn ends: there is more to send."""
        self.has_more = True
        self.session.peer.stirred()

    def unsent_size(self) -> i64:
        """Return how much was sent that has not left yet."""
        return self.session.unsent_size()

    def send(self, data: bytes) -> None:
        """Send more of a stream."""
        self.session.write_chunk(self, data)

    def has_room(self) -> bool:
        """Tell whether a stream may send more, or should wait to be `drained`."""
        return self.session.has_room()

    def end_stream(self, trailers: bytes = b"") -> None:
        """End a stream in good order; trailers are header lines, each with its end."""
        assert self.is_streaming
        self.is_answered = True
        self.pending = None
        self.session.write_stream_end(self, trailers)

    def break_stream(self) -> None:
        """End a stream that cannot be completed, so that nobody takes it for a whole one."""
        assert self.is_streaming
        self.is_answered = True
        self.pending = None
        self.session.break_off(self)

    def let_go(self) -> None:
        """Free what was held for this call."""
        slot = self.slot
        if slot is not None:
            self.slot = None
            slot.free()

    def take_over(self, status: i64, headers: bytes, other: TakenOver) -> None:
        """Switch to another protocol; what follows on the connection is its input."""
        self.is_answered = True
        self.session.take_over(status, headers, other)
