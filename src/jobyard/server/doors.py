"""The doors of a server, put together from its configuration.

The only module of the server that knows protocols by name: the rest holds a list of `ServedDoor`.
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
from jobyard.server.committer import SYNC, Committer
from jobyard.server.environment import ServerSurroundings
from jobyard.server.http import ServerStopwatch, open_http, set_limits, set_pages
from jobyard.server.process_facts import InfoFacts, ProcessFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.config import Config
    from jobyard.engine.state.yard import Yard
    from jobyard.protocols.session import Entrance
    from jobyard.protocols.shared_limits import Guard
    from jobyard.server.log import Log
    from jobyard.server.sockets import Listener


def _nothing() -> None:
    """Do nothing."""


def _nothing_at(_now_ms: int) -> None:
    """Do nothing."""


@dataclass
class ServedDoor:
    """One door as the server knows it."""

    name: str
    entrance: Entrance
    # Whether clients have to authenticate.
    is_guarded: bool
    # Called when new jobs are to be refused, once a second, when a stop begins, and at its end,
    # when everything is durable.
    drain: Callable[[], None]
    every_second: Callable[[int], None] = _nothing_at
    stopping: Callable[[], None] = _nothing
    close: Callable[[int], None] = _nothing_at


class Doors:
    """Makes the doors of one server."""

    def __init__(self, config: Config, yard: Yard, guard: Guard, log: Log, now_ms: int) -> None:
        self._config = config
        self._yard = yard
        self._guard = guard
        self._log = log
        self._now_ms = now_ms
        self._facts = ProcessFacts()

    def all(
        self, listeners: dict[str, Listener], committer: Committer | None
    ) -> dict[str, ServedDoor]:
        """Return all doors by name, those that nobody listens at included."""
        config = self._config
        surroundings = ServerSurroundings(
            self._yard.journal,
            self._log,
            config.webhook_retries,
            allow_private=config.allow_private_webhooks,
        )
        bunqueue = self._bunqueue(surroundings, committer)
        listener = listeners.get("glidemq")
        doors = [
            self._serve_beanstalk(),
            self._serve_bunqueue(bunqueue, surroundings),
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
        self, surroundings: ServerSurroundings, committer: Committer | None
    ) -> BunqueueDoor:
        config = self._config
        door = BunqueueDoor(self._yard, surroundings, self._now_ms)
        door.guard = self._guard
        door.webhooks.allows_private = config.allow_private_webhooks
        tokens = [one.strip() for one in config.auth_token.split(",")]
        door.tokens = [digest_of(one.encode()) for one in tokens if one]
        door.guards_metrics = config.metrics_auth
        door.requests_max = config.request_limit
        door.window_ms = config.request_window_ms
        door.idle_ms = config.frame_timeout_ms
        if committer is not None and config.durability == SYNC:
            # Answers wait for a sync, and how long is told.
            committer.observer = door.durations
            door.durations.are_timed = True
        return door

    def _serve_bunqueue(self, door: BunqueueDoor, surroundings: ServerSurroundings) -> ServedDoor:
        def drain() -> None:
            door.is_draining = True

        def every_second(now_ms: int) -> None:
            surroundings.look_at_disk(now_ms)
            door.webhooks.collect(now_ms)

        def stopping() -> None:
            if door.onlooker is not None:
                door.onlooker.tell("server:shutdown", {})

        def close(now_ms: int) -> None:
            # Notices that were held back have a last chance.
            door.webhooks.look(now_ms)
            surroundings.close()

        is_guarded = bool(self._config.auth_token)
        return ServedDoor(
            "bunqueue", BunqueueEntrance(door), is_guarded, drain, every_second, stopping, close
        )

    def _serve_http(self, bunqueue: BunqueueDoor, committer: Committer | None) -> ServedDoor:
        config = self._config
        topics = TopicsDoor(self._yard, self._now_ms)
        topics.guard = self._guard
        topics.keys = read_keys(config.topics_key)
        topics.guards_probes = config.probe_auth
        door = open_http(self._yard, bunqueue, topics, ServerStopwatch(committer))
        door.guard = self._guard
        set_limits(config, door, topics.limits)
        set_pages(config, door)

        def drain() -> None:
            door.is_draining = True

        is_guarded = bool(config.auth_token and config.topics_key)
        return ServedDoor("http", HttpEntrance(door), is_guarded, drain)

    def _serve_glidemq(self, port: int) -> ServedDoor:
        door = GlidemqDoor(self._yard, InfoFacts(self._facts, port), self._now_ms)
        door.guard = self._guard
        password = self._config.glidemq_password.encode()
        door.password = digest_of(password) if password else b""
        door.is_synced = self._config.durability == SYNC

        def drain() -> None:
            door.is_draining = True

        return ServedDoor("glidemq", GlidemqEntrance(door), bool(password), drain)
