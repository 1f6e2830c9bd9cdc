"""A stream of jobs to one worker: at most N at a time, and the next one as soon as one ends.

While the worker may have more, the stream waits at the queue, last again after every job; so
streams take turns. It is notified of every end of its leases, whatever ended them, and waits again.
When it is closed, all its leases are given back. If the queue has a claim window, the stream claims
through that.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.engine.jobs.holders import drop_holder
from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.jobs.take import cancel_wait, offer, wait
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.claim_window import ClaimWaiter, WaitingClaim, join_window, leave_window
from jobyard.engine.topics.topic_queue import terms_of
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.lease import Holder, Lease, LeaseSet, Terms
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.waiter import Waiter

# The approximate size of jobs that are sent together.
SHARE_SIZE_MAX: Final = 256 << 10


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class StreamWorker:
    """The receiver of the jobs of a stream."""

    def job_given(self, lease: Lease) -> None:
        """Send a job; must not change the yard."""

    def has_room(self) -> bool:
        """Return whether more can be sent now; if not, call `PushStream.proceed` later."""
        return True

    def queue_gone(self) -> None:
        """End the stream, which is closed: its queue was removed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenStreamWorker(StreamWorker):
    """Base of interpreted workers: an interpreted class cannot have a compiled trait."""


@final
class PushStream(Holder, ClaimWaiter):
    """One worker at one queue."""

    def __init__(
        self, yard: Yard, queue: Queue, node: str, most: i64, lease_ms: i64, worker: StreamWorker
    ) -> None:
        self._yard = yard
        self._queue = queue
        self._most: i64 = most
        self._worker: StreamWorker = worker
        self._terms: Terms = terms_of(queue, node, lease_ms)
        # Its leases end with the connection, which a restart of the server ends too.
        self._terms.is_durable = False
        self.lease_set: LeaseSet = yard.new_lease_set(self)
        self._waiter: Waiter | None = None
        self._waiting_claim: WaitingClaim | None = None
        self.is_open: bool = False

    def open(self, now_ms: i64) -> None:
        """Start taking jobs; ready ones are given before this returns."""
        self.is_open = True
        self.lease_set.is_watched = True
        hold_watch(self._queue)
        self._stand(now_ms)

    def close(self, now_ms: i64) -> None:
        """Stop taking jobs, and give back those that have not ended."""
        if not self.is_open:
            return
        self.is_open = False
        self.lease_set.is_watched = False
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            cancel_wait(self._yard, waiter)
        waiting_claim = self._waiting_claim
        if waiting_claim is not None:
            self._waiting_claim = None
            leave_window(waiting_claim)
        drop_holder(self._yard, self.lease_set, None, now_ms)
        drop_watch(self._yard, self._queue)

    def _line_up(self, now_ms: i64) -> None:
        """Wait for a job, unless it already waits or the worker has enough."""
        free: i64 = self._most - len(self.lease_set.leases.items)
        if self._waiter is not None or free <= 0:
            return
        if self._waiting_claim is not None:
            self._waiting_claim.most = free
        elif not self._worker.has_room():
            return
        elif config_of(self._queue).claim_jitter_ms > 0:
            waiting_claim = WaitingClaim(self._terms, free, NEVER_MS, self)
            waiting_claim.lease_set = self.lease_set
            waiting_claim.size_max = SHARE_SIZE_MAX
            self._waiting_claim = waiting_claim
            join_window(self._yard, self._queue, waiting_claim, now_ms)
        else:
            self._waiter = wait(
                self._yard, [self._queue], self.lease_set, self._terms, NEVER_MS, NEVER_MS
            )

    def proceed(self, now_ms: i64) -> None:
        """Take jobs again: the worker has room again."""
        if self.is_open:
            self._stand(now_ms)

    def _stand(self, now_ms: i64) -> None:
        self._line_up(now_ms)
        offer(self._yard, self._queue, now_ms)

    def given(self, waiter: Waiter, lease: Lease) -> None:  # noqa: ARG002  there is only one
        """Send a job and wait for the next; the caller serves waiters in order, this one last."""
        self._waiter = None
        self._line_up(lease.started_ms)
        self._worker.job_given(lease)

    def served(self, waiting_claim: WaitingClaim, leases: list[Lease]) -> None:  # noqa: ARG002  there is only one
        """Send the share, and claim the next if there is room for it."""
        self._waiting_claim = None
        for lease in leases:
            self._worker.job_given(lease)
        self._stand(self._yard.now_ms)

    def queue_lost(self, waiting_claim: WaitingClaim) -> None:  # noqa: ARG002  there is only one
        """Close: the queue was removed."""
        self._waiting_claim = None
        self.close(self._yard.now_ms)
        self._worker.queue_gone()

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:  # noqa: ARG002
        """Close: a stream has no deadline, so its queue is gone."""
        self._waiter = None
        self.close(self._yard.now_ms)
        self._worker.queue_gone()

    def lease_ended(self, lease: Lease, now_ms: i64) -> None:  # noqa: ARG002  any makes room
        """Take the next job."""
        if self.is_open and self._waiter is None:
            self._stand(now_ms)
