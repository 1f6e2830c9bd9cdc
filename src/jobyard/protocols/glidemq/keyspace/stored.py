"""Stored keys, as commands see them.

A family of keys has one kind. What a client of the library would never do to a key is refused, so
that only the little that queues need is stored here.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine.glidemq import stored_values
from jobyard.engine.state.yard import Yard
from jobyard.model.glidemq.stored_values import (
    FIRST_ID,
    KIND_NAMES,
    StoredValue,
    StreamEntry,
    StreamId,
    StreamReader,
    ValueKind,
)
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.keyspace.key import RedisKey, Scored


@final
class StoredKey(RedisKey):
    """A key of one kind that can be stored."""

    def __init__(self, yard: Yard, name: bytes, kind: i64, now_ms: i64) -> None:
        self._yard = yard
        self._name = name
        self._kind: i64 = kind
        self._now_ms: i64 = now_ms

    def _key(self) -> StoredValue | None:
        return stored_values.find(self._yard, self._name, self._now_ms)

    def _there(self) -> StoredValue:
        key = self._key()
        assert key is not None, "the reader must have seen that the key exists"
        return key

    def _must_be(self, kind: i64) -> None:
        if self._kind != kind:
            name = self._name[:128].decode("utf-8", "replace")
            raise Wrong(f"ERR '{name}' can only be a {KIND_NAMES[self._kind]}")

    def kind(self) -> i64:
        """Return the kind of the value, `ValueKind.NONE` if it does not exist."""
        key = self._key()
        return ValueKind.NONE if key is None else key.kind

    # -- any kind ------------------------------------------------------------------------------

    def delete(self) -> bool:
        """Delete the key; return whether it existed."""
        key = self._key()
        if key is not None:
            stored_values.drop(self._yard, key)
        return key is not None

    def expires_ms(self) -> i64:
        """Return when it expires, or NEVER_MS."""
        key = self._key()
        return NEVER_MS if key is None else key.expires_ms

    def expire(self, at_ms: i64) -> None:
        """Set when it expires; NEVER_MS for never."""
        stored_values.expire(self._yard, self._there(), at_ms, self._now_ms)

    def weight(self) -> i64:
        """Return its approximate memory."""
        return self._there().weight

    # -- strings -------------------------------------------------------------------------------

    def text(self) -> bytes | None:
        """Return the value."""
        key = self._key()
        return None if key is None else key.text

    def set_text(self, value: bytes, expires_ms: i64) -> None:
        """Set the value and its expiry, replacing any value of any kind."""
        self._must_be(ValueKind.STRING)
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
        """Return the number of fields."""
        return len(self._there().table)

    def set_fields(self, fields: dict[bytes, bytes]) -> i64:
        """Set fields; return how many of them are new."""
        self._must_be(ValueKind.HASH)
        return stored_values.set_fields(self._yard, self._name, fields, self._now_ms)

    def drop_fields(self, names: list[bytes]) -> i64:
        """Remove fields; return how many existed."""
        return stored_values.drop_fields(self._yard, self._there(), names)

    # -- lists ---------------------------------------------------------------------------------

    def items_count(self) -> i64:
        """Return the number of items."""
        return len(self._there().items)

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return the items from index `start` up to, not including, `end`, both within the list."""
        key = self._there()
        return [key.items[number] for number in range(key.first + start, key.first + end)]

    def push(self, values: list[bytes], *, is_left: bool) -> i64:
        """Add items at one end, one after the other; return the new length."""
        self._must_be(ValueKind.LIST)
        return stored_values.push(self._yard, self._name, values, self._now_ms, is_left=is_left)

    def pop(self, count: i64, *, is_left: bool) -> list[bytes]:
        """Remove items from one end and return them."""
        return stored_values.pop(self._yard, self._there(), count, is_left=is_left)

    def trim(self, start: i64, end: i64) -> None:
        """Keep only the items from index `start` up to, not including, `end`."""
        key = self._there()
        count: i64 = len(key.items)
        # Remove from the right end first: the key may be gone after the left end.
        stored_values.pop(self._yard, key, count - end, is_left=False)
        if key.items:
            stored_values.pop(self._yard, key, start, is_left=True)

    # -- sets ----------------------------------------------------------------------------------

    def members(self) -> list[bytes]:
        """Return all members."""
        return list(self._there().table)

    def members_count(self) -> i64:
        """Return the number of members."""
        return len(self._there().table)

    def has_member(self, member: bytes) -> bool:
        """Return whether this is a member."""
        return member in self._there().table

    def add_members(self, members: list[bytes]) -> i64:
        """Add members; return how many are new."""
        self._must_be(ValueKind.SET)
        return stored_values.add_members(self._yard, self._name, members, self._now_ms)

    def drop_members(self, members: list[bytes]) -> i64:
        """Remove members; return how many existed."""
        return stored_values.drop_fields(self._yard, self._there(), members)

    # -- sorted sets ---------------------------------------------------------------------------

    def scored_count(self) -> i64:
        """Return the number of members."""
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
        self._must_be(ValueKind.ZSET)
        return stored_values.set_scores(self._yard, self._name, scores, self._now_ms)

    def check_popped(self, count: i64) -> None:
        """Accept: any number of members can be removed."""

    def drop_scored(self, members: list[bytes]) -> i64:
        """Remove members; return how many existed."""
        return stored_values.drop_scored(self._yard, self._there(), members)

    # -- streams -------------------------------------------------------------------------------

    def entries_count(self) -> i64:
        """Return the number of entries."""
        return len(self._there().entries)

    def entries(
        self, first: StreamId, last: StreamId, count: i64, *, is_reversed: bool
    ) -> list[StreamEntry]:
        """Return at most `count` entries from `first` to `last`, both included."""
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
        self._must_be(ValueKind.STREAM)
        stored_values.add_entry(self._yard, self._name, entry_id, fields, self._now_ms)

    def drop_entries(self, ids: list[StreamId]) -> i64:
        """Remove entries; return how many existed."""
        return stored_values.drop_entries(self._yard, self._there(), ids)

    def drop_oldest(self, count: i64) -> None:
        """Remove the oldest `count` entries."""
        stored_values.trim_entries(self._yard, self._there(), count)

    def watch(self, reader: StreamReader) -> None:
        """Notify a reader of every new entry."""
        stored_values.watch(self._yard, self._name, reader)

    def unwatch(self, reader: StreamReader) -> None:
        """Stop notifying a reader."""
        stored_values.unwatch(self._yard, self._name, reader)
