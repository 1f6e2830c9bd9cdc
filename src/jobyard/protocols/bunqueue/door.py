"""What all bunqueue connections share: yard, limits, counters, leases without a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.retention import watch
from jobyard.model.queue import Holder, Lease, Waiter
from jobyard.protocols.bunqueue.environment import Surroundings
from jobyard.protocols.bunqueue.metrics.latency import Durations
from jobyard.protocols.bunqueue.metrics.rates import Rates
from jobyard.protocols.bunqueue.webhooks import Webhooks
from jobyard.protocols.bunqueue.workers import Workers
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, Guard

__all__ = ["Answer", "BunqueueDoor", "Command", "Surroundings"]

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.policy import Policy
    from jobyard.protocols.bunqueue.observer import Onlooker
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

Answer = dict[str, object]
Command = Callable[["BunqueueSession", "Request"], "Answer | None"]


@final
class Nobody(Holder):
    """Holds leases whose connection is gone; they end by their deadline or by their token."""

    def given(self, waiter: Waiter, lease: Lease) -> None:
        """Nobody waits."""
        raise AssertionError((waiter.key, lease.key))

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:
        """Nobody waits."""
        raise AssertionError((waiter.key, is_deadline_soon))


@final
class BunqueueDoor:
    """State common to the bunqueue sessions of one server."""

    def __init__(self, yard: Yard, surroundings: Surroundings, now_ms: i64) -> None:
        self.yard = yard
        self.surroundings = surroundings
        self.started_ms: i64 = now_ms
        self.is_draining: bool = False
        self.guard = Guard(MEMORY_DEFAULT)
        self.commands: dict[bytes, Command] = {}
        # What is kept of the tokens of which a client must know one.
        self.tokens: list[bytes] = []
        # Whether scrapers must know one of them too.
        self.guards_metrics: bool = False
        # Requests of one connection in one window; 0 for no limit.
        self.requests_max: i64 = 0
        self.window_ms: i64 = 60_000
        # How long a frame may stay incomplete without another byte of it.
        self.idle_ms: i64 = 60_000
        self.orphans = yard.new_book(Nobody())
        # Encoded fields that depend on the policy and the direction of the line, by both.
        self.shapes: dict[int, bytes] = {}
        self.plain_shapes: dict[int, bytes] = {}
        # Policies of jobs for which nothing but a name was asked.
        self.plain_policies: dict[str, Policy] = {}
        self.workers = Workers(yard)
        self.webhooks = Webhooks(yard, surroundings)
        self.rates = Rates(now_ms)
        self.sessions_count: i64 = 0
        # Those who listen over HTTP.
        self.sockets_count: i64 = 0
        self.streams_count: i64 = 0
        # None while nobody listens.
        self.onlooker: Onlooker | None = None
        self.durations = Durations(yard.counters)
        self.rests = watch(yard, now_ms)

    def watch_by(self, onlooker: Onlooker | None) -> None:
        """Let somebody know of everything from now on, or nobody."""
        self.onlooker = onlooker
        self.workers.onlooker = onlooker
        self.webhooks.onlooker = onlooker

    def wall_ms(self, steady_ms: i64) -> i64:
        """Return the wall time of a moment."""
        return steady_ms + self.yard.journal.wall_offset_ms
