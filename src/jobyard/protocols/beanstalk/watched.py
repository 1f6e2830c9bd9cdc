"""The tubes that one connection watches, with lookup in constant time.

Answers `watch` and `ignore`.
"""

from typing import Final, final

from jobyard.engine.jobs.queues import drop_watch, hold_watch, open_queue
from jobyard.engine.state.yard import Yard
from jobyard.model.queue import Queue
from jobyard.protocols.beanstalk import commands

# Every reserve checks each of them.
TUBES_MAX: Final = 10_000


@final
class WatchedTubes:
    """The watched tubes, in the order that clients see."""

    def __init__(self, yard: Yard, first: Queue) -> None:
        self._yard = yard
        self.queues: list[Queue] = []
        self._places: dict[Queue, int] = {}
        self._add(first)

    def _add(self, queue: Queue) -> None:
        self._places[queue] = len(self.queues)
        self.queues.append(queue)
        hold_watch(queue)

    def watch(self, tube: str) -> bytes:
        """Watch a tube; return the answer."""
        queue = self._yard.queues.get(tube)
        if queue is None or queue not in self._places:
            if len(self.queues) >= TUBES_MAX:
                return commands.OUT_OF_MEMORY
            self._add(open_queue(self._yard, tube))
        return self._count()

    def ignore(self, tube: str) -> bytes:
        """Stop watching a tube; return the answer."""
        queue = self._yard.queues.get(tube)
        if queue is not None and queue in self._places:
            if len(self.queues) == 1:
                return b"NOT_IGNORED\r\n"
            # beanstalkd fills the gap with the last name; clients may rely on the order.
            place = self._places.pop(queue)
            last = self.queues.pop()
            if last is not queue:
                self.queues[place] = last
                self._places[last] = place
            drop_watch(self._yard, queue)
        return self._count()

    def _count(self) -> bytes:
        return b"WATCHING %d\r\n" % len(self.queues)

    def leave(self) -> None:
        """Stop watching all tubes."""
        for queue in self.queues:
            drop_watch(self._yard, queue)
        self.queues = []
        self._places = {}
