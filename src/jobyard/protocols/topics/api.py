"""The topics API as an area of the HTTP port: authentication and the format of errors."""

import json
from typing import Final, final

from jobyard.protocols.http.call import JSON_TYPE, HttpCall, HttpRefused
from jobyard.protocols.http.routes import OPEN, Area, Route, Schema
from jobyard.protocols.topics.api_keys import ApiKey, find_key
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.names import EVENTS_TOPIC
from jobyard.wire.http.accept import admits
from jobyard.wire.http.request import parse_query

_BEARER: Final = "bearer "
# The Accept header of most clients.
ANYTHING: Final = "*/*"
# Any key is accepted here; its scopes are checked later.
ANY_KEY: Final = "any"
# The action of health endpoints, open to everyone unless the configuration requires a key.
PROBE: Final = "probe"
TOPIC_NAME_SCHEMA: Final[Schema] = {
    "title": "TopicName",
    "type": "string",
    "pattern": "^([A-Za-z0-9][A-Za-z0-9._:-]{0,254}|_events)$",
}
TXN_NAME_SCHEMA: Final[Schema] = {
    "title": "TxnName",
    "type": "string",
    "pattern": "^[A-Za-z0-9._:~-]{1,256}$",
}
ERROR_SCHEMA: Final[Schema] = {
    "title": "TopicsError",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "Error code for programs."},
                "message": {"type": "string", "description": "Description for people."},
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

    def admit(self, call: HttpCall, route: Route) -> None:
        """Refuse a caller without a key, or with a key that does not allow this."""
        if self._is_open(route):
            return
        accept = call.header("accept")
        if accept and accept not in (ANYTHING, JSON_TYPE) and not route.is_stream:
            _check_accept(accept, call, route)
        keys = self.door.keys
        if not keys:
            return
        key = find_key(keys, _shown_key(call, route))
        if key is None:
            challenge = b"WWW-Authenticate: Bearer\r\n"
            needed = "an API key is required: Authorization: Bearer KEY"
            raise HttpRefused(401, "unauthorized", needed, headers=challenge)
        if route.action not in (ANY_KEY, PROBE) and not key.may(route.action):
            raise HttpRefused(403, "forbidden", f"this key does not allow {route.action}")
        call.identity = key
        if "{topic}" in route.pattern:
            check_name(call, call.params[0])

    def refusal(self, refused: HttpRefused) -> bytes:
        """Return the body of an error."""
        error: dict[str, object] = {"code": refused.code, "message": str(refused)}
        if refused.detail is not None:
            error["detail"] = refused.detail
        return json.dumps({"error": error}, separators=(",", ":")).encode()

    def is_guarded(self) -> bool:
        """Return whether every caller needs a key."""
        return len(self.door.keys) > 0

    def name(self) -> str:
        """Return the name of the API."""
        return "topics"

    def refusal_schema(self) -> Schema:
        """Return the schema of an error body."""
        return ERROR_SCHEMA

    def segment_schema(self, name: str) -> Schema:
        """Return the schema of a path segment in braces."""
        if name in ("txn", "claim"):
            return TXN_NAME_SCHEMA
        return TOPIC_NAME_SCHEMA if name == "topic" else super().segment_schema(name)

    def refusals(self, route: Route) -> tuple[int, ...]:
        """Return the error statuses that every route may answer with."""
        return () if self._is_open(route) else (406,)

    def scopes(self, route: Route) -> list[str] | None:
        """Return the scopes that a caller's key must have; None if no key is required."""
        if not self.door.keys or self._is_open(route):
            return None
        return [] if route.action in (ANY_KEY, PROBE) else route.action.split("+")

    def _is_open(self, route: Route) -> bool:
        return route.action == OPEN or (route.action == PROBE and not self.door.guards_probes)


def _check_accept(accept: str, call: HttpCall, route: Route) -> None:
    """Refuse a caller that accepts none of the route's types; streams check this themselves."""
    if call.request.is_upgrade:
        return
    kinds = (JSON_TYPE, *route.shape.texts)
    if not any(admits(accept, kind) for kind in kinds):
        raise HttpRefused(406, "not_acceptable", f"this path answers with {' or '.join(kinds)}")


def _shown_key(call: HttpCall, route: Route) -> str:
    shown = call.header("authorization")
    if shown[: len(_BEARER)].lower() == _BEARER:
        return shown[len(_BEARER) :].strip()
    if route.is_stream and call.request.query:
        # Browsers cannot set a header on an event stream.
        return parse_query(call.request.query).get("token", "")
    return ""


def check_open(call: HttpCall) -> None:
    """Refuse new work while the server is draining."""
    if call.session.door.is_draining:
        soon = b"Retry-After: 1\r\n"
        raise HttpRefused(503, "shutting_down", "the server is shutting down", headers=soon)


def may_see(call: HttpCall, name: str) -> bool:
    """Return whether the caller's key covers a name."""
    key = call.identity
    if not isinstance(key, ApiKey):
        return True
    if name == EVENTS_TOPIC:
        # It shows every queue, so the key must cover all names, or this one explicitly.
        return not key.prefixes or EVENTS_TOPIC in key.prefixes
    return key.covers(name)


def check_name(call: HttpCall, name: str) -> None:
    """Refuse a name that the caller's key does not cover."""
    if not may_see(call, name):
        raise HttpRefused(403, "forbidden", f"this key does not cover {name}")


def check_scope(call: HttpCall, scope: str) -> None:
    """Refuse a caller whose key lacks a scope that the route itself does not require."""
    key = call.identity
    if isinstance(key, ApiKey) and not key.may(scope):
        raise HttpRefused(403, "forbidden", f"this key does not allow {scope}")
