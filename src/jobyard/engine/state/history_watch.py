"""Watchers that wait for more history, notified after the commit that made it durable.

Without a watcher this costs one check per turn.
"""

from typing import final

from mypy_extensions import i64, mypyc_attr, trait


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class HistoryWatcher:
    """An object that is notified when there is more history to read."""

    def events_came(self) -> None:
        """Read again: there may be new rows."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenHistoryWatcher(HistoryWatcher):
    """A watcher that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class HistoryWatchers:
    """All watchers of the history."""

    def __init__(self) -> None:
        self._all: dict[HistoryWatcher, None] = {}
        # The first number that was not durable at the last notification.
        self._notified: i64 = 0

    def hold(self, observer: HistoryWatcher, next_durable: i64) -> None:
        """Notify `observer` from now on."""
        if not self._all:
            self._notified = next_durable
        self._all[observer] = None

    def drop(self, observer: HistoryWatcher) -> None:
        """Stop notifying `observer`."""
        self._all.pop(observer, None)

    def notify_next_turn(self) -> None:
        """Notify all watchers in the next turn: one has read a lot and not found a row yet."""
        self._notified = -1

    def look(self, next_durable: i64) -> bool:
        """Notify all watchers if more is durable; return True if they must be notified again."""
        if not self._all or self._notified == next_durable:
            return False
        self._notified = next_durable
        for observer in list(self._all):
            observer.events_came()
        return self._notified != next_durable
