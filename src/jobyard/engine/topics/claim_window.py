"""Claims that come within a short window are served together, so that each gets its share.

The first claim opens the window of its queue; when it closes, all that came meanwhile are given one
job a round, in the order they came, until they have enough or no job is left. Nobody is leased
anything before. Who got nothing and has time stays; for all of them one scout stands in line at the
queue, and the next job it sees opens the next window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.engine.jobs.take import cancel_wait, take_one, wait
from jobyard.engine.state.timers import Alarm
from jobyard.engine.topics.topic_queue import CLAIM_SIZE_MAX, by_seq, forget_idle, node_book
from jobyard.engine.topics.topic_setup import config_of, stock_of
from jobyard.errors import YardFull
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Holder

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Book, Lease, Queue, Terms, Waiter


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Claimant:
    """Whoever claims and waits for its share."""

    def served(self, bid: Bid, leases: list[Lease]) -> None:
        """Take what there was, in the order of seqs; it may join again, and change nothing else."""

    def queue_lost(self, bid: Bid) -> None:
        """Wait no more: the queue was removed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenClaimant(Claimant):
    """A claimant that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class Bid:
    """One claim that waits for its share, until some time if there is none at first."""

    def __init__(self, terms: Terms, most: i64, until_ms: i64, who: Claimant) -> None:
        self.terms: Terms = terms
        self.most: i64 = most
        self.until_ms: i64 = until_ms
        self.who: Claimant = who
        # Where its leases are booked; None: by the name of its node.
        self.book: Book | None = None
        # It takes no more jobs once their bodies come to this.
        self.size_max: i64 = CLAIM_SIZE_MAX
        self.size: i64 = 0
        self.leases: list[Lease] = []
        self.cohort: Cohort | None = None

    def is_dealt_soon(self) -> bool:
        """Tell whether the window is open, at the end of which shares are dealt."""
        return self.cohort is not None and self.cohort.pos >= 0


@final
class Cohort(Alarm, Holder):
    """Those who claim from one queue; rings when the window closes."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue
        self._bids: list[Bid] = []
        self._book: Book = yard.new_book(self)
        self._scout: Waiter | None = None

    def join(self, bid: Bid, now_ms: i64) -> None:
        """Be served when the window closes, which is opened if need be."""
        bid.cohort = self
        self._bids.append(bid)
        if self.pos < 0:
            self._open(now_ms)

    def leave(self, bid: Bid) -> None:
        """Want nothing any more."""
        bid.cohort = None
        self._bids.remove(bid)
        if self.pos < 0:
            self._rest()

    def _open(self, now_ms: i64) -> None:
        if self._scout is not None:
            cancel_wait(self._yard, self._scout)
            self._scout = None
        self._yard.arm(self, now_ms + config_of(self._queue).claim_jitter_ms)

    def _rest(self) -> None:
        """Wait for the next job if anybody does; else end."""
        scout = self._scout
        if self._bids and scout is None:
            terms = self._bids[0].terms
            scout = wait(self._yard, [self._queue], self._book, terms, NEVER_MS, NEVER_MS)
            scout.is_scout = True
            self._scout = scout
        elif not self._bids:
            if scout is not None:
                cancel_wait(self._yard, scout)
                self._scout = None
            stock = self._queue.stock
            if stock is not None and stock.cohort is self:
                stock.cohort = None

    def sighted(self, waiter: Waiter, now_ms: i64) -> None:  # noqa: ARG002  there is only one
        """Open the window: there is a job."""
        self._scout = None
        self._open(now_ms)

    def ring(self, now_ms: i64) -> None:
        """Give every claim its share."""
        stock = self._queue.stock
        if stock is None or stock.cohort is not self:
            self._dissolve()
            return
        bids = self._bids
        hungry = [bid for bid in bids if bid.most > 0]
        while hungry:
            # Who finds nothing leaves: there is no more for anybody.
            hungry = [bid for bid in hungry if self._feed(bid, now_ms)]
        over = [bid for bid in bids if bid.leases or bid.until_ms <= now_ms]
        self._bids = [bid for bid in bids if not bid.leases and bid.until_ms > now_ms]
        for bid in bids:
            if bid.book is None:
                forget_idle(self._yard, bid.terms.label)
        for bid in over:
            bid.cohort = None
            bid.who.served(bid, by_seq(bid.leases))
        if self.pos < 0:
            self._rest()

    def _feed(self, bid: Bid, now_ms: i64) -> bool:
        """Give a claim one job; tell whether it wants another and may get one."""
        book = bid.book
        if book is None:
            book = node_book(self._yard, bid.terms.label)
        try:
            lease = take_one(self._yard, self._queue, book, bid.terms, now_ms)
        except YardFull:
            # It waits on: a lease that could not be noted would not be what was asked for.
            return False
        if lease is None:
            return False
        bid.leases.append(lease)
        bid.size += len(lease.body)
        return len(bid.leases) < bid.most and bid.size < bid.size_max

    def _dissolve(self) -> None:
        """Tell everybody that the queue was removed."""
        bids = self._bids
        self._bids = []
        self._rest()
        for bid in bids:
            bid.cohort = None
            bid.who.queue_lost(bid)


def join_cohort(yard: Yard, queue: Queue, bid: Bid, now_ms: i64) -> None:
    """Claim jobs together with others."""
    stock = stock_of(queue)
    cohort = stock.cohort
    if cohort is None:
        cohort = Cohort(yard, queue)
        stock.cohort = cohort
    assert isinstance(cohort, Cohort)
    cohort.join(bid, now_ms)


def leave_cohort(bid: Bid) -> None:
    """Want nothing any more; a claim that was served is past leaving."""
    if bid.cohort is not None:
        bid.cohort.leave(bid)
