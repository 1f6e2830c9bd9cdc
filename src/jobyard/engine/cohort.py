"""Claims that come within a short window are served together, so that each gets its share.

The first claim opens the window of its queue; when it closes, all that came meanwhile are given one
job a round, in the order they came, until they have enough or no job is left. Nobody is leased
anything before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, trait

from jobyard.engine.alarm import Alarm
from jobyard.engine.claim_setup import config_of, stock_of
from jobyard.engine.claims import by_seq, forget_idle, node_book, terms_of
from jobyard.engine.take import take_one
from jobyard.model.limits import NEVER_MS

if TYPE_CHECKING:
    from jobyard.engine.yard import Yard
    from jobyard.model.queue import Lease, Queue, Terms


@trait
class Claimant:
    """Whoever claims and waits for its share."""

    def served(self, bid: Bid, leases: list[Lease]) -> None:
        """Take what there was, in the order of seqs; nothing of the yard may be changed here."""


@final
class Bid:
    """One claim that waits for the window to close."""

    def __init__(self, cohort: Cohort, node: str, most: i64, terms: Terms, who: Claimant) -> None:
        self.cohort: Cohort = cohort
        self.node: str = node
        self.most: i64 = most
        self.terms: Terms = terms
        self.who: Claimant = who
        self.leases: list[Lease] = []


@final
class Cohort(Alarm):
    """The claims of one window; rings when it closes."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue
        self.bids: list[Bid] = []

    def ring(self, now_ms: i64) -> None:
        """Give every claim its share."""
        stock = self._queue.stock
        if stock is not None and stock.cohort is self:
            stock.cohort = None
        bids = self.bids
        self.bids = []
        hungry = [bid for bid in bids if bid.most > 0]
        while hungry:
            # Who finds nothing leaves: there is no more for anybody.
            hungry = [bid for bid in hungry if self._feed(bid, now_ms)]
        for bid in bids:
            forget_idle(self._yard, bid.node)
            bid.who.served(bid, by_seq(bid.leases))

    def _feed(self, bid: Bid, now_ms: i64) -> bool:
        """Give a claim one job; tell whether it wants another and may get one."""
        book = node_book(self._yard, bid.node)
        lease = take_one(self._yard, self._queue, book, bid.terms, now_ms)
        if lease is None:
            return False
        bid.leases.append(lease)
        return len(bid.leases) < bid.most


def join_cohort(
    yard: Yard, queue: Queue, node: str, most: i64, lease_ms: i64, who: Claimant, now_ms: i64
) -> Bid:
    """Claim jobs together with others; to be asked for only where a window is configured."""
    stock = stock_of(queue)
    cohort = stock.cohort
    if cohort is None:
        cohort = Cohort(yard, queue)
        stock.cohort = cohort
        yard.arm(cohort, now_ms + config_of(queue).claim_jitter_ms)
    assert isinstance(cohort, Cohort)
    bid = Bid(cohort, node, most, terms_of(queue, node, lease_ms), who)
    cohort.bids.append(bid)
    return bid


def leave_cohort(bid: Bid) -> None:
    """Want nothing any more; a claim that was served is past leaving."""
    if bid in bid.cohort.bids:
        bid.cohort.bids.remove(bid)
