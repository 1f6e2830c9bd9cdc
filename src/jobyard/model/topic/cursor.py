"""Named cursors: how far a reader of a topic has got, stored for the reader by the server.

A cursor that holds keeps records after it from being removed by caps, age or the window of history.
Knows no log and no journal; the verbs are in `engine/logs/cursors.py`.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

# Nothing is held below this seq.
NO_HOLD: Final = 1 << 62
HOLD_BYTES_DEFAULT: Final = 4 << 30

_HOLDS: Final = 1
_BROKEN: Final = 2
_FIXED_SIZE: Final = 24


@final
class TopicCursor:
    """One cursor of a topic."""

    def __init__(self, topic: str, name: str) -> None:
        self.topic: str = topic
        self.name: str = name
        # The last seq that the reader is done with.
        self.seq: i64 = 0
        self.incarnation: str = ""
        self.holds: bool = False
        # Whether records after it were removed although it held them.
        self.is_broken: bool = False
        # Wall time.
        self.updated_ms: i64 = 0
        # Of `_events`, once counted: how many rows there are up to it, as history counts them.
        self.rows_before: i64 = -1

    def is_holding(self) -> bool:
        """Return whether records after it must stay."""
        return self.holds and not self.is_broken

    def key(self) -> bytes:
        """Return its key in the journal."""
        return cursor_key(self.topic, self.name)

    def encode(self) -> bytes:
        """Return its stored form."""
        out = BytesWriter()
        write_i64_le(out, self.seq)
        write_i64_le(out, self.updated_ms)
        flags: i64 = (_HOLDS if self.holds else 0) | (_BROKEN if self.is_broken else 0)
        write_i64_le(out, flags)
        out.write(self.incarnation.encode())
        return out.getvalue()


def cursor_key(topic: str, name: str) -> bytes:
    """Return the key of a cursor in the journal."""
    return f"{topic}\0{name}".encode()


def decode_cursor(key: bytes, value: bytes) -> TopicCursor:
    """Decode what `key` and `encode` wrote."""
    topic, _, name = key.decode().partition("\0")
    cursor = TopicCursor(topic, name)
    cursor.seq = read_i64_le(value, 0)
    cursor.updated_ms = read_i64_le(value, 8)
    flags = read_i64_le(value, 16)
    cursor.holds = flags & _HOLDS != 0
    cursor.is_broken = flags & _BROKEN != 0
    cursor.incarnation = value[_FIXED_SIZE:].decode()
    return cursor


@final
class TopicCursors:
    """All cursors, and the least seq that the cursors of each topic hold."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, TopicCursor]] = {}
        self._holds: dict[str, i64] = {}
        self.count: i64 = 0
        # How many bytes a topic may keep only because a cursor holds them.
        self.hold_bytes: i64 = HOLD_BYTES_DEFAULT
        # Messages about broken holds, for the log.
        self._stories: list[str] = []

    def of(self, topic: str) -> list[TopicCursor]:
        """Return the cursors of a topic, by name."""
        found = self._by_topic.get(topic)
        return [] if found is None else [found[name] for name in sorted(found)]

    def all(self) -> list[TopicCursor]:
        """Return all cursors, topic by topic."""
        return [cursor for topic in self._by_topic for cursor in self.of(topic)]

    def count_of(self, topic: str) -> i64:
        """Return how many cursors a topic has."""
        found = self._by_topic.get(topic)
        return 0 if found is None else len(found)

    def get(self, topic: str, name: str) -> TopicCursor | None:
        """Return a cursor, or None."""
        found = self._by_topic.get(topic)
        return None if found is None else found.get(name)

    def put(self, cursor: TopicCursor) -> None:
        """Add a cursor, or replace the one with its name."""
        found = self._by_topic.setdefault(cursor.topic, {})
        if cursor.name not in found:
            self.count += 1
        found[cursor.name] = cursor
        self._hold_again(cursor.topic)

    def remove(self, cursor: TopicCursor) -> None:
        """Remove a cursor."""
        found = self._by_topic[cursor.topic]
        del found[cursor.name]
        self.count -= 1
        if not found:
            del self._by_topic[cursor.topic]
        self._hold_again(cursor.topic)

    def hold_of(self, topic: str) -> i64:
        """Return the seq after which all records of a topic are held, or NO_HOLD."""
        if not self._holds:
            return NO_HOLD
        return self._holds.get(topic, NO_HOLD)

    def break_below(self, topic: str, floor: i64) -> list[TopicCursor]:
        """Break the holds that keep records below `floor`; return the cursors."""
        broken: list[TopicCursor] = []
        for cursor in self.of(topic):
            if cursor.is_holding() and cursor.seq + 1 < floor:
                cursor.is_broken = True
                broken.append(cursor)
                self._stories.append(
                    f"cursor {cursor.name} of {topic} no longer holds records after "
                    f"{int(cursor.seq)}: they need more than --hold-bytes, or the disk is full"
                )
        self._hold_again(topic)
        return broken

    def take_stories(self) -> list[str]:
        """Return the messages about holds broken since the last call."""
        stories, self._stories = self._stories, []
        return stories

    def _hold_again(self, topic: str) -> None:
        least: i64 = NO_HOLD
        for cursor in self.of(topic):
            if cursor.is_holding():
                least = min(least, cursor.seq)
        if least < NO_HOLD:
            self._holds[topic] = least
        else:
            self._holds.pop(topic, None)
