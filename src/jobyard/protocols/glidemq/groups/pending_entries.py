"""Pending entries of the workers of a stream, found and counted in slices.

Leases are in no order. They are sorted in runs of limited size, and the runs are merged, so that no
slice is long, however many there are. An entry that changes meanwhile is found in its new state, or
not at all; one that stays is found once.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.model.index.item_set import ItemSetWalk
from jobyard.model.job import Job
from jobyard.model.lease import Lease, Proof
from jobyard.protocols.glidemq.keyspace.gather import PER_UNIT, Gather, free_found, job_of
from jobyard.protocols.glidemq.keyspace.views.stream import (
    ENTRY_MAX,
    consumer_of,
    entry_stamp,
    idle_ms,
)

if TYPE_CHECKING:
    from jobyard.model.index.item import Item
    from jobyard.model.lease import Terms
    from jobyard.model.queue import Queue
    from jobyard.protocols.glidemq.call import Call

# Length of a run, and how many entries of it are sorted in one unit of work.
_RUN: Final = 1024
_SORTED_PER_UNIT: Final = 8


def held_lease(item: Item) -> Lease | None:
    """Return the lease on a job of the stream; None if it has no entry there, or is gone."""
    assert isinstance(item, Job)
    lease = item.lease
    if lease is None or lease.terms.proof == Proof.LISTED or item.id < item.queue.gone_before:
        return None
    return lease


def _stamp_of(item: Item) -> int:
    return entry_stamp(job_of(item))


@final
class HeldGather(Gather):
    """The first held entries from `low` to `high`, as leases, in order."""

    def __init__(self, call: Call, queue: Queue, low: i64, high: i64) -> None:
        super().__init__()
        self._call = call
        self._walk: ItemSetWalk | None = ItemSetWalk(queue.leased)
        self._low: i64 = low
        self._high: i64 = high
        # Which consumer, b"" for all, and the minimum idle time.
        self.consumer: bytes = b""
        self.least_ms: i64 = 0
        # Whether leases taken at other doors count, too.
        self.is_any_door: bool = True
        # The current run, and the sorted runs; each run has its first entry last.
        self._met: list[Item] = []
        self._runs: list[list[Item]] = []
        # The first entry of each run, and the number of the run.
        self._heads: list[tuple[int, int]] = []
        self._terms: Terms | None = None
        self._is_wanted: bool = False

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some leases, or merge some."""
        # Entries found in a later turn are reported as of then.
        self._call.now_ms = now_ms
        done: i64 = 0
        while done < most:
            if self._walk is not None:
                done += self._look_at_some(most - done, now_ms)
            elif not self._heads or not self._merge_one():
                return min(done, most - 1)
            else:
                done += 1
        return done

    def abandon(self) -> Task | None:
        """Stop the search."""
        if self._walk is not None:
            self._walk.leave()
            self._walk = None
        return free_found([self.items, self._met, *self._runs])

    def _look_at_some(self, most: i64, now_ms: i64) -> i64:
        walk = self._walk
        assert walk is not None
        items = walk.some(min(most * PER_UNIT, _RUN))
        for item in items:
            lease = held_lease(item)
            if lease is not None and self._is_asked_for(lease, now_ms):
                self._met.append(lease)
        used: i64 = len(items) // PER_UNIT + 1
        if len(self._met) >= _RUN or (not items and self._met):
            used += len(self._met) // _SORTED_PER_UNIT
            self._end_run()
        if not items:
            self._walk = None
            heapify(self._heads)
        return used

    def _is_asked_for(self, lease: Lease, now_ms: i64) -> bool:
        terms = lease.terms
        if terms is not self._terms:
            self._terms = terms
            is_door = self.is_any_door or terms.is_entry()
            self._is_wanted = is_door and self.consumer in (b"", consumer_of(lease))
        if not self._is_wanted or not self._low <= entry_stamp(lease.job) <= self._high:
            return False
        return idle_ms(lease, now_ms) >= self.least_ms

    def _end_run(self) -> None:
        """Sort the current run, and keep no more of it than can be requested."""
        run = self._met
        self._met = []
        run.sort(key=_stamp_of, reverse=True)
        if len(run) > self._most:
            run = run[len(run) - self._most :]
        self._heads.append((_stamp_of(run[len(run) - 1]), len(self._runs)))
        self._runs.append(run)

    def _merge_one(self) -> bool:
        """Take the first entry of all runs; return False if that is enough."""
        stamp, number = heappop(self._heads)
        run = self._runs[number]
        lease = run.pop()
        assert isinstance(lease, Lease)
        if run:
            heappush(self._heads, (_stamp_of(run[len(run) - 1]), number))
        if held_lease(lease.job) is not lease:
            # This lease has ended since.
            return True
        return self.take(lease, stamp)


@final
class Gathers(Task):
    """Several searches, or the tasks that free their results, one after the other."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__()
        self.is_reading = True
        self._tasks = tasks
        self._at: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Continue with the current task."""
        done: i64 = 0
        while self._at < len(self._tasks) and done < most:
            left = most - done
            used = self._tasks[self._at].step(left, now_ms)
            done += max(used, 1)
            if used < left:
                self._at += 1
        return min(done, most - 1) if self._at >= len(self._tasks) else max(done, most)

    def abandon(self) -> Task | None:
        """Stop all searches."""
        freeing: list[Task] = []
        for task in self._tasks:
            rest = task.abandon()
            if rest is not None:
                freeing.append(rest)
        return Gathers(freeing) if freeing else None


@final
class HeldCount(Task):
    """Counts the held entries by consumer."""

    def __init__(self, call: Call, queue: Queue) -> None:
        super().__init__()
        self.is_reading = True
        self._call = call
        self._walk = ItemSetWalk(queue.leased)
        # Many leases share their terms, and the terms have the name.
        self._counts: dict[Terms, int] = {}
        self._beats: dict[Terms, int] = {}
        self._names: dict[Terms, bytes] = {}
        self.count: i64 = 0
        # The least and the greatest entry id.
        self.least: i64 = ENTRY_MAX
        self.greatest: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Count some leases."""
        self._call.now_ms = now_ms
        done: i64 = 0
        while done < most:
            items = self._walk.some((most - done) * PER_UNIT)
            if not items:
                return min(done, most - 1)
            for item in items:
                lease = held_lease(item)
                if lease is not None:
                    self._add(lease)
            done += len(items) // PER_UNIT + 1
        return done

    def abandon(self) -> Task | None:
        """Stop counting."""
        self._walk.leave()
        return None

    def _add(self, lease: Lease) -> None:
        terms = lease.terms
        beat = int(lease.beat_ms)
        count = self._counts.get(terms)
        if count is None:
            count = 0
            self._names[terms] = consumer_of(lease)
            self._beats[terms] = beat
        self._counts[terms] = count + 1
        self._beats[terms] = max(self._beats[terms], beat)
        stamp = entry_stamp(lease.job)
        self.count += 1
        self.least = min(self.least, stamp)
        self.greatest = max(self.greatest, stamp)

    def by_name(self) -> dict[bytes, int]:
        """Return how many entries each consumer holds."""
        found: dict[bytes, int] = {}
        for terms, count in self._counts.items():
            name = self._names[terms]
            found[name] = found.get(name, 0) + count
        return found

    def heard_ms(self) -> dict[bytes, int]:
        """Return the time of each consumer's last heartbeat."""
        found: dict[bytes, int] = {}
        for terms, beat in self._beats.items():
            name = self._names[terms]
            found[name] = max(found.get(name, beat), beat)
        return found
