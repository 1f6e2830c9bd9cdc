"""Counts per minute: a total, and the minutes of the last day.

A count costs a comparison and two additions. Minutes without events take no memory.
"""

from typing import Final, final

from mypy_extensions import i64

MINUTE_MS: Final = 60_000
MINUTES_KEPT: Final = 1440


@final
class MinuteCounter:
    """Counts one kind of event."""

    def __init__(self) -> None:
        self.total: i64 = 0
        # When the last event was, and the count of its minute.
        self.last_ms: i64 = 0
        self.last_count: i64 = 0
        self._minute: i64 = 0
        self._past: dict[int, int] = {}

    def add(self, now_ms: i64, amount: i64 = 1) -> None:
        """Count one event, or an amount."""
        minute = now_ms // MINUTE_MS
        if minute != self._minute:
            self._begin(minute)
        self.total += amount
        self.last_ms = now_ms
        self.last_count += amount

    def _begin(self, minute: i64) -> None:
        past = self._past
        if self.last_count > 0:
            past[int(self._minute)] = int(self.last_count)
        self._minute = minute
        self.last_count = 0
        # The dict is in order of time, so old minutes come first.
        for old in list(past):
            if old > minute - MINUTES_KEPT:
                break
            del past[old]

    def of_minute(self, minute: i64) -> i64:
        """Return the count of one minute."""
        return self.last_count if minute == self._minute else self._past.get(int(minute), 0)

    def by_minute(self) -> list[int]:
        """Return the counts of all minutes since the first that is stored, newest first."""
        if self.total == 0:
            return []
        newest = int(self._minute)
        counts = [int(self.last_count)]
        if self._past:
            oldest = min(self._past)
            counts += [self._past.get(minute, 0) for minute in range(newest - 1, oldest - 1, -1)]
        return counts[:MINUTES_KEPT]


@final
class MinuteCounters:
    """The counters of one queue."""

    def __init__(self) -> None:
        self.done = MinuteCounter()
        self.failed = MinuteCounter()
