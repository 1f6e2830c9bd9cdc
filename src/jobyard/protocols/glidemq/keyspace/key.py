"""A key as commands see it, whether a view or stored.

It has one kind, or none while it does not exist, and supports the commands of that kind. Some keys
show the state of a queue (`Projections` finds these), all others are stored as they were set. A
method that a key does not support refuses: reads as the wrong kind, changes as not possible.
"""

from math import ceil, floor, inf
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.tasks import Task
from jobyard.model.glidemq.stored_values import StreamEntry, StreamId, StreamReader
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.errors import NOT_CHANGED_SO, WRONG_TYPE, Wrong
from jobyard.protocols.glidemq.keyspace.gather import FoundTask, Gather
from jobyard.protocols.glidemq.keyspace.key_names import KeyName
from jobyard.protocols.glidemq.keyspace.sorted_ids import ListedIds

# Scores beyond this count as infinite.
_WHOLE_MAX: Final = 1 << 60


@final
class ScoreRange:
    """Scores from `low` to `high`, each included unless it is open."""

    def __init__(self, low: float, high: float, *, low_open: bool, high_open: bool) -> None:
        self.low = low
        self.high = high
        self.low_open = low_open
        self.high_open = high_open

    def holds(self, score: float) -> bool:
        """Return whether a score is in the range."""
        if score < self.low or (self.low_open and score == self.low):
            return False
        return not (score > self.high or (self.high_open and score == self.high))

    def is_all(self) -> bool:
        """Return whether every score is in the range."""
        return self.low == -inf and self.high == inf and not (self.low_open or self.high_open)

    def least(self) -> i64:
        """Return the least integer in the range."""
        if self.low <= -_WHOLE_MAX or self.low > _WHOLE_MAX:
            return -_WHOLE_MAX if self.low < 0 else _WHOLE_MAX
        whole = ceil(self.low)
        return whole + 1 if self.low_open and whole == self.low else whole

    def most(self) -> i64:
        """Return the greatest integer in the range."""
        if self.high >= _WHOLE_MAX or self.high < -_WHOLE_MAX:
            return _WHOLE_MAX if self.high > 0 else -_WHOLE_MAX
        whole = floor(self.high)
        return whole - 1 if self.high_open and whole == self.high else whole


Scored = tuple[bytes, float]

# A scan lists stored keys after those that show queues; this bit marks their cursors.
STORED_AREA: Final = 1 << 62


@mypyc_attr(allow_interpreted_subclasses=True)
class RedisKey:
    """One key, existing or not. Methods not overridden refuse, as wrong kind or as read-only."""

    def kind(self) -> i64:
        """Return the kind of the value, `ValueKind.NONE` if it does not exist."""
        raise NotImplementedError

    # -- any kind ------------------------------------------------------------------------------

    def delete(self) -> bool:
        """Delete the key; return whether it existed."""
        raise Wrong(NOT_CHANGED_SO)

    def clear(self) -> FoundTask | None:
        """Return a task that removes all that the key holds, or None if there is not much.

        The parts that take no time are removed at once.
        """
        return None

    def held_count(self) -> i64:
        """Return how many jobs `clear` may remove."""
        return 0

    def expires_ms(self) -> i64:
        """Return when it expires, or NEVER_MS."""
        return NEVER_MS

    def expire(self, at_ms: i64) -> None:
        """Set when it expires; NEVER_MS for never."""
        raise Wrong(NOT_CHANGED_SO)

    def weight(self) -> i64:
        """Return its approximate memory."""
        return 0

    # -- strings -------------------------------------------------------------------------------

    def text(self) -> bytes | None:
        """Return the value."""
        raise Wrong(WRONG_TYPE)

    def set_text(self, value: bytes, expires_ms: i64) -> None:
        """Set the value and its expiry, replacing any value of any kind."""
        raise Wrong(NOT_CHANGED_SO)

    # -- hashes --------------------------------------------------------------------------------

    def field(self, name: bytes) -> bytes | None:
        """Return the value of a field."""
        raise Wrong(WRONG_TYPE)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        raise Wrong(WRONG_TYPE)

    def fields_count(self) -> i64:
        """Return the number of fields."""
        return len(self.fields())

    def set_fields(self, fields: dict[bytes, bytes]) -> i64:
        """Set fields; return how many of them are new."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_fields(self, names: list[bytes]) -> i64:
        """Remove fields; return how many existed."""
        raise Wrong(NOT_CHANGED_SO)

    # -- lists ---------------------------------------------------------------------------------

    def items_count(self) -> i64:
        """Return the number of items."""
        raise Wrong(WRONG_TYPE)

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return the items from index `start` up to, not including, `end`, both within the list."""
        raise Wrong(WRONG_TYPE)

    def find_items(self) -> ListedIds | None:
        """Return a task that finds all items, where they may be many and unsorted."""
        return None

    def push(self, values: list[bytes], *, is_left: bool) -> i64:
        """Add items at one end, one after the other; return the new length."""
        raise Wrong(NOT_CHANGED_SO)

    def pop(self, count: i64, *, is_left: bool) -> list[bytes]:
        """Remove items from one end and return them."""
        raise Wrong(NOT_CHANGED_SO)

    def trim(self, start: i64, end: i64) -> None:
        """Keep only the items from index `start` up to, not including, `end`."""
        raise Wrong(NOT_CHANGED_SO)

    # -- sets ----------------------------------------------------------------------------------

    def members(self) -> list[bytes]:
        """Return all members."""
        raise Wrong(WRONG_TYPE)

    def members_count(self) -> i64:
        """Return the number of members."""
        return len(self.members())

    def has_member(self, member: bytes) -> bool:
        """Return whether this is a member."""
        return member in self.members()

    def add_members(self, members: list[bytes]) -> i64:
        """Add members; return how many are new."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_members(self, members: list[bytes]) -> i64:
        """Remove members; return how many existed."""
        raise Wrong(NOT_CHANGED_SO)

    # -- sorted sets ---------------------------------------------------------------------------

    def scored_count(self) -> i64:
        """Return the number of members."""
        raise Wrong(WRONG_TYPE)

    def score(self, member: bytes) -> float | None:
        """Return the score of a member."""
        raise Wrong(WRONG_TYPE)

    def scored(self) -> list[Scored]:
        """Return all members, the least score first."""
        raise Wrong(WRONG_TYPE)

    def scored_page(self, start: i64, end: i64, *, is_reversed: bool) -> list[Scored]:
        """Return the members from rank `start` up to, not including, `end`, both within the set."""
        all_of_them = self.scored()
        if is_reversed:
            all_of_them.reverse()
        return all_of_them[start:end]

    def scored_within(self, within: ScoreRange, *, is_reversed: bool) -> list[Scored]:
        """Return the members whose scores are in a range."""
        found = [one for one in self.scored() if within.holds(one[1])]
        if is_reversed:
            found.reverse()
        return found

    def find_scored(self, within: ScoreRange | None, *, is_reversed: bool) -> Gather | None:
        """Return a task that finds members, where they may be many: all, or those of a range."""
        return None

    def set_scores(self, scores: dict[bytes, float]) -> i64:
        """Set the scores of members; return how many of them are new."""
        raise Wrong(NOT_CHANGED_SO)

    def check_popped(self, count: i64) -> None:
        """Refuse if `count` members cannot be removed at once."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_scored(self, members: list[bytes]) -> i64:
        """Remove members; return how many existed."""
        raise Wrong(NOT_CHANGED_SO)

    # -- streams -------------------------------------------------------------------------------

    def entries_count(self) -> i64:
        """Return the number of entries."""
        raise Wrong(WRONG_TYPE)

    def entries(
        self, first: StreamId, last: StreamId, count: i64, *, is_reversed: bool
    ) -> list[StreamEntry]:
        """Return at most `count` entries from `first` to `last`, both included."""
        raise Wrong(WRONG_TYPE)

    def find_entries(self, first: StreamId, last: StreamId, *, is_reversed: bool) -> Gather | None:
        """Return a task that finds entries, where they may be many."""
        return None

    def upkeep(self) -> Task | None:
        """Return a task that must run before entries can be looked up; None if it is short."""
        return None

    def last_id(self) -> StreamId:
        """Return the greatest id there ever was."""
        raise Wrong(WRONG_TYPE)

    def add_entry(self, entry_id: StreamId, fields: list[bytes]) -> None:
        """Add an entry whose id is greater than the last."""
        raise Wrong(NOT_CHANGED_SO)

    def adopt_entry(self, asked: bytes, fields: list[bytes]) -> StreamId | None:
        """Add an entry whose id the server chooses; None where the client chooses it."""
        return None

    def drop_entries(self, ids: list[StreamId]) -> i64:
        """Remove entries; return how many existed."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_oldest(self, count: i64) -> None:
        """Remove the oldest `count` entries."""
        raise Wrong(NOT_CHANGED_SO)

    def trim_found(self, found: Gather, most: i64) -> FoundTask:
        """Return a task that removes up to `most` of the entries found."""
        raise Wrong(NOT_CHANGED_SO)

    def trim_oldest(self, count: i64) -> FoundTask | None:
        """Return a task that removes the oldest entries, where they may be many."""
        return None

    def watch(self, reader: StreamReader) -> None:
        """Notify a reader of every new entry."""
        raise Wrong(WRONG_TYPE)

    def unwatch(self, reader: StreamReader) -> None:
        """Stop notifying a reader."""
        raise Wrong(WRONG_TYPE)


@final
class KeyScan:
    """One iteration over keys: its progress and its results."""

    def __init__(self, cursor: i64, pattern: bytes, count: i64) -> None:
        self.cursor: i64 = cursor
        # Empty for all keys.
        self.pattern: bytes = b"" if pattern == b"*" else pattern
        # About how many keys to check.
        self.count: i64 = count
        self.looked: i64 = 0
        self.names: list[bytes] = []
        # Queues without a number for cursors; None until the scan has collected them.
        self.unseen: list[str] | None = None
        # Whether all keys have been checked.
        self.is_over: bool = False

    def is_enough(self) -> bool:
        """Return whether the requested number of keys has been checked."""
        return self.looked >= self.count


@mypyc_attr(allow_interpreted_subclasses=True)
class Projections:
    """Finds the keys that show the state of queues."""

    def find(self, name: KeyName, now_ms: i64) -> RedisKey | None:
        """Return the key if it shows a queue or a job; None if it is a stored key."""
        raise NotImplementedError

    def scan(self, scan: KeyScan, most: i64, now_ms: i64) -> i64:
        """Continue over such keys for about `most` units of work; return the cost.

        Stops when `scan` has checked enough keys, or its cursor is 0. Cursors are below 2^62.
        """
        raise NotImplementedError
