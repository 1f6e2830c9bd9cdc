"""Which path of the topics API is served by what."""

from functools import partial
from typing import Final

from jobyard.protocols.http.routes import Route, Routes
from jobyard.protocols.topics.admin import health, routers, topics
from jobyard.protocols.topics.api import ANY_KEY, PROBE, TopicsArea
from jobyard.protocols.topics.api_keys import ADMIN, DELETE, READ, WRITE
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.export import export
from jobyard.protocols.topics.follow import socket, watch
from jobyard.protocols.topics.queue import leases, work
from jobyard.protocols.topics.records import reads, writes
from jobyard.protocols.topics.schemas.export import EXPORT_SHAPES
from jobyard.protocols.topics.schemas.follow import FOLLOW_SHAPES
from jobyard.protocols.topics.schemas.records import SHAPES

TAKE: Final = f"{READ}+{WRITE}"


def install(routes: Routes, door: TopicsDoor) -> TopicsArea:
    """Add the topics API to a port."""
    area = TopicsArea(door)
    routes.add_area("v0", area)
    one = "/v0/topics/{topic}"
    router = "/v0/routers/{router}"
    shapes = {**SHAPES, **FOLLOW_SHAPES, **EXPORT_SHAPES}
    for method, pattern, serve, action, summary in (
        ("GET", "/v0/topics", topics.list_topics, READ, "List topics"),
        ("PUT", one, topics.put_topic, ADMIN, "Make a topic, or configure it anew"),
        ("GET", one, topics.get_topic, READ, "Show a topic"),
        ("DELETE", one, topics.delete_topic, DELETE, "Remove a topic"),
        ("POST", one, writes.write, WRITE, "Write records"),
        ("POST", f"{one}/diff", reads.diff, READ, "Read records from a cursor"),
        ("GET", f"{one}/export", export.export, READ, "Read a range as columns"),
        ("GET", f"{one}/seq", export.seq, READ, "Find the first record of a time"),
        ("POST", f"{one}/delete", reads.delete, DELETE, "Delete records"),
        ("POST", f"{one}/claim", leases.claim, TAKE, "Lease jobs"),
        ("POST", f"{one}/ack", leases.ack, WRITE, "Finish leased jobs"),
        ("POST", f"{one}/nack", leases.nack, WRITE, "Give leased jobs back"),
        ("POST", f"{one}/dead-letter", leases.dead_letter, WRITE, "Give leased jobs up"),
        ("POST", f"{one}/extend", leases.extend, WRITE, "Keep leased jobs for longer"),
        ("POST", f"{one}/redrive", leases.redrive, WRITE, "Bring dead letters back"),
        ("POST", f"{one}/purge", leases.purge, DELETE, "Remove dead letters"),
        ("GET", "/v0/routers", routers.list_routers, READ, "List routers"),
        ("PUT", router, routers.put_router, ADMIN, "Make a router, or set it anew"),
        ("GET", router, routers.get_router, READ, "Show a router"),
        ("DELETE", router, routers.delete_router, DELETE, "Remove a router"),
        ("POST", "/v0/watch", watch.create, READ, "Begin to watch topics"),
        ("GET", "/v0/ws", socket.open_socket, ANY_KEY, "Follow topics and write to them"),
        ("GET", "/v0/health", health.health, PROBE, "Tell that the server is up"),
        ("GET", "/v0/ready", health.ready, PROBE, "Tell that the server serves"),
        ("GET", "/readyz", health.ready, PROBE, "Tell that the server serves"),
        ("GET", "/v0/metrics", health.metrics, READ, "Show counters"),
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
            summary="Have jobs pushed",
            shape=shapes[f"GET {one}/work"],
        )
    )
    routes.add(
        Route(
            "GET",
            "/v0/watch/{wid}",
            partial(watch.stream, door),
            area,
            action=READ,
            is_stream=True,
            summary="Have records of watched topics pushed",
            shape=shapes["GET /v0/watch/{wid}"],
        )
    )
    return area
