"""Values by number, in order: short blocks that are cheap to change.

Finding, adding and removing take O(log n) anywhere, and nothing is ever sorted, copied or swept as
a whole. Most numbers come in rising order, and fill their blocks.
"""

from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64

BLOCK_MAX: Final = 512


@final
class SortedBlocks:
    """A table from numbers to values that can be read in the order of its numbers."""

    def __init__(self) -> None:
        self.count: i64 = 0
        # Of each block: a lower bound of its numbers, its numbers, and their values. No block is
        # empty.
        self._bounds: list[int] = []
        self._keys: list[list[int]] = []
        self._values: list[list[object]] = []

    def _block_of(self, key: int) -> i64:
        """Return the block that holds a number or would hold it; there must be one."""
        return max(i64(bisect_right(self._bounds, key)) - 1, 0)

    def put(self, key: int, value: object) -> None:
        """Set the value of a number."""
        if not self._keys:
            self._add_block(0, [key], [value])
            self.count = 1
            return
        block: i64 = len(self._keys) - 1
        keys = self._keys[block]
        if key > keys[-1]:
            self.count += 1
            if len(keys) >= BLOCK_MAX:
                self._add_block(block + 1, [key], [value])
                return
            keys.append(key)
            self._values[block].append(value)
            return
        self._insert(key, value)

    def _insert(self, key: int, value: object) -> None:
        block = self._block_of(key)
        keys = self._keys[block]
        values = self._values[block]
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            values[at] = value
            return
        self.count += 1
        keys.insert(at, key)
        values.insert(at, value)
        self._bounds[block] = min(self._bounds[block], key)
        if len(keys) > BLOCK_MAX:
            half = BLOCK_MAX // 2
            self._add_block(block + 1, keys[half:], values[half:])
            del keys[half:]
            del values[half:]

    def _add_block(self, at: i64, keys: list[int], values: list[object]) -> None:
        self._bounds.insert(at, keys[0])
        self._keys.insert(at, keys)
        self._values.insert(at, values)

    def get(self, key: int) -> object | None:
        """Return the value of a number, or None."""
        if not self._keys:
            return None
        block = self._block_of(key)
        keys = self._keys[block]
        at = bisect_left(keys, key)
        return self._values[block][at] if at < len(keys) and keys[at] == key else None

    def pop(self, key: int) -> object | None:
        """Remove a number; return its value, or None."""
        if not self._keys:
            return None
        block = self._block_of(key)
        keys = self._keys[block]
        at = bisect_left(keys, key)
        if at >= len(keys) or keys[at] != key:
            return None
        self.count -= 1
        value = self._values[block].pop(at)
        del keys[at]
        if not keys:
            del self._bounds[block]
            del self._keys[block]
            del self._values[block]
        return value

    def first(self) -> i64:
        """Return the least number; there must be one."""
        return self._keys[0][0]

    def last(self) -> i64:
        """Return the greatest number; there must be one."""
        return self._keys[-1][-1]

    def values_from(self, key: int, most: i64) -> list[object]:
        """Return up to `most` values from a number on, in order."""
        found: list[object] = []
        if not self._keys:
            return found
        block = self._block_of(key)
        at: i64 = bisect_left(self._keys[block], key)
        while block < len(self._keys) and len(found) < most:
            found += self._values[block][at : at + most - len(found)]
            at = 0
            block += 1
        return found

    def items_from(self, key: int, most: i64) -> tuple[list[int], list[object]]:
        """Return up to `most` numbers from one on, in order, and the value of each."""
        keys: list[int] = []
        values: list[object] = []
        if not self._keys:
            return keys, values
        block = self._block_of(key)
        at: i64 = bisect_left(self._keys[block], key)
        while block < len(self._keys) and len(keys) < most:
            end = at + most - len(keys)
            keys += self._keys[block][at:end]
            values += self._values[block][at:end]
            at = 0
            block += 1
        return keys, values

    def unload(self) -> i64:
        """Drop some values; return how many, 0 if none is left."""
        if not self._keys:
            return 0
        self._bounds.pop()
        self._values.pop()
        count: i64 = len(self._keys.pop())
        self.count -= count
        return count
