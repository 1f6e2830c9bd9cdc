"""Tells readers of queues that something has happened there; a log tells its readers itself.

Listens to the yard only while somebody reads a queue, for then every verb says what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import trait

from jobyard.engine.state.bus import Bus, Event, Listener

if TYPE_CHECKING:
    from jobyard.model.queue import Queue


@trait
class QueueReader:
    """Somebody who wants to know that there is news in a queue."""

    def queue_changed(self, queue: Queue) -> None:
        """Look again."""


@final
class QueueNews(Listener):
    """Who reads which queue."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._readers: dict[Queue, dict[QueueReader, None]] = {}

    def hold(self, queue: Queue, reader: QueueReader) -> None:
        """Tell `reader` of news from now on."""
        if not self._readers:
            self._bus.add(self)
        self._readers.setdefault(queue, {})[reader] = None

    def drop(self, queue: Queue, reader: QueueReader) -> None:
        """Tell `reader` of news no more."""
        readers = self._readers.get(queue)
        if readers is None or reader not in readers:
            return
        del readers[reader]
        if not readers:
            del self._readers[queue]
        if not self._readers:
            self._bus.remove(self)

    def happened(self, event: Event) -> None:
        """Pass on that something happened in a queue."""
        self.tell(event.queue)

    def tell(self, queue: Queue) -> None:
        """Let those who read a queue look at it: it was removed, which the yard tells nobody."""
        readers = self._readers.get(queue)
        if readers is not None:
            for reader in list(readers):
                reader.queue_changed(queue)
