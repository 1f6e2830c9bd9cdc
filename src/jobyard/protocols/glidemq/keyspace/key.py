"""A key as commands see it, whatever stands behind it.

It is of one kind, or of none while it is not there, and answers what commands of that kind ask.
Some keys show the state of a queue (`Projections` finds these), all others are kept as they were
set. A method a key does not have refuses: reads as the wrong kind, changes as having no meaning.
"""

from math import ceil, floor, inf
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.tasks import Task
from jobyard.model.glidemq.stored_values import StreamEntry, StreamId, StreamReader
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.errors import NOT_CHANGED_SO, WRONG_TYPE, Wrong
from jobyard.protocols.glidemq.keyspace.gather import Gather, Treat
from jobyard.protocols.glidemq.keyspace.key_names import KeyName
from jobyard.protocols.glidemq.keyspace.sorted_ids import ListedIds

# Scores beyond this are as good as without end.
_WHOLE_MAX: Final = 1 << 60


@final
class ScoreRange:
    """Scores from `low` to `high`, each within the range unless it is open there."""

    def __init__(self, low: float, high: float, *, low_open: bool, high_open: bool) -> None:
        self.low = low
        self.high = high
        self.low_open = low_open
        self.high_open = high_open

    def holds(self, score: float) -> bool:
        """Tell whether a score lies inside."""
        if score < self.low or (self.low_open and score == self.low):
            return False
        return not (score > self.high or (self.high_open and score == self.high))

    def is_all(self) -> bool:
        """Tell whether every score lies inside."""
        return self.low == -inf and self.high == inf and not (self.low_open or self.high_open)

    def least(self) -> i64:
        """Return the least whole number inside."""
        if self.low <= -_WHOLE_MAX or self.low > _WHOLE_MAX:
            return -_WHOLE_MAX if self.low < 0 else _WHOLE_MAX
        whole = ceil(self.low)
        return whole + 1 if self.low_open and whole == self.low else whole

    def most(self) -> i64:
        """Return the greatest whole number inside."""
        if self.high >= _WHOLE_MAX or self.high < -_WHOLE_MAX:
            return _WHOLE_MAX if self.high > 0 else -_WHOLE_MAX
        whole = floor(self.high)
        return whole - 1 if self.high_open and whole == self.high else whole


Scored = tuple[bytes, float]

# Keys that are kept stand behind those that show queues; this bit tells their cursors apart.
SIDE_AREA: Final = 1 << 62


@mypyc_attr(allow_interpreted_subclasses=True)
class Keyed:
    """One key, there or not. What a subclass does not know is of the wrong kind, or fixed."""

    def kind(self) -> i64:
        """Return the kind of the value, NO_KIND if there is none."""
        raise NotImplementedError

    # -- any kind ------------------------------------------------------------------------------

    def delete(self) -> bool:
        """Let the key go; tell whether it was there."""
        raise Wrong(NOT_CHANGED_SO)

    def clear(self) -> Treat | None:
        """Return the work of letting go of all it holds, where that may be much, else None.

        What of it takes no time is done at once.
        """
        return None

    def held_count(self) -> i64:
        """Return how many jobs `clear` may remove."""
        return 0

    def expires_ms(self) -> i64:
        """Return when it goes by itself, or NEVER_MS."""
        return NEVER_MS

    def expire(self, at_ms: i64) -> None:
        """Let it go by itself at that time, or never."""
        raise Wrong(NOT_CHANGED_SO)

    def weight(self) -> i64:
        """Return about how much memory it takes."""
        return 0

    # -- strings -------------------------------------------------------------------------------

    def text(self) -> bytes | None:
        """Return the value."""
        raise Wrong(WRONG_TYPE)

    def set_text(self, value: bytes, expires_ms: i64) -> None:
        """Set the value, in place of whatever there was, and when it goes."""
        raise Wrong(NOT_CHANGED_SO)

    # -- hashes --------------------------------------------------------------------------------

    def field(self, name: bytes) -> bytes | None:
        """Return the value of a field."""
        raise Wrong(WRONG_TYPE)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        raise Wrong(WRONG_TYPE)

    def fields_count(self) -> i64:
        """Return how many fields there are."""
        return len(self.fields())

    def set_fields(self, fields: dict[bytes, bytes]) -> i64:
        """Set fields; return how many of them are new."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_fields(self, names: list[bytes]) -> i64:
        """Let fields go; return how many there were."""
        raise Wrong(NOT_CHANGED_SO)

    # -- lists ---------------------------------------------------------------------------------

    def items_count(self) -> i64:
        """Return how many items there are."""
        raise Wrong(WRONG_TYPE)

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return the items from place `start` up to before `end`, both within the list."""
        raise Wrong(WRONG_TYPE)

    def find_items(self) -> ListedIds | None:
        """Return the work of finding all items, where they may be many and in no order."""
        return None

    def push(self, values: list[bytes], *, is_left: bool) -> i64:
        """Put items at one end, one after the other; return how many there are then."""
        raise Wrong(NOT_CHANGED_SO)

    def pop(self, count: i64, *, is_left: bool) -> list[bytes]:
        """Take items off one end."""
        raise Wrong(NOT_CHANGED_SO)

    def trim(self, start: i64, end: i64) -> None:
        """Keep the items from place `start` up to before `end` alone."""
        raise Wrong(NOT_CHANGED_SO)

    # -- sets ----------------------------------------------------------------------------------

    def members(self) -> list[bytes]:
        """Return all members."""
        raise Wrong(WRONG_TYPE)

    def members_count(self) -> i64:
        """Return how many members there are."""
        return len(self.members())

    def has_member(self, member: bytes) -> bool:
        """Tell whether this is one."""
        return member in self.members()

    def add_members(self, members: list[bytes]) -> i64:
        """Add members; return how many are new."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_members(self, members: list[bytes]) -> i64:
        """Let members go; return how many there were."""
        raise Wrong(NOT_CHANGED_SO)

    # -- sorted sets ---------------------------------------------------------------------------

    def scored_count(self) -> i64:
        """Return how many members there are."""
        raise Wrong(WRONG_TYPE)

    def score(self, member: bytes) -> float | None:
        """Return the score of a member."""
        raise Wrong(WRONG_TYPE)

    def scored(self) -> list[Scored]:
        """Return all members, the least score first."""
        raise Wrong(WRONG_TYPE)

    def scored_page(self, start: i64, end: i64, *, is_reversed: bool) -> list[Scored]:
        """Return the members from rank `start` up to before `end`, both within the set."""
        all_of_them = self.scored()
        if is_reversed:
            all_of_them.reverse()
        return all_of_them[start:end]

    def scored_within(self, within: ScoreRange, *, is_reversed: bool) -> list[Scored]:
        """Return the members whose scores lie in a range."""
        found = [one for one in self.scored() if within.holds(one[1])]
        if is_reversed:
            found.reverse()
        return found

    def find_scored(self, within: ScoreRange | None, *, is_reversed: bool) -> Gather | None:
        """Return the work of finding members, where they may be many: all, or those of a range."""
        return None

    def set_scores(self, scores: dict[bytes, float]) -> i64:
        """Set the scores of members; return how many of them are new."""
        raise Wrong(NOT_CHANGED_SO)

    def check_popped(self, count: i64) -> None:
        """Refuse if so many members cannot be taken out."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_scored(self, members: list[bytes]) -> i64:
        """Let members go; return how many there were."""
        raise Wrong(NOT_CHANGED_SO)

    # -- streams -------------------------------------------------------------------------------

    def entries_count(self) -> i64:
        """Return how many entries there are."""
        raise Wrong(WRONG_TYPE)

    def entries(
        self, first: StreamId, last: StreamId, count: i64, *, is_reversed: bool
    ) -> list[StreamEntry]:
        """Return at most so many entries from `first` to `last`, both included."""
        raise Wrong(WRONG_TYPE)

    def find_entries(self, first: StreamId, last: StreamId, *, is_reversed: bool) -> Gather | None:
        """Return the work of finding entries, where they may be many."""
        return None

    def upkeep(self) -> Task | None:
        """Return the work there is before entries can be looked up at once; None for little."""
        return None

    def last_id(self) -> StreamId:
        """Return the greatest id there ever was."""
        raise Wrong(WRONG_TYPE)

    def add_entry(self, entry_id: StreamId, fields: list[bytes]) -> None:
        """Add an entry whose id is greater than the last."""
        raise Wrong(NOT_CHANGED_SO)

    def adopt_entry(self, asked: bytes, fields: list[bytes]) -> StreamId | None:
        """Add an entry where its id is not for who adds it to choose; None where it is."""
        return None

    def drop_entries(self, ids: list[StreamId]) -> i64:
        """Let entries go; return how many there were."""
        raise Wrong(NOT_CHANGED_SO)

    def drop_oldest(self, count: i64) -> None:
        """Let the oldest entries go, so many of them."""
        raise Wrong(NOT_CHANGED_SO)

    def trim_found(self, found: Gather, most: i64) -> Treat:
        """Return the work of letting go of up to so many entries that are found."""
        raise Wrong(NOT_CHANGED_SO)

    def trim_oldest(self, count: i64) -> Treat | None:
        """Return the work of letting the oldest entries go, where they may be many."""
        return None

    def watch(self, reader: StreamReader) -> None:
        """Tell somebody of every new entry."""
        raise Wrong(WRONG_TYPE)

    def unwatch(self, reader: StreamReader) -> None:
        """Tell them no more."""
        raise Wrong(WRONG_TYPE)


@final
class Scan:
    """One way through keys: how far it has come, and what was found."""

    def __init__(self, cursor: i64, pattern: bytes, count: i64) -> None:
        self.cursor: i64 = cursor
        # Nothing for all keys.
        self.pattern: bytes = b"" if pattern == b"*" else pattern
        # How many keys are to be looked at, about.
        self.count: i64 = count
        self.looked: i64 = 0
        self.names: list[bytes] = []
        # Queues that have no number yet that a cursor could tell; None until they are looked for.
        self.unseen: list[str] | None = None
        # Whether all have been looked at.
        self.is_over: bool = False

    def is_enough(self) -> bool:
        """Tell whether as many keys as were asked for have been looked at."""
        return self.looked >= self.count


@mypyc_attr(allow_interpreted_subclasses=True)
class Projections:
    """Finds the keys that show the state of queues."""

    def find(self, name: KeyName, now_ms: i64) -> Keyed | None:
        """Return the key if it shows a queue or a job; None if it is kept as it was set."""
        raise NotImplementedError

    def scan(self, scan: Scan, most: i64, now_ms: i64) -> i64:
        """Go on through such keys for about `most` units of work; return what it took.

        It ends when `scan` has looked at enough keys, or its cursor is 0. Cursors lie below 2^62.
        """
        raise NotImplementedError
