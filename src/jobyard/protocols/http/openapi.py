"""The OpenAPI 3.1 document of a port, made from its routes; and the path where it is found.

Says what the routes say of themselves and nothing else: a route that is served is in it, and what
is in it is served. A schema with a title stands once in the document, under its title, and is
referred to from everywhere else. The same routes give the same document, byte for byte.
"""

import json
from typing import Final, final

from mypy_extensions import i64

from jobyard import __version__
from jobyard.protocols.http.call import EVENT_STREAM, JSON, Call
from jobyard.protocols.http.routes import OPEN, Area, Parameter, Route, Routes, Schema, Shape
from jobyard.wire.http.response import PHRASES

OPENAPI: Final = "3.1.0"
PATH: Final = "/openapi.json"
TITLE: Final = "Jobyard"

BEARER: Final = "bearer"
TOKEN: Final = "token"  # noqa: S105  the name of a parameter

_DESCRIPTION: Final = (
    "Logs with cursors, lease queues, and bunqueue's own API. What is no proper HTTP/1.1 request is"
    " refused with 400, 408, 413, 414, 417, 431, 501 or 505 wherever it was meant for, and the"
    " connection is closed. Every GET is a HEAD too, and OPTIONS tells the methods of a path. Where"
    " no key or token is asked for, a Host that is no name of this server is refused with 421"
    " (--public-host). Changes, streams and WebSockets of web pages of other origins are refused"
    " with 403 (--cors-origin)."
)
_SECURITY: Final[dict[str, Schema]] = {
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key. What it must allow stands beside each operation.",
    },
    TOKEN: {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The same key, for streams that a browser opens without headers.",
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
    """Serve the document of all routes, those that are yet to be added too."""
    area = routes.area_of([PATH[1:]])
    shape = Shape(answers={200: _DOCUMENT})
    serve = _Desk(routes).serve
    summary = "Describe every path of this server"
    routes.add(Route("GET", PATH, serve, area, action=OPEN, summary=summary, shape=shape))


@final
class _Desk:
    """Hands the document out."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        # Made when it is first asked for, which takes 3 ms, and of how many routes.
        self._text: bytes = b""
        self._count: i64 = 0

    def serve(self, call: Call) -> None:
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
    """The schemas that have a title, each under it."""

    def __init__(self) -> None:
        self.schemas: dict[str, object] = {}

    def refer(self, value: object) -> object:
        """Return a schema with references in place of what has a title."""
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
        assert known == inside, f"two schemas are called {title}"
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
        content = {JSON: {"schema": names.refer(shape.body)}}
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
    """Return what a caller without the right key is told."""
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
        made["default"] = _response(0, {JSON: refusal})
        return made
    by_status: dict[int, dict[str, object]] = {}
    for status, schema in answers.items():
        by_status[status] = _contents({JSON: schema} if schema else {}, names)
    for text in shape.texts:
        by_status.setdefault(200, {})[text] = {"type": "string"}
    for status in shape.refusals + area.refusals(route) + locks:
        by_status[status] = {JSON: refusal}
    return {str(status): _response(status, by_status[status]) for status in sorted(by_status)}


def _general(route: Route, area: Area) -> dict[str, Schema]:
    """Return what may be answered where a route says nothing of it."""
    if route.is_stream:
        return {EVENT_STREAM: {"type": "string"}}
    if route.shape.texts:
        return {text: {"type": "string"} for text in route.shape.texts}
    return {JSON: area.answer_schema()}


def _contents(schemas: dict[str, Schema], names: _Names) -> dict[str, object]:
    return {kind: names.refer(schema) for kind, schema in schemas.items()}


def _response(status: int, contents: dict[str, object]) -> dict[str, object]:
    made: dict[str, object] = {"description": PHRASES[status] if status else "Refused"}
    if contents:
        made["content"] = {kind: {"schema": contents[kind]} for kind in sorted(contents)}
    return made
