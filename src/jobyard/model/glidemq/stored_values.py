"""Keys that are stored as set by clients: strings, hashes, lists, sets, sorted sets, streams.

Knows neither the journal nor which keys are allowed. A key exists while it holds something; a
stream also after all its entries are gone, because its ids must keep rising. The size of a value is
counted, because its memory counts against the same budget as bodies.
"""

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.index.append_list import AppendList
from jobyard.model.index.item import Item
from jobyard.model.index.sharded_dict import ShardedDict
from jobyard.model.limits import NEVER_MS


@final
class ValueKind:
    """The kind of a stored value."""

    NONE: Final = 0
    STRING: Final = 1
    HASH: Final = 2
    LIST: Final = 3
    SET: Final = 4
    ZSET: Final = 5
    STREAM: Final = 6


KIND_NAMES: Final = ("none", "string", "hash", "list", "set", "zset", "stream")

# Approximate overhead of an element besides its bytes, and of a key besides its elements.
ELEMENT_WEIGHT: Final = 120
KEY_WEIGHT: Final = 400

# A longer number at the end of a name, or one with a leading zero, is treated as text.
_DIGITS_MAX: Final = 18
_ZERO: Final = 48

StreamId = tuple[int, int]
FIRST_ID: Final[StreamId] = (0, 0)
LAST_ID: Final[StreamId] = ((1 << 64) - 1, (1 << 64) - 1)


@final
class StreamEntry:
    """One entry of a stream: its id, and its alternating field names and values."""

    def __init__(self, entry_id: StreamId, fields: list[bytes]) -> None:
        self.id: StreamId = entry_id
        self.fields = fields

    def size(self) -> i64:
        """Return the total size of the fields in bytes."""
        size: i64 = 0
        for part in self.fields:
            size += len(part)
        return size


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamReader:
    """A client that waits for entries of streams."""

    def stream_grew(self) -> None:
        """Read again: a stream has a new entry."""
        raise NotImplementedError


@final
class StoredValue(Item):
    """A key and its value; `Item.key` is its place in creation order."""

    def __init__(self, number: i64, name: bytes, kind: i64) -> None:
        super().__init__(number, NEVER_MS, number)
        self.name: bytes = name
        self.kind: i64 = kind
        self.expires_ms: i64 = NEVER_MS
        # Whether its content is in the journal.
        self.is_noted: bool = False
        # Fires when the key expires; None if it does not.
        self.alarm: Item | None = None
        self.weight: i64 = KEY_WEIGHT + len(name)
        self.text: bytes = b""
        # Fields of a hash; members of a set, each with an empty value.
        self.table: dict[bytes, bytes] = {}
        self.scores: dict[bytes, float] = {}
        # Sorted by score; None when it must be sorted again.
        self._sorted: list[tuple[bytes, float]] | None = None
        # Items of a list by their numbers, from `first` to before `after`.
        self.items: dict[int, bytes] = {}
        self.first: i64 = 0
        self.after: i64 = 0
        self.entries: list[StreamEntry] = []
        self.last_id: StreamId = FIRST_ID
        # It no longer exists for clients; its content is freed over turns.
        self.is_fading: bool = False

    def elements_count(self) -> i64:
        """Return the number of elements to free."""
        return len(self.table) + len(self.scores) + len(self.items) + len(self.entries)

    def is_empty(self) -> bool:
        """Return whether it is empty, so that it must no longer exist."""
        if self.kind in (ValueKind.STRING, ValueKind.STREAM):
            return False
        return not (self.table or self.scores or self.items)

    def set_score(self, member: bytes, score: float) -> None:
        """Set the score of a member."""
        self.scores[member] = score
        self._sorted = None

    def drop_score(self, member: bytes) -> None:
        """Remove a member."""
        del self.scores[member]
        self._sorted = None

    def scored(self) -> list[tuple[bytes, float]]:
        """Return members and scores in order; the caller must not change the list."""
        found = self._sorted
        if found is None:
            pairs = [(score, member) for member, score in self.scores.items()]
            pairs.sort()
            found = [(member, score) for score, member in pairs]
            self._sorted = found
        return found

    def place_of(self, entry_id: StreamId) -> int:
        """Return the place of the first entry with this id or a greater one."""
        return bisect_left(self.entries, entry_id, key=_id_of)


def _id_of(entry: StreamEntry) -> StreamId:
    return entry.id


@final
class StoredValues:
    """All stored keys."""

    def __init__(self) -> None:
        self.keys: ShardedDict[bytes, StoredValue] = ShardedDict()
        # The same in creation order, for scans.
        self.line = AppendList()
        self._numbers_issued: i64 = 0
        # Keys that have an alarm.
        self.expiring_count: i64 = 0
        # Readers that wait at a stream, which need not exist yet.
        self.readers: dict[bytes, list[StreamReader]] = {}
        # Of hashes whose names end in a number: the numbers, by the text before them.
        self.numbered: dict[bytes, set[int]] = {}

    def make(self, name: bytes, kind: i64) -> StoredValue:
        """Return a new key; the name must not exist."""
        self._numbers_issued += 1
        key = StoredValue(self._numbers_issued, name, kind)
        self.keys.put(name, key)
        self.line.append(key)
        if kind == ValueKind.HASH and name[-1:].isdigit():
            self._index(name)
        return key

    def remove(self, key: StoredValue) -> None:
        """Remove a key."""
        self.keys.remove(key.name)
        self.line.remove(key)
        if key.alarm is not None:
            key.alarm = None
            self.expiring_count -= 1
        if key.kind == ValueKind.HASH and key.name[-1:].isdigit():
            head, number = _head_and_number(key.name)
            numbers = self.numbered.get(head)
            if numbers is not None:
                numbers.discard(number)
                if not numbers:
                    del self.numbered[head]

    def _index(self, name: bytes) -> None:
        head, number = _head_and_number(name)
        if number > 0:
            self.numbered.setdefault(head, set()).add(number)

    def page(self, after: i64, count: i64) -> list[StoredValue]:
        """Return up to `count` keys that were made after the one with that number, oldest first."""
        items = self.line.items
        at = bisect_left(items, after + 1, key=_number_of)
        found: list[StoredValue] = []
        while at < len(items) and len(found) < count:
            item = items[at]
            if item.pos == 0:
                assert isinstance(item, StoredValue)
                found.append(item)
            at += 1
        return found


def _head_and_number(name: bytes) -> tuple[bytes, int]:
    """Return the number after the last colon of a name, 0 for none, and the text before it."""
    head, _, digits = name.rpartition(b":")
    if not digits.isdigit() or digits[0] == _ZERO or len(digits) > _DIGITS_MAX:
        return head, 0
    return head, int(digits)


def _number_of(item: Item) -> int:
    return item.key
