"""Items in no order, each of which knows its slot: added and removed in O(1), listed in O(n).

Jobs that stand in no heap (leased, blocked) are found again through one of these. Who goes through
very many of them in pieces that others come between does so by a `Walk`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i32, i64

if TYPE_CHECKING:
    from jobyard.model.index.item import Item


@final
class Bag:
    """Items that share nothing but where they are."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        # Those who are on their way; None for nearly all bags at nearly all times.
        self.walks: list[Walk] | None = None

    def add(self, item: Item) -> None:
        """Add an item that stands in no index."""
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
class Walk:
    """One way through a bag from its end: every member that stays is met once.

    Only the last member ever moves, and only down. So what was not met yet stays before the place
    the walk has come to, and one that was met is known if it was moved there.
    """

    def __init__(self, bag: Bag) -> None:
        self._bag = bag
        # Those before this place are still to be met.
        self._at: i64 = len(bag.items)
        self._met: set[Item] = set()

    def some(self, most: i64) -> list[Item]:
        """Return up to so many members, none if all were met; to be called until then, or left."""
        items = self._bag.items
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
        walks = self._bag.walks
        if walks is None:
            self._bag.walks = [self]
        elif self not in walks:
            walks.append(self)

    def moved(self, item: Item, start: i64, end: i64) -> None:
        """Take note that a member was moved from one place to another."""
        if end < self._at <= start:
            self._met.add(item)

    def leave(self) -> None:
        """Go no further."""
        walks = self._bag.walks
        if walks is not None and self in walks:
            walks.remove(self)
            if not walks:
                self._bag.walks = None
