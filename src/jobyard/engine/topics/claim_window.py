"""Claims that arrive within a short window are served together, so that each gets its share.

The first claim opens the window of its queue; when it closes, all claims that have arrived get one
job per round, in order, until they have enough or no job is left. Nothing is leased before. A claim
that got nothing and has time left stays; for all of these one notify-only waiter waits at the
queue, and the next ready job opens the next window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.engine.jobs.take import cancel_wait, take_one, wait
from jobyard.engine.state.timers import Alarm
from jobyard.engine.topics.topic_queue import CLAIM_SIZE_MAX, by_seq, forget_idle, node_leases
from jobyard.engine.topics.topic_setup import config_of, topic_state_of
from jobyard.errors import YardFull
from jobyard.model.lease import Holder
from jobyard.model.limits import NEVER_MS

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.lease import Lease, LeaseSet, Terms
    from jobyard.model.queue import Queue
    from jobyard.model.waiter import Waiter


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class ClaimWaiter:
    """A client that claims and waits for its share."""

    def served(self, waiting_claim: WaitingClaim, leases: list[Lease]) -> None:
        """Take the share, sorted by seq; may join a window again, but must change nothing else."""

    def queue_lost(self, waiting_claim: WaitingClaim) -> None:
        """Stop waiting: the queue was removed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenClaimWaiter(ClaimWaiter):
    """Base of interpreted claim waiters: an interpreted class cannot have a compiled trait."""


@final
class WaitingClaim:
    """A claim that waits for its share, until `until_ms` if it gets none at first."""

    def __init__(self, terms: Terms, most: i64, until_ms: i64, who: ClaimWaiter) -> None:
        self.terms: Terms = terms
        self.most: i64 = most
        self.until_ms: i64 = until_ms
        self.who: ClaimWaiter = who
        # Where its leases go; None: the lease set of its node.
        self.lease_set: LeaseSet | None = None
        # It takes no more jobs once the size of their bodies reaches this.
        self.size_max: i64 = CLAIM_SIZE_MAX
        self.size: i64 = 0
        self.leases: list[Lease] = []
        self.claim_window: ClaimWindow | None = None

    def is_dealt_soon(self) -> bool:
        """Return whether its window is open; shares are given when that closes."""
        return self.claim_window is not None and self.claim_window.pos >= 0


@final
class ClaimWindow(Alarm, Holder):
    """The waiting claims of one queue; rings when the window closes."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue
        self._waiting_claims: list[WaitingClaim] = []
        self._lease_set: LeaseSet = yard.new_lease_set(self)
        self._notify_waiter: Waiter | None = None

    def join(self, waiting_claim: WaitingClaim, now_ms: i64) -> None:
        """Add a claim, to be served when the window closes; open it if needed."""
        waiting_claim.claim_window = self
        self._waiting_claims.append(waiting_claim)
        if self.pos < 0:
            self._open(now_ms)

    def leave(self, waiting_claim: WaitingClaim) -> None:
        """Withdraw a claim."""
        waiting_claim.claim_window = None
        self._waiting_claims.remove(waiting_claim)
        if self.pos < 0:
            self._rest()

    def _open(self, now_ms: i64) -> None:
        if self._notify_waiter is not None:
            cancel_wait(self._yard, self._notify_waiter)
            self._notify_waiter = None
        self._yard.arm(self, now_ms + config_of(self._queue).claim_jitter_ms)

    def _rest(self) -> None:
        """Wait for the next job if there are claims; else end."""
        notify_waiter = self._notify_waiter
        if self._waiting_claims and notify_waiter is None:
            terms = self._waiting_claims[0].terms
            notify_waiter = wait(
                self._yard, [self._queue], self._lease_set, terms, NEVER_MS, NEVER_MS
            )
            notify_waiter.is_notify_only = True
            self._notify_waiter = notify_waiter
        elif not self._waiting_claims:
            if notify_waiter is not None:
                cancel_wait(self._yard, notify_waiter)
                self._notify_waiter = None
            topic_state = self._queue.topic_state
            if topic_state is not None and topic_state.claim_window is self:
                topic_state.claim_window = None

    def sighted(self, waiter: Waiter, now_ms: i64) -> None:  # noqa: ARG002  there is only one
        """Open the window: there is a job."""
        self._notify_waiter = None
        self._open(now_ms)

    def ring(self, now_ms: i64) -> None:
        """Give every claim its share."""
        topic_state = self._queue.topic_state
        if topic_state is None or topic_state.claim_window is not self:
            self._dissolve()
            return
        bids = self._waiting_claims
        hungry = [waiting_claim for waiting_claim in bids if waiting_claim.most > 0]
        while hungry:
            # A claim that gets nothing leaves the round: no job is left.
            hungry = [
                waiting_claim for waiting_claim in hungry if self._feed(waiting_claim, now_ms)
            ]
        over = [
            waiting_claim
            for waiting_claim in bids
            if waiting_claim.leases or waiting_claim.until_ms <= now_ms
        ]
        self._waiting_claims = [
            waiting_claim
            for waiting_claim in bids
            if not waiting_claim.leases and waiting_claim.until_ms > now_ms
        ]
        for waiting_claim in bids:
            if waiting_claim.lease_set is None:
                forget_idle(self._yard, waiting_claim.terms.label)
        for waiting_claim in over:
            waiting_claim.claim_window = None
            waiting_claim.who.served(waiting_claim, by_seq(waiting_claim.leases))
        if self.pos < 0:
            self._rest()

    def _feed(self, waiting_claim: WaitingClaim, now_ms: i64) -> bool:
        """Give a claim one job; return whether it may take another."""
        lease_set = waiting_claim.lease_set
        if lease_set is None:
            lease_set = node_leases(self._yard, waiting_claim.terms.label)
        try:
            lease = take_one(self._yard, self._queue, lease_set, waiting_claim.terms, now_ms)
        except YardFull:
            # It keeps waiting: there is no room to make the lease durable, as requested.
            return False
        if lease is None:
            return False
        waiting_claim.leases.append(lease)
        waiting_claim.size += len(lease.body)
        return (
            len(waiting_claim.leases) < waiting_claim.most
            and waiting_claim.size < waiting_claim.size_max
        )

    def _dissolve(self) -> None:
        """Notify all claims that the queue was removed."""
        bids = self._waiting_claims
        self._waiting_claims = []
        self._rest()
        for waiting_claim in bids:
            waiting_claim.claim_window = None
            waiting_claim.who.queue_lost(waiting_claim)


def join_window(yard: Yard, queue: Queue, waiting_claim: WaitingClaim, now_ms: i64) -> None:
    """Add a claim to the window of a queue."""
    topic_state = topic_state_of(queue)
    claim_window = topic_state.claim_window
    if claim_window is None:
        claim_window = ClaimWindow(yard, queue)
        topic_state.claim_window = claim_window
    assert isinstance(claim_window, ClaimWindow)
    claim_window.join(waiting_claim, now_ms)


def leave_window(waiting_claim: WaitingClaim) -> None:
    """Withdraw a claim; no effect if it was already served."""
    if waiting_claim.claim_window is not None:
        waiting_claim.claim_window.leave(waiting_claim)
