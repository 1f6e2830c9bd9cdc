"""Keys that are kept as they were set: strings, hashes, lists, sets, sorted sets, streams.

Knows neither the journal nor which keys there may be. A key exists while it holds something; a
stream also once all its entries are gone, because its ids must go on rising. What a value weighs is
counted, for the memory it takes is counted against the same budget as bodies.
"""

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.index.append_list import Line
from jobyard.model.index.item import Item
from jobyard.model.index.sharded_dict import ShardedDict
from jobyard.model.limits import NEVER_MS

NO_KIND: Final = 0
STRING: Final = 1
HASH: Final = 2
LIST: Final = 3
SET: Final = 4
ZSET: Final = 5
STREAM: Final = 6
KIND_NAMES: Final = ("none", "string", "hash", "list", "set", "zset", "stream")

# What an element takes beside its bytes, and a key beside its elements; about right.
ELEMENT_WEIGHT: Final = 120
KEY_WEIGHT: Final = 400

# Numbers at the end of a name that are as long as this, and those behind zeros, are only text.
_DIGITS_MAX: Final = 18
_ZERO: Final = 48

StreamId = tuple[int, int]
FIRST_ID: Final[StreamId] = (0, 0)
LAST_ID: Final[StreamId] = ((1 << 64) - 1, (1 << 64) - 1)


@final
class StreamEntry:
    """One entry of a stream: its id, and its fields with their values in turn."""

    def __init__(self, entry_id: StreamId, fields: list[bytes]) -> None:
        self.id: StreamId = entry_id
        self.fields = fields

    def size(self) -> i64:
        """Return how many bytes the fields have."""
        size: i64 = 0
        for part in self.fields:
            size += len(part)
        return size


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamReader:
    """Somebody who waits for entries of streams."""

    def stream_grew(self) -> None:
        """Look again: a stream has a new entry."""
        raise NotImplementedError


@final
class SideKey(Item):
    """A key and its value; `Item.key` is its place in the order keys were made."""

    def __init__(self, number: i64, name: bytes, kind: i64) -> None:
        super().__init__(number, NEVER_MS, number)
        self.name: bytes = name
        self.kind: i64 = kind
        self.expires_ms: i64 = NEVER_MS
        # Whether what it holds is in the journal.
        self.is_noted: bool = False
        # Rings when its time is over; None if it stays.
        self.alarm: Item | None = None
        self.weight: i64 = KEY_WEIGHT + len(name)
        self.text: bytes = b""
        # Fields of a hash; members of a set, each with nothing.
        self.table: dict[bytes, bytes] = {}
        self.scores: dict[bytes, float] = {}
        # In the order of their scores; None when it must be sorted again.
        self._sorted: list[tuple[bytes, float]] | None = None
        # Items of a list by their numbers, from `first` to before `after`.
        self.items: dict[int, bytes] = {}
        self.first: i64 = 0
        self.after: i64 = 0
        self.entries: list[StreamEntry] = []
        self.last_id: StreamId = FIRST_ID
        # It is gone for everybody; what it held is freed bit by bit.
        self.is_fading: bool = False

    def elements_count(self) -> i64:
        """Return how much there is to be freed."""
        return len(self.table) + len(self.scores) + len(self.items) + len(self.entries)

    def is_empty(self) -> bool:
        """Tell whether nothing is left that would make it exist."""
        if self.kind in (STRING, STREAM):
            return False
        return not (self.table or self.scores or self.items)

    def set_score(self, member: bytes, score: float) -> None:
        """Set the score of a member."""
        self.scores[member] = score
        self._sorted = None

    def drop_score(self, member: bytes) -> None:
        """Let a member go."""
        del self.scores[member]
        self._sorted = None

    def scored(self) -> list[tuple[bytes, float]]:
        """Return members with their scores in order; not to be changed."""
        found = self._sorted
        if found is None:
            pairs = [(score, member) for member, score in self.scores.items()]
            pairs.sort()
            found = [(member, score) for score, member in pairs]
            self._sorted = found
        return found

    def place_of(self, entry_id: StreamId) -> int:
        """Return the place of the first entry whose id is this or greater."""
        return bisect_left(self.entries, entry_id, key=_id_of)


def _id_of(entry: StreamEntry) -> StreamId:
    return entry.id


@final
class SideTable:
    """All such keys."""

    def __init__(self) -> None:
        self.keys: ShardedDict[bytes, SideKey] = ShardedDict()
        # The same in the order they were made, for who goes through them all.
        self.line = Line()
        self._numbers_issued: i64 = 0
        # Those that have an alarm.
        self.expiring_count: i64 = 0
        # Who waits at a stream, also at one that is not there yet.
        self.readers: dict[bytes, list[StreamReader]] = {}
        # Of hashes whose names end in a number: which numbers, by what stands before them.
        self.numbered: dict[bytes, set[int]] = {}

    def make(self, name: bytes, kind: i64) -> SideKey:
        """Return a new key under a name nobody has."""
        self._numbers_issued += 1
        key = SideKey(self._numbers_issued, name, kind)
        self.keys.put(name, key)
        self.line.append(key)
        if kind == HASH and name[-1:].isdigit():
            self._index(name)
        return key

    def remove(self, key: SideKey) -> None:
        """Forget a key."""
        self.keys.remove(key.name)
        self.line.remove(key)
        if key.alarm is not None:
            key.alarm = None
            self.expiring_count -= 1
        if key.kind == HASH and key.name[-1:].isdigit():
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

    def page(self, after: i64, count: i64) -> list[SideKey]:
        """Return so many keys that were made after the one with that number, oldest first."""
        items = self.line.items
        at = bisect_left(items, after + 1, key=_number_of)
        found: list[SideKey] = []
        while at < len(items) and len(found) < count:
            item = items[at]
            if item.pos == 0:
                assert isinstance(item, SideKey)
                found.append(item)
            at += 1
        return found


def _head_and_number(name: bytes) -> tuple[bytes, int]:
    """Return the number a name ends in, behind a colon, and what stands before; 0 for none."""
    head, _, digits = name.rpartition(b":")
    if not digits.isdigit() or digits[0] == _ZERO or len(digits) > _DIGITS_MAX:
        return head, 0
    return head, int(digits)


def _number_of(item: Item) -> int:
    return item.key
