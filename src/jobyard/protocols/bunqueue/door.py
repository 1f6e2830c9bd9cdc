"""State that all bunqueue connections share: yard, limits, counters, detached leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.retention import watch
from jobyard.model.lease import Holder, Lease
from jobyard.protocols.bunqueue.environment import Environment
from jobyard.protocols.bunqueue.metrics.latency import Durations
from jobyard.protocols.bunqueue.metrics.rates import Rates
from jobyard.protocols.bunqueue.webhooks import Webhooks
from jobyard.protocols.bunqueue.workers import Workers
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, SharedLimits

__all__ = ["Answer", "BunqueueDoor", "Environment"]

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.policy import Policy
    from jobyard.model.waiter import Waiter
    from jobyard.protocols.bunqueue.observer import CommandObserver
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.session import Session

Answer = dict[str, object]


class CommandTable:
    """The commands that a session does not run itself; filled in by the layer above the door."""

    def has(self, name: bytes) -> bool:  # noqa: ARG002  there are none yet
        """Return whether there is a command of this name."""
        return False

    def run(self, session: Session, request: Request) -> Answer | None:
        """Run a command; None if it is answered later."""
        raise NotImplementedError


@final
class DetachedHolder(Holder):
    """Holds leases whose connection is gone; they end at their deadline or by their token."""

    def given(self, waiter: Waiter, lease: Lease) -> None:
        """Fail: this holder never waits."""
        raise AssertionError((waiter.key, lease.key))

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:
        """Fail: this holder never waits."""
        raise AssertionError((waiter.key, is_deadline_soon))


@final
class BunqueueDoor:
    """State common to the bunqueue sessions of one server."""

    def __init__(self, yard: Yard, environment: Environment, now_ms: i64) -> None:
        self.yard = yard
        self.environment = environment
        self.started_ms: i64 = now_ms
        self.is_draining: bool = False
        self.shared_limits = SharedLimits(MEMORY_DEFAULT)
        self.commands: CommandTable = CommandTable()
        # Digests of the accepted tokens; empty if no token is required.
        self.tokens: list[bytes] = []
        # Whether scrapers need a token too.
        self.guards_metrics: bool = False
        # Requests of one connection in one window; 0 for no limit.
        self.requests_max: i64 = 0
        self.window_ms: i64 = 60_000
        # How long a frame may stay incomplete without another byte of it.
        self.idle_ms: i64 = 60_000
        self.orphans = yard.new_lease_set(DetachedHolder())
        # Encoded fields that depend only on the policy and on LIFO or FIFO order, by both.
        self.shapes: dict[int, bytes] = {}
        self.plain_shapes: dict[int, bytes] = {}
        # Policies of jobs pushed without options, by job name.
        self.plain_policies: dict[str, Policy] = {}
        self.workers = Workers(yard)
        self.webhooks = Webhooks(yard, environment)
        self.rates = Rates(now_ms)
        self.sessions_count: i64 = 0
        # Event listeners over HTTP.
        self.sockets_count: i64 = 0
        self.streams_count: i64 = 0
        # None while there are no listeners.
        self.observer: CommandObserver | None = None
        self.durations = Durations(yard.counters)
        self.rests = watch(yard, now_ms)

    def watch_by(self, observer: CommandObserver | None) -> None:
        """Set the observer of commands, workers and webhooks; None removes it."""
        self.observer = observer
        self.workers.observer = observer
        self.webhooks.observer = observer

    def wall_ms(self, steady_ms: i64) -> i64:
        """Convert steady time to wall time."""
        return steady_ms + self.yard.journal.wall_offset_ms
