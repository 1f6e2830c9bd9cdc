"""Items in no order that each store their slot: added and removed in O(1), listed in O(n).

It holds jobs that are in no heap (leased, blocked). To iterate over very many of them in slices,
with changes in between, use an `ItemSetWalk`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i32, i64

if TYPE_CHECKING:
    from jobyard.model.index.item import Item


@final
class ItemSet:
    """An unordered set of items."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        # Iterations in progress; None for nearly all sets at nearly all times.
        self.walks: list[ItemSetWalk] | None = None

    def add(self, item: Item) -> None:
        """Add an item that is in no index."""
        items = self.items
        item.pos = i32(len(items))
        items.append(item)

    def remove(self, item: Item) -> None:
        """Remove a member; the last one takes its slot."""
        items = self.items
        slot = i64(item.pos)
        item.pos = -1
        last = items.pop()
        if last is not item:
            items[slot] = last
            last.pos = i32(slot)
            if self.walks is not None:
                for walk in self.walks:
                    walk.moved(last, len(items), slot)


@final
class ItemSetWalk:
    """One iteration over an item set from its end: every member that stays is visited once.

    Only the last member ever moves, and only down. So members not yet visited stay before the
    current position, and a visited member that moves there is remembered.
    """

    def __init__(self, item_set: ItemSet) -> None:
        self._item_set = item_set
        # Members before this position are still to be visited.
        self._at: i64 = len(item_set.items)
        self._met: set[Item] = set()

    def some(self, most: i64) -> list[Item]:
        """Return up to `most` members, none once all were visited; call until then, or `leave`."""
        items = self._item_set.items
        end = min(self._at, len(items))
        found: list[Item] = []
        while end > 0 and not found:
            start = max(end - most, 0)
            found = items[start:end]
            if self._met:
                found = [item for item in found if item not in self._met]
            end = start
        self._at = end
        if end > 0:
            self._join()
        else:
            self.leave()
        return found

    def _join(self) -> None:
        walks = self._item_set.walks
        if walks is None:
            self._item_set.walks = [self]
        elif self not in walks:
            walks.append(self)

    def moved(self, item: Item, start: i64, end: i64) -> None:
        """Handle that a member was moved from one slot to another."""
        if end < self._at <= start:
            self._met.add(item)

    def leave(self) -> None:
        """End the iteration."""
        walks = self._item_set.walks
        if walks is not None and self in walks:
            walks.remove(self)
            if not walks:
                self._item_set.walks = None
