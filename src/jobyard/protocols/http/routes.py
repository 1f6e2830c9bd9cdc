"""Maps paths to the functions that serve them: a tree of path segments.

A route belongs to an area, an API with its own error format and its own keys. Paths are matched
segment by segment; a segment in braces matches any text. The other attributes of a route are for
the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from jobyard.protocols.http.call import HttpCall, HttpRefused

Serve = Callable[[HttpCall], None]
Schema = dict[str, object]

# The action of a route that needs no key.
OPEN: Final = "open"
# Default schema of a segment in braces.
_SEGMENT: Final[Schema] = {"type": "string", "minLength": 1}


@mypyc_attr(allow_interpreted_subclasses=True)
class Area:
    """One API of the port."""

    def admit(self, call: HttpCall, route: Route) -> None:
        """Refuse a caller that is not allowed to do this."""
        raise NotImplementedError

    def body_max(self) -> int:
        """Return the longest body, if that is less than the limit of the port; else 0."""
        return 0

    def refusal(self, refused: HttpRefused) -> bytes:
        """Return the body of an error."""
        raise NotImplementedError

    def is_open_to_options(self) -> bool:
        """Return whether OPTIONS gets the same answer on every path, known or not."""
        return False

    def is_guarded(self) -> bool:
        """Return whether every caller needs a key or token."""
        return False

    # -- for the OpenAPI document --------------------------------------------------------------

    def name(self) -> str:
        """Return the name of the API."""
        return ""

    def refusal_schema(self) -> Schema:
        """Return the schema of an error body."""
        return {}

    def refusals(self, route: Route) -> tuple[int, ...]:  # noqa: ARG002  the trait's
        """Return the error statuses that every route may answer with."""
        return ()

    def answer_schema(self) -> Schema:
        """Return the schema of an answer whose route does not describe it."""
        return {}

    def segment_schema(self, name: str) -> Schema:  # noqa: ARG002  the trait's
        """Return the schema of a path segment in braces."""
        return _SEGMENT

    def scopes(self, route: Route) -> list[str] | None:  # noqa: ARG002  the trait's
        """Return the scopes that a caller's key must have; None if no key is required."""
        return None


@final
class Parameter:
    """A query parameter or header of a route."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        meaning: str,
        *,
        place: str = "query",
        is_required: bool = False,
    ) -> None:
        self.name = name
        self.schema = schema
        self.meaning = meaning
        self.place = place
        self.is_required = is_required


def named(names: tuple[str, ...]) -> tuple[Parameter, ...]:
    """Return query parameters described only by name."""
    return tuple(Parameter(name, {"type": "string"}, "") for name in names)


@final
class RouteSchemas:
    """JSON schemas of the input and the answers of a route."""

    def __init__(
        self,
        body: Schema | None = None,
        *,
        needs_body: bool = False,
        query: tuple[Parameter, ...] = (),
        answers: dict[int, Schema] | None = None,
        texts: tuple[str, ...] = (),
        refusals: tuple[int, ...] = (),
    ) -> None:
        self.body = body
        # Whether the body is required.
        self.needs_body = needs_body
        self.query = query
        # By status. None: the general schema of the area applies.
        self.answers = answers
        # Content types of a successful answer that is not JSON.
        self.texts = texts
        # Error statuses.
        self.refusals = refusals


@final
class Route:
    """One method on one path."""

    def __init__(  # noqa: PLR0913  all attributes of a route
        self,
        method: str,
        pattern: str,
        serve: Serve,
        area: Area,
        *,
        action: str = "",
        is_stream: bool = False,
        is_change: bool = False,
        summary: str = "",
        shape: RouteSchemas | None = None,
    ) -> None:
        self.method = method
        self.pattern = pattern
        self.serve: Serve = serve
        self.area = area
        # The scope that a caller needs.
        self.action = action
        # Answered with an event stream.
        self.is_stream = is_stream
        # Changes state, whatever the method is.
        self.is_change = is_change
        self.summary = summary
        self.shape = shape or RouteSchemas()


@final
class RouteNode:
    """The routes below one segment."""

    def __init__(self) -> None:
        self.fixed: dict[str, RouteNode] = {}
        self.any: RouteNode | None = None
        self.routes: dict[str, Route] = {}


@final
class Routes:
    """All routes of a port."""

    def __init__(self, other: Area) -> None:
        self._root = RouteNode()
        # Formats refusals of unknown paths.
        self._other = other
        self._areas: list[tuple[str, Area]] = []
        self.all: list[Route] = []

    def add_area(self, first: str, area: Area) -> None:
        """Assign all paths that begin with a segment to an area."""
        self._areas.append((first, area))

    def add(self, route: Route) -> None:
        """Add a route."""
        node = self._root
        for segment in route.pattern[1:].split("/"):
            if segment.startswith("{"):
                if node.any is None:
                    node.any = RouteNode()
                node = node.any
            else:
                node = node.fixed.setdefault(segment, RouteNode())
        assert route.method not in node.routes, f"{route.method} {route.pattern} is defined twice"
        node.routes[route.method] = route
        self.all.append(route)

    def is_guarded(self) -> bool:
        """Return whether any area requires a key."""
        return self._other.is_guarded() or any(area.is_guarded() for _, area in self._areas)

    def area_of(self, segments: list[str]) -> Area:
        """Return the area of a path, known or not."""
        for first, area in self._areas:
            if segments and segments[0] == first:
                return area
        return self._other

    def node(self, segments: list[str], params: list[str]) -> RouteNode | None:
        """Return the node of a path; segments that match braces are appended to `params`."""
        return _find(self._root, segments, 0, params)


def _find(node: RouteNode, segments: list[str], at: int, params: list[str]) -> RouteNode | None:
    if at == len(segments):
        return node if node.routes else None
    segment = segments[at]
    below = node.fixed.get(segment)
    if below is not None:
        found = _find(below, segments, at + 1, params)
        if found is not None:
            return found
    # A name may equal a fixed segment of the API; then only this branch matches.
    if node.any is None:
        return None
    params.append(segment)
    found = _find(node.any, segments, at + 1, params)
    if found is None:
        params.pop()
    return found


def allowed_methods(node: RouteNode) -> str:
    """Return the methods of a path as the Allow header lists them."""
    methods = set(node.routes) | {"OPTIONS"}
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods))


NO_PATH: Final = "no such path"
