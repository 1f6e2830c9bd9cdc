"""The verbs of cursors: set, remove, and hold records back from removal.

A hold is bounded: once a log keeps more than `hold_bytes` only because of a cursor, that cursor is
broken, says so, and holds nothing until it is set again. What caps, age and the window of history
would keep anyway does not count.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.history import has_history, queue_incarnation, yard_id
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import EntryKind
from jobyard.model.queue import is_topic
from jobyard.model.topic.config import EVENTS_TOPIC
from jobyard.model.topic.cursor import NO_HOLD, TopicCursor, decode_cursor
from jobyard.model.topic.log import LogTopic, incarnation_of

# What a hold keeps is counted again each time the log has grown by this part of the limit.
_COUNTED_AGAIN: Final = 64


class CursorTopicMissing(Refused):
    """The topic of a cursor does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist")
        self.topic: str = topic


class WrongIncarnation(Refused):
    """The topic of a cursor was deleted and created again."""

    def __init__(self, topic: str, incarnation: str) -> None:
        super().__init__(f"{topic} was deleted and created again since then")
        self.incarnation: str = incarnation


class CursorBeyond(Refused):
    """A cursor cannot be beyond the newest seq."""

    def __init__(self, head_seq: i64) -> None:
        super().__init__(f"seq is beyond the newest seq, {int(head_seq)}")
        self.head_seq: i64 = head_seq


class HoldsJobs(Refused):
    """A cursor cannot hold the jobs of a queue."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"{topic} is a queue: its jobs cannot be held")


class CursorBehind(Refused):
    """A cursor cannot go back unless this is forced."""

    def __init__(self, seq: i64) -> None:
        super().__init__(f"the cursor is already at {int(seq)}")
        self.seq: i64 = seq


@final
class CursorChange:
    """A cursor that a client wants to set, alone or with a commit."""

    def __init__(self, cursor: TopicCursor, *, is_forced: bool, keeps_hold: bool) -> None:
        self.cursor: TopicCursor = cursor
        self._is_forced: bool = is_forced
        # Whether it holds records if it did so before.
        self._keeps_hold: bool = keeps_hold

    def check(self, yard: Yard) -> None:
        """Refuse what `set_cursor` refuses; changes nothing."""
        if self._keeps_hold:
            known = yard.cursors.get(self.cursor.topic, self.cursor.name)
            self.cursor.holds = known is not None and known.holds
        _check_cursor(yard, self.cursor, is_forced=self._is_forced)

    def summary(self) -> str:
        """Return all of it as text."""
        cursor = self.cursor
        hold = "" if self._keeps_hold else str(cursor.holds)
        place = f"{cursor.topic}\0{cursor.name}\0{int(cursor.seq)}\0{cursor.incarnation}"
        return f"{place}\0{hold}\0{self._is_forced}"


def set_cursor(yard: Yard, wanted: CursorChange, now_ms: i64) -> bool:
    """Set a cursor; return whether it is new. A refusal changes nothing."""
    wanted.check(yard)
    if yard.journal.is_on and not yard.journal.admit(cursor_room(wanted.cursor), now_ms):
        raise YardFull
    return apply_cursor(yard, wanted.cursor, now_ms)


def _check_cursor(yard: Yard, new: TopicCursor, *, is_forced: bool) -> None:
    """Refuse a cursor that cannot be set; give it the incarnation of its topic."""
    head_seq = cursor_head(yard, new.topic)
    if head_seq < 0:
        raise CursorTopicMissing(new.topic)
    incarnation = _incarnation(yard, new.topic)
    if new.incarnation and new.incarnation != incarnation:
        raise WrongIncarnation(new.topic, incarnation)
    if new.seq > head_seq:
        raise CursorBeyond(head_seq)
    if new.holds and new.topic != EVENTS_TOPIC and new.topic not in yard.logs:
        raise HoldsJobs(new.topic)
    new.incarnation = incarnation
    known = yard.cursors.get(new.topic, new.name)
    if (
        known is not None
        and not is_forced
        and known.incarnation == new.incarnation
        and new.seq < known.seq
    ):
        raise CursorBehind(known.seq)


def cursor_head(yard: Yard, topic: str) -> i64:
    """Return the newest seq of a topic that can have cursors; -1 if there is none of that name."""
    if topic == EVENTS_TOPIC:
        return max(yard.journal.history.next_durable - 1, 0) if has_history(yard) else -1
    log = yard.logs.get(topic)
    if log is not None:
        return log.next_seq - 1
    queue = yard.queues.get(topic)
    return queue.next_seq - 1 if queue is not None and is_topic(queue) else -1


def _incarnation(yard: Yard, topic: str) -> str:
    """Return the incarnation of a topic that exists."""
    if topic == EVENTS_TOPIC:
        return yard_id(yard)
    log = yard.logs.get(topic)
    return queue_incarnation(yard, yard.queues[topic]) if log is None else incarnation_of(log)


def cursor_room(cursor: TopicCursor) -> i64:
    """Return the most journal bytes that setting a cursor takes."""
    return ENTRY_SIZE + len(cursor.key()) + len(cursor.encode())


def apply_cursor(yard: Yard, new: TopicCursor, now_ms: i64) -> bool:
    """Set a cursor that was checked and for which there is room; return whether it is new."""
    is_new = yard.cursors.get(new.topic, new.name) is None
    new.updated_ms = now_ms + yard.journal.wall_offset_ms
    if yard.journal.is_on:
        yard.journal.set_entry(EntryKind.CURSOR, new.key(), new.encode())
    yard.cursors.put(new)
    _hold_history(yard, new.topic)
    return is_new


def drop_cursor(yard: Yard, cursor: TopicCursor) -> None:
    """Remove a cursor."""
    if yard.journal.is_on:
        yard.journal.drop_entry(EntryKind.CURSOR, cursor.key())
    yard.cursors.remove(cursor)
    _hold_history(yard, cursor.topic)


def drop_cursors_of(yard: Yard, topic: str) -> None:
    """Remove the cursors of a topic that is removed."""
    for cursor in yard.cursors.of(topic):
        drop_cursor(yard, cursor)


def load_cursors(yard: Yard) -> None:
    """Load the cursors of the last boot; those of topics that a repair lost stay unused."""
    for entry in yard.journal.entries.values():
        if entry.kind != EntryKind.CURSOR or entry.is_gone:
            continue
        cursor = decode_cursor(entry.key, entry.value)
        topic = cursor.topic
        if topic == EVENTS_TOPIC or topic in yard.logs or topic in yard.queues:
            yard.cursors.put(cursor)
    _hold_history(yard, EVENTS_TOPIC)


# -- holds ---------------------------------------------------------------------------------------


def _hold_history(yard: Yard, topic: str) -> None:
    if topic == EVENTS_TOPIC:
        yard.journal.history.hold_seq = yard.cursors.hold_of(topic)


def break_history_holds(yard: Yard) -> None:
    """Break the holds of cursors that the window of history has passed."""
    if yard.cursors.hold_of(EVENTS_TOPIC) < NO_HOLD:
        floor = yard.journal.history.floor
        if yard.cursors.hold_of(EVENTS_TOPIC) + 1 < floor:
            _break(yard, EVENTS_TOPIC, floor)


def is_all_held(yard: Yard, log: LogTopic) -> bool:
    """Return whether cursors hold all records of a log, and may do so."""
    if yard.cursors.hold_of(log.name) >= log.earliest_seq:
        return False
    return log.bytes <= max(log.hold_counted_at, yard.cursors.hold_bytes)


def held_floor(yard: Yard, log: LogTopic, floor: i64) -> i64:
    """Return up to where the records of a log below `floor` may be removed."""
    hold = yard.cursors.hold_of(log.name)
    if floor <= hold + 1:
        return floor
    first = max(hold + 1, log.earliest_seq)
    hold_bytes = yard.cursors.hold_bytes
    if log.bytes <= max(log.hold_counted_at, hold_bytes):
        return first
    if log.bytes_between(first, floor) <= hold_bytes:
        log.hold_counted_at = log.bytes + hold_bytes // _COUNTED_AGAIN
        return first
    _break(yard, log.name, floor)
    log.hold_counted_at = 0
    return held_floor(yard, log, floor)


def _break(yard: Yard, topic: str, floor: i64) -> None:
    for cursor in yard.cursors.break_below(topic, floor):
        if yard.journal.is_on:
            try:
                yard.journal.set_entry(EntryKind.CURSOR, cursor.key(), cursor.encode())
            except StorageFull:
                # Found again after a restart: what it held is gone.
                continue
    _hold_history(yard, topic)
