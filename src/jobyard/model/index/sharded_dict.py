"""A dict in many parts, which never moves many of its keys at once.

A dict that is full moves all it holds to a place twice as large, which takes 5 ms for 100,000 keys
and 60 ms for a million. Here keys beyond the first few thousand are spread over PARTS dicts by
their hash, and each of those grows by itself.
"""

from typing import Final, Generic, TypeVar, final

from mypy_extensions import i64

K = TypeVar("K")
V = TypeVar("V")

# Keys in the first dict, which is all there is of most tables.
FIRST: Final = 4096
PARTS: Final = 256


@final
class ShardedDict(Generic[K, V]):
    """Values by key."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._first: dict[K, V] = {}
        self._parts: list[dict[K, V]] = []

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if there is none."""
        value = self._first.get(key)
        if value is None and self._parts:
            value = self._part(key).get(key)
        return value

    def has(self, key: K) -> bool:
        """Tell whether there is a key."""
        return key in self._first or (len(self._parts) > 0 and key in self._part(key))

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        table = self._table_for(key)
        before: i64 = len(table)
        table[key] = value
        self.count += len(table) - before

    def _table_for(self, key: K) -> dict[K, V]:
        """Return where a key is, or is to be."""
        first = self._first
        if not self._parts:
            if len(first) < FIRST:
                return first
            for _ in range(PARTS):
                self._parts.append({})
        return first if key in first else self._part(key)

    def remove(self, key: K) -> None:
        """Remove a key that is there."""
        if key in self._first:
            del self._first[key]
        else:
            del self._part(key)[key]
        self.count -= 1
        if self.count == 0:
            self._parts = []

    def discard(self, key: K) -> None:
        """Remove a key if it is there."""
        if self.has(key):
            self.remove(key)

    def parts_count(self) -> i64:
        """Return of how many parts the dict consists; there may be more of them later."""
        return 1 + len(self._parts)

    def keys_in(self, part: i64) -> list[K]:
        """Return the keys of one part, the first of which is 0; none if it is not there."""
        if part == 0:
            return list(self._first)
        return list(self._parts[part - 1]) if part <= len(self._parts) else []

    def values(self) -> list[V]:
        """Return all values."""
        found = list(self._first.values())
        for part in self._parts:
            found += part.values()
        return found

    def items(self) -> list[tuple[K, V]]:
        """Return all keys with their values."""
        found = list(self._first.items())
        for part in self._parts:
            found += part.items()
        return found

    def _part(self, key: K) -> dict[K, V]:
        number: i64 = hash(key)
        return self._parts[number & (PARTS - 1)]
