"""An append-ordered list of items with rising, immutable keys.

Removal marks an item stale in O(1); the list is swept when stale items outnumber a quarter of the
live ones. A list that is consumed from its start is cut there earlier, because sweeping a million
items takes time. Unlike a heap it can be paged through in order, and unlike a deque it can lose a
member in the middle. It holds the dead jobs of a queue, in the order of their ends.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.index.item import Item

STALE = -1
LIVE = 0
# Stale items at the start that are kept.
HEAD_MAX: Final = 8192


@final
class AppendList:
    """Items by rising `key`; `pos` is LIVE while the item is in the list."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.live_count: i64 = 0
        self._head: i64 = 0

    def append(self, item: Item) -> None:
        """Add an item whose key is greater than that of every item before it."""
        items = self.items
        assert not items or items[-1].key < item.key
        items.append(item)
        item.pos = 0
        self.live_count += 1

    def first(self) -> Item | None:
        """Return the live item with the least key."""
        items = self.items
        head = self._head
        count: i64 = len(items)
        while head < count:
            item = items[head]
            if item.pos == 0:
                self._pass(head)
                return item
            head += 1
        self._pass(head)
        return None

    def _pass(self, head: i64) -> None:
        """Start at `head` from now on; stale items before it are removed, many at a time."""
        if head >= HEAD_MAX:
            del self.items[:head]
            head = 0
        self._head = head

    def page(
        self, start: i64, count: i64, *, is_reversed: bool, without: set[Item] | None = None
    ) -> list[Item]:
        """Return up to `count` live items after the first `start`, except those in `without`."""
        found: list[Item] = []
        if self.first() is None:
            return found
        items = self.items
        least = self._head
        most: i64 = len(items) - 1
        step: i64 = -1 if is_reversed else 1
        at = most if is_reversed else least
        while least <= at <= most and len(found) < count:
            item = items[at]
            at += step
            if item.pos != 0 or (without is not None and item in without):
                continue
            if start > 0:
                start -= 1
            else:
                found.append(item)
        return found

    def after(self, key: i64, most: i64, *, is_reversed: bool) -> list[Item]:
        """Return up to `most` items beyond a key in either direction, including stale ones."""
        items = self.items
        low: i64 = 0
        high: i64 = len(items)
        while low < high:
            middle: i64 = (low + high) >> 1
            if items[middle].key < key or (not is_reversed and items[middle].key == key):
                low = middle + 1
            else:
                high = middle
        if not is_reversed:
            return items[low : low + most]
        found = items[max(low - most, 0) : low]
        found.reverse()
        return found

    def remove(self, item: Item) -> None:
        """Mark a live item stale."""
        assert item.pos == 0
        item.pos = -1
        self.live_count -= 1
        if len(self.items) - self.live_count > self.live_count // 4 + 64:
            self._sweep()

    def _sweep(self) -> None:
        self.items = [item for item in self.items if item.pos == 0]
        self._head = 0

    def live(self) -> list[Item]:
        """Return the live items in order."""
        return [item for item in self.items if item.pos == 0]
