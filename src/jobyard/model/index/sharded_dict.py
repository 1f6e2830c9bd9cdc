"""A dict in many parts that never moves many of its keys at once.

A dict that is full moves everything to a table twice as large, which takes 5 ms for 100,000 keys
and 60 ms for a million. Here keys are spread over small dicts by their hash (linear hashing): for
every PART_SIZE keys that come, one part is split in two, in about 0.1 ms. Dicts of a fixed number
would not do: alike in size, they would grow in the same few turns.
"""

from typing import Final, Generic, TypeVar, final

from mypy_extensions import i64

K = TypeVar("K")
V = TypeVar("V")

# Keys in each part on average; a table of fewer keys is one dict.
PART_SIZE: Final = 1024


@final
class ShardedDict(Generic[K, V]):
    """Values by key."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._parts: list[dict[K, V]] = [{}]
        # The bits of a hash that choose a part; parts beyond the last are not split off yet.
        self._mask: i64 = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if there is none."""
        return self._part(key).get(key)

    def has(self, key: K) -> bool:
        """Return whether there is a key."""
        return key in self._part(key)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        part = self._part(key)
        before: i64 = len(part)
        part[key] = value
        if len(part) > before:
            self.count += 1
            if self.count > len(self._parts) * PART_SIZE:
                self._split()

    def remove(self, key: K) -> None:
        """Remove a key that is there."""
        del self._part(key)[key]
        self.count -= 1
        if self.count == 0:
            self._parts = [{}]
            self._mask = 0

    def discard(self, key: K) -> None:
        """Remove a key if it is there."""
        if self.has(key):
            self.remove(key)

    def parts_count(self) -> i64:
        """Return the number of parts. It may grow: then some keys move to parts at the end."""
        return len(self._parts)

    def keys_in(self, part: i64) -> list[K]:
        """Return the keys of one part, counted from 0; none if there is no such part."""
        return list(self._parts[part]) if part < len(self._parts) else []

    def values(self) -> list[V]:
        """Return all values."""
        found: list[V] = []
        for part in self._parts:
            found += part.values()
        return found

    def items(self) -> list[tuple[K, V]]:
        """Return all keys with their values."""
        found: list[tuple[K, V]] = []
        for part in self._parts:
            found += part.items()
        return found

    def _part(self, key: K) -> dict[K, V]:
        if self._mask == 0:
            return self._parts[0]
        number = _spread(hash(key)) & self._mask
        if number >= len(self._parts):
            number &= self._mask >> 1
        return self._parts[number]

    def _split(self) -> None:
        """Move about half of the keys of one part to a new part."""
        parts = self._parts
        last: i64 = len(parts)
        if last > self._mask:
            self._mask = self._mask * 2 + 1
        first = last & (self._mask >> 1)
        staying: dict[K, V] = {}
        moving: dict[K, V] = {}
        for key, value in parts[first].items():
            if _spread(hash(key)) & self._mask == last:
                moving[key] = value
            else:
                staying[key] = value
        parts[first] = staying
        parts.append(moving)


def _spread(number: i64) -> i64:
    # The hash of a number is the number itself, and its low bits may be all alike.
    return number ^ (number >> 20)
