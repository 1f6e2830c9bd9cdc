"""Consumer groups other than the workers: each subscription reads all jobs of a queue.

A subscription reads the entries of the stream in stamp order, takes no job away, and stores what it
delivered to which consumer. An entry that failed in one subscription is delivered again to that one
alone, as a redelivery with its own stamp. Knows neither the journal nor the clients that read.

Invariant: an entry that was delivered and not acknowledged is in `pending` by its stamp, or in
`again` if it is a redelivery; everything at or below the floor has ended for the subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.sorted_blocks import SortedBlocks
from jobyard.model.job import LEASED, READY, Job
from jobyard.model.lease import Proof
from jobyard.model.throttle.ready_lists import ReadyList

if TYPE_CHECKING:
    from jobyard.model.glidemq.stored_values import StreamReader

# Consumers that are remembered without pending entries; each start of a worker adds one.
_CONSUMERS_MAX: Final = 1000
# With no more entries than this, the index is not swept.
_SLACK: Final = 64
# Entries that are checked for each new one, to remove those that are gone.
_SWEPT: Final = 4
# How much a subscription may remember before its first sweep.
SWEEP_MIN: Final = 1024


def has_entry(job: Job) -> bool:
    """Return whether a job is in the stream of its queue, or was taken from there."""
    if job.state == READY:
        return job.ready_list == ReadyList.STREAM
    return job.state == LEASED and job.lease is not None and job.lease.terms.proof != Proof.LISTED


@final
class Redelivery(Item):
    """A job due for redelivery to one subscription. `sort_key` is when, `stamp` its entry then."""

    def __init__(self, subscription: Subscription, job: Job, due_ms: i64, stalls: i64) -> None:
        super().__init__(job.id, due_ms, 0)
        self.subscription: Subscription = subscription
        self.job: Job = job
        # How often a consumer of it was silent for too long.
        self.stalls: i64 = stalls


@final
@mypyc_attr(acyclic=True)
class Delivery:
    """An entry that was delivered to a consumer and not yet acknowledged."""

    def __init__(self, stamp: i64, job: Job, consumer: bytes, now_ms: i64) -> None:
        self.stamp: i64 = stamp
        self.job: Job = job
        self.consumer: bytes = consumer
        # When it was delivered, or its consumer was last active.
        self.at_ms: i64 = now_ms
        self.count: i64 = 1
        # Its number among all deliveries and hand-overs of the subscription.
        self.number: i64 = 0
        # None for an entry that all subscriptions see.
        self.repeat: Redelivery | None = None


@final
class Subscription:
    """One group of consumers that share all entries among themselves."""

    def __init__(self, name: bytes, cursor: i64) -> None:
        self.name: bytes = name
        # Its numbers in the journal: one of its own, and one since it was last moved.
        self.birth: i64 = 0
        self.epoch: i64 = 0
        self.is_over: bool = False
        # The last entry that was delivered.
        self.cursor: i64 = cursor
        # Everything up to here has ended for it; a restart continues from here.
        self.floor: i64 = cursor
        # Stamps above the floor that have ended, and some below it that are not yet removed.
        self.done = SortedBlocks()
        # By stamp, like all below: delivered entries.
        self.pending = SortedBlocks()
        # By job id: all redeliveries, whether scheduled, ready or delivered.
        self.redeliveries = SortedBlocks()
        # Redeliveries that are ready, and those that were delivered.
        self.ready = SortedBlocks()
        self.again = SortedBlocks()
        # When each was last active.
        self.consumers: dict[bytes, int] = {}
        # How many pending entries each consumer has; only consumers that have some.
        self.held: dict[bytes, int] = {}
        # The number of deliveries and hand-overs so far.
        self.gives: i64 = 0
        # The size of `pending` or `done` at which removed entries are swept.
        self.sweep_at: i64 = SWEEP_MIN
        self.is_sweeping: bool = False

    def note_seen(self, consumer: bytes, now_ms: i64) -> None:
        """Record that a consumer made a request."""
        # The most recently active consumers are last.
        self.consumers.pop(consumer, None)
        self.consumers[consumer] = int(now_ms)
        if len(self.consumers) > 2 * _CONSUMERS_MAX + len(self.held):
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Forget consumers without pending entries, except the most recently active."""
        idle = [name for name in self.consumers if name not in self.held]
        for name in idle[: max(len(idle) - _CONSUMERS_MAX, 0)]:
            del self.consumers[name]

    # -- delivered entries --------------------------------------------------------------------

    def give(self, delivery: Delivery) -> None:
        """Record a delivery to a consumer."""
        stamp = int(delivery.stamp)
        if delivery.repeat is not None:
            self.again.put(stamp, delivery)
        else:
            if self.pending.count > 0 and stamp <= self.pending.last():
                # It may have been delivered before, if the subscription was moved back since.
                self.take_pending(stamp)
            self.pending.put(stamp, delivery)
        self._count_for(delivery)

    def hand(self, delivery: Delivery, consumer: bytes) -> None:
        """Move a delivery to another consumer."""
        self._uncount(delivery)
        delivery.consumer = consumer
        self._count_for(delivery)

    def _count_for(self, delivery: Delivery) -> None:
        self.gives += 1
        delivery.number = self.gives
        self.held[delivery.consumer] = self.held.get(delivery.consumer, 0) + 1

    def _uncount(self, delivery: Delivery) -> None:
        left = self.held.get(delivery.consumer, 0) - 1
        if left > 0:
            self.held[delivery.consumer] = left
        else:
            self.held.pop(delivery.consumer, None)

    def take_pending(self, stamp: int) -> bool:
        """Remove a pending entry; return whether there was one."""
        found = self.pending.pop(stamp)
        if found is None:
            return False
        assert isinstance(found, Delivery)
        self._uncount(found)
        return True

    def take_again(self, stamp: int) -> None:
        """Remove a redelivery from those that were delivered, if it is there."""
        found = self.again.pop(stamp)
        if found is not None:
            assert isinstance(found, Delivery)
            self._uncount(found)

    def find(self, stamp: i64) -> Delivery | None:
        """Return the delivery with this stamp."""
        return self.find_pending(int(stamp)) or self.find_again(int(stamp))

    def find_pending(self, stamp: int) -> Delivery | None:
        """Return the pending entry with this stamp."""
        found = self.pending.get(stamp)
        assert found is None or isinstance(found, Delivery)
        return found

    def find_again(self, stamp: int) -> Delivery | None:
        """Return the delivered redelivery with this stamp."""
        found = self.again.get(stamp)
        assert found is None or isinstance(found, Delivery)
        return found

    def find_repeat(self, job: Job) -> Redelivery | None:
        """Return the redelivery of a job, whether scheduled, ready or delivered."""
        found = self.redeliveries.get(int(job.id))
        assert found is None or isinstance(found, Redelivery)
        return found

    def given_from(self, stamp: i64, most: i64) -> list[Delivery]:
        """Return up to `most` unacknowledged deliveries, the oldest entry first."""
        found: list[Delivery] = []
        for one in self.pending.values_from(int(stamp), most):
            assert isinstance(one, Delivery)
            found.append(one)
        if self.again.count > 0:
            for one in self.again.values_from(int(stamp), most):
                assert isinstance(one, Delivery)
                found.append(one)
            found.sort(key=_stamp_of)
            del found[most:]
        return found

    def pending_count(self) -> i64:
        """Return the number of unacknowledged deliveries."""
        return self.pending.count + self.again.count

    def least_given(self) -> i64:
        """Return the least stamp of an unacknowledged delivery; there must be one."""
        if self.again.count == 0:
            return self.pending.first()
        again = self.again.first()
        return again if self.pending.count == 0 else min(again, self.pending.first())

    def greatest_given(self) -> i64:
        """Return the greatest stamp of an unacknowledged delivery; there must be one."""
        if self.again.count == 0:
            return self.pending.last()
        again = self.again.last()
        return again if self.pending.count == 0 else max(again, self.pending.last())

    def first_pending(self) -> i64:
        """Return the least stamp of a pending entry that is not a redelivery, or 0."""
        return 0 if self.pending.count == 0 else self.pending.first()


def _stamp_of(delivery: Delivery) -> int:
    return delivery.stamp


@final
class Subscriptions:
    """The subscriptions of a queue, and the entries of its stream in order."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Subscription] = {}
        # Redeliveries whose time has not come.
        self.due = Heap()
        self.alarm: Item | None = None
        self.readers: list[StreamReader] = []
        # Whether `_entries` is complete: clients that only wait for new entries do not need it.
        # While it is filled, the number of tasks that wait for it, and the seq of the last job.
        self.is_filled: bool = False
        self.filling_count: i64 = 0
        self.filled_seq: i64 = 0
        # Entries by stamp, some of them gone, and the stamp where the last sweep stopped.
        self._entries = SortedBlocks()
        self._swept: i64 = 0
        # Jobs that came with an old stamp: readers beyond it would never see them.
        self.late: list[Job] = []
        # Journal keys of leftover entries, whose jobs are gone.
        self.leftover_keys: list[bytes] = []

    def take_in(self, job: Job) -> None:
        """Add a job that has an entry, while the order is being filled."""
        self._entries.put(_entry_of(job), job)

    def came(self, job: Job) -> None:
        """Handle a job that entered the stream."""
        if self.is_filled:
            self._add(job)
        elif self.filling_count > 0:
            self.take_in(job)
        self.wake()

    def _add(self, job: Job) -> None:
        stamp = _entry_of(job)
        entries = self._entries
        if entries.count > 0 and stamp <= entries.last() and entries.get(stamp) is None:
            self.late.append(job)
        # A stamp that is already there belongs to a job that was only away for a while.
        entries.put(stamp, job)
        if entries.count > _SLACK:
            self._drop_some_gone()

    def _drop_some_gone(self) -> None:
        """Check the next few entries, and remove those that are gone."""
        stamps, jobs = self.entries_after(self._swept, _SWEPT)
        for at in range(len(stamps)):
            if not is_entry(jobs[at], stamps[at]):
                self._entries.pop(stamps[at])
        self._swept = stamps[-1] if len(stamps) == _SWEPT else 0

    def unload(self) -> i64:
        """Remove some entries, as there are no subscriptions left; return how many, 0 for none."""
        return self._entries.unload()

    def wake(self) -> None:
        """Wake all waiting readers."""
        for reader in list(self.readers):
            reader.stream_grew()

    def count(self) -> i64:
        """Return the number of indexed entries, some of which are gone."""
        return self._entries.count

    def entries_after(self, stamp: i64, most: i64) -> tuple[list[int], list[Job]]:
        """Return the stamps and jobs of up to `most` entries with greater stamps."""
        stamps, found = self._entries.items_from(int(stamp) + 1, most)
        jobs: list[Job] = []
        for one in found:
            assert isinstance(one, Job)
            jobs.append(one)
        return stamps, jobs


def is_entry(job: Job, stamp: int) -> bool:
    """Return whether a job is still in the stream under this stamp."""
    return _entry_of(job) == stamp and has_entry(job)


def _entry_of(job: Job) -> int:
    return abs(int(job.stamp))
