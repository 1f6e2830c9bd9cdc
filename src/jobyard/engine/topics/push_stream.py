"""A stream of jobs to one worker: never more than so many at a time, and the next at once.

While the worker may have more, the stream stands in line at the queue, at the end again after every
job; so streams take turns. It is told of every end of its leases, whoever ended them, and stands in
line again. When it is closed all its leases are given back. Where claims are served together, its
own are among them.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.engine.jobs.holders import drop_holder
from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.jobs.take import cancel_wait, offer, wait
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.claim_window import Bid, Claimant, join_cohort, leave_cohort
from jobyard.engine.topics.topic_queue import terms_of
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Book, Holder, Lease, Queue, Terms, Waiter

# Of jobs that are sent on together, about.
SHARE_SIZE_MAX: Final = 256 << 10


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Worker:
    """Who is sent the jobs of a stream."""

    def job_given(self, lease: Lease) -> None:
        """Send a job on; nothing of the yard may be changed from here."""

    def has_room(self) -> bool:
        """Tell whether more can be sent on now; who says no calls `Stream.go_on` later."""
        return True

    def queue_gone(self) -> None:
        """End the stream, which is closed: its queue was removed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenWorker(Worker):
    """A worker that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class Stream(Holder, Claimant):
    """One worker at one queue."""

    def __init__(
        self, yard: Yard, queue: Queue, node: str, most: i64, lease_ms: i64, worker: Worker
    ) -> None:
        self._yard = yard
        self._queue = queue
        self._most: i64 = most
        self._worker: Worker = worker
        self._terms: Terms = terms_of(queue, node, lease_ms)
        # They end with the connection, and a server that stops is the end of that too.
        self._terms.is_kept = False
        self.book: Book = yard.new_book(self)
        self._waiter: Waiter | None = None
        self._bid: Bid | None = None
        self.is_open: bool = False

    def open(self, now_ms: i64) -> None:
        """Begin to take jobs; those that are ready are given before this returns."""
        self.is_open = True
        self.book.is_watched = True
        hold_watch(self._queue)
        self._stand(now_ms)

    def close(self, now_ms: i64) -> None:
        """Take no more jobs, and give back those that are not ended."""
        if not self.is_open:
            return
        self.is_open = False
        self.book.is_watched = False
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            cancel_wait(self._yard, waiter)
        bid = self._bid
        if bid is not None:
            self._bid = None
            leave_cohort(bid)
        drop_holder(self._yard, self.book, None, now_ms)
        drop_watch(self._yard, self._queue)

    def _line_up(self, now_ms: i64) -> None:
        """Stand at the end of the line, unless it stands there or the worker has enough."""
        free: i64 = self._most - len(self.book.leases.items)
        if self._waiter is not None or free <= 0:
            return
        if self._bid is not None:
            self._bid.most = free
        elif not self._worker.has_room():
            return
        elif config_of(self._queue).claim_jitter_ms > 0:
            bid = Bid(self._terms, free, NEVER_MS, self)
            bid.book = self.book
            bid.size_max = SHARE_SIZE_MAX
            self._bid = bid
            join_cohort(self._yard, self._queue, bid, now_ms)
        else:
            self._waiter = wait(
                self._yard, [self._queue], self.book, self._terms, NEVER_MS, NEVER_MS
            )

    def go_on(self, now_ms: i64) -> None:
        """Take jobs again: the worker has room once more."""
        if self.is_open:
            self._stand(now_ms)

    def _stand(self, now_ms: i64) -> None:
        self._line_up(now_ms)
        offer(self._yard, self._queue, now_ms)

    def given(self, waiter: Waiter, lease: Lease) -> None:  # noqa: ARG002  there is only one
        """Send a job on, and line up for the next; who serves the line comes to it."""
        self._waiter = None
        self._line_up(lease.started_ms)
        self._worker.job_given(lease)

    def served(self, bid: Bid, leases: list[Lease]) -> None:  # noqa: ARG002  there is only one
        """Send the share on, and ask for the next if there is room for it."""
        self._bid = None
        for lease in leases:
            self._worker.job_given(lease)
        self._stand(self._yard.now_ms)

    def queue_lost(self, bid: Bid) -> None:  # noqa: ARG002  there is only one
        """Close: the queue was removed."""
        self._bid = None
        self.close(self._yard.now_ms)
        self._worker.queue_gone()

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:  # noqa: ARG002
        """Close: a stream waits for ever, so its queue is gone."""
        self._waiter = None
        self.close(self._yard.now_ms)
        self._worker.queue_gone()

    def lease_ended(self, lease: Lease, now_ms: i64) -> None:  # noqa: ARG002  any makes room
        """Take the next job."""
        if self.is_open and self._waiter is None:
            self._stand(now_ms)
