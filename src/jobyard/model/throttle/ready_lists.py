"""Where ready jobs of glide-mq stand that are not in the stream, and the lanes of a queue.

The stream is the queue's `ready` heap, where jobs of all other families stand as well. Doors that
know no shelves take the best of all of them.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.index.heap import Heap
from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.ordering_group import Lane

# The shelves; a job that is not ready has that of the stream.
STREAM: Final = 0
# With a priority, or after a delay: until a worker promotes it.
STAGED: Final = 1
PROMOTED: Final = 2
# The last to come is the first to go.
STACK: Final = 3


@final
class Shelves:
    """The other shelves of one queue."""

    def __init__(self) -> None:
        self.staged = Heap()
        self.promoted = Heap()
        self.stack = Heap()
        # Ready jobs that are to be promoted, also those that wait in their lane.
        self.staged_count: i64 = 0
        # Those that are promoted or on the stack, and wait in their lane.
        self.listed_apart: i64 = 0
        self.lanes: dict[str, Lane] = {}
        # Lanes that time alone opens, the first to open first.
        self.shut = Heap()

    def heap(self, shelf: i64) -> Heap:
        """Return one of them."""
        if shelf == STAGED:
            return self.staged
        if shelf == PROMOTED:
            return self.promoted
        assert shelf == STACK
        return self.stack

    def lane(self, name: str) -> Lane:
        """Return a lane, making it on first use."""
        lane = self.lanes.get(name)
        if lane is None:
            lane = Lane(name)
            self.lanes[name] = lane
        return lane

    def opens_ms(self) -> i64:
        """Return when time opens the first lane, or NEVER_MS."""
        shut = self.shut.items
        return shut[0].sort_key if shut else NEVER_MS

    def shut_lane(self, lane: Lane, until_ms: i64) -> None:
        """Note when time opens a lane."""
        lane.sort_key = until_ms
        if lane.pos < 0:
            self.shut.push(lane)
        else:
            self.shut.moved(lane)

    def open_lane(self, lane: Lane) -> None:
        """Note that it is not time that holds a lane up."""
        if lane.pos >= 0:
            self.shut.remove(lane)

    def forget_idle(self, lane: Lane) -> None:
        """Drop a lane without jobs."""
        if lane.jobs_count == 0:
            self.open_lane(lane)
            self.lanes.pop(lane.name, None)
