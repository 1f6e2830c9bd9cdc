"""A holder that waits for a job, and its place among the waiters of each queue.

Waiters are served first come first served per queue; one waiter may wait at many queues and is
unlinked from all of them when served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.model.index.item import Item

if TYPE_CHECKING:
    from jobyard.model.lease import LeaseSet, Terms
    from jobyard.model.queue import Queue


@final
class WaiterLink:
    """A waiter's place in the queue of waiters of one queue."""

    def __init__(self, waiter: Waiter, queue: Queue) -> None:
        self.waiter: Waiter = waiter
        self.queue: Queue = queue
        self.before: WaiterLink | None = None
        self.after: WaiterLink | None = None


@final
class Waiter(Item):
    """A holder that waits for a job from any of several queues. `sort_key` is its next alarm."""

    def __init__(
        self, number: i64, lease_set: LeaseSet, terms: Terms, until_ms: i64, soon_ms: i64
    ) -> None:
        super().__init__(number, min(until_ms, soon_ms), number)
        self.lease_set: LeaseSet = lease_set
        self.terms: Terms = terms
        self.until_ms: i64 = until_ms
        self.soon_ms: i64 = soon_ms
        self.links: list[WaiterLink] = []
        # It is notified of a job, which goes to the next taker.
        self.is_notify_only: bool = False
        # It gets only jobs from the stream, not from other ready lists.
        self.is_stream_only: bool = False
        # The lease set that gets the job: that of the waiter, unless the lease must outlive it.
        self.target: LeaseSet = lease_set
