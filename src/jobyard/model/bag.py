"""Items in no order, each of which knows its slot: added and removed in O(1), listed in O(n).

Jobs that stand in no heap (leased, blocked) are found again through one of these.
"""

from typing import final

from mypy_extensions import i32, i64

from jobyard.model.item import Item


@final
class Bag:
    """Items that share nothing but where they are."""

    def __init__(self) -> None:
        self.items: list[Item] = []

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
