"""Builds the doors of a server from its configuration.

The only module of the server that knows protocols by name; the others see a list of `ServedDoor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobyard.model.secrets import digest_of
from jobyard.protocols.beanstalk.door import BeanstalkDoor
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.entrance import BunqueueEntrance
from jobyard.protocols.glidemq.door import GlidemqDoor
from jobyard.protocols.glidemq.entrance import GlidemqEntrance
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.topics.api_keys import read_keys
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.export.request import ZSTD
from jobyard.server.committer import SYNC, Committer
from jobyard.server.environment import ServerEnvironment
from jobyard.server.http import ServerStopwatch, open_http, set_limits, set_pages
from jobyard.server.packing import zstd_packer
from jobyard.server.process_facts import InfoFacts, ProcessFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.config import Config
    from jobyard.engine.state.yard import Yard
    from jobyard.protocols.session import Entrance
    from jobyard.protocols.shared_limits import SharedLimits
    from jobyard.server.log import Log
    from jobyard.server.sockets import DoorListener


def _nothing() -> None:
    """Do nothing."""


def _nothing_at(_now_ms: int) -> None:
    """Do nothing."""


@dataclass
class ServedDoor:
    """One door as the server sees it."""

    name: str
    entrance: Entrance
    # Whether clients have to authenticate.
    is_guarded: bool
    # Refuses new jobs from now on.
    drain: Callable[[], None]
    every_second: Callable[[int], None] = _nothing_at
    # Called when a stop begins.
    stopping: Callable[[], None] = _nothing
    # Called at the end of a stop, when everything is durable.
    close: Callable[[int], None] = _nothing_at


class Doors:
    """Builds the doors of one server."""

    def __init__(
        self, config: Config, yard: Yard, shared_limits: SharedLimits, log: Log, now_ms: int
    ) -> None:
        self._config = config
        self._yard = yard
        self._shared_limits = shared_limits
        self._log = log
        self._now_ms = now_ms
        self._facts = ProcessFacts()

    def all(
        self, listeners: dict[str, DoorListener], committer: Committer | None
    ) -> dict[str, ServedDoor]:
        """Return all doors by name, including those without a listener."""
        config = self._config
        environment = ServerEnvironment(
            self._yard.journal,
            self._log,
            config.webhook_retries,
            allow_private=config.allow_private_webhooks,
        )
        bunqueue = self._bunqueue(environment, committer)
        listener = listeners.get("glidemq")
        doors = [
            self._serve_beanstalk(),
            self._serve_bunqueue(bunqueue, environment),
            self._serve_http(bunqueue, committer),
            self._serve_glidemq(0 if listener is None else listener.port),
        ]
        return {door.name: door for door in doors}

    def _serve_beanstalk(self) -> ServedDoor:
        door = BeanstalkDoor(self._yard, self._facts, self._config.max_job_size, self._now_ms)

        def drain() -> None:
            door.is_draining = True

        return ServedDoor("beanstalk", BeanstalkEntrance(door), is_guarded=False, drain=drain)

    def _bunqueue(
        self, environment: ServerEnvironment, committer: Committer | None
    ) -> BunqueueDoor:
        config = self._config
        door = BunqueueDoor(self._yard, environment, self._now_ms)
        door.shared_limits = self._shared_limits
        door.webhooks.allows_private = config.allow_private_webhooks
        tokens = [one.strip() for one in config.auth_token.split(",")]
        door.tokens = [digest_of(one.encode()) for one in tokens if one]
        door.guards_metrics = config.metrics_auth
        door.requests_max = config.request_limit
        door.window_ms = config.request_window_ms
        door.idle_ms = config.frame_timeout_ms
        if committer is not None and config.durability == SYNC:
            # Replies wait for a sync; the metrics report how long.
            committer.observer = door.durations
            door.durations.are_timed = True
        return door

    def _serve_bunqueue(self, door: BunqueueDoor, environment: ServerEnvironment) -> ServedDoor:
        def drain() -> None:
            door.is_draining = True

        def every_second(now_ms: int) -> None:
            environment.look_at_disk(now_ms)
            door.webhooks.collect(now_ms)

        def stopping() -> None:
            if door.observer is not None:
                door.observer.publish("server:shutdown", {})

        def close(now_ms: int) -> None:
            # Last chance for notices that were held back.
            door.webhooks.look(now_ms)
            environment.close()

        is_guarded = bool(self._config.auth_token)
        return ServedDoor(
            "bunqueue", BunqueueEntrance(door), is_guarded, drain, every_second, stopping, close
        )

    def _serve_http(self, bunqueue: BunqueueDoor, committer: Committer | None) -> ServedDoor:
        config = self._config
        topics = TopicsDoor(self._yard, self._now_ms)
        topics.shared_limits = self._shared_limits
        topics.keys = read_keys(config.topics_key)
        topics.guards_probes = config.probe_auth
        door = open_http(self._yard, bunqueue, topics, ServerStopwatch(committer))
        door.shared_limits = self._shared_limits
        packer = zstd_packer()
        if packer is not None:
            topics.packers[ZSTD] = packer
        set_limits(config, door, topics.limits)
        set_pages(config, door)

        def drain() -> None:
            door.is_draining = True

        def close(_now_ms: int) -> None:
            if packer is not None:
                packer.close()

        is_guarded = bool(config.auth_token and config.topics_key)
        return ServedDoor("http", HttpEntrance(door), is_guarded, drain, close=close)

    def _serve_glidemq(self, port: int) -> ServedDoor:
        door = GlidemqDoor(self._yard, InfoFacts(self._facts, port), self._now_ms)
        door.shared_limits = self._shared_limits
        password = self._config.glidemq_password.encode()
        door.password = digest_of(password) if password else b""
        door.is_synced = self._config.durability == SYNC

        def drain() -> None:
            door.is_draining = True

        return ServedDoor("glidemq", GlidemqEntrance(door), bool(password), drain)
