"""Cursors of one reader into several topics, and what comes past them.

A topic in which something has happened is looked at when there is room to send, in turns with the
others. A cursor moves with what was sent, and moves back where the connection is lost before that
has left: what is shown twice can be told by its seq, what is never shown cannot.

Knows topics, not how what is found is said: that is for the outlet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, trait

from jobyard.engine.logs import logs
from jobyard.engine.state.history_watch import Onlooker
from jobyard.errors import TextDamaged
from jobyard.model.topic.log import RECREATED, LogPage, LogQuery, LogReader, LogTopic, Tombstone
from jobyard.protocols.topics.names import EVENTS
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
    """Records that were gone before the reader came to them."""

    def __init__(self, first_seq: i64, last_seq: i64, reason: str) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        self.reason = reason


@final
class Cursor:
    """How far a reader has come in one topic."""

    def __init__(
        self, name: str, log: LogTopic | None, queue: Queue | None, query: LogQuery
    ) -> None:
        self.name = name
        # As it is shown.
        self.quoted: bytes = quoted(name)
        self.log = log
        self.queue = queue
        # In place of both: what became of jobs.
        self.history: History | None = None
        # Its `from_seq` is where the reader is.
        self.query = query
        # Where it was when all that was sent had left.
        self.safe_seq: i64 = query.from_seq
        self.is_safe: bool = True
        # The place that was told last.
        self.told_seq: i64 = -1
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
        """Return the newest seq of a topic that is gone, as far as the reader came."""
        return max(self.head_seq(), self.query.from_seq)

    def earliest_seq(self) -> i64:
        """Return the first seq there is in the topic."""
        if self.log is not None:
            return self.log.earliest_seq
        if self.history is not None:
            return max(self.history.floor, 1)
        assert self.queue is not None
        return earliest_seq(self.queue)

    def rewind(self, seq: i64) -> None:
        """Go back to a seq, never ahead."""
        if seq < self.query.from_seq:
            self.query.from_seq = seq
            self.safe_seq = seq
            self.is_caught_up = False


@trait
class Outlet:
    """Where what is found goes."""

    def stir(self) -> None:
        """Have the feed sent before this turn ends."""

    def has_room(self) -> bool:
        """Tell whether something may be sent."""
        raise NotImplementedError

    def unsent_size(self) -> i64:
        """Return how much was sent that has not left yet."""
        raise NotImplementedError

    def send_page(self, cursor: Cursor, page: LogPage, from_seq: i64) -> None:
        """Send records."""

    def send_caught_up(self, cursor: Cursor, head_seq: i64) -> None:
        """Send that there is no more for now."""

    def send_gap(self, cursor: Cursor, page: LogPage, gap: Gap) -> None:
        """Send that something was missed."""

    def send_deleted(self, cursor: Cursor) -> None:
        """Send that the topic is gone; nothing more comes of it."""

    def send_damaged(self, cursor: Cursor, damage: TextDamaged) -> None:
        """Send that what comes next is damaged; nothing more comes of the topic."""


@final
class _Nowhere(Outlet):
    """Nothing is sent any more."""

    def has_room(self) -> bool:
        """There is none."""
        return False

    def unsent_size(self) -> i64:
        """Return that nothing was sent."""
        return 0


_NOWHERE: Final = _Nowhere()


@final
class Feed(LogReader, QueueReader, Onlooker):
    """The cursors of one connection."""

    def __init__(self, door: TopicsDoor, outlet: Outlet) -> None:
        self._door = door
        self._outlet = outlet
        self.cursors: dict[str, Cursor] = {}
        # Where there may be news, in the order in which it came.
        self._due: list[Cursor] = []
        # Moved since all that was sent had left.
        self._unsafe: list[Cursor] = []
        self._is_stirred: bool = False

    def add(self, cursor: Cursor) -> None:
        """Follow a topic from where the cursor is."""
        self.remove(cursor.name)
        self.cursors[cursor.name] = cursor
        if cursor.log is not None:
            logs.hold_reader(cursor.log, self)
        if cursor.queue is not None:
            self._door.news.hold(cursor.queue, self)
        if cursor.history is not None:
            self._door.yard.onlookers.hold(self, cursor.history.next_durable)
        self._look(cursor)

    def remove(self, name: str) -> bool:
        """Follow a topic no more; tell whether it was followed."""
        cursor = self.cursors.pop(name, None)
        if cursor is None:
            return False
        self._let_go(cursor)
        if cursor.is_due:
            cursor.is_due = False
            self._due.remove(cursor)
        if not cursor.is_safe:
            cursor.is_safe = True
            self._unsafe.remove(cursor)
        return True

    def _let_go(self, cursor: Cursor) -> None:
        if cursor.log is not None:
            logs.drop_reader(cursor.log, self)
        if cursor.queue is not None:
            self._door.news.drop(cursor.queue, self)
        if cursor.history is not None:
            self._door.yard.onlookers.drop(self)

    def leave(self) -> None:
        """Follow nothing any more; cursors go back to what has left for certain."""
        is_lost = self._outlet.unsent_size() > 0
        for cursor in self.cursors.values():
            self._let_go(cursor)
            cursor.is_due = False
            if not cursor.is_safe:
                cursor.is_safe = True
                if is_lost:
                    cursor.rewind(cursor.safe_seq)
            cursor.safe_seq = cursor.query.from_seq
        self.cursors = {}
        self._due = []
        self._unsafe = []
        # It knows this feed, and must not be kept by it.
        self._outlet = _NOWHERE

    # -- what topics tell ----------------------------------------------------------------------

    def appended(self, log: LogTopic) -> None:
        """Look at a log before this turn ends: more may come to it until then."""
        cursor = self.cursors.get(log.name)
        if cursor is not None:
            self._look(cursor)

    def queue_changed(self, queue: Queue) -> None:
        """Look at a queue before this turn ends."""
        cursor = self.cursors.get(queue.name)
        if cursor is not None:
            self._look(cursor)

    def events_came(self) -> None:
        """Look at history before the next turn ends."""
        cursor = self.cursors.get(EVENTS)
        if cursor is not None:
            self._look(cursor)

    def look_at_queues(self) -> None:
        """Look at all queues: not all that becomes of them is told."""
        for cursor in self.cursors.values():
            if cursor.queue is not None:
                self._look(cursor)

    def _look(self, cursor: Cursor) -> None:
        if not cursor.is_due:
            cursor.is_due = True
            self._due.append(cursor)
        if not self._is_stirred:
            self._is_stirred = True
            self._outlet.stir()

    # -- what is sent --------------------------------------------------------------------------

    def pump(self, now_ms: i64) -> None:
        """Send what has come, as much as there is room for."""
        self._is_stirred = True
        if self._unsafe and self._outlet.unsent_size() == 0:
            for cursor in self._unsafe:
                cursor.safe_seq = cursor.query.from_seq
                cursor.is_safe = True
            self._unsafe = []
        while self._due and self._outlet.has_room():
            cursor = self._due.pop(0)
            cursor.is_due = False
            if self._is_gone(cursor):
                self.remove(cursor.name)
                self._outlet.send_deleted(cursor)
            else:
                self._send_page(cursor, now_ms)
        self._is_stirred = False

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
            # Whoever comes back for it is told again, and may go past it.
            self.remove(cursor.name)
            self._outlet.send_damaged(cursor, damage)
            return
        if page.tombstone is not None or page.count > 0:
            cursor.is_caught_up = False
        if page.tombstone is not None:
            from_seq = self._send_gap(cursor, page, page.tombstone)
        cursor.is_first = False
        if page.next_from_seq != from_seq:
            self._move(cursor, page.next_from_seq)
        if page.count > 0:
            self._outlet.send_page(cursor, page, from_seq)
        if page.next_from_seq < page.head_seq:
            if page.count > 0 or cursor.history is None:
                self._look(cursor)
            else:
                # There may be much without a row; others come first.
                self._door.yard.onlookers.tell_again()
        elif not cursor.is_caught_up:
            cursor.is_caught_up = True
            self._outlet.send_caught_up(cursor, page.head_seq)

    def _send_gap(self, cursor: Cursor, page: LogPage, stone: Tombstone) -> i64:
        """Tell what was lost; return where the cursor stands then."""
        is_old = cursor.is_first and stone.reason != RECREATED
        gap = Gap(stone.gap_from, stone.gap_to, TOO_OLD if is_old else stone.reason)
        if cursor.queue is None or gap.reason == RECREATED:
            # Of a queue, jobs that ran when others were lost are still shown.
            self._move(cursor, gap.last_seq)
        self._outlet.send_gap(cursor, page, gap)
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
