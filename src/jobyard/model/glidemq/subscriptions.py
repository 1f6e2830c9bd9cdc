"""Who reads all jobs of a queue, each reader for itself: consumer groups other than the workers.

A subscription goes through the entries of the stream by their stamps, takes no job away, and
remembers what it gave to whom. An entry that failed in one subscription comes again to that one
alone, as a repeat, which has a stamp of its own. Knows neither the journal nor who reads.

Invariant: what a subscription was given and has not acknowledged stands in `pending` by its stamp,
or in `again` if it is a repeat; what lies at or below its floor is over for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.sorted_blocks import SortedBlocks
from jobyard.model.job import LEASED, READY, Job
from jobyard.model.queue import LISTED
from jobyard.model.throttle.ready_lists import STREAM

if TYPE_CHECKING:
    from jobyard.model.glidemq.stored_values import StreamReader

# Consumers that are remembered though they have nothing; each start of a worker is another.
_CONSUMERS_MAX: Final = 1000
# How many entries that are gone an index may hold at the least before they are swept.
_SLACK: Final = 64
# Entries that are looked at for each that comes, to let those go that are gone.
_SWEPT: Final = 4
# What a subscription may remember at the least before it is swept.
SWEEP_MIN: Final = 1024


def has_entry(job: Job) -> bool:
    """Tell whether a job stands in the stream of its queue, or was taken from there."""
    if job.state == READY:
        return job.shelf == STREAM
    return job.state == LEASED and job.lease is not None and job.lease.terms.proof != LISTED


@final
class Repeat(Item):
    """A job that one subscription is to get again. `sort_key` is when, `stamp` its entry then."""

    def __init__(self, subscription: Subscription, job: Job, due_ms: i64, stalls: i64) -> None:
        super().__init__(job.id, due_ms, 0)
        self.subscription: Subscription = subscription
        self.job: Job = job
        # How often its consumers have fallen silent.
        self.stalls: i64 = stalls


@final
@mypyc_attr(acyclic=True)
class Delivery:
    """An entry that a consumer was given and has not acknowledged."""

    def __init__(self, stamp: i64, job: Job, consumer: bytes, now_ms: i64) -> None:
        self.stamp: i64 = stamp
        self.job: Job = job
        self.consumer: bytes = consumer
        # When it was given, or something was heard of it.
        self.at_ms: i64 = now_ms
        self.count: i64 = 1
        # Which of all that its subscription gave and handed over it is.
        self.number: i64 = 0
        # None for an entry that all subscriptions see.
        self.repeat: Repeat | None = None


@final
class Subscription:
    """One group of consumers that share all entries among themselves."""

    def __init__(self, name: bytes, cursor: i64) -> None:
        self.name: bytes = name
        # Numbers of it in the journal: of its own, and since it was last moved.
        self.birth: i64 = 0
        self.epoch: i64 = 0
        self.is_over: bool = False
        # The last entry that was given.
        self.cursor: i64 = cursor
        # Up to here everything is over for it; this is what a restart goes on from.
        self.floor: i64 = cursor
        # Stamps above the floor that are over, and some below it that are to be forgotten.
        self.done = SortedBlocks()
        # By their stamps, as all below: what was given.
        self.pending = SortedBlocks()
        # By the id of the job: all repeats, whether they wait, are ready, or were given.
        self.repeats = SortedBlocks()
        # Those that are ready, and those that were given.
        self.ready = SortedBlocks()
        self.again = SortedBlocks()
        # When each was heard of last.
        self.consumers: dict[bytes, int] = {}
        # How much each was given that is not over; nobody who has nothing.
        self.held: dict[bytes, int] = {}
        # How often something was given or handed over.
        self.gives: i64 = 0
        # How much may be pending or done before what is gone is let go.
        self.sweep_at: i64 = SWEEP_MIN
        self.is_sweeping: bool = False

    def hear(self, consumer: bytes, now_ms: i64) -> None:
        """Take note that a consumer asked for something."""
        # Those heard of last stand last.
        self.consumers.pop(consumer, None)
        self.consumers[consumer] = int(now_ms)
        if len(self.consumers) > 2 * _CONSUMERS_MAX + len(self.held):
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Forget the consumers that have nothing but for those heard of last."""
        idle = [name for name in self.consumers if name not in self.held]
        for name in idle[: max(len(idle) - _CONSUMERS_MAX, 0)]:
            del self.consumers[name]

    # -- what was given -----------------------------------------------------------------------

    def give(self, delivery: Delivery) -> None:
        """Remember what a consumer is given."""
        stamp = int(delivery.stamp)
        if delivery.repeat is not None:
            self.again.put(stamp, delivery)
        else:
            if self.pending.count > 0 and stamp <= self.pending.last():
                # It may have been given before, and the subscription have gone back since.
                self.take_pending(stamp)
            self.pending.put(stamp, delivery)
        self._count_for(delivery)

    def hand(self, delivery: Delivery, consumer: bytes) -> None:
        """Let another consumer have what one was given."""
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
        """Forget an entry that was given; tell whether it was."""
        found = self.pending.pop(stamp)
        if found is None:
            return False
        assert isinstance(found, Delivery)
        self._uncount(found)
        return True

    def take_again(self, stamp: int) -> None:
        """Forget a repeat that was given, if it was."""
        found = self.again.pop(stamp)
        if found is not None:
            assert isinstance(found, Delivery)
            self._uncount(found)

    def find(self, stamp: i64) -> Delivery | None:
        """Return what was given under a stamp."""
        return self.find_pending(int(stamp)) or self.find_again(int(stamp))

    def find_pending(self, stamp: int) -> Delivery | None:
        """Return the entry that was given under a stamp."""
        found = self.pending.get(stamp)
        assert found is None or isinstance(found, Delivery)
        return found

    def find_again(self, stamp: int) -> Delivery | None:
        """Return the repeat that was given under a stamp."""
        found = self.again.get(stamp)
        assert found is None or isinstance(found, Delivery)
        return found

    def find_repeat(self, job: Job) -> Repeat | None:
        """Return how a job is to come again, or came again."""
        found = self.repeats.get(int(job.id))
        assert found is None or isinstance(found, Repeat)
        return found

    def given_from(self, stamp: i64, most: i64) -> list[Delivery]:
        """Return up to `most` of what was given and is not over, the oldest entry first."""
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
        """Return how much that is."""
        return self.pending.count + self.again.count

    def least_given(self) -> i64:
        """Return the least stamp of that; there must be one."""
        if self.again.count == 0:
            return self.pending.first()
        again = self.again.first()
        return again if self.pending.count == 0 else min(again, self.pending.first())

    def greatest_given(self) -> i64:
        """Return the greatest stamp of that; there must be one."""
        if self.again.count == 0:
            return self.pending.last()
        again = self.again.last()
        return again if self.pending.count == 0 else max(again, self.pending.last())

    def first_pending(self) -> i64:
        """Return the least stamp of an entry that was given and is not over, or 0."""
        return 0 if self.pending.count == 0 else self.pending.first()


def _stamp_of(delivery: Delivery) -> int:
    return delivery.stamp


@final
class Audience:
    """The subscriptions of a queue, and the entries of its stream in their order."""

    def __init__(self) -> None:
        self.subscriptions: dict[bytes, Subscription] = {}
        # Repeats whose time has not come.
        self.due = Heap()
        self.alarm: Item | None = None
        self.readers: list[StreamReader] = []
        # Whether there is an order: who only waits for something to come needs none. While it is
        # made, how many wait for it, and the seq of the job that was looked at last.
        self.is_filled: bool = False
        self.filling_count: i64 = 0
        self.filled_seq: i64 = 0
        # Entries by their stamps, some of them gone; and up to where such were let go last.
        self._entries = SortedBlocks()
        self._swept: i64 = 0
        # Jobs that came with a stamp from before: who has passed it would never see them.
        self.late: list[Job] = []
        # What the journal tells of jobs that are gone.
        self.orphans: list[bytes] = []

    def take_in(self, job: Job) -> None:
        """Take in a job that has an entry, while nobody has been given anything."""
        self._entries.put(_entry_of(job), job)

    def came(self, job: Job) -> None:
        """Take note of a job that has come to stand in the stream."""
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
        # One that is there was only away for a while.
        entries.put(stamp, job)
        if entries.count > _SLACK:
            self._let_some_go()

    def _let_some_go(self) -> None:
        """Look at the next few entries, and let those go that are gone."""
        stamps, jobs = self.entries_after(self._swept, _SWEPT)
        for at in range(len(stamps)):
            if not is_entry(jobs[at], stamps[at]):
                self._entries.pop(stamps[at])
        self._swept = stamps[-1] if len(stamps) == _SWEPT else 0

    def unload(self) -> i64:
        """Let go of some entries, as nobody is there any more; return how many, 0 if none."""
        return self._entries.unload()

    def wake(self) -> None:
        """Let all who wait look again."""
        for reader in list(self.readers):
            reader.stream_grew()

    def count(self) -> i64:
        """Return how many entries are known, some of which are gone."""
        return self._entries.count

    def entries_after(self, stamp: i64, most: i64) -> tuple[list[int], list[Job]]:
        """Return the stamps of up to `most` entries with greater ones, and the job of each."""
        stamps, found = self._entries.items_from(int(stamp) + 1, most)
        jobs: list[Job] = []
        for one in found:
            assert isinstance(one, Job)
            jobs.append(one)
        return stamps, jobs


def is_entry(job: Job, stamp: int) -> bool:
    """Tell whether a job still stands in the stream under a stamp."""
    return _entry_of(job) == stamp and has_entry(job)


def _entry_of(job: Job) -> int:
    return abs(int(job.stamp))
