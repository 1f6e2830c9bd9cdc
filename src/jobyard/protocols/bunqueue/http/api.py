"""bunqueue's HTTP API as an area of the HTTP port: its tokens, rate limit and form of errors.

Makes a route of every row in the tables of commands and pages; the parameters and body of a call
become the fields of the command that the row names.
"""

import json
from typing import Final, final

from mypy_extensions import i64

from jobyard.model.secrets import is_one_of
from jobyard.protocols.bunqueue.commands.push_options import DATA_MAX
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.http.hub import EventsEndpoint, Hub
from jobyard.protocols.bunqueue.http.long_json import BODY_AT_ONCE, PackTask
from jobyard.protocols.bunqueue.http.pages import PAGES, SCRAPE, RoutedPage, prometheus
from jobyard.protocols.bunqueue.http.routes import (
    ANY_BODY,
    NEEDS_BODY,
    NO_BODY,
    ROWS,
    TAKING,
    Row,
)
from jobyard.protocols.bunqueue.http.runner import CommandRunners, read_object
from jobyard.protocols.bunqueue.http.websocket import SocketEndpoint
from jobyard.protocols.http.call import HttpCall, HttpRefused, refuse_encoded
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.http.routes import OPEN, Area, Route, Routes, RouteSchemas, Schema, named
from jobyard.wire.http.accept import names
from jobyard.wire.http.request import parse_query

_BEARER: Final = "bearer "
# The data of one job, or of several smaller ones, and 1 MiB for the other fields.
API_BODY_MAX: Final = DATA_MAX + (1 << 20)

# Clients counted separately in one window; all further clients share one count.
CALLERS_MAX: Final = 10_000
ANYBODY: Final = ""

_REFUSAL: Final[Schema] = {
    "title": "BunqueueRefusal",
    "type": "object",
    "required": ["ok", "error"],
    "properties": {"ok": {"const": False}, "error": {"type": "string"}},
}
_ANSWER: Final[Schema] = {
    "title": "BunqueueAnswer",
    "anyOf": [
        {
            "type": "object",
            "required": ["ok"],
            "properties": {"ok": {"type": "boolean"}},
            "additionalProperties": True,
        },
        {"type": "array"},
    ],
}

# The original's error texts, by our codes.
_WORDS: Final = {
    "not_found": "Not found",
    "method_not_allowed": "Method not allowed",
}


@final
class BunqueueArea(Area):
    """All paths of the port that do not belong to the topics API."""

    def __init__(self, door: BunqueueDoor) -> None:
        self.door = door
        self.runners = CommandRunners(door)
        self.hub = Hub(self.runners)
        self._window_ends_ms: i64 = 0
        self._asked: dict[str, int] = {}

    # -- authentication and rate limit ---------------------------------------------------------

    def admit(self, call: HttpCall, route: Route) -> None:
        """Refuse a client that exceeds the rate limit or lacks a required token."""
        action = route.action
        if action == OPEN:
            return
        if self.door.requests_max > 0 and not self._may_ask(call):
            wait_s = max(1, (self._window_ends_ms - call.now_ms + 999) // 1000)
            header = b"Retry-After: %d\r\n" % wait_s
            self._publish("ratelimit:hit")
            raise HttpRefused(429, "rate_limited", "Rate limit exceeded", headers=header)
        door = self.door
        if action == SCRAPE and not door.guards_metrics:
            return
        if action == SCRAPE and not door.tokens:
            error = "Metrics authentication is enabled but no tokens are configured"
            raise HttpRefused(503, "no_tokens", error)
        if door.tokens and not self._knows_token(call, route):
            self._publish("auth:failed")
            raise HttpRefused(401, "unauthorized", "Unauthorized")

    def _publish(self, name: str) -> None:
        observer = self.door.observer
        if observer is not None:
            observer.publish(name, {"transport": "http"})

    def _may_ask(self, call: HttpCall) -> bool:
        if call.now_ms >= self._window_ends_ms:
            self._window_ends_ms = call.now_ms + self.door.window_ms
            self._asked.clear()
        caller = call.session.door.proxies.client_of(call)
        if caller not in self._asked and len(self._asked) >= CALLERS_MAX:
            caller = ANYBODY
        count = self._asked.get(caller, 0) + 1
        self._asked[caller] = count
        return count <= self.door.requests_max

    def _knows_token(self, call: HttpCall, route: Route) -> bool:
        shown = call.header("authorization")
        token = shown[len(_BEARER) :].strip() if shown[: len(_BEARER)].lower() == _BEARER else ""
        if not token and route.is_stream:
            # Browsers cannot set a header on a stream of events or a WebSocket.
            token = parse_query(call.request.query).get("token", "")
        return is_one_of(token.encode("utf-8", "replace"), self.door.tokens)

    # -- common to all routes ------------------------------------------------------------------

    def body_max(self) -> int:
        """Return the largest body: the data of one job and 1 MiB."""
        return API_BODY_MAX

    def refusal(self, refused: HttpRefused) -> bytes:
        """Return the body of an error response."""
        error = _WORDS.get(refused.code, str(refused))
        return json.dumps({"ok": False, "error": error}, separators=(",", ":")).encode()

    def is_open_to_options(self) -> bool:
        """Answer OPTIONS on every path, as the original does."""
        return True

    def is_guarded(self) -> bool:
        """Return whether the API requires a token."""
        return len(self.door.tokens) > 0

    # -- OpenAPI -------------------------------------------------------------------------------

    def name(self) -> str:
        """Return the name of the API."""
        return "bunqueue"

    def refusal_schema(self) -> Schema:
        """Return the schema of an error response."""
        return _REFUSAL

    def answer_schema(self) -> Schema:
        """Return the schema of any other response; some refusals have status 200, too."""
        return _ANSWER

    def scopes(self, route: Route) -> list[str] | None:
        """Return the scopes a route needs: [] if any valid token will do, None without a token."""
        return None if not self.door.tokens or route.action in (OPEN, SCRAPE) else []


def _wants_text(call: HttpCall) -> bool:
    """Return whether a scraper asks: it accepts text and, unlike API clients, not JSON."""
    accept = call.header("accept")
    return names(accept, "text/plain") and not names(accept, "application/json")


@final
class CommandEndpoint:
    """Serves one row of the table."""

    def __init__(self, runners: CommandRunners, row: Row) -> None:
        self._runners = runners
        self._row = row

    def serve(self, call: HttpCall) -> None:
        """Run the command of the row and send its answer."""
        row = self._row
        if row.command == "PULL" and call.request.method == "HEAD":
            # HEAD must not take a job.
            raise HttpRefused(
                405, "method_not_allowed", "", headers=b"Allow: GET, OPTIONS, POST\r\n"
            )
        if row.command == "Metrics" and _wants_text(call):
            prometheus(self._runners, call)
            return
        if row.body != NO_BODY and len(call.request.body) > BODY_AT_ONCE:
            self._read_long(call)
        else:
            self._run(call, self._body(call))

    def _read_long(self, call: HttpCall) -> None:
        """Parse a long body over several turns, then run the command."""
        refuse_encoded(call)
        task = PackTask(call.request.body)
        tasks = self._runners.door.yard.tasks
        LongCall(tasks, call, task, lambda: self._run_long(call, task)).begin()

    def _run_long(self, call: HttpCall, task: PackTask) -> None:
        try:
            fields = task.fields()
        except HttpRefused:
            if self._row.body != ANY_BODY:
                raise
            fields = {}
        self._run(call, fields)

    def _run(self, call: HttpCall, fields: dict[str, object]) -> None:
        row = self._row
        for at, name in enumerate(row.names):
            fields[name] = call.params[at]
        # Fields of the protocol that HTTP clients must not set.
        fields.pop("cmd", None)
        fields.pop("reqId", None)
        if row.read is not None:
            row.read(fields, parse_query(call.request.query))
        self._runners.serve(call, {"cmd": row.command, **fields}, row.refused, row.show)

    def _body(self, call: HttpCall) -> dict[str, object]:
        kind = self._row.body
        body = call.request.body
        if kind == NO_BODY or (kind != NEEDS_BODY and not body.strip()):
            return {}
        refuse_encoded(call)
        try:
            return read_object(body)
        except HttpRefused:
            if kind == ANY_BODY:
                return {}
            raise


@final
class PageEndpoint:
    """Serves one page."""

    def __init__(self, runners: CommandRunners, page: RoutedPage) -> None:
        self._runners = runners
        self._page = page

    def serve(self, call: HttpCall) -> None:
        """Answer with the page."""
        self._page.serve(self._runners, call)


def install(routes: Routes, area: BunqueueArea) -> None:
    """Add every route of the API."""
    _add_rows(routes, area)
    _add_pages(routes, area)
    _add_streams(routes, area)


def _add_rows(routes: Routes, area: BunqueueArea) -> None:
    for row in ROWS:
        body: Schema | None = None if row.body == NO_BODY else {"type": "object"}
        shape = RouteSchemas(body, needs_body=row.body == NEEDS_BODY, query=named(row.query))
        routes.add(
            Route(
                row.method,
                row.pattern,
                CommandEndpoint(area.runners, row).serve,
                area,
                is_change=row.command in TAKING,
                summary=row.summary,
                shape=shape,
            )
        )


def _add_pages(routes: Routes, area: BunqueueArea) -> None:
    for page in PAGES:
        routes.add(
            Route(
                page.method,
                page.pattern,
                PageEndpoint(area.runners, page).serve,
                area,
                action=page.action,
                summary=page.summary,
                shape=RouteSchemas(query=named(page.query), texts=page.texts),
            )
        )


def _add_streams(routes: Routes, area: BunqueueArea) -> None:
    events = EventsEndpoint(area.hub)
    sockets = SocketEndpoint(area.hub)
    summary = "Stream events (server-sent events)."
    spoken = "Send commands and receive events over a WebSocket."
    for below in ("", "/queues/{queue}"):
        routes.add(
            Route("GET", f"/events{below}", events.serve, area, is_stream=True, summary=summary)
        )
        shape = RouteSchemas(answers={101: {}}, refusals=(400, 426, 503))
        path = f"/ws{below}"
        routes.add(
            Route(
                "GET",
                path,
                sockets.serve,
                area,
                is_stream=True,
                summary=spoken,
                shape=shape,
            )
        )
