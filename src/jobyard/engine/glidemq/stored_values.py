"""Changes of stored values (plain Redis keys); each is in the journal before it takes effect.

A value is stored element by element, as entries of kind STORED_VALUE, so that the cost of a change
depends only on its size. The keys of the entries:

    <key> 0 s             a string              <key> 0 h <field>     a field of a hash
    <key> 0 m <member>    a member of a set     <key> 0 z <member>    the same with a score
    <key> 0 l <number>    an item of a list     <key> 0 x <id>        an entry of a stream
    <key> 0 X             its greatest id, if no entry has it         <key> 0 T   its expiry

A large key that is deleted counts as expired from then on, which is one record, and is freed later.

A key that expires within ten minutes is not in the journal at all: it is a lock or a heartbeat,
renewed all the time, and after a restart its clients set it again.
"""

import struct
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused, YardFull
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.glidemq.stored_values import (
    ELEMENT_WEIGHT,
    FIRST_ID,
    StoredValue,
    StreamEntry,
    StreamId,
    StreamReader,
    ValueKind,
)
from jobyard.model.limits import NEVER_MS

VOLATILE_MS: Final = 600_000
# A key that holds more is freed over turns.
FEW_ELEMENTS: Final = 1000
# Added to the numbers of list items, so that their keys sort whichever end they were pushed to.
_MIDDLE: Final = 1 << 62
# The largest size of the record of an entry, without its key and value.
_RECORD_SIZE: Final = 64


@final
class ValueExpiry(Alarm):
    """Drops a key when it expires."""

    def __init__(self, yard: Yard, key: StoredValue) -> None:
        super().__init__(key.key, NEVER_MS, key.key)
        self._yard = yard
        self._key = key

    def ring(self, now_ms: i64) -> None:
        """Drop it, unless its expiry was changed."""
        if self._key.is_fading:
            return
        if self._key.expires_ms <= now_ms:
            drop(self._yard, self._key)
        elif self._key.expires_ms < NEVER_MS:
            self._yard.arm(self, self._key.expires_ms)


@final
class ValueFreeing(Task):
    """Frees the elements of a large key that no client can see any longer."""

    def __init__(self, yard: Yard, key: StoredValue) -> None:
        super().__init__()
        self._yard = yard
        self._key = key

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  set by Task
        """Free some."""
        yard, key = self._yard, self._key
        done: i64 = 0
        while (
            done < most
            and key.elements_count() > 0
            and yard.stored_values.keys.get(key.name) is key
        ):
            _free_last(yard, key)
            done += 1
        if done < most and yard.stored_values.keys.get(key.name) is key:
            _drop_at_once(yard, key)
        return done


def _free_last(yard: Yard, key: StoredValue) -> None:
    """Free one element, from the end of its container."""
    if key.table:
        name, value = key.table.popitem()
        _unnote(yard, key, (b"h" if key.kind == ValueKind.HASH else b"m") + name)
        size: i64 = len(name) + len(value)
    elif key.scores:
        member, _ = key.scores.popitem()
        _unnote(yard, key, b"z" + member)
        size = len(member)
    elif key.items:
        number, item = key.items.popitem()
        _unnote(yard, key, _item(number))
        size = len(item)
    else:
        entry = key.entries.pop()
        _unnote(yard, key, _entry(entry.id))
        size = entry.size()
    _weigh(yard, key, -(ELEMENT_WEIGHT + size))


# -- keys ------------------------------------------------------------------------------------------


def find(yard: Yard, name: bytes, now_ms: i64) -> StoredValue | None:
    """Return the key of that name; drop it if it has expired."""
    key = yard.stored_values.keys.get(name)
    if key is None or key.is_fading:
        return None
    if key.expires_ms <= now_ms:
        drop(yard, key)
        return None
    return key


def drop(yard: Yard, key: StoredValue) -> None:
    """Drop a key with everything it holds.

    A large one counts as expired from now on, which is one record, and is freed over turns.
    """
    if key.elements_count() <= FEW_ELEMENTS:
        _drop_at_once(yard, key)
        return
    key.is_fading = True
    key.expires_ms = min(key.expires_ms, yard.now_ms)
    if key.is_noted:
        _note_expiry(yard, key)
    yard.tasks.follow(ValueFreeing(yard, key))


def _drop_at_once(yard: Yard, key: StoredValue) -> None:
    _unnote_all(yard, key)
    if key.alarm is not None:
        yard.disarm(key.alarm)
    _count(yard, -key.weight)
    yard.stored_values.remove(key)


def expire(yard: Yard, key: StoredValue, at_ms: i64, now_ms: i64) -> None:
    """Set when a key expires, NEVER_MS for never."""
    if at_ms <= now_ms:
        drop(yard, key)
        return
    is_noted = at_ms - now_ms > VOLATILE_MS
    if is_noted and not key.is_noted:
        # Nothing may change before there is room for all of it.
        admit(yard, 0, key.weight * 2)
    key.expires_ms = at_ms
    if key.is_noted and not is_noted:
        _unnote_all(yard, key)
    elif is_noted and not key.is_noted:
        key.is_noted = yard.journal.is_on
        for element, value in _elements(key):
            _note(yard, key, element, value)
    if is_noted:
        _note_expiry(yard, key)
    _arm(yard, key)


def _arm(yard: Yard, key: StoredValue) -> None:
    if key.expires_ms >= NEVER_MS:
        return
    if key.alarm is None:
        key.alarm = ValueExpiry(yard, key)
        yard.stored_values.expiring_count += 1
    yard.arm(key.alarm, key.expires_ms)


def _open(yard: Yard, name: bytes, kind: i64, now_ms: i64) -> StoredValue:
    """Return the key of that name; create it if needed. The caller has checked its kind."""
    key = find(yard, name, now_ms)
    if key is None:
        if b"\0" in name:
            # A zero byte ends the name in the keys of the journal.
            raise Refused("a key must not contain a zero byte")
        old = yard.stored_values.keys.get(name)
        if old is not None:
            # Its journal entries have the same keys as those of the new one.
            _drop_at_once(yard, old)
        key = yard.stored_values.make(name, kind)
        key.is_noted = yard.journal.is_on
        _count(yard, key.weight)
    assert key.kind == kind
    return key


def _close(yard: Yard, key: StoredValue) -> None:
    """Drop a key that is empty."""
    if key.is_empty():
        drop(yard, key)


def admit(yard: Yard, more: i64, written: i64) -> None:
    """Refuse a change for which memory or disk has no room, before anything is changed.

    All records of the change are then in one batch.
    """
    if more > 0 and not yard.bodies.admits_pinned(more):
        raise YardFull
    journal = yard.journal
    if journal.is_on:
        if not journal.has_room(written):
            raise YardFull
        journal.make_room(written)


def _weigh(yard: Yard, key: StoredValue, more: i64) -> None:
    key.weight += more
    _count(yard, more)


def _count(yard: Yard, more: i64) -> None:
    yard.bodies.in_memory += more
    yard.bodies.pinned += more


# -- the journal -----------------------------------------------------------------------------------


def _note(yard: Yard, key: StoredValue, element: bytes, value: bytes) -> None:
    if key.is_noted:
        yard.journal.set_entry(EntryKind.STORED_VALUE, key.name + b"\0" + element, value)


def _unnote(yard: Yard, key: StoredValue, element: bytes) -> None:
    if key.is_noted:
        yard.journal.drop_entry(EntryKind.STORED_VALUE, key.name + b"\0" + element)


def _note_expiry(yard: Yard, key: StoredValue) -> None:
    if key.expires_ms >= NEVER_MS:
        _unnote(yard, key, b"T")
    else:
        _note(yard, key, b"T", struct.pack("<q", key.expires_ms + yard.journal.wall_offset_ms))


def _unnote_all(yard: Yard, key: StoredValue) -> None:
    if not key.is_noted:
        return
    for element, _ in _elements(key):
        _unnote(yard, key, element)
    _unnote(yard, key, b"X")
    _unnote(yard, key, b"T")
    key.is_noted = False


def _elements(key: StoredValue) -> list[tuple[bytes, bytes]]:
    """Return the journal entries of the elements of a key."""
    noted: list[tuple[bytes, bytes]] = []
    if key.kind == ValueKind.STRING:
        noted.append((b"s", key.text))
    elif key.kind == ValueKind.HASH:
        noted.extend((b"h" + field, value) for field, value in key.table.items())
    elif key.kind == ValueKind.SET:
        noted.extend((b"m" + member, b"") for member in key.table)
    elif key.kind == ValueKind.ZSET:
        noted.extend((b"z" + member, _score(score)) for member, score in key.scores.items())
    elif key.kind == ValueKind.LIST:
        noted.extend((_item(number), value) for number, value in key.items.items())
    else:
        noted.extend((_entry(entry.id), _pack(entry.fields)) for entry in key.entries)
        noted.append((b"X", _id(key.last_id)))
    return noted


def _score(score: float) -> bytes:
    return struct.pack("<d", score)


def _item(number: int) -> bytes:
    return b"l" + struct.pack(">Q", number + _MIDDLE)


def _id(entry_id: StreamId) -> bytes:
    return struct.pack(">QQ", entry_id[0], entry_id[1])


def _entry(entry_id: StreamId) -> bytes:
    return b"x" + _id(entry_id)


def _pack(fields: list[bytes]) -> bytes:
    return b"".join([struct.pack("<I", len(part)) + part for part in fields])


def _unpack(value: bytes) -> list[bytes]:
    fields: list[bytes] = []
    at = 0
    while at < len(value):
        size = int.from_bytes(value[at : at + 4], "little")
        fields.append(value[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


# -- strings ---------------------------------------------------------------------------------------


def set_text(yard: Yard, name: bytes, value: bytes, expires_ms: i64, now_ms: i64) -> None:
    """Set a string; replace whatever value the key has."""
    admit(yard, len(name) + len(value), 2 * (_RECORD_SIZE + len(name)) + len(value))
    key = find(yard, name, now_ms)
    is_noted = yard.journal.is_on and expires_ms - now_ms > VOLATILE_MS
    if key is not None and (key.kind != ValueKind.STRING or key.is_noted != is_noted):
        drop(yard, key)
        key = None
    if expires_ms <= now_ms:
        if key is not None:
            drop(yard, key)
        return
    if key is None:
        key = _open(yard, name, ValueKind.STRING, now_ms)
        key.is_noted = is_noted
    _note(yard, key, b"s", value)
    _weigh(yard, key, len(value) - len(key.text))
    key.text = value
    had_end = key.expires_ms < NEVER_MS
    key.expires_ms = expires_ms
    if had_end or expires_ms < NEVER_MS:
        _note_expiry(yard, key)
    _arm(yard, key)


# -- hashes and sets -------------------------------------------------------------------------------


def set_fields(yard: Yard, name: bytes, fields: dict[bytes, bytes], now_ms: i64) -> i64:
    """Set fields of a hash; return how many are new."""
    return _set_table(yard, name, ValueKind.HASH, fields, now_ms)


def add_members(yard: Yard, name: bytes, members: list[bytes], now_ms: i64) -> i64:
    """Add members to a set; return how many are new."""
    return _set_table(yard, name, ValueKind.SET, dict.fromkeys(members, b""), now_ms)


def _set_table(yard: Yard, name: bytes, kind: i64, fields: dict[bytes, bytes], now_ms: i64) -> i64:
    size: i64 = 0
    for field, value in fields.items():
        size += len(field) + len(value) + ELEMENT_WEIGHT
    admit(yard, size, size + (_RECORD_SIZE + len(name)) * len(fields))
    key = _open(yard, name, kind, now_ms)
    tag = b"h" if kind == ValueKind.HASH else b"m"
    added: i64 = 0
    for field, value in fields.items():
        old = key.table.get(field)
        if old == value:
            continue
        _note(yard, key, tag + field, value)
        key.table[field] = value
        if old is None:
            added += 1
            _weigh(yard, key, ELEMENT_WEIGHT + len(field) + len(value))
        else:
            _weigh(yard, key, len(value) - len(old))
    return added


def drop_fields(yard: Yard, key: StoredValue, names: list[bytes]) -> i64:
    """Remove fields of a hash, or members of a set; return how many there were."""
    tag = b"h" if key.kind == ValueKind.HASH else b"m"
    gone: i64 = 0
    for name in names:
        value = key.table.get(name)
        if value is not None:
            _unnote(yard, key, tag + name)
            del key.table[name]
            _weigh(yard, key, -(ELEMENT_WEIGHT + len(name) + len(value)))
            gone += 1
    _close(yard, key)
    return gone


# -- sorted sets -----------------------------------------------------------------------------------


def set_scores(yard: Yard, name: bytes, scores: dict[bytes, float], now_ms: i64) -> i64:
    """Set the scores of members; return how many are new."""
    size: i64 = 0
    for member in scores:
        size += len(member) + ELEMENT_WEIGHT
    admit(yard, size, size + (_RECORD_SIZE + len(name)) * len(scores))
    key = _open(yard, name, ValueKind.ZSET, now_ms)
    added: i64 = 0
    for member, score in scores.items():
        old = key.scores.get(member)
        if old == score:
            continue
        _note(yard, key, b"z" + member, _score(score))
        key.set_score(member, score)
        if old is None:
            added += 1
            _weigh(yard, key, ELEMENT_WEIGHT + len(member))
    return added


def drop_scored(yard: Yard, key: StoredValue, members: list[bytes]) -> i64:
    """Remove members of a sorted set; return how many there were."""
    gone: i64 = 0
    for member in members:
        if member in key.scores:
            _unnote(yard, key, b"z" + member)
            key.drop_score(member)
            _weigh(yard, key, -(ELEMENT_WEIGHT + len(member)))
            gone += 1
    _close(yard, key)
    return gone


# -- lists -----------------------------------------------------------------------------------------


def push(yard: Yard, name: bytes, values: list[bytes], now_ms: i64, *, is_left: bool) -> i64:
    """Push items to one end of a list, one after the other; return the new length."""
    size: i64 = 0
    for value in values:
        size += len(value) + ELEMENT_WEIGHT
    admit(yard, size, size + (_RECORD_SIZE + len(name)) * len(values))
    key = _open(yard, name, ValueKind.LIST, now_ms)
    for value in values:
        number = key.first - 1 if is_left else key.after
        _note(yard, key, _item(number), value)
        key.items[number] = value
        key.first = min(key.first, number)
        key.after = max(key.after, number + 1)
        _weigh(yard, key, ELEMENT_WEIGHT + len(value))
    return len(key.items)


def pop(yard: Yard, key: StoredValue, count: i64, *, is_left: bool) -> list[bytes]:
    """Pop up to `count` items from one end of a list."""
    taken: list[bytes] = []
    while key.items and len(taken) < count:
        number = key.first if is_left else key.after - 1
        _unnote(yard, key, _item(number))
        value = key.items.pop(number)
        if is_left:
            key.first += 1
        else:
            key.after -= 1
        taken.append(value)
        _weigh(yard, key, -(ELEMENT_WEIGHT + len(value)))
    _close(yard, key)
    return taken


# -- streams ---------------------------------------------------------------------------------------


def add_entry(
    yard: Yard, name: bytes, entry_id: StreamId, fields: list[bytes], now_ms: i64
) -> None:
    """Add an entry to a stream; its id is greater than the last."""
    entry = StreamEntry(entry_id, fields)
    size = entry.size() + 4 * len(fields) + ELEMENT_WEIGHT
    admit(yard, size, size + _RECORD_SIZE + len(name))
    key = _open(yard, name, ValueKind.STREAM, now_ms)
    assert entry_id > key.last_id
    _note(yard, key, _entry(entry_id), _pack(fields))
    key.entries.append(entry)
    key.last_id = entry_id
    _weigh(yard, key, ELEMENT_WEIGHT + entry.size())
    for reader in list(yard.stored_values.readers.get(name, [])):
        reader.stream_grew()


def drop_entries(yard: Yard, key: StoredValue, ids: list[StreamId]) -> i64:
    """Remove entries of a stream; return how many there were."""
    gone: i64 = 0
    for entry_id in ids:
        at = key.place_of(entry_id)
        if at < len(key.entries) and key.entries[at].id == entry_id:
            if entry_id == key.last_id:
                # Ids keep rising, even after a restart.
                _note(yard, key, b"X", _id(entry_id))
            _unnote(yard, key, _entry(entry_id))
            _weigh(yard, key, -(ELEMENT_WEIGHT + key.entries[at].size()))
            del key.entries[at]
            gone += 1
    return gone


def trim_entries(yard: Yard, key: StoredValue, count: i64) -> None:
    """Remove the `count` oldest entries of a stream."""
    oldest = key.entries[:count]
    if not oldest:
        return
    if oldest[-1].id == key.last_id:
        _note(yard, key, b"X", _id(key.last_id))
    gone: i64 = 0
    try:
        for entry in oldest:
            _unnote(yard, key, _entry(entry.id))
            _weigh(yard, key, -(ELEMENT_WEIGHT + entry.size()))
            gone += 1
    finally:
        # On a full disk, keep the entries that could not be removed.
        del key.entries[:gone]


def watch(yard: Yard, name: bytes, reader: StreamReader) -> None:
    """Notify a reader of every entry that is added to a stream."""
    yard.stored_values.readers.setdefault(name, []).append(reader)


def unwatch(yard: Yard, name: bytes, reader: StreamReader) -> None:
    """Stop notifying a reader."""
    readers = yard.stored_values.readers.get(name)
    if readers is not None and reader in readers:
        readers.remove(reader)
        if not readers:
            del yard.stored_values.readers[name]


# -- recovery --------------------------------------------------------------------------------------

_KINDS: Final = {
    b"s": ValueKind.STRING, b"h": ValueKind.HASH, b"m": ValueKind.SET, b"z": ValueKind.ZSET,
    b"l": ValueKind.LIST, b"x": ValueKind.STREAM, b"X": ValueKind.STREAM,
}  # fmt: skip


def load_stored(yard: Yard, entries: list[Entry], now_ms: i64) -> None:
    """Restore stored values from the entries of kind STORED_VALUE."""
    ends: dict[bytes, int] = {}
    for entry in entries:
        name, _, element = entry.key.partition(b"\0")
        tag = element[:1]
        if tag == b"T":
            wall_ms: i64 = int.from_bytes(entry.value, "little", signed=True)
            ends[name] = wall_ms - yard.journal.wall_offset_ms
            continue
        key = yard.stored_values.keys.get(name)
        if key is None:
            key = yard.stored_values.make(name, _KINDS[tag])
            key.is_noted = True
        _load_element(key, tag, element[1:], entry.value)
    for key in yard.stored_values.keys.values():
        _settle(yard, key)
        end_ms = ends.get(key.name)
        if end_ms is not None:
            key.expires_ms = max(i64(end_ms), now_ms)
            _arm(yard, key)


def _load_element(key: StoredValue, tag: bytes, element: bytes, value: bytes) -> None:
    if tag == b"s":
        key.text = value
    elif tag == b"z":
        score: float = struct.unpack("<d", value)[0]
        key.set_score(element, score)
    elif tag == b"l":
        key.items[int.from_bytes(element, "big") - _MIDDLE] = value
    elif tag == b"x":
        key.entries.append(StreamEntry(_read_id(element), _unpack(value)))
    elif tag == b"X":
        key.last_id = max(key.last_id, _read_id(value))
    else:
        key.table[element] = value


def _read_id(data: bytes) -> StreamId:
    return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:16], "big")


def _settle(yard: Yard, key: StoredValue) -> None:
    """Sort the elements, which were read in any order, and compute the weight."""
    weight: i64 = len(key.text)
    for element, value in key.table.items():
        weight += ELEMENT_WEIGHT + len(element) + len(value)
    for member in key.scores:
        weight += ELEMENT_WEIGHT + len(member)
    if key.items:
        key.first = min(key.items)
        key.after = max(key.items) + 1
    for item in key.items.values():
        weight += ELEMENT_WEIGHT + len(item)
    key.entries.sort(key=_id_of)
    for entry in key.entries:
        weight += ELEMENT_WEIGHT + entry.size()
    if key.entries:
        key.last_id = max(key.last_id, key.entries[-1].id)
    assert key.last_id >= FIRST_ID
    key.weight += weight
    _count(yard, key.weight)


def _id_of(entry: StreamEntry) -> StreamId:
    return entry.id
