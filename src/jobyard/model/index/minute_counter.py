"""How many there were, minute by minute: a total, and the minutes of the last day.

A count costs a comparison and two additions. Minutes in which nothing happened take no room.
"""

from typing import Final, final

from mypy_extensions import i64

MINUTE_MS: Final = 60_000
MINUTES_KEPT: Final = 1440


@final
class Meter:
    """Counts one kind of thing."""

    def __init__(self) -> None:
        self.total: i64 = 0
        # When the last one was, and how many its minute has.
        self.last_ms: i64 = 0
        self.last_count: i64 = 0
        self._minute: i64 = 0
        self._past: dict[int, int] = {}

    def add(self, now_ms: i64, amount: i64 = 1) -> None:
        """Count one, or as much as it amounts to."""
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
        # In the order of time, so the old ones come first.
        for old in list(past):
            if old > minute - MINUTES_KEPT:
                break
            del past[old]

    def of_minute(self, minute: i64) -> i64:
        """Return the count of one minute."""
        return self.last_count if minute == self._minute else self._past.get(int(minute), 0)

    def by_minute(self) -> list[int]:
        """Return the counts of all minutes since the first that is kept, newest first."""
        if self.total == 0:
            return []
        newest = int(self._minute)
        counts = [int(self.last_count)]
        if self._past:
            oldest = min(self._past)
            counts += [self._past.get(minute, 0) for minute in range(newest - 1, oldest - 1, -1)]
        return counts[:MINUTES_KEPT]


@final
class Meters:
    """What is counted of one queue."""

    def __init__(self) -> None:
        self.done = Meter()
        self.failed = Meter()
