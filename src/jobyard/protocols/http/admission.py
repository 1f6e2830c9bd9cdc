"""Who serves a call, and whether its caller may ask: all that the head of a request decides.

Asked before the body of a request is read, so that who may not send it sends it in vain. A key that
is wrong is told later the more were wrong before, and not compared at all where its address guesses
too fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from jobyard.engine.state.timers import Alarm
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.http.call import Call, HttpRefused, Pending
from jobyard.protocols.http.origins import PREFLIGHT, check_page, foreign
from jobyard.protocols.http.routes import NO_PATH, Area, Node, Route, allowed_methods
from jobyard.wire.http.request import split_path

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.protocols.http.door import HttpDoor
    from jobyard.protocols.http.session import HttpSession
    from jobyard.wire.http.request import HttpRequest


@final
class Admission:
    """What is known of who sends on one connection."""

    def __init__(self, door: HttpDoor) -> None:
        self._door = door
        # The head that was looked at last, and what it told: the origin of a page that is not
        # trusted, and the lines that say who may read the answer.
        self._sender: dict[str, str] = {}
        self._stranger: str = ""
        self.origin_lines: bytes = b""

    def forget(self) -> None:
        """Keep nothing of what was sent."""
        self._sender = {}

    def call_for(self, session: HttpSession, request: HttpRequest, now_ms: i64) -> Call:
        """Return a new call."""
        segments = split_path(request.path)
        known = segments_of(request.path) if segments is None else segments
        call = Call(session, request, self._door.routes.area_of(known), now_ms)
        call.segments = segments
        return call

    def admit(self, call: Call) -> Route | None:
        """Find who serves a call, and see that the caller may ask; None if it is answered."""
        request = call.request
        # Most send the same head again, and nothing new can be told from it.
        if request.headers is not self._sender:
            self._look_at_sender(request, call.area)
        if call.segments is None:
            raise HttpRefused(400, "invalid_request", "the path is malformed")
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
        attempts = self._door.guard.attempts
        client = self._door.proxies.client_of(call)
        if not attempts.may_try(client, call.now_ms) and shows_key(call):
            message = "too many failed attempts, try again later"
            soon = b"Retry-After: 1\r\n"
            raise HttpRefused(429, "throttled", message, headers=soon)
        route.area.admit(call, route)
        return route

    def _look_at_sender(self, request: HttpRequest, area: Area) -> None:
        """Find out by its head whether a request comes from a page, and from which."""
        pages = self._door.pages
        self._sender = {}
        self._stranger = ""
        self.origin_lines = b""
        host = request.headers.get("host", "")
        # Who knows a key is no page that was made to look like one of ours.
        if host and not area.is_guarded():
            pages.check_host(host)
        self._stranger = pages.stranger(request)
        self.origin_lines = pages.lines(request)
        self._sender = request.headers

    def _answer_preflight(self, call: Call) -> bool:
        """Tell a browser what pages of its origin may ask; False if it does not want to know."""
        if self._stranger and call.header("access-control-request-method"):
            raise foreign(self._stranger)
        is_asked = self._door.pages.may_preflight(call.request)
        if is_asked or call.area.is_open_to_options():
            call.answer(204, b"", "", PREFLIGHT)
            return True
        return False


def _answer_other_method(call: Call, node: Node) -> None:
    methods = allowed_methods(node)
    allow = f"Allow: {methods}\r\n".encode()
    if call.request.method != "OPTIONS":
        message = f"this path takes {methods}"
        raise HttpRefused(405, "method_not_allowed", message, headers=allow)
    call.answer(204, b"", "", allow)


def segments_of(path: str) -> list[str]:
    """Return the segments of a path, as they are if they cannot be decoded."""
    return split_path(path) or path[1:].split("/")


def shows_key(call: Call) -> bool:
    """Tell whether a caller shows a key, right or wrong."""
    return "authorization" in call.request.headers or "token=" in call.request.query


def denial_ms(call: Call, refused: HttpRefused) -> i64:
    """Return for how long a refusal is held back; who shows no key made no guess."""
    if refused.status != 401 or not shows_key(call):
        return 0
    session = call.session
    client = session.door.proxies.client_of(call)
    return session.door.guard.attempts.fail(client, call.now_ms)


@final
class Denial(Alarm, Pending):
    """Tells later that a key is wrong."""

    def __init__(self, call: Call, refused: HttpRefused, *, is_early: bool) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._call = call
        self._refused = refused
        # The body of the request was not read.
        self._is_early: bool = is_early

    def ring(self, now_ms: i64) -> None:
        """Tell it."""
        session = self._call.session
        if self._is_early:
            session.refuse_early(self._refused, self._call.area, now_ms)
            session.peer.stirred()
        else:
            self._call.answer_refusal(self._refused)

    def hurry(self, now_ms: i64) -> None:
        """Tell it: the caller sends no more."""
        self.gone(now_ms)
        self.ring(now_ms)

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Nobody is there to be told."""
        self._call.session.door.yard.disarm(self)

    def drained(self, now_ms: i64) -> None:
        """Nothing was sent yet."""
