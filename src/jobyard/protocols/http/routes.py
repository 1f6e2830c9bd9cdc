"""Which function serves which path: a tree of the path's segments.

A route stands in an area, an API of its own with its own words for a refusal and its own keys.
Paths are matched segment by segment; a segment in braces takes any text. What is known of a route
beyond its function is for the description of the API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from jobyard.protocols.http.call import Call, HttpRefused

Serve = Callable[[Call], None]
Schema = dict[str, object]

# The action of a route that everybody may use.
OPEN: Final = "open"
# What may stand in braces, if an area says no more.
_SEGMENT: Final[Schema] = {"type": "string", "minLength": 1}


@mypyc_attr(allow_interpreted_subclasses=True)
class Area:
    """One API behind the port."""

    def admit(self, call: Call, route: Route) -> None:
        """Refuse a caller who may not do this."""
        raise NotImplementedError

    def body_max(self) -> int:
        """Return how long a body may be, where that is less than what the port takes; else 0."""
        return 0

    def refusal(self, refused: HttpRefused) -> bytes:
        """Return the body that says no."""
        raise NotImplementedError

    def is_open_to_options(self) -> bool:
        """Tell whether OPTIONS is answered alike on every path, known or not."""
        return False

    def is_guarded(self) -> bool:
        """Tell whether nobody is served without a key or token."""
        return False

    # -- for the description of the API --------------------------------------------------------

    def name(self) -> str:
        """Return what the API is called."""
        return ""

    def refusal_schema(self) -> Schema:
        """Return the schema of a body that says no."""
        return {}

    def refusals(self, route: Route) -> tuple[int, ...]:  # noqa: ARG002  the trait's
        """Return the statuses of answers that say no to any route."""
        return ()

    def answer_schema(self) -> Schema:
        """Return the schema of any other body, where a route says nothing of its own."""
        return {}

    def segment_schema(self, name: str) -> Schema:  # noqa: ARG002  the trait's
        """Return the schema of what stands in braces."""
        return _SEGMENT

    def scopes(self, route: Route) -> list[str] | None:  # noqa: ARG002  the trait's
        """Return what a caller's key must allow; None if no key is asked for."""
        return None


@final
class Parameter:
    """Something that a caller may say beside the body."""

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
    """Return parameters of which nothing is known but their names."""
    return tuple(Parameter(name, {"type": "string"}, "") for name in names)


@final
class Shape:
    """What a route takes and what it answers, as JSON schemas."""

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
        # Whether leaving the body out is a mistake.
        self.needs_body = needs_body
        self.query = query
        # By status. None: nothing is known but how an area answers in general.
        self.answers = answers
        # Types of a good answer that is no JSON.
        self.texts = texts
        # Statuses of answers that say no.
        self.refusals = refusals


@final
class Route:
    """One method on one path."""

    def __init__(  # noqa: PLR0913  all that is known of a route
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
        shape: Shape | None = None,
    ) -> None:
        self.method = method
        self.pattern = pattern
        self.serve: Serve = serve
        self.area = area
        # What a caller must be allowed to do.
        self.action = action
        # Answered with events for as long as the caller listens.
        self.is_stream = is_stream
        # Changes something, whatever its method says.
        self.is_change = is_change
        self.summary = summary
        self.shape = shape or Shape()


@final
class Node:
    """The routes below one segment."""

    def __init__(self) -> None:
        self.fixed: dict[str, Node] = {}
        self.any: Node | None = None
        self.routes: dict[str, Route] = {}


@final
class Routes:
    """All routes of a port."""

    def __init__(self, other: Area) -> None:
        self._root = Node()
        # Who says no to a path that nobody knows.
        self._other = other
        self._areas: list[tuple[str, Area]] = []
        self.all: list[Route] = []

    def add_area(self, first: str, area: Area) -> None:
        """Let an area answer for every path that begins with a segment."""
        self._areas.append((first, area))

    def add(self, route: Route) -> None:
        """Add a route."""
        node = self._root
        for segment in route.pattern[1:].split("/"):
            if segment.startswith("{"):
                if node.any is None:
                    node.any = Node()
                node = node.any
            else:
                node = node.fixed.setdefault(segment, Node())
        assert route.method not in node.routes, f"{route.method} {route.pattern} is there twice"
        node.routes[route.method] = route
        self.all.append(route)

    def is_guarded(self) -> bool:
        """Tell whether somewhere nobody is served without a key."""
        return self._other.is_guarded() or any(area.is_guarded() for _, area in self._areas)

    def area_of(self, segments: list[str]) -> Area:
        """Return who answers for a path, known or not."""
        for first, area in self._areas:
            if segments and segments[0] == first:
                return area
        return self._other

    def node(self, segments: list[str], params: list[str]) -> Node | None:
        """Return where a path leads; what stood in braces is added to `params`."""
        return _find(self._root, segments, 0, params)


def _find(node: Node, segments: list[str], at: int, params: list[str]) -> Node | None:
    if at == len(segments):
        return node if node.routes else None
    segment = segments[at]
    below = node.fixed.get(segment)
    if below is not None:
        found = _find(below, segments, at + 1, params)
        if found is not None:
            return found
    # A name that is also a word of the API leads nowhere as that word.
    if node.any is None:
        return None
    params.append(segment)
    found = _find(node.any, segments, at + 1, params)
    if found is None:
        params.pop()
    return found


def allowed_methods(node: Node) -> str:
    """Return the methods of a path as the Allow header lists them."""
    methods = set(node.routes) | {"OPTIONS"}
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods))


NO_PATH: Final = "there is nothing at this path"
