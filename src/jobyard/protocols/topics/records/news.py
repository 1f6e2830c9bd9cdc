"""Notifies readers of queues about changes; a log notifies its readers itself.

Listens to the yard's events only while a queue has readers, because then every verb must emit them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import trait

from jobyard.engine.state.bus import Bus, Event, Listener

if TYPE_CHECKING:
    from jobyard.model.queue import Queue


@trait
class QueueReader:
    """A reader that is notified of changes in a queue."""

    def queue_changed(self, queue: Queue) -> None:
        """Read the queue again."""


@final
class QueueReaders(Listener):
    """The readers of each queue."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._readers: dict[Queue, dict[QueueReader, None]] = {}

    def hold(self, queue: Queue, reader: QueueReader) -> None:
        """Notify `reader` of changes from now on."""
        if not self._readers:
            self._bus.add(self)
        self._readers.setdefault(queue, {})[reader] = None

    def drop(self, queue: Queue, reader: QueueReader) -> None:
        """Stop notifying `reader`."""
        readers = self._readers.get(queue)
        if readers is None or reader not in readers:
            return
        del readers[reader]
        if not readers:
            del self._readers[queue]
        if not self._readers:
            self._bus.remove(self)

    def happened(self, event: Event) -> None:
        """Notify the readers of the queue of an event."""
        self.notify(event.queue)

    def notify(self, queue: Queue) -> None:
        """Notify the readers of a queue; also called for a removal, which emits no event."""
        readers = self._readers.get(queue)
        if readers is not None:
            for reader in list(readers):
                reader.queue_changed(queue)
