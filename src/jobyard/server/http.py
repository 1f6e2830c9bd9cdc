"""Builds the HTTP door: the APIs it serves, its limits, its stopwatch and random source."""

import secrets
import time
from typing import final

from mypy_extensions import i64

from jobyard.config import BODY_MEMORY_MAX, DOOR_OFF, Config
from jobyard.engine.state.yard import Yard
from jobyard.model.topic.txn import Txns
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.http.api import BunqueueArea
from jobyard.protocols.bunqueue.http.api import install as install_bunqueue
from jobyard.protocols.http import openapi
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.routes import Routes
from jobyard.protocols.topics.door import RandomSource, TopicsDoor, TopicsLimits
from jobyard.protocols.topics.routes import install as install_topics
from jobyard.server.addresses import TcpAddress, parse_address
from jobyard.server.committer import Committer


@final
class ServerStopwatch(Stopwatch):
    """The stopwatch of a running server."""

    def __init__(self, committer: Committer | None) -> None:
        self._committer = committer

    def read_us(self) -> i64:
        """Return microseconds since a fixed but arbitrary time."""
        return time.perf_counter_ns() // 1000

    def sync_us(self) -> i64:
        """Return the mean duration of recent syncs."""
        return self._committer.mean_sync_us() if self._committer is not None else 0


@final
class SystemRandomSource(RandomSource):
    """Secure random bytes from the system."""

    def draw(self, size: i64) -> bytes:
        """Return `size` random bytes."""
        return secrets.token_bytes(size)


def set_limits(config: Config, http: HttpDoor, limits: TopicsLimits) -> None:
    """Apply the configured limits."""
    limits.topics = config.max_topics
    limits.routers = config.max_routers
    limits.watches = config.max_watch_sessions
    limits.cursors = config.max_cursors
    limits.streams = config.max_sse_connections
    limits.streams_per_key = config.max_sse_connections_per_key
    limits.waiting_per_key = config.max_inflight_per_key
    limits.total_bytes = config.max_total_bytes
    http.body_max = config.max_body_bytes or BODY_MEMORY_MAX
    http.idle_ms = config.keep_alive_ms


def set_txns(config: Config, txns: Txns) -> None:
    """Apply the configured limits and times of transactions."""
    txns.rows_max = config.txn_rows_max
    txns.bytes_max = config.txn_bytes_max
    txns.staged_max = config.txn_stage_bytes
    txns.txns_max = config.txn_max
    txns.set_days(config.txn_days, config.txn_stage_minutes)


def set_pages(config: Config, http: HttpDoor) -> None:
    """Apply the configured host names, origins and trusted proxies."""
    http.proxies.trust(config.trusted_proxy)
    pages = http.pages
    pages.name_origins(config.cors_origin)
    if config.http == DOOR_OFF:
        return
    address = parse_address(config.http)
    # Pages reach a socket file only through a proxy, which has its own host names.
    if isinstance(address, TcpAddress):
        pages.name_hosts(address.host, config.public_host)


def open_http(
    yard: Yard, bunqueue: BunqueueDoor, topics: TopicsDoor, stopwatch: Stopwatch
) -> HttpDoor:
    """Return the HTTP door with all its routes."""
    bunqueue_area = BunqueueArea(bunqueue)
    routes = Routes(bunqueue_area)
    topics.random_source = SystemRandomSource()
    install_bunqueue(routes, bunqueue_area)
    install_topics(routes, topics)
    openapi.install(routes)
    return HttpDoor(yard, routes, stopwatch)
