"""Values by key, with access to the oldest.

The oldest key of a dict takes longer to find the more older ones were removed before it: removing
100,000 keys oldest first takes seconds. Here a deque stores their order.
"""

from collections import deque
from typing import Generic, TypeVar, final

from mypy_extensions import i64

from jobyard.model.index.sharded_dict import ShardedDict

V = TypeVar("V")


@final
class RecentKeys(Generic[V]):
    """Values by key, in the order in which they were put."""

    def __init__(self) -> None:
        self._table: ShardedDict[str, V] = ShardedDict()
        # May begin with keys that are no longer in the table.
        self._order: deque[tuple[str, V]] = deque()

    def count(self) -> i64:
        """Return the number of keys."""
        return self._table.count

    def get(self, key: str) -> V | None:
        """Return the value of a key."""
        return self._table.get(key)

    def put(self, key: str, value: V) -> None:
        """Set the value of a key and make it the newest; a value must not be put twice."""
        self._table.put(key, value)
        self._order.append((key, value))

    def oldest(self) -> tuple[str, V] | None:
        """Return the oldest key and its value."""
        order = self._order
        while order:
            key, value = order[0]
            if self._table.get(key) is value:
                return key, value
            # Another value was put under this key since.
            order.popleft()
        return None

    def remove_oldest(self) -> None:
        """Remove the key that `oldest` returned."""
        key, _ = self._order.popleft()
        self._table.remove(key)

    def forget(self, key: str) -> None:
        """Remove a key, wherever it is in the order."""
        self._table.discard(key)

    def values(self) -> list[V]:
        """Return all values."""
        return self._table.values()

    def items(self) -> list[tuple[str, V]]:
        """Return all keys with their values."""
        return self._table.items()
