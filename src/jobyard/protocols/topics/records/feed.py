"""The cursors of one reader in several topics, and the records it is sent.

A topic that changed is read when there is room to send, in turns with the others. A cursor advances
with what was sent, and moves back if the connection is lost before that has left: a reader can
detect a duplicate by its seq, but not a missing record.

Knows topics, but not the format in which records are sent: that is up to the writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, trait

from jobyard.engine.logs import logs
from jobyard.engine.state.history_watch import HistoryWatcher
from jobyard.errors import TextDamaged
from jobyard.model.topic.log import RECREATED, LogPage, LogQuery, LogReader, LogTopic, Tombstone
from jobyard.protocols.topics.names import EVENTS_TOPIC
from jobyard.protocols.topics.records.events import page_of_events
from jobyard.protocols.topics.records.jobs import earliest_seq, page_of_jobs
from jobyard.protocols.topics.records.news import QueueReader
from jobyard.wire.json.write import quoted

if TYPE_CHECKING:
    from jobyard.journal.history.window import History
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor

TOO_OLD: Final = "from_seq_too_old"


@final
class Gap:
    """Records that were removed before the reader reached them."""

    def __init__(self, first_seq: i64, last_seq: i64, reason: str) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        self.reason = reason


@final
class Cursor:
    """The position of a reader in one topic."""

    def __init__(
        self, name: str, log: LogTopic | None, queue: Queue | None, query: LogQuery
    ) -> None:
        self.name = name
        # The name as a JSON string.
        self.quoted: bytes = quoted(name)
        self.log = log
        self.queue = queue
        # Set instead of both for `_events`.
        self.history: History | None = None
        # Its `from_seq` is the position of the reader.
        self.query = query
        # The position when all sent data had last left.
        self.safe_seq: i64 = query.from_seq
        self.is_safe: bool = True
        # The position in the last event id.
        self.event_id_seq: i64 = -1
        self.is_first: bool = True
        self.is_caught_up: bool = False
        self.is_due: bool = False

    def head_seq(self) -> i64:
        """Return the newest seq of the topic."""
        if self.log is not None:
            return self.log.next_seq - 1
        if self.history is not None:
            return self.history.next_durable - 1
        assert self.queue is not None
        return self.queue.next_seq - 1

    def last_seq(self) -> i64:
        """Return the newest seq of a removed topic, but not less than the position."""
        return max(self.head_seq(), self.query.from_seq)

    def earliest_seq(self) -> i64:
        """Return the oldest seq of the topic."""
        if self.log is not None:
            return self.log.earliest_seq
        if self.history is not None:
            return max(self.history.rows_floor, 1)
        assert self.queue is not None
        return earliest_seq(self.queue)

    def rewind(self, seq: i64) -> None:
        """Move back to a seq; never forward."""
        if seq < self.query.from_seq:
            self.query.from_seq = seq
            self.safe_seq = seq
            self.is_caught_up = False


@trait
class FeedWriter:
    """Sends what a feed finds."""

    def wake(self) -> None:
        """Make sure that the feed is pumped before this turn ends."""

    def has_room(self) -> bool:
        """Return whether there is room to send."""
        raise NotImplementedError

    def unsent_size(self) -> i64:
        """Return the size of sent data that has not left yet."""
        raise NotImplementedError

    def send_page(self, cursor: Cursor, page: LogPage, from_seq: i64) -> None:
        """Send records."""

    def send_caught_up(self, cursor: Cursor, head_seq: i64) -> None:
        """Send that the reader has caught up."""

    def send_gap(self, cursor: Cursor, page: LogPage, gap: Gap) -> None:
        """Send that records were removed before the reader reached them."""

    def send_deleted(self, cursor: Cursor) -> None:
        """Send that the topic was removed; nothing more follows for it."""

    def send_damaged(self, cursor: Cursor, damage: TextDamaged) -> None:
        """Send that the next records are damaged; nothing more follows for the topic."""


@final
class _NoWriter(FeedWriter):
    """Writer of a feed that has ended."""

    def has_room(self) -> bool:
        """Return that there is no room."""
        return False

    def unsent_size(self) -> i64:
        """Return that no data is unsent."""
        return 0


_NOWHERE: Final = _NoWriter()


@final
class Feed(LogReader, QueueReader, HistoryWatcher):
    """The cursors of one connection."""

    def __init__(self, door: TopicsDoor, writer: FeedWriter) -> None:
        self._door = door
        self._writer = writer
        self.cursors: dict[str, Cursor] = {}
        # Cursors of topics that may have new records, in the order of the changes.
        self._due: list[Cursor] = []
        # Cursors that moved since all sent data had last left.
        self._unsafe: list[Cursor] = []
        self._is_woken: bool = False

    def add(self, cursor: Cursor) -> None:
        """Follow a topic from the position of the cursor."""
        self.remove(cursor.name)
        self.cursors[cursor.name] = cursor
        if cursor.log is not None:
            logs.hold_reader(cursor.log, self)
        if cursor.queue is not None:
            self._door.queue_readers.hold(cursor.queue, self)
        if cursor.history is not None:
            self._door.yard.watchers.hold(self, cursor.history.next_durable)
        self._look(cursor)

    def remove(self, name: str) -> bool:
        """Stop following a topic; return whether it was followed."""
        cursor = self.cursors.pop(name, None)
        if cursor is None:
            return False
        self._stop_notices(cursor)
        if cursor.is_due:
            cursor.is_due = False
            self._due.remove(cursor)
        if not cursor.is_safe:
            cursor.is_safe = True
            self._unsafe.remove(cursor)
        return True

    def _stop_notices(self, cursor: Cursor) -> None:
        if cursor.log is not None:
            logs.drop_reader(cursor.log, self)
        if cursor.queue is not None:
            self._door.queue_readers.drop(cursor.queue, self)
        if cursor.history is not None:
            self._door.yard.watchers.drop(self)

    def leave(self) -> None:
        """Stop following all topics; move cursors back to what has certainly left."""
        is_lost = self._writer.unsent_size() > 0
        for cursor in self.cursors.values():
            self._stop_notices(cursor)
            cursor.is_due = False
            if not cursor.is_safe:
                cursor.is_safe = True
                if is_lost:
                    cursor.rewind(cursor.safe_seq)
            cursor.safe_seq = cursor.query.from_seq
        self.cursors = {}
        self._due = []
        self._unsafe = []
        # Break the reference cycle: the writer refers to this feed.
        self._writer = _NOWHERE

    # -- notifications of topics ---------------------------------------------------------------

    def appended(self, log: LogTopic) -> None:
        """Read a log before this turn ends, together with what is appended until then."""
        cursor = self.cursors.get(log.name)
        if cursor is not None:
            self._look(cursor)

    def queue_changed(self, queue: Queue) -> None:
        """Read a queue before this turn ends."""
        cursor = self.cursors.get(queue.name)
        if cursor is not None:
            self._look(cursor)

    def events_came(self) -> None:
        """Read history before the next turn ends."""
        cursor = self.cursors.get(EVENTS_TOPIC)
        if cursor is not None:
            self._look(cursor)

    def look_at_queues(self) -> None:
        """Read all queues: not every change is notified."""
        for cursor in self.cursors.values():
            if cursor.queue is not None:
                self._look(cursor)

    def _look(self, cursor: Cursor) -> None:
        if not cursor.is_due:
            cursor.is_due = True
            self._due.append(cursor)
        if not self._is_woken:
            self._is_woken = True
            self._writer.wake()

    # -- sending -------------------------------------------------------------------------------

    def pump(self, now_ms: i64) -> None:
        """Send new records, as much as there is room for."""
        self._is_woken = True
        if self._unsafe and self._writer.unsent_size() == 0:
            for cursor in self._unsafe:
                cursor.safe_seq = cursor.query.from_seq
                cursor.is_safe = True
            self._unsafe = []
        while self._due and self._writer.has_room():
            cursor = self._due.pop(0)
            cursor.is_due = False
            if self._is_gone(cursor):
                self.remove(cursor.name)
                self._writer.send_deleted(cursor)
            else:
                self._send_page(cursor, now_ms)
        self._is_woken = False

    def _is_gone(self, cursor: Cursor) -> bool:
        yard = self._door.yard
        if cursor.history is not None:
            return False
        if cursor.log is not None:
            return yard.logs.get(cursor.name) is not cursor.log
        return yard.queues.get(cursor.name) is not cursor.queue

    def _send_page(self, cursor: Cursor, now_ms: i64) -> None:
        from_seq = cursor.query.from_seq
        try:
            page = self._read(cursor, now_ms)
        except TextDamaged as damage:
            # A reader that subscribes again gets the same error, or may skip the damaged range.
            self.remove(cursor.name)
            self._writer.send_damaged(cursor, damage)
            return
        if page.tombstone is not None or page.count > 0:
            cursor.is_caught_up = False
        if page.tombstone is not None:
            from_seq = self._send_gap(cursor, page, page.tombstone)
        cursor.is_first = False
        if page.next_from_seq != from_seq:
            self._move(cursor, page.next_from_seq)
        if page.count > 0:
            self._writer.send_page(cursor, page, from_seq)
        if page.next_from_seq < page.head_seq:
            if page.count > 0 or cursor.history is None:
                self._look(cursor)
            else:
                # A long stretch of history may have no rows; other readers go first.
                self._door.yard.watchers.notify_next_turn()
        elif not cursor.is_caught_up:
            cursor.is_caught_up = True
            self._writer.send_caught_up(cursor, page.head_seq)

    def _send_gap(self, cursor: Cursor, page: LogPage, stone: Tombstone) -> i64:
        """Send a gap; return the new position of the cursor."""
        is_old = cursor.is_first and stone.reason != RECREATED
        gap = Gap(stone.gap_from, stone.gap_to, TOO_OLD if is_old else stone.reason)
        if cursor.queue is None or gap.reason == RECREATED:
            # In a queue, jobs that were leased when others were removed still follow.
            self._move(cursor, gap.last_seq)
        self._writer.send_gap(cursor, page, gap)
        return cursor.query.from_seq

    def _read(self, cursor: Cursor, now_ms: i64) -> LogPage:
        if cursor.history is not None:
            return page_of_events(self._door.yard, cursor.query)
        if cursor.log is not None:
            cursor.log.last_read_ms = now_ms
            return logs.read(self._door.yard, cursor.log, cursor.query, now_ms)
        assert cursor.queue is not None
        return page_of_jobs(self._door, cursor.queue, cursor.query)

    def _move(self, cursor: Cursor, seq: i64) -> None:
        if cursor.is_safe:
            cursor.is_safe = False
            self._unsafe.append(cursor)
        cursor.query.from_seq = seq
