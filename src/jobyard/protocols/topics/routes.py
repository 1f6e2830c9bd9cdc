"""The routes of the topics API: method, path, function, required scope and summary."""

from functools import partial
from typing import Final

from jobyard.protocols.http.routes import Route, Routes
from jobyard.protocols.topics.admin import health, routers, topics
from jobyard.protocols.topics.api import ANY_KEY, PROBE, TopicsArea
from jobyard.protocols.topics.api_keys import Scope
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.export import export
from jobyard.protocols.topics.follow import socket, watch
from jobyard.protocols.topics.queue import leases, work
from jobyard.protocols.topics.records import reads, writes
from jobyard.protocols.topics.schemas.export import EXPORT_SHAPES
from jobyard.protocols.topics.schemas.follow import FOLLOW_SHAPES
from jobyard.protocols.topics.schemas.records import SHAPES

TAKE: Final = f"{Scope.READ}+{Scope.WRITE}"


def install(routes: Routes, door: TopicsDoor) -> TopicsArea:
    """Add the topics API to a port."""
    area = TopicsArea(door)
    routes.add_area("v0", area)
    one = "/v0/topics/{topic}"
    router = "/v0/routers/{router}"
    shapes = {**SHAPES, **FOLLOW_SHAPES, **EXPORT_SHAPES}
    for method, pattern, serve, action, summary in (
        ("GET", "/v0/topics", topics.list_topics, Scope.READ, "List topics"),
        ("PUT", one, topics.put_topic, Scope.ADMIN, "Create or reconfigure a topic"),
        ("GET", one, topics.get_topic, Scope.READ, "Show a topic"),
        ("DELETE", one, topics.delete_topic, Scope.DELETE, "Delete a topic"),
        ("POST", one, writes.write, Scope.WRITE, "Write records"),
        ("POST", f"{one}/diff", reads.diff, Scope.READ, "Read records from a cursor"),
        ("GET", f"{one}/export", export.export, Scope.READ, "Export a range as columns"),
        ("GET", f"{one}/seq", export.seq, Scope.READ, "Find the first record at a time"),
        ("POST", f"{one}/delete", reads.delete, Scope.DELETE, "Delete records"),
        ("POST", f"{one}/claim", leases.claim, TAKE, "Lease jobs"),
        ("POST", f"{one}/ack", leases.ack, Scope.WRITE, "Finish leased jobs"),
        ("POST", f"{one}/nack", leases.nack, Scope.WRITE, "Return leased jobs"),
        ("POST", f"{one}/dead-letter", leases.dead_letter, Scope.WRITE, "Dead-letter leased jobs"),
        ("POST", f"{one}/extend", leases.extend, Scope.WRITE, "Extend leases"),
        ("POST", f"{one}/redrive", leases.redrive, Scope.WRITE, "Make dead letters ready again"),
        ("POST", f"{one}/purge", leases.purge, Scope.DELETE, "Delete dead letters"),
        ("GET", "/v0/routers", routers.list_routers, Scope.READ, "List routers"),
        ("PUT", router, routers.put_router, Scope.ADMIN, "Create or change a router"),
        ("GET", router, routers.get_router, Scope.READ, "Show a router"),
        ("DELETE", router, routers.delete_router, Scope.DELETE, "Delete a router"),
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
                shape=shapes.get(f"{method} {pattern}"),
            )
        )
    routes.add(
        Route(
            "GET",
            f"{one}/work",
            partial(work.work, door),
            area,
            action=TAKE,
            is_stream=True,
            summary="Stream jobs to a worker",
            shape=shapes[f"GET {one}/work"],
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
            shape=shapes["GET /v0/watch/{wid}"],
        )
    )
    return area
