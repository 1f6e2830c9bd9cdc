"""The base class of everything that is in an index.

A heap orders items by (`sort_key`, `stamp`) and writes each item's slot into `pos`, so an item is
in at most one heap at a time. An append list orders them by `key`, which never changes.
"""

from mypy_extensions import i32, i64, mypyc_attr

# `pos` of an item that is in no heap.
NO_SLOT = -1


@mypyc_attr(acyclic=True)
class Item:
    """Keys and slot of an item in an index."""

    def __init__(self, key: i64, sort_key: i64, stamp: i64) -> None:
        self.key: i64 = key
        self.sort_key: i64 = sort_key
        self.stamp: i64 = stamp
        self.pos: i32 = -1
