"""One HTTP connection: reads requests, has them served in order, writes the answers.

Requests that were sent ahead wait until the one before them is answered. A connection is a stream
while one of its answers is, and speaks HTTP no more once it was taken over. A client that takes too
long over a request is answered 408 and cut off.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.errors import Refused, StorageFull, TextDamaged, YardFull
from jobyard.protocols.http import compression
from jobyard.protocols.http.admission import Admission, Denial, denial_ms, segments_of
from jobyard.protocols.http.call import JSON, TEXT, Call, HttpRefused, Regret, TakenOver, corrupt
from jobyard.protocols.http.compression import SIZE_MIN
from jobyard.protocols.http.door import BODY_BYTES_PER_S, BODY_GRACE_MS, HEAD_MS_MAX, HttpDoor
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

# What a request weighs beside its body, about.
REQUEST_WEIGHT: Final = 512

# A stream that has this much on its way waits until all of that has gone.
STREAM_MAX: Final = 256 << 10

# How long one who was refused for the size of a request may go on sending it. Cut off at once, most
# clients would never see why: what they send into a closed connection takes the answer with it.
LINGER_MS: Final = 5000

# Requests that were sent ahead, and are served in one turn.
SERVED_MAX: Final = 16

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@final
class HttpSession(Session):
    """Requests of one connection."""

    def __init__(self, door: HttpDoor, peer: Peer) -> None:
        super().__init__(peer, door.yard.journal)
        self.door = door
        self._reader = HttpReader(door.body_max)
        self._call: Call | None = None
        self._admission = Admission(door)
        self._other: TakenOver | None = None
        # Came with the request that handed the connection over.
        self._early: bytes = b""
        self._is_serving: bool = False
        # Requests that were sent ahead wait for it.
        self._turn: NextTurn | None = None
        self._input_ended: bool = False
        # The last answer is written, and what still comes is not looked at.
        self._is_lingering: bool = False
        # The batch that is enough for what is written next; below zero for all there are.
        self.enough: i64 = -1
        # Of the last call, should its answer never leave.
        self.regret: Regret | None = None
        # Made when a request first comes in more than one piece.
        self._hurry: Timeout | None = None
        self._idleness: Timeout | None = None
        self._heard_ms: i64 = 0
        self._since_ms: i64 = 0
        self._came: i64 = 0
        # Of a request whose body is coming: admitted by its head, or refused, to be told later.
        self._admitted: Call | None = None
        self._denial: Denial | None = None
        door.sessions_count += 1

    # -- the session ---------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Serve every complete request in what has arrived so far."""
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
            self._look_later(now_ms + HEAD_MS_MAX)
        self._go_on(now_ms)

    def begin(self, now_ms: i64) -> None:
        """Give a connection so much time to say anything, and no more."""
        if self.door.idle_ms > 0:
            self._idleness = Timeout(self.look_at_idleness)
            self.door.yard.arm(self._idleness, now_ms + self.door.idle_ms)
        if self.door.routes.is_guarded():
            self._look_later(now_ms + STRANGER_MS)

    def _look_later(self, at_ms: i64) -> None:
        """See that the request is looked at, at that time unless it is before."""
        if self._hurry is None:
            self._hurry = Timeout(self.look_at_request)
        if self._hurry.pos < 0:
            self.door.yard.arm(self._hurry, at_ms)

    def _stop_looking(self) -> None:
        if self._hurry is not None:
            self.door.yard.disarm(self._hurry)

    def held_size(self) -> i64:
        """Return how much came of a request, was sent ahead, or belongs to the call under way."""
        other = self._other
        if other is not None:
            return other.held_size() + len(self._early)
        size: i64 = self._reader.held_bytes
        for request in self._reader.requests:
            size += len(request.body)
        call = self._call
        return size if call is None else size + len(call.request.body) + call.unpacked_size

    def refuse_input(self, now_ms: i64) -> None:
        """Refuse a request that is not all here; close where another is not answered yet."""
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
        """Cut off a client that sends a request too slowly."""
        reader = self._reader
        if self._is_lingering:
            self.is_finished = True
            self.peer.stirred()
        if self.is_finished or self._other is not None or reader.refusal is not None:
            return
        if not reader.is_in_head and not reader.is_in_body:
            if self._heard_ms == 0:
                # It has never said a word.
                self.is_finished = True
                self.peer.stirred()
            return
        until_ms = self._since_ms + HEAD_MS_MAX
        if reader.is_in_body:
            until_ms = self._since_ms + BODY_GRACE_MS + self._came * 1000 // BODY_BYTES_PER_S
        if now_ms < until_ms:
            self._look_later(until_ms)
            return
        if self._call is None:
            self._refuse_unread(HttpRefused(408, "request_timeout", "the request took too long"))
        self.is_finished = True
        self.peer.stirred()

    def look_at_idleness(self, now_ms: i64) -> None:
        """Close a connection that has been idle for too long; one that waits is not idle."""
        idleness = self._idleness
        if idleness is None or self.is_finished:
            return
        reader = self._reader
        is_busy = self._call is not None or self._other is not None or self.unsent_size() > 0
        if is_busy or reader.is_in_head or reader.is_in_body or self._is_lingering:
            self._heard_ms = now_ms
        until_ms = self._heard_ms + self.door.idle_ms
        if now_ms < until_ms:
            self.door.yard.arm(idleness, until_ms)
            return
        self.is_finished = True
        self.peer.stirred()

    def _go_on(self, now_ms: i64) -> None:
        """Serve what is complete, one call at a time."""
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
            if served == SERVED_MAX:
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
            # More of it is on its way; closed at once, the connection would take the answer along.
            self._linger(now_ms)

    def _linger(self, now_ms: i64) -> None:
        """Listen on for a while to one who was refused, and hear nothing."""
        if not self._input_ended:
            self._is_lingering = True
            self.is_finished = False
            self._stop_looking()
            self._look_later(now_ms + LINGER_MS)

    def _refuse_unread(self, refused: HttpRefused) -> None:
        """Say no to what is not a request, and close: where the next one begins is not known."""
        self._refuse_by(self.door.routes.area_of(segments_of(self._reader.path() or "/")), refused)

    def _refuse_by(self, area: Area, refused: HttpRefused) -> None:
        before: i64 = len(self.out)
        # The preface of HTTP/2 asks for no path, so for nobody's JSON; but people may read along.
        is_text = refused.status == 505 and not self._reader.path().startswith("/")
        self.out.write(
            response(
                refused.status,
                f"{refused}\n".encode() if is_text else area.refusal(refused),
                TEXT if is_text else JSON,
                refused.headers,
                keep_alive=False,
                is_head=False,
                is_1_0=False,
                common=self.door.common,
            )
        )
        # Nothing was looked at.
        self.narrow(before, 0)
        self.is_finished = True

    def resume(self, now_ms: i64) -> None:
        """Go on with what was sent ahead, and with streams whose output has gone."""
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
            # What it writes is taken at once.
            self._is_serving = True
            call.pending.drained(now_ms)
            self._is_serving = False
        self._go_on(now_ms)
        if self._input_ended and self._call is None and not self._reader.requests:
            self.is_finished = True

    def half_close(self, now_ms: i64) -> None:
        """Let nothing wait any more: the peer has sent its last."""
        other = self._other
        if other is not None:
            other.hurry(now_ms)
            self.is_finished = True
            return
        call = self._call
        while call is not None and call.pending is not None:
            call.pending.hurry(now_ms)
            if not call.is_answered:
                break
            self._go_on(now_ms)
            call = self._call

    def end_input(self, now_ms: i64) -> None:
        """Answer what is complete; then there is no more to come."""
        self._input_ended = True
        self.half_close(now_ms)
        self.resume(now_ms)
        if self._call is None:
            self.is_finished = True

    def closed(self, now_ms: i64) -> None:
        """Let go of the call under way."""
        self.is_finished = True
        self._stop_looking()
        self._hurry = None
        if self._idleness is not None:
            self.door.yard.disarm(self._idleness)
            self._idleness = None
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
            call.let_go()
            pending = call.pending
            call.pending = None
            call.is_answered = True
            call.request.body = b""
            if pending is not None:
                pending.gone(now_ms)
        regret = self.regret
        self.regret = None
        if regret is not None and self.unsent_size() > 0:
            regret.lost(now_ms)
        self.let_go()

    def unread_size(self) -> i64:
        """Return how much was sent ahead of what can be served."""
        other = self._other
        if other is not None:
            return other.unread_size()
        if self._call is None and self._turn is None:
            return 0
        size = self._reader.held_bytes
        for request in self._reader.requests:
            size += REQUEST_WEIGHT + len(request.body)
        return size

    def doing(self) -> str:
        """Return the method and the route of the call, or what the connection became."""
        if self._other is not None:
            return "HTTP, upgraded"
        call = self._call
        if call is None:
            return "HTTP"
        # Not the path, which may hold what is nobody else's business.
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
        # Set first: whoever serves may answer at once.
        self._call = call
        self.regret = None
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
            # Whatever else a verb refuses, in its own words. The name is new: compiled, a name has
            # the type of what it was first bound to, and this is no HttpRefused.
            self._refuse(call, HttpRefused(400, "invalid_request", str(other)))

    def _admit_early(self, request: HttpRequest, now_ms: i64) -> bool:
        """Look at the head of a request before its body is read; False if it was refused."""
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
                # Nothing of the body is kept meanwhile.
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
        """Refuse a request of which only the head was read; of its body nothing is kept."""
        self._refuse_by(area, refused)
        self._linger(now_ms)
        self._reader.forget()

    def _refuse(self, call: Call, refused: HttpRefused) -> None:
        assert not call.is_streaming
        # Whatever was enough for the answer that is not given.
        self.enough = -1
        call.answer(refused.status, call.answering_area().refusal(refused), JSON, refused.headers)

    # -- answers -------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write something that waits for all that was appended, or for as much as is `enough`."""
        before: i64 = len(self.out)
        self.out.write(data)
        if self.enough >= 0:
            self.narrow(before, self.enough)
            self.enough = -1

    def write_answer(
        self, call: Call, status: i64, body: bytes, content_type: str, headers: bytes
    ) -> None:
        """Write the answer to a call, and be ready for the next."""
        request = call.request
        if len(body) >= SIZE_MIN and status == 200 and compression.is_large(body, content_type):
            if not compression.is_wanted(call) or request.method == "HEAD":
                headers += compression.VARY
            elif len(body) <= compression.PIECE_SIZE:
                body = compression.compress(body)
                headers += compression.LINES
            elif self.regret is None:
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
        # Behind a request for another protocol nothing is read as HTTP any more.
        return request.keep_alive and not request.is_upgrade and not is_last

    def write_long_answer(self, call: Call, pieces: list[bytes]) -> None:
        """Write an answer of JSON in pieces, which waits for all that was appended."""
        request = call.request
        self.enough = -1
        if compression.is_wanted(call) and request.method != "HEAD" and self.regret is None:
            self._write_packed(call, pieces, JSON, b"")
            return
        keep_alive = self._keeps_alive(request)
        size = sum([len(piece) for piece in pieces])
        head = response_head(
            size,
            JSON,
            self._admission.origin_lines + compression.VARY,
            keep_alive=keep_alive,
            is_1_0=request.is_1_0,
            common=self.door.common,
        )
        self.write_long([head] if request.method == "HEAD" else [head, *pieces])
        self._end_call(call, keep_alive=keep_alive)

    def _write_packed(
        self, call: Call, pieces: list[bytes], content_type: str, headers: bytes
    ) -> None:
        """Begin an answer that is compressed over several turns."""
        call.is_answered = False
        packing = compression.Packing(call, pieces)
        call.unpacked_size = packing.size
        call.begin_stream(packing, content_type, compression.LINES + headers)
        call.stir()

    def write_stream_head(self, call: Call, content_type: str, headers: bytes) -> None:
        """Write the head of an answer whose body comes bit by bit."""
        headers = self.door.common + self._admission.origin_lines + headers
        self.write(stream_head(200, content_type, headers, is_1_0=call.request.is_1_0))
        if call.is_answered:
            # Only the head was asked for.
            self._end_call(call, keep_alive=call.request.keep_alive and not call.request.is_1_0)
        elif not self._is_serving:
            self.peer.stirred()

    def write_chunk(self, call: Call, data: bytes) -> None:
        """Write some of a stream."""
        if call.is_answered:
            return
        self.write(data if call.request.is_1_0 else chunk(data))
        if not self._is_serving:
            self.peer.stirred()

    def write_stream_end(self, call: Call, trailers: bytes) -> None:
        """Write the end of a stream."""
        if not call.request.is_1_0:
            self.write(last_chunk(trailers))
        self._end_call(call, keep_alive=call.request.keep_alive and not call.request.is_1_0)

    def break_off(self, call: Call) -> None:
        """Leave a stream without its end, and close."""
        self._end_call(call, keep_alive=False)

    def _end_call(self, call: Call, *, keep_alive: bool) -> None:
        if call.slot is not None:
            call.let_go()
        if self._call is call:
            self._call = None
        if not keep_alive:
            self.is_finished = True
        if not self._is_serving:
            self.peer.stirred()

    def has_room(self) -> bool:
        """Tell whether a stream may write; if not, it is called again when there is room."""
        if self.is_stalled:
            return False
        if self.unsent_size() <= STREAM_MAX:
            return True
        self.is_stalled = True
        return False

    def unsent_size(self) -> i64:
        """Return how much was written that has not left yet."""
        return len(self.out) + self.peer.unsent_size()

    def take_over(self, status: i64, headers: bytes, other: TakenOver) -> None:
        """Let something else speak on this connection from here on."""
        self.write(b"HTTP/1.1 %d Switching Protocols\r\n%s\r\n" % (status, headers))
        self._call = None
        self._other = other
        rest = self._reader.rest
        if rest:
            self._reader.rest = b""
            # Later in this turn: whoever takes over is not ready yet.
            self._early = rest
            self.peer.stirred()
