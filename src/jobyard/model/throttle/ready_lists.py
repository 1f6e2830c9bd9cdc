"""The ready lists of glide-mq jobs other than the stream, and the ordering groups of a queue.

The stream is the queue's `ready` heap, which also holds the jobs of all other families. Doors
without ready lists take the best job of all of them.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.index.heap import Heap
from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.ordering_throttle import OrderingThrottle


@final
class ReadyList:
    """The lists of ready jobs; a job that is not ready has STREAM."""

    STREAM: Final = 0
    # With a priority, or after a delay, until a worker promotes it.
    STAGED: Final = 1
    PROMOTED: Final = 2
    # Last in, first out.
    LIFO: Final = 3


@final
class ReadyLists:
    """The ready lists of one queue other than the stream."""

    def __init__(self) -> None:
        self.staged = Heap()
        self.promoted = Heap()
        self.lifo = Heap()
        # Ready jobs that are yet to be promoted, including those that wait in their ordering group.
        self.staged_count: i64 = 0
        # Jobs that are promoted or LIFO, and wait in their ordering group.
        self.listed_apart: i64 = 0
        # By ordering key; each is an `OrderingGroup`, which `ensure_ordering` makes.
        self.orderings: dict[str, OrderingThrottle] = {}
        # Ordering groups that time alone opens, the first to open first.
        self.shut = Heap()

    def heap(self, ready_list: i64) -> Heap:
        """Return the heap of a list."""
        if ready_list == ReadyList.STAGED:
            return self.staged
        if ready_list == ReadyList.PROMOTED:
            return self.promoted
        assert ready_list == ReadyList.LIFO
        return self.lifo

    def opens_ms(self) -> i64:
        """Return when time opens the first ordering group, or NEVER_MS."""
        shut = self.shut.items
        return shut[0].sort_key if shut else NEVER_MS

    def shut_ordering(self, ordering: OrderingThrottle, until_ms: i64) -> None:
        """Note when time opens an ordering group."""
        ordering.sort_key = until_ms
        if ordering.pos < 0:
            self.shut.push(ordering)
        else:
            self.shut.moved(ordering)

    def open_ordering(self, ordering: OrderingThrottle) -> None:
        """Note that an ordering group does not wait for time."""
        if ordering.pos >= 0:
            self.shut.remove(ordering)

    def forget_idle(self, ordering: OrderingThrottle) -> None:
        """Drop an ordering group without jobs."""
        if ordering.jobs_count == 0:
            self.open_ordering(ordering)
            self.orderings.pop(ordering.name, None)
