"""The topics API as an area of the HTTP port: its keys, and its way of saying no."""

import json
from typing import Final, final

from jobyard.protocols.http.call import JSON, Call, HttpRefused
from jobyard.protocols.http.routes import OPEN, Area, Route, Schema
from jobyard.protocols.topics.api_keys import Key, find_key
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.names import EVENTS
from jobyard.wire.http.accept import admits
from jobyard.wire.http.request import parse_query

_BEARER: Final = "bearer "
# What most clients say they take.
ANYTHING: Final = "*/*"
# Any key will do: what it opens is asked later.
ANY_KEY: Final = "any"
# What asks whether the server is well; open to everybody unless the server is told otherwise.
PROBE: Final = "probe"
# What a topic may be called.
NAME: Final[Schema] = {
    "title": "TopicName",
    "type": "string",
    "pattern": "^([A-Za-z0-9][A-Za-z0-9._:-]{0,254}|_events)$",
}
# The body that says no.
ERROR: Final[Schema] = {
    "title": "TopicsError",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "What programs go by."},
                "message": {"type": "string", "description": "For people."},
                "detail": {"type": "object"},
            },
        }
    },
}


@final
class TopicsArea(Area):
    """Paths below /v0."""

    def __init__(self, door: TopicsDoor) -> None:
        self.door = door

    def admit(self, call: Call, route: Route) -> None:
        """Refuse a caller without a key, or whose key does not open this."""
        if self._is_open(route):
            return
        accept = call.header("accept")
        if accept and accept not in (ANYTHING, JSON) and not route.is_stream:
            _check_accept(accept, call, route)
        keys = self.door.keys
        if not keys:
            return
        key = find_key(keys, _shown_key(call, route))
        if key is None:
            challenge = b"WWW-Authenticate: Bearer\r\n"
            needed = "a key is needed: Authorization: Bearer KEY"
            raise HttpRefused(401, "unauthorized", needed, headers=challenge)
        if route.action not in (ANY_KEY, PROBE) and not key.may(route.action):
            raise HttpRefused(403, "forbidden", f"this key may not {route.action}")
        call.identity = key
        if "{topic}" in route.pattern:
            check_name(call, call.params[0])

    def refusal(self, refused: HttpRefused) -> bytes:
        """Return the body that says no."""
        error: dict[str, object] = {"code": refused.code, "message": str(refused)}
        if refused.detail is not None:
            error["detail"] = refused.detail
        return json.dumps({"error": error}, separators=(",", ":")).encode()

    def is_guarded(self) -> bool:
        """Tell whether nobody is served without a key."""
        return len(self.door.keys) > 0

    def name(self) -> str:
        """Return what the API is called."""
        return "topics"

    def refusal_schema(self) -> Schema:
        """Return the schema of a body that says no."""
        return ERROR

    def segment_schema(self, name: str) -> Schema:
        """Return the schema of what stands in braces."""
        return NAME if name == "topic" else super().segment_schema(name)

    def refusals(self, route: Route) -> tuple[int, ...]:
        """Return the statuses of answers that say no to any route."""
        return () if self._is_open(route) else (406,)

    def scopes(self, route: Route) -> list[str] | None:
        """Return what a caller's key must allow; None if no key is asked for."""
        if not self.door.keys or self._is_open(route):
            return None
        return [] if route.action in (ANY_KEY, PROBE) else route.action.split("+")

    def _is_open(self, route: Route) -> bool:
        return route.action == OPEN or (route.action == PROBE and not self.door.guards_probes)


def _check_accept(accept: str, call: Call, route: Route) -> None:
    """Refuse a caller who takes nothing of what there is; streams look for themselves."""
    if call.request.is_upgrade:
        return
    kinds = (JSON, *route.shape.texts)
    if not any(admits(accept, kind) for kind in kinds):
        raise HttpRefused(406, "not_acceptable", f"the answer is {' or '.join(kinds)}")


def _shown_key(call: Call, route: Route) -> str:
    shown = call.header("authorization")
    if shown[: len(_BEARER)].lower() == _BEARER:
        return shown[len(_BEARER) :].strip()
    if route.is_stream and call.request.query:
        # Browsers cannot set a header on an event stream.
        return parse_query(call.request.query).get("token", "")
    return ""


def check_open(call: Call) -> None:
    """Refuse what is new while the server only works off what it has."""
    if call.session.door.is_draining:
        soon = b"Retry-After: 1\r\n"
        raise HttpRefused(503, "shutting_down", "nothing new is taken any more", headers=soon)


def may_see(call: Call, name: str) -> bool:
    """Tell whether the caller's key covers a name."""
    key = call.identity
    if not isinstance(key, Key):
        return True
    if name == EVENTS:
        # It tells of every queue, so only a key for all of them opens it, or one that names it.
        return not key.prefixes or EVENTS in key.prefixes
    return key.covers(name)


def check_name(call: Call, name: str) -> None:
    """Refuse a name that the caller's key does not cover."""
    if not may_see(call, name):
        raise HttpRefused(403, "forbidden", f"this key does not cover {name}")


def check_scope(call: Call, scope: str) -> None:
    """Refuse what the caller's key does not allow beyond the route itself."""
    key = call.identity
    if isinstance(key, Key) and not key.may(scope):
        raise HttpRefused(403, "forbidden", f"this key may not {scope}")
