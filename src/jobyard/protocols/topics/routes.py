"""The routes of the topics API: method, path, function, required scope and summary."""

from functools import partial
from typing import Final

from jobyard.protocols.http.routes import Route, Routes
from jobyard.protocols.topics.admin import cursors, health, routers, topic_state, topics
from jobyard.protocols.topics.api import ANY_KEY, PROBE, TopicsArea
from jobyard.protocols.topics.api_keys import Scope
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.export import export
from jobyard.protocols.topics.follow import socket, watch
from jobyard.protocols.topics.queue import claims, leases, redrive, work
from jobyard.protocols.topics.records import reads, writes
from jobyard.protocols.topics.schemas.cursors import CURSOR_SHAPES
from jobyard.protocols.topics.schemas.export import EXPORT_SHAPES
from jobyard.protocols.topics.schemas.follow import FOLLOW_SHAPES
from jobyard.protocols.topics.schemas.records import SHAPES
from jobyard.protocols.topics.schemas.txns import TXN_SHAPES
from jobyard.protocols.topics.txns import commit, look, stage

TAKE: Final = f"{Scope.READ}+{Scope.WRITE}"

_SHAPES: Final = {
    **SHAPES,
    **FOLLOW_SHAPES,
    **EXPORT_SHAPES,
    **CURSOR_SHAPES,
    **TXN_SHAPES,
}
_ROUTER: Final = "/v0/routers/{router}"
_TXN: Final = "/v0/txns/{txn}"
_CLAIM: Final = "/v0/topics/{topic}/claims/{claim}"
_CLAIM_ROUTES: Final = (
    ("GET", _CLAIM, claims.show, TAKE, "Show the jobs of a claim"),
    ("POST", f"{_CLAIM}/extend", claims.extend, Scope.WRITE, "Extend all leases of a claim"),
)
_CURSORS: Final = "/v0/topics/{topic}/cursors"
_CURSOR: Final = f"{_CURSORS}/{{cursor}}"
_CURSOR_ROUTES: Final = (
    ("GET", _CURSORS, cursors.list_cursors, Scope.READ, "List cursors of readers"),
    ("PUT", _CURSOR, cursors.put_cursor, Scope.READ, "Set a cursor"),
    ("GET", _CURSOR, cursors.get_cursor, Scope.READ, "Show a cursor"),
    ("DELETE", _CURSOR, cursors.delete_cursor, Scope.READ, "Delete a cursor"),
)
_TXN_ROUTES: Final = (
    ("POST", f"{_TXN}/stage", stage.stage, Scope.WRITE, "Stage records for a commit"),
    ("POST", f"{_TXN}/commit", commit.commit, Scope.WRITE, "Commit a transaction"),
    ("GET", _TXN, look.look, Scope.READ, "Show a transaction"),
    ("DELETE", _TXN, look.abort, Scope.WRITE, "Abort a transaction"),
)


def install(routes: Routes, door: TopicsDoor) -> TopicsArea:
    """Add the topics API to a port."""
    area = TopicsArea(door)
    routes.add_area("v0", area)
    one = "/v0/topics/{topic}"
    for method, pattern, serve, action, summary in (
        ("GET", "/v0/topics", topics.list_topics, Scope.READ, "List topics"),
        ("PUT", one, topics.put_topic, Scope.ADMIN, "Create or reconfigure a topic"),
        ("GET", one, topic_state.get_topic, Scope.READ, "Show a topic"),
        ("DELETE", one, topics.delete_topic, Scope.DELETE, "Delete a topic"),
        ("POST", one, writes.write, Scope.WRITE, "Write records"),
        ("POST", f"{one}/diff", reads.diff, Scope.READ, "Read records from a cursor"),
        ("GET", f"{one}/export", export.export, Scope.READ, "Export a range as columns"),
        ("GET", f"{one}/seq", export.seq, Scope.READ, "Find the first record at a time"),
        ("POST", f"{one}/delete", reads.delete, Scope.DELETE, "Delete records"),
        ("POST", f"{one}/claim", claims.claim, TAKE, "Lease jobs"),
        *_CLAIM_ROUTES,
        ("POST", f"{one}/ack", leases.ack, Scope.WRITE, "Finish leased jobs"),
        ("POST", f"{one}/nack", leases.nack, Scope.WRITE, "Return leased jobs"),
        ("POST", f"{one}/dead-letter", leases.dead_letter, Scope.WRITE, "Dead-letter leased jobs"),
        ("POST", f"{one}/extend", leases.extend, Scope.WRITE, "Extend leases"),
        ("POST", f"{one}/redrive", redrive.redrive, Scope.WRITE, "Make dead letters ready again"),
        ("POST", f"{one}/purge", leases.purge, Scope.DELETE, "Delete dead letters"),
        *_CURSOR_ROUTES,
        *_TXN_ROUTES,
        ("GET", "/v0/routers", routers.list_routers, Scope.READ, "List routers"),
        ("PUT", _ROUTER, routers.put_router, Scope.ADMIN, "Create or change a router"),
        ("GET", _ROUTER, routers.get_router, Scope.READ, "Show a router"),
        ("DELETE", _ROUTER, routers.delete_router, Scope.DELETE, "Delete a router"),
        ("POST", "/v0/watch", watch.create, Scope.READ, "Create a watch on topics"),
        ("GET", "/v0/ws", socket.open_socket, ANY_KEY, "Open a WebSocket to follow topics"),
        ("GET", "/v0/health", health.health, PROBE, "Check that the server is up"),
        ("GET", "/v0/ready", health.ready, PROBE, "Check that the server accepts requests"),
        ("GET", "/readyz", health.ready, PROBE, "Check that the server accepts requests"),
        ("GET", "/v0/metrics", health.metrics, Scope.READ, "Show counters"),
    ):
        routes.add(
            Route(
                method,
                pattern,
                partial(serve, door),
                area,
                action=action,
                summary=summary,
                shape=_SHAPES.get(f"{method} {pattern}"),
            )
        )
    _add_streams(routes, door, area)
    return area


def _add_streams(routes: Routes, door: TopicsDoor, area: TopicsArea) -> None:
    one = "/v0/topics/{topic}"
    routes.add(
        Route(
            "GET",
            f"{one}/work",
            partial(work.work, door),
            area,
            action=TAKE,
            is_stream=True,
            summary="Stream jobs to a worker",
            shape=_SHAPES[f"GET {one}/work"],
        )
    )
    routes.add(
        Route(
            "GET",
            "/v0/watch/{wid}",
            partial(watch.stream, door),
            area,
            action=Scope.READ,
            is_stream=True,
            summary="Stream records of watched topics",
            shape=_SHAPES["GET /v0/watch/{wid}"],
        )
    )
