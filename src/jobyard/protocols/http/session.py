"""One HTTP connection: reads requests, serves them in order, writes the answers.

Pipelined requests wait until the previous one is answered. A connection is a stream while one of
its answers is, and no longer speaks HTTP after an upgrade. A client that sends a request too slowly
gets 408 and is disconnected.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.errors import Refused, StorageFull, TextDamaged, YardFull
from jobyard.protocols.http import compression, limits
from jobyard.protocols.http.admission import Admission, Denial, denial_ms, segments_of
from jobyard.protocols.http.call import (
    JSON_TYPE,
    TEXT_TYPE,
    HttpCall,
    HttpRefused,
    UndoIfUnsent,
    UpgradedConnection,
    corrupt,
)
from jobyard.protocols.http.compression import SIZE_MIN
from jobyard.protocols.http.door import HttpDoor
from jobyard.protocols.http.error_codes import code_of
from jobyard.protocols.http.routes import Area
from jobyard.protocols.login_attempts import STRANGER_MS
from jobyard.protocols.next_turn import NextTurn
from jobyard.protocols.session import OUTPUT_MAX, Peer, Session
from jobyard.protocols.timeout import Timeout
from jobyard.wire.http.request import (
    BadHttp,
    HttpReader,
    HttpRequest,
    chunk,
    last_chunk,
    response,
    response_head,
    stream_head,
)

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@final
class HttpSession(Session):
    """Requests of one connection."""

    def __init__(self, door: HttpDoor, peer: Peer) -> None:
        super().__init__(peer, door.yard.journal)
        self.door = door
        self._reader = HttpReader(door.body_max)
        self._call: HttpCall | None = None
        self._admission = Admission(door)
        self._other: UpgradedConnection | None = None
        # Input that arrived together with the upgrade request.
        self._early: bytes = b""
        self._is_serving: bool = False
        # Pipelined requests wait for it.
        self._turn: NextTurn | None = None
        self._input_ended: bool = False
        # The last answer is written, and further input is ignored.
        self._is_lingering: bool = False
        # The batch that the next write waits for; below zero: everything that was appended.
        self.enough: i64 = -1
        # Undoes the last call if its answer never leaves.
        self.undo: UndoIfUnsent | None = None
        # Created when a request first arrives in more than one piece.
        self._request_timeout: Timeout | None = None
        self._idle_timeout: Timeout | None = None
        self._heard_ms: i64 = 0
        self._since_ms: i64 = 0
        self._came: i64 = 0
        # While a body arrives: the call admitted by its head, or the delayed refusal.
        self._admitted: HttpCall | None = None
        self._denial: Denial | None = None
        door.sessions_count += 1

    # -- the session ---------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Serve every complete request in the input so far."""
        other = self._other
        if other is not None:
            early = self._early
            self._early = b""
            other.receive(early + data, now_ms)
            return
        if self._is_lingering:
            return
        reader = self._reader
        self._heard_ms = now_ms
        if now_ms >= self.door.common_until_ms:
            self.door.set_date(now_ms)
        was_idle = not reader.is_in_head and not reader.is_in_body
        if was_idle:
            self._since_ms = now_ms
            self._came = 0
        self._came += len(data)
        reader.feed(data)
        if reader.is_in_head or reader.is_in_body:
            self._look_later(now_ms + limits.HEAD_MS_MAX)
        self._proceed(now_ms)

    def begin(self, now_ms: i64) -> None:
        """Start the timeouts of a new connection."""
        if self.door.idle_ms > 0:
            self._idle_timeout = Timeout(self.look_at_idle)
            self.door.yard.arm(self._idle_timeout, now_ms + self.door.idle_ms)
        if self.door.routes.is_guarded():
            self._look_later(now_ms + STRANGER_MS)

    def _look_later(self, at_ms: i64) -> None:
        """Check the request at that time, unless an earlier check is scheduled."""
        if self._request_timeout is None:
            self._request_timeout = Timeout(self.look_at_request)
        if self._request_timeout.pos < 0:
            self.door.yard.arm(self._request_timeout, at_ms)

    def _stop_looking(self) -> None:
        if self._request_timeout is not None:
            self.door.yard.disarm(self._request_timeout)

    def held_size(self) -> i64:
        """Return the size of incomplete and pipelined requests and of the current call."""
        other = self._other
        if other is not None:
            return other.held_size() + len(self._early)
        size: i64 = self._reader.held_bytes
        for request in self._reader.requests:
            size += len(request.body)
        call = self._call
        return size if call is None else size + len(call.request.body) + call.unpacked_size

    def refuse_input(self, now_ms: i64) -> None:
        """Refuse an incomplete request; close if another one is not answered yet."""
        other = self._other
        if other is not None:
            other.refuse_input(now_ms)
        elif self._call is not None or self._is_lingering:
            self.is_finished = True
        else:
            message = "out of memory for unfinished requests, try again later"
            detail: dict[str, object] = {"limit": "connection_memory"}
            soon = b"Retry-After: 1\r\n"
            self._refuse_unread(HttpRefused(429, "throttled", message, detail, soon))
            self._linger(now_ms)
        self._reader.forget()

    def look_at_request(self, now_ms: i64) -> None:
        """Disconnect a client that sends a request too slowly."""
        reader = self._reader
        if self._is_lingering:
            self.is_finished = True
            self.peer.wake()
        if self.is_finished or self._other is not None or reader.refusal is not None:
            return
        if not reader.is_in_head and not reader.is_in_body:
            if self._heard_ms == 0:
                # It has never sent anything.
                self.is_finished = True
                self.peer.wake()
            return
        until_ms = self._since_ms + limits.HEAD_MS_MAX
        if reader.is_in_body:
            until_ms = (
                self._since_ms + limits.BODY_GRACE_MS + self._came * 1000 // limits.BODY_BYTES_PER_S
            )
        if now_ms < until_ms:
            self._look_later(until_ms)
            return
        if self._call is None:
            self._refuse_unread(HttpRefused(408, "request_timeout", "the request took too long"))
        self.is_finished = True
        self.peer.wake()

    def look_at_idle(self, now_ms: i64) -> None:
        """Close a connection that has been idle for too long; a waiting call is not idle."""
        idle_timeout = self._idle_timeout
        if idle_timeout is None or self.is_finished:
            return
        reader = self._reader
        is_busy = self._call is not None or self._other is not None or self.unsent_size() > 0
        if is_busy or reader.is_in_head or reader.is_in_body or self._is_lingering:
            self._heard_ms = now_ms
        until_ms = self._heard_ms + self.door.idle_ms
        if now_ms < until_ms:
            self.door.yard.arm(idle_timeout, until_ms)
            return
        self.is_finished = True
        self.peer.wake()

    def _proceed(self, now_ms: i64) -> None:
        """Serve complete requests, one at a time."""
        if self._is_serving or (self._turn is not None and not self._turn.has_come):
            return
        self._turn = None
        self._is_serving = True
        reader = self._reader
        requests = reader.requests
        served: i64 = 0
        while requests and self._call is None and not self.is_finished and self._other is None:
            if len(self.out) > OUTPUT_MAX:
                self.is_stalled = True
                break
            if served == limits.SERVED_MAX:
                self._turn = NextTurn(self.door.yard.tasks, self.peer)
                break
            served += 1
            self._serve(requests.pop(0), now_ms)
        self._is_serving = False
        if self._call is not None or requests or self.is_finished or self._other is not None:
            return
        refusal = reader.refusal
        if refusal is not None:
            self._refuse_malformed(refusal, now_ms)
            return
        unfinished = reader.unfinished()
        if unfinished is not None and not self._admit_early(unfinished, now_ms):
            return
        if reader.wants_continue:
            reader.wants_continue = False
            before: i64 = len(self.out)
            self.out.write(_CONTINUE)
            self.narrow(before, 0)

    def _refuse_malformed(self, refusal: BadHttp, now_ms: i64) -> None:
        if self._is_lingering:
            return
        self._refuse_unread(HttpRefused(refusal.status, code_of(refusal.status), str(refusal)))
        if refusal.status in (413, 431, 505):
            # More of it will arrive; closing at once would discard the answer.
            self._linger(now_ms)

    def _linger(self, now_ms: i64) -> None:
        """Keep reading for a while after a refusal, and discard the input."""
        if not self._input_ended:
            self._is_lingering = True
            self.is_finished = False
            self._stop_looking()
            self._look_later(now_ms + limits.LINGER_MS)

    def _refuse_unread(self, refused: HttpRefused) -> None:
        """Refuse an unreadable request and close: the start of the next one is unknown."""
        self._refuse_by(self.door.routes.area_of(segments_of(self._reader.path() or "/")), refused)

    def _refuse_by(self, area: Area, refused: HttpRefused) -> None:
        before: i64 = len(self.out)
        # The preface of HTTP/2 has no path, so no area's JSON applies; plain text for people.
        is_text = refused.status == 505 and not self._reader.path().startswith("/")
        self.out.write(
            response(
                refused.status,
                f"{refused}\n".encode() if is_text else area.refusal(refused),
                TEXT_TYPE if is_text else JSON_TYPE,
                refused.headers,
                keep_alive=False,
                is_head=False,
                is_1_0=False,
                common=self.door.common,
            )
        )
        # The answer discloses nothing of the yard.
        self.narrow(before, 0)
        self.is_finished = True

    def resume(self, now_ms: i64) -> None:
        """Continue with pipelined requests, and with streams whose output has left."""
        other = self._other
        if other is not None and self._early:
            early = self._early
            self._early = b""
            other.receive(early, now_ms)
        was_stalled = self.is_stalled
        self.is_stalled = False
        if other is not None:
            other.drained(now_ms)
            return
        call = self._call
        if call is not None and call.pending is not None and (was_stalled or call.has_more):
            # Its output is collected after this, without waking the peer.
            self._is_serving = True
            call.pending.drained(now_ms)
            self._is_serving = False
        self._proceed(now_ms)
        if self._input_ended and self._call is None and not self._reader.requests:
            self.is_finished = True

    def half_close(self, now_ms: i64) -> None:
        """Answer waiting calls now: the client has closed its side."""
        other = self._other
        if other is not None:
            other.stop_waiting(now_ms)
            self.is_finished = True
            return
        call = self._call
        while call is not None and call.pending is not None:
            call.pending.stop_waiting(now_ms)
            if not call.is_answered:
                break
            self._proceed(now_ms)
            call = self._call

    def end_input(self, now_ms: i64) -> None:
        """Answer complete requests, then finish."""
        self._input_ended = True
        self.half_close(now_ms)
        self.resume(now_ms)
        if self._call is None:
            self.is_finished = True

    def closed(self, now_ms: i64) -> None:
        """Free the current call and everything else: the connection is gone."""
        self.is_finished = True
        self._stop_looking()
        self._request_timeout = None
        if self._idle_timeout is not None:
            self.door.yard.disarm(self._idle_timeout)
            self._idle_timeout = None
        self._admitted = None
        if self._turn is not None:
            self._turn.leave()
        if self._denial is not None:
            self._denial.gone(now_ms)
            self._denial = None
        self._admission.forget()
        self.door.sessions_count -= 1
        self._reader.forget()
        self._early = b""
        other = self._other
        if other is not None:
            self._other = None
            other.gone(now_ms)
        call = self._call
        if call is not None:
            self._call = None
            call.free_slot()
            pending = call.pending
            call.pending = None
            call.is_answered = True
            call.request.body = b""
            if pending is not None:
                pending.gone(now_ms)
        undo = self.undo
        self.undo = None
        if undo is not None and self.unsent_size() > 0:
            undo.lost(now_ms)
        self.forget_connection()

    def unread_size(self) -> i64:
        """Return the size of pipelined requests that wait."""
        other = self._other
        if other is not None:
            return other.unread_size()
        if self._call is None and self._turn is None:
            return 0
        size = self._reader.held_bytes
        for request in self._reader.requests:
            size += limits.REQUEST_WEIGHT + len(request.body)
        return size

    def doing(self) -> str:
        """Return the method and the route of the current call, for the log."""
        if self._other is not None:
            return "HTTP, upgraded"
        call = self._call
        if call is None:
            return "HTTP"
        # Not the path, which may hold private data.
        return f"HTTP {call.request.method} {'' if call.route is None else call.route.pattern}"

    # -- calls ---------------------------------------------------------------------------------

    def _serve(self, request: HttpRequest, now_ms: i64) -> None:
        self.door.requests_count += 1
        self.changes_before = self.door.yard.changes()
        call = self._admitted
        self._admitted = None
        if call is None or call.request is not request:
            call = self._admission.call_for(self, request, now_ms)
        else:
            call.begin(now_ms)
        # Set first: the route may answer at once.
        self._call = call
        self.undo = None
        self.enough = -1
        try:
            route = call.route if call.route is not None else self._admission.admit(call)
            if route is not None:
                route.serve(call)
        except HttpRefused as refused:
            wait_ms = denial_ms(call, refused)
            if wait_ms == 0:
                self._refuse(call, refused)
            else:
                denial = Denial(call, refused, is_early=False)
                self.door.yard.arm(denial, now_ms + wait_ms)
                call.wait(denial)
        except (YardFull, StorageFull):
            self._refuse(call, HttpRefused(507, "storage_full", "the disk is full"))
        except TextDamaged as damage:
            self._refuse(call, corrupt(damage))
        except Refused as other:
            # Any other refusal of a verb. `other` is a new name: in compiled code a name keeps the
            # type of its first binding, which is HttpRefused for `refused`.
            self._refuse(call, HttpRefused(400, "invalid_request", str(other)))

    def _admit_early(self, request: HttpRequest, now_ms: i64) -> bool:
        """Check the head of a request before its body is read; return False if it was refused."""
        if self._is_lingering:
            return False
        admitted = self._admitted
        if request.method == "OPTIONS" or (admitted is not None and admitted.request is request):
            return True
        call = self._admission.call_for(self, request, now_ms)
        try:
            self._admission.admit(call)
            self._bound_body(call.area)
        except HttpRefused as refused:
            wait_ms = denial_ms(call, refused)
            if wait_ms == 0:
                self.refuse_early(refused, call.area, now_ms)
            else:
                # The body is discarded meanwhile.
                self._is_lingering = True
                self._stop_looking()
                self._reader.forget()
                self._denial = Denial(call, refused, is_early=True)
                self.door.yard.arm(self._denial, now_ms + wait_ms)
            return False
        self._admitted = call
        return True

    def _bound_body(self, area: Area) -> None:
        most = area.body_max()
        if most > 0 and not self._reader.bound_body(most):
            raise HttpRefused(413, "payload_too_large", "Request body too large")

    def refuse_early(self, refused: HttpRefused, area: Area, now_ms: i64) -> None:
        """Refuse a request of which only the head was read; discard its body."""
        self._refuse_by(area, refused)
        self._linger(now_ms)
        self._reader.forget()

    def _refuse(self, call: HttpCall, refused: HttpRefused) -> None:
        assert not call.is_streaming
        # Not the batch that the withheld answer was waiting for.
        self.enough = -1
        call.answer(
            refused.status, call.answering_area().refusal(refused), JSON_TYPE, refused.headers
        )

    # -- answers -------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write data that waits for the batch `enough`, or for everything that was appended."""
        before: i64 = len(self.out)
        self.out.write(data)
        if self.enough >= 0:
            self.narrow(before, self.enough)
            self.enough = -1

    def write_answer(
        self, call: HttpCall, status: i64, body: bytes, content_type: str, headers: bytes
    ) -> None:
        """Write the answer to a call, and end the call."""
        request = call.request
        if len(body) >= SIZE_MIN and status == 200 and compression.is_large(body, content_type):
            if not compression.is_wanted(call) or request.method == "HEAD":
                headers += compression.VARY
            elif len(body) <= compression.COMPRESSED_PIECE_SIZE:
                body = compression.compress(body)
                headers += compression.GZIP_HEADERS
            elif self.undo is None:
                self._write_packed(call, [body], content_type, headers)
                return
        if self._admission.origin_lines:
            headers = self._admission.origin_lines + headers
        keep_alive = self._keeps_alive(request)
        self.write(
            response(
                status,
                body,
                content_type,
                headers,
                keep_alive=keep_alive,
                is_head=request.method == "HEAD",
                is_1_0=request.is_1_0,
                common=self.door.common,
            )
        )
        self._end_call(call, keep_alive=keep_alive)

    def _keeps_alive(self, request: HttpRequest) -> bool:
        is_last = (self._input_ended or self.door.is_draining) and not self._reader.requests
        # After an upgrade request nothing more is read as HTTP.
        return request.keep_alive and not request.is_upgrade and not is_last

    def write_long_answer(self, call: HttpCall, pieces: list[bytes]) -> None:
        """Write a JSON answer in pieces; it waits for everything that was appended."""
        request = call.request
        self.enough = -1
        if compression.is_wanted(call) and request.method != "HEAD" and self.undo is None:
            self._write_packed(call, pieces, JSON_TYPE, b"")
            return
        keep_alive = self._keeps_alive(request)
        size = sum([len(piece) for piece in pieces])
        head = response_head(
            size,
            JSON_TYPE,
            self._admission.origin_lines + compression.VARY,
            keep_alive=keep_alive,
            is_1_0=request.is_1_0,
            common=self.door.common,
        )
        self.write_long([head] if request.method == "HEAD" else [head, *pieces])
        self._end_call(call, keep_alive=keep_alive)

    def _write_packed(
        self, call: HttpCall, pieces: list[bytes], content_type: str, headers: bytes
    ) -> None:
        """Begin an answer that is compressed over several turns."""
        call.is_answered = False
        packing = compression.GzipAnswer(call, pieces)
        call.unpacked_size = packing.size
        call.begin_stream(packing, content_type, compression.GZIP_HEADERS + headers)
        call.wake()

    def write_stream_head(self, call: HttpCall, content_type: str, headers: bytes) -> None:
        """Write the head of a streamed answer."""
        headers = self.door.common + self._admission.origin_lines + headers
        self.write(stream_head(200, content_type, headers, is_1_0=call.request.is_1_0))
        if call.is_answered:
            # A HEAD request.
            self._end_call(call, keep_alive=call.request.keep_alive and not call.request.is_1_0)
        elif not self._is_serving:
            self.peer.wake()

    def write_chunk(self, call: HttpCall, data: bytes) -> None:
        """Write part of a stream."""
        if call.is_answered:
            return
        self.write(data if call.request.is_1_0 else chunk(data))
        if not self._is_serving:
            self.peer.wake()

    def write_stream_end(self, call: HttpCall, trailers: bytes) -> None:
        """Write the end of a stream."""
        if not call.request.is_1_0:
            self.write(last_chunk(trailers))
        self._end_call(call, keep_alive=call.request.keep_alive and not call.request.is_1_0)

    def break_off(self, call: HttpCall) -> None:
        """Close the connection without the end of the stream."""
        self._end_call(call, keep_alive=False)

    def _end_call(self, call: HttpCall, *, keep_alive: bool) -> None:
        if call.slot is not None:
            call.free_slot()
        if self._call is call:
            self._call = None
        if not keep_alive:
            self.is_finished = True
        if not self._is_serving:
            self.peer.wake()

    def has_room(self) -> bool:
        """Return whether a stream may write; if not, `drained` is called when there is room."""
        if self.is_stalled:
            return False
        if self.unsent_size() <= limits.STREAM_MAX:
            return True
        self.is_stalled = True
        return False

    def unsent_size(self) -> i64:
        """Return the size of written data that has not left yet."""
        return len(self.out) + self.peer.unsent_size()

    def take_over(self, status: i64, headers: bytes, other: UpgradedConnection) -> None:
        """Hand the connection over to another protocol."""
        self.write(b"HTTP/1.1 %d Switching Protocols\r\n%s\r\n" % (status, headers))
        self._call = None
        self._other = other
        rest = self._reader.rest
        if rest:
            self._reader.rest = b""
            # Passed on later in this turn: the new protocol is not set up yet.
            self._early = rest
            self.peer.wake()
