"""Finds the route of a call and checks its caller, from the head of the request alone.

This happens before the body is read, so the body of a refused request is never stored. The refusal
of a wrong key is delayed, longer with each failure, and no key is compared while its address
fails too often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from jobyard.engine.state.timers import Alarm
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.http.call import HttpCall, HttpRefused, PendingCall
from jobyard.protocols.http.origins import PREFLIGHT, check_page, foreign
from jobyard.protocols.http.routes import NO_PATH, Area, Route, RouteNode, allowed_methods
from jobyard.wire.http.request import split_path

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.protocols.http.door import HttpDoor
    from jobyard.protocols.http.session import HttpSession
    from jobyard.wire.http.request import HttpRequest


@final
class Admission:
    """Admits the requests of one connection."""

    def __init__(self, door: HttpDoor) -> None:
        self._door = door
        # The headers that were checked last, and the result: the origin of a web page that is not
        # trusted, and the CORS header lines of the answer.
        self._sender: dict[str, str] = {}
        self._stranger: str = ""
        self.origin_lines: bytes = b""

    def forget(self) -> None:
        """Forget the headers of the last request."""
        self._sender = {}

    def call_for(self, session: HttpSession, request: HttpRequest, now_ms: i64) -> HttpCall:
        """Return a new call."""
        segments = split_path(request.path)
        known = segments_of(request.path) if segments is None else segments
        call = HttpCall(session, request, self._door.routes.area_of(known), now_ms)
        call.segments = segments
        return call

    def admit(self, call: HttpCall) -> Route | None:
        """Find the route of a call and check the caller; None if the call is answered already."""
        request = call.request
        # Most clients send the same headers again, and the reader then reuses the same dict.
        if request.headers is not self._sender:
            self._look_at_sender(request, call.area)
        if call.segments is None:
            raise HttpRefused(400, "invalid_request", "malformed path")
        method = request.method
        if method == "OPTIONS" and self._answer_preflight(call):
            return None
        node = self._door.routes.node(call.segments, call.params)
        if node is None:
            raise HttpRefused(404, "not_found", NO_PATH)
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            _answer_other_method(call, node)
            return None
        call.route = route
        if self._stranger:
            check_page(self._stranger, request, route)
        attempts = self._door.shared_limits.attempts
        client = self._door.proxies.client_of(call)
        if not attempts.may_try(client, call.now_ms) and shows_key(call):
            message = "too many failed attempts, try again later"
            soon = b"Retry-After: 1\r\n"
            raise HttpRefused(429, "throttled", message, headers=soon)
        route.area.admit(call, route)
        return route

    def _look_at_sender(self, request: HttpRequest, area: Area) -> None:
        """Find out from the headers whether a request comes from a web page, and from which."""
        pages = self._door.pages
        self._sender = {}
        self._stranger = ""
        self.origin_lines = b""
        host = request.headers.get("host", "")
        # Where a key is required, DNS rebinding gains nothing: the page does not have the key.
        if host and not area.is_guarded():
            pages.check_host(host)
        self._stranger = pages.stranger(request)
        self.origin_lines = pages.lines(request)
        self._sender = request.headers

    def _answer_preflight(self, call: HttpCall) -> bool:
        """Answer a CORS preflight; return False if the request is not one."""
        if self._stranger and call.header("access-control-request-method"):
            raise foreign(self._stranger)
        is_asked = self._door.pages.may_preflight(call.request)
        if is_asked or call.area.is_open_to_options():
            call.answer(204, b"", "", PREFLIGHT)
            return True
        return False


def _answer_other_method(call: HttpCall, node: RouteNode) -> None:
    methods = allowed_methods(node)
    allow = f"Allow: {methods}\r\n".encode()
    if call.request.method != "OPTIONS":
        message = f"this path supports {methods}"
        raise HttpRefused(405, "method_not_allowed", message, headers=allow)
    call.answer(204, b"", "", allow)


def segments_of(path: str) -> list[str]:
    """Return the segments of a path, undecoded if they cannot be decoded."""
    return split_path(path) or path[1:].split("/")


def shows_key(call: HttpCall) -> bool:
    """Return whether a caller sends a key, right or wrong."""
    return "authorization" in call.request.headers or "token=" in call.request.query


def denial_ms(call: HttpCall, refused: HttpRefused) -> i64:
    """Return how long to delay a refusal; a call without a key is not a guess."""
    if refused.status != 401 or not shows_key(call):
        return 0
    session = call.session
    client = session.door.proxies.client_of(call)
    return session.door.shared_limits.attempts.fail(client, call.now_ms)


@final
class Denial(Alarm, PendingCall):
    """Delays the refusal of a wrong key."""

    def __init__(self, call: HttpCall, refused: HttpRefused, *, is_early: bool) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._call = call
        self._refused = refused
        # The body of the request was not read.
        self._is_early: bool = is_early

    def ring(self, now_ms: i64) -> None:
        """Send the refusal."""
        session = self._call.session
        if self._is_early:
            session.refuse_early(self._refused, self._call.area, now_ms)
            session.peer.wake()
        else:
            self._call.answer_refusal(self._refused)

    def stop_waiting(self, now_ms: i64) -> None:
        """Send the refusal now: the client has closed its side."""
        self.gone(now_ms)
        self.ring(now_ms)

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Cancel the refusal: the connection is gone."""
        self._call.session.door.yard.disarm(self)

    def drained(self, now_ms: i64) -> None:
        """Ignore it: nothing is sent before the answer."""
