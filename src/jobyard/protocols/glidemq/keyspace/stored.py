"""Keys that are kept as they were set, as commands see them.

A family of keys is of one kind: what a client of the library would never do to one is refused, so
that what is kept here stays the little that queues need.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine.glidemq import stored_values
from jobyard.engine.state.yard import Yard
from jobyard.model.glidemq.stored_values import (
    FIRST_ID,
    HASH,
    KIND_NAMES,
    LIST,
    NO_KIND,
    SET,
    STREAM,
    STRING,
    ZSET,
    SideKey,
    StreamEntry,
    StreamId,
    StreamReader,
)
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.keyspace.key import Keyed, Scored


@final
class SideKeyed(Keyed):
    """A key of that kind which may be kept."""

    def __init__(self, yard: Yard, name: bytes, kind: i64, now_ms: i64) -> None:
        self._yard = yard
        self._name = name
        self._kind: i64 = kind
        self._now_ms: i64 = now_ms

    def _key(self) -> SideKey | None:
        return stored_values.find(self._yard, self._name, self._now_ms)

    def _there(self) -> SideKey:
        key = self._key()
        assert key is not None, "whoever reads a key has seen that it is there"
        return key

    def _must_be(self, kind: i64) -> None:
        if self._kind != kind:
            name = self._name[:128].decode("utf-8", "replace")
            raise Wrong(f"ERR '{name}' can only be a {KIND_NAMES[self._kind]} here")

    def kind(self) -> i64:
        """Return the kind of the value, NO_KIND if there is none."""
        key = self._key()
        return NO_KIND if key is None else key.kind

    # -- any kind ------------------------------------------------------------------------------

    def delete(self) -> bool:
        """Let the key go; tell whether it was there."""
        key = self._key()
        if key is not None:
            stored_values.drop(self._yard, key)
        return key is not None

    def expires_ms(self) -> i64:
        """Return when it goes by itself, or NEVER_MS."""
        key = self._key()
        return NEVER_MS if key is None else key.expires_ms

    def expire(self, at_ms: i64) -> None:
        """Let it go by itself at that time, or never."""
        stored_values.expire(self._yard, self._there(), at_ms, self._now_ms)

    def weight(self) -> i64:
        """Return about how much memory it takes."""
        return self._there().weight

    # -- strings -------------------------------------------------------------------------------

    def text(self) -> bytes | None:
        """Return the value."""
        key = self._key()
        return None if key is None else key.text

    def set_text(self, value: bytes, expires_ms: i64) -> None:
        """Set the value, in place of whatever there was, and when it goes."""
        self._must_be(STRING)
        stored_values.set_text(self._yard, self._name, value, expires_ms, self._now_ms)

    # -- hashes --------------------------------------------------------------------------------

    def field(self, name: bytes) -> bytes | None:
        """Return the value of a field."""
        key = self._key()
        return None if key is None else key.table.get(name)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        return self._there().table.copy()

    def fields_count(self) -> i64:
        """Return how many fields there are."""
        return len(self._there().table)

    def set_fields(self, fields: dict[bytes, bytes]) -> i64:
        """Set fields; return how many of them are new."""
        self._must_be(HASH)
        return stored_values.set_fields(self._yard, self._name, fields, self._now_ms)

    def drop_fields(self, names: list[bytes]) -> i64:
        """Let fields go; return how many there were."""
        return stored_values.drop_fields(self._yard, self._there(), names)

    # -- lists ---------------------------------------------------------------------------------

    def items_count(self) -> i64:
        """Return how many items there are."""
        return len(self._there().items)

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return the items from place `start` up to before `end`, both within the list."""
        key = self._there()
        return [key.items[number] for number in range(key.first + start, key.first + end)]

    def push(self, values: list[bytes], *, is_left: bool) -> i64:
        """Put items at one end, one after the other; return how many there are then."""
        self._must_be(LIST)
        return stored_values.push(self._yard, self._name, values, self._now_ms, is_left=is_left)

    def pop(self, count: i64, *, is_left: bool) -> list[bytes]:
        """Take items off one end."""
        return stored_values.pop(self._yard, self._there(), count, is_left=is_left)

    def trim(self, start: i64, end: i64) -> None:
        """Keep the items from place `start` up to before `end` alone."""
        key = self._there()
        count: i64 = len(key.items)
        # What is left over at the right end goes first: the key may not outlive the left one.
        stored_values.pop(self._yard, key, count - end, is_left=False)
        if key.items:
            stored_values.pop(self._yard, key, start, is_left=True)

    # -- sets ----------------------------------------------------------------------------------

    def members(self) -> list[bytes]:
        """Return all members."""
        return list(self._there().table)

    def members_count(self) -> i64:
        """Return how many members there are."""
        return len(self._there().table)

    def has_member(self, member: bytes) -> bool:
        """Tell whether this is one."""
        return member in self._there().table

    def add_members(self, members: list[bytes]) -> i64:
        """Add members; return how many are new."""
        self._must_be(SET)
        return stored_values.add_members(self._yard, self._name, members, self._now_ms)

    def drop_members(self, members: list[bytes]) -> i64:
        """Let members go; return how many there were."""
        return stored_values.drop_fields(self._yard, self._there(), members)

    # -- sorted sets ---------------------------------------------------------------------------

    def scored_count(self) -> i64:
        """Return how many members there are."""
        return len(self._there().scores)

    def score(self, member: bytes) -> float | None:
        """Return the score of a member."""
        key = self._key()
        return None if key is None else key.scores.get(member)

    def scored(self) -> list[Scored]:
        """Return all members, the least score first."""
        return self._there().scored().copy()

    def set_scores(self, scores: dict[bytes, float]) -> i64:
        """Set the scores of members; return how many of them are new."""
        self._must_be(ZSET)
        return stored_values.set_scores(self._yard, self._name, scores, self._now_ms)

    def check_popped(self, count: i64) -> None:
        """Let any number of members be taken out."""

    def drop_scored(self, members: list[bytes]) -> i64:
        """Let members go; return how many there were."""
        return stored_values.drop_scored(self._yard, self._there(), members)

    # -- streams -------------------------------------------------------------------------------

    def entries_count(self) -> i64:
        """Return how many entries there are."""
        return len(self._there().entries)

    def entries(
        self, first: StreamId, last: StreamId, count: i64, *, is_reversed: bool
    ) -> list[StreamEntry]:
        """Return at most so many entries from `first` to `last`, both included."""
        key = self._there()
        start = key.place_of(first)
        end = key.place_of(last)
        if end < len(key.entries) and key.entries[end].id == last:
            end += 1
        if start >= end:
            return []
        if is_reversed:
            found = key.entries[max(start, end - count) : end]
            found.reverse()
            return found
        return key.entries[start : min(end, start + count)]

    def last_id(self) -> StreamId:
        """Return the greatest id there ever was."""
        key = self._key()
        return FIRST_ID if key is None else key.last_id

    def add_entry(self, entry_id: StreamId, fields: list[bytes]) -> None:
        """Add an entry whose id is greater than the last."""
        self._must_be(STREAM)
        stored_values.add_entry(self._yard, self._name, entry_id, fields, self._now_ms)

    def drop_entries(self, ids: list[StreamId]) -> i64:
        """Let entries go; return how many there were."""
        return stored_values.drop_entries(self._yard, self._there(), ids)

    def drop_oldest(self, count: i64) -> None:
        """Let the oldest entries go, so many of them."""
        stored_values.trim_entries(self._yard, self._there(), count)

    def watch(self, reader: StreamReader) -> None:
        """Tell somebody of every new entry."""
        stored_values.watch(self._yard, self._name, reader)

    def unwatch(self, reader: StreamReader) -> None:
        """Tell them no more."""
        stored_values.unwatch(self._yard, self._name, reader)
