"""The one base of everything that stands in an index.

A heap orders items by (`sort_key`, `stamp`) and writes each item's slot into `pos`, so an item
stands in at most one heap at a time. A line orders them by `key`, which never changes.
"""

from mypy_extensions import i32, i64, mypyc_attr

# `pos` of an item that stands in no heap.
NOWHERE = -1


@mypyc_attr(acyclic=True)
class Item:
    """Keys and slot of a thing in an index."""

    def __init__(self, key: i64, sort_key: i64, stamp: i64) -> None:
        self.key: i64 = key
        self.sort_key: i64 = sort_key
        self.stamp: i64 = stamp
        self.pos: i32 = -1
