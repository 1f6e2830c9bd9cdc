"""The OpenAPI 3.1 document of a port, made from its routes, and the route that serves it.

Contains exactly the routes that are served, as they describe themselves. A schema with a title
appears once in the document, under its title, and is referenced everywhere else. The same routes
give the same document, byte for byte.
"""

import json
from typing import Final, final

from mypy_extensions import i64

from jobyard import __version__
from jobyard.protocols.http.call import EVENT_STREAM, JSON_TYPE, HttpCall
from jobyard.protocols.http.routes import OPEN, Area, Parameter, Route, Routes, RouteSchemas, Schema
from jobyard.wire.http.response import PHRASES

OPENAPI: Final = "3.1.0"
PATH: Final = "/openapi.json"
TITLE: Final = "Jobyard"

BEARER: Final = "bearer"
TOKEN: Final = "token"  # noqa: S105  the name of a parameter

_DESCRIPTION: Final = (
    "Logs with cursors, lease queues, and bunqueue's own API. An invalid HTTP/1.1 request to any"
    " path is refused with 400, 408, 413, 414, 417, 431, 501 or 505, and the connection is closed."
    " Every GET path supports HEAD, and OPTIONS returns the methods of a path. If no key or token"
    " is required, requests with an unknown Host are refused with 421 (--public-host). Changes,"
    " streams and WebSockets from web pages of other origins are refused with 403"
    " (--cors-origin)."
)
_SECURITY: Final[dict[str, Schema]] = {
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key. Each operation lists the scopes it requires.",
    },
    TOKEN: {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The same key, for streams: browsers cannot set headers on them.",
    },
}
_DOCUMENT: Final[Schema] = {
    "type": "object",
    "required": ["openapi", "info", "paths"],
    "properties": {
        "openapi": {"type": "string"},
        "info": {"type": "object"},
        "paths": {"type": "object"},
    },
    "additionalProperties": True,
}


def install(routes: Routes) -> None:
    """Serve the document of all routes, including those added later."""
    area = routes.area_of([PATH[1:]])
    shape = RouteSchemas(answers={200: _DOCUMENT})
    serve = _Desk(routes).serve
    summary = "Describe every path of this server"
    routes.add(Route("GET", PATH, serve, area, action=OPEN, summary=summary, shape=shape))


@final
class _Desk:
    """Serves the document."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        # Made on the first request, which takes 3 ms, and the number of routes in it.
        self._text: bytes = b""
        self._count: i64 = 0

    def serve(self, call: HttpCall) -> None:
        """Answer with the document."""
        if self._count != len(self._routes.all):
            self._count = len(self._routes.all)
            made = document(self._routes, TITLE, __version__)
            self._text = json.dumps(made, separators=(",", ":")).encode()
        call.answer(200, self._text)


def document(routes: Routes, title: str, version: str) -> dict[str, object]:
    """Return the document of all routes."""
    names = _Names()
    paths: dict[str, dict[str, object]] = {}
    for route in sorted(routes.all, key=_place):
        methods = paths.setdefault(route.pattern, {})
        methods[route.method.lower()] = _operation(route, names)
    tags = sorted({route.area.name() for route in routes.all} - {""})
    return {
        "openapi": OPENAPI,
        "info": {"title": title, "version": version, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": {name: names.schemas[name] for name in sorted(names.schemas)},
            "securitySchemes": _SECURITY,
        },
    }


def _place(route: Route) -> tuple[str, str]:
    return route.pattern, route.method


@final
class _Names:
    """The schemas that have a title, by title."""

    def __init__(self) -> None:
        self.schemas: dict[str, object] = {}

    def refer(self, value: object) -> object:
        """Return a schema with references in place of titled schemas."""
        if isinstance(value, list):
            return [self.refer(one) for one in value]
        if not isinstance(value, dict):
            return value
        inside = {key: self.refer(one) for key, one in value.items() if key != "title"}
        title = value.get("title")
        # A property may be called `title`; then it holds a schema.
        if not isinstance(title, str):
            if title is not None:
                inside["title"] = self.refer(title)
            return inside
        known = self.schemas.setdefault(title, inside)
        assert known == inside, f"two schemas have the title {title}"
        return {"$ref": f"#/components/schemas/{title}"}


def _operation(route: Route, names: _Names) -> dict[str, object]:
    shape = route.shape
    area = route.area
    operation: dict[str, object] = {"operationId": _id_of(route), "summary": route.summary}
    if area.name():
        operation["tags"] = [area.name()]
    parameters = _segments(route, names)
    parameters += [_parameter(one, names) for one in shape.query]
    if parameters:
        operation["parameters"] = parameters
    if shape.body is not None:
        content = {JSON_TYPE: {"schema": names.refer(shape.body)}}
        operation["requestBody"] = {"required": shape.needs_body, "content": content}
    scopes = area.scopes(route)
    operation["responses"] = _responses(route, names, _locks(scopes))
    operation["security"] = _security(route, scopes)
    return operation


def _id_of(route: Route) -> str:
    words = [part.strip("{}").replace(".", "_") for part in route.pattern.split("/") if part]
    return "_".join([route.method.lower(), *words]).replace("-", "_")


def _segments(route: Route, names: _Names) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for part in route.pattern.split("/"):
        if part.startswith("{"):
            name = part[1:-1]
            schema = names.refer(route.area.segment_schema(name))
            found.append({"name": name, "in": "path", "required": True, "schema": schema})
    return found


def _parameter(parameter: Parameter, names: _Names) -> dict[str, object]:
    made: dict[str, object] = {"name": parameter.name, "in": parameter.place}
    if parameter.meaning:
        made["description"] = parameter.meaning
    made["required"] = parameter.is_required
    made["schema"] = names.refer(parameter.schema)
    return made


def _security(route: Route, scopes: list[str] | None) -> list[dict[str, list[str]]]:
    if scopes is None:
        return []
    if route.is_stream:
        return [{BEARER: scopes}, {TOKEN: scopes}]
    return [{BEARER: scopes}]


def _locks(scopes: list[str] | None) -> tuple[int, ...]:
    """Return the statuses for callers without the right key."""
    if scopes is None:
        return ()
    return (401, 403) if scopes else (401,)


def _responses(route: Route, names: _Names, locks: tuple[int, ...]) -> dict[str, object]:
    shape = route.shape
    area = route.area
    refusal = names.refer(area.refusal_schema())
    answers = shape.answers
    if answers is None:
        made: dict[str, object] = {"200": _response(200, _contents(_general(route, area), names))}
        made["default"] = _response(0, {JSON_TYPE: refusal})
        return made
    by_status: dict[int, dict[str, object]] = {}
    for status, schema in answers.items():
        by_status[status] = _contents({JSON_TYPE: schema} if schema else {}, names)
    for text in shape.texts:
        by_status.setdefault(200, {})[text] = {"type": "string"}
    for status in shape.refusals + area.refusals(route) + locks:
        by_status[status] = {JSON_TYPE: refusal}
    return {str(status): _response(status, by_status[status]) for status in sorted(by_status)}


def _general(route: Route, area: Area) -> dict[str, Schema]:
    """Return the answer schemas of a route that does not describe its answers."""
    if route.is_stream:
        return {EVENT_STREAM: {"type": "string"}}
    if route.shape.texts:
        return {text: {"type": "string"} for text in route.shape.texts}
    return {JSON_TYPE: area.answer_schema()}


def _contents(schemas: dict[str, Schema], names: _Names) -> dict[str, object]:
    return {kind: names.refer(schema) for kind, schema in schemas.items()}


def _response(status: int, contents: dict[str, object]) -> dict[str, object]:
    made: dict[str, object] = {"description": PHRASES[status] if status else "Refused"}
    if contents:
        made["content"] = {kind: {"schema": contents[kind]} for kind in sorted(contents)}
    return made
