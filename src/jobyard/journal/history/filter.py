"""Which rows of history a reader wants: by queue, by event, and by time.

Knows rows, and nothing of where they are read from. A filter never changes a row: what it leaves
out is what a reader of all rows would have dropped.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.topic.history_row import HistoryRow

NEVER: Final = 1 << 62


@final
class HistoryFilter:
    """Queues and events by name, empty for all, and the first and the last wall time."""

    def __init__(
        self, queues: frozenset[str], events: frozenset[str], from_ms: i64 = 0, to_ms: i64 = NEVER
    ) -> None:
        self.queues = queues
        self.events = events
        self.from_ms: i64 = from_ms
        self.to_ms: i64 = to_ms
        self.has_queues: bool = len(queues) > 0
        self._has_events: bool = len(events) > 0

    def takes(self, row: HistoryRow) -> bool:
        """Return whether a row is wanted."""
        if not self.from_ms <= row.ts_ms <= self.to_ms:
            return False
        if self._has_events and row.event not in self.events:
            return False
        return not self.has_queues or row.queue in self.queues
