"""Reads that have reached the head of a topic and wait for new records."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.logs import logs
from jobyard.engine.state.history_watch import HistoryWatcher
from jobyard.engine.state.timers import Alarm
from jobyard.errors import TextDamaged
from jobyard.model.queue import is_topic
from jobyard.model.topic.log import LogPage, LogQuery, LogReader, LogTopic
from jobyard.protocols.http.call import HttpCall, PendingCall, corrupt
from jobyard.protocols.topics.find import no_topic
from jobyard.protocols.topics.names import EVENTS_TOPIC
from jobyard.protocols.topics.records.events import page_of_events
from jobyard.protocols.topics.records.jobs import page_of_jobs
from jobyard.protocols.topics.records.news import QueueReader
from jobyard.protocols.topics.records.pages import answer_page

if TYPE_CHECKING:
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor


@final
class LogWait(Alarm, PendingCall, LogReader):
    """A read of a log that waits for new records."""

    def __init__(
        self, door: TopicsDoor, call: HttpCall, log: LogTopic, query: LogQuery, until_ms: i64
    ) -> None:
        super().__init__(door.yard.new_number(), until_ms, 0)
        self._door = door
        self._call = call
        self._log = log
        self._query = query
        logs.hold_reader(log, self)
        door.yard.arm(self, until_ms)
        call.wait(self)

    def appended(self, log: LogTopic) -> None:
        """Answer if there is a new record that the reader does not skip."""
        yard = self._door.yard
        if yard.logs.get(log.name) is not log:
            self._leave()
            self._call.answer_refusal(no_topic(log.name))
            return
        page = self._read(yard.now_ms)
        if page is None:
            return
        if page.count == 0 and page.tombstone is None:
            self._query.from_seq = page.next_from_seq
            return
        self._leave()
        answer_page(self._call, log.name, page)

    def _read(self, now_ms: i64) -> LogPage | None:
        """Return a page; None if it is damaged, which is answered here."""
        try:
            return logs.read(self._door.yard, self._log, self._query, now_ms)
        except TextDamaged as damage:
            self._leave()
            self._call.answer_refusal(corrupt(damage))
            return None

    def ring(self, now_ms: i64) -> None:
        """Answer: the wait has timed out."""
        self.stop_waiting(now_ms)

    def stop_waiting(self, now_ms: i64) -> None:
        """Answer with the current page, even if it is empty."""
        page = self._read(now_ms)
        if page is not None:
            self._leave()
            answer_page(self._call, self._log.name, page)

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Stop waiting."""
        self._leave()

    def drained(self, now_ms: i64) -> None:
        """Ignore it: nothing is sent before the answer."""

    def _leave(self) -> None:
        self._door.yard.disarm(self)
        logs.drop_reader(self._log, self)


@final
class QueueWait(Alarm, PendingCall, QueueReader):
    """A read of a queue that waits for the next job.

    It keeps the queue in existence meanwhile.
    """

    def __init__(
        self, door: TopicsDoor, call: HttpCall, queue: Queue, query: LogQuery, until_ms: i64
    ) -> None:
        super().__init__(door.yard.new_number(), until_ms, 0)
        self._door = door
        self._call = call
        self._queue = queue
        self._query = query
        hold_watch(queue)
        door.queue_readers.hold(queue, self)
        door.yard.arm(self, until_ms)
        call.wait(self)

    def queue_changed(self, queue: Queue) -> None:  # noqa: ARG002  there is only one
        """Check before the turn ends: the event comes while the verb that puts the job runs."""
        self._call.wake()

    def drained(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer if there is a new job that the reader does not skip."""
        queue = self._queue
        if not is_topic(queue):
            self._call.answer_refusal(no_topic(queue.name))
            self._leave()
            return
        if self._query.from_seq == queue.next_seq - 1:
            return
        page = self._read()
        if page is None:
            return
        if page.count == 0 and page.tombstone is None:
            self._query.from_seq = page.next_from_seq
            return
        answer_page(self._call, queue.name, page)
        self._leave()

    def _read(self) -> LogPage | None:
        """Return a page; None if it is damaged, which is answered here."""
        try:
            return page_of_jobs(self._door, self._queue, self._query)
        except TextDamaged as damage:
            self._call.answer_refusal(corrupt(damage))
            self._leave()
            return None

    def ring(self, now_ms: i64) -> None:
        """Answer: the wait has timed out."""
        self.stop_waiting(now_ms)

    def stop_waiting(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer with the current page, even if it is empty."""
        page = self._read()
        if page is not None:
            answer_page(self._call, self._queue.name, page)
            self._leave()

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Stop waiting."""
        self._leave()

    def _leave(self) -> None:
        self._door.yard.disarm(self)
        self._door.queue_readers.drop(self._queue, self)
        drop_watch(self._door.yard, self._queue)


@final
class EventsWait(Alarm, PendingCall, HistoryWatcher):
    """A read of `_events` that waits for new rows."""

    def __init__(self, door: TopicsDoor, call: HttpCall, query: LogQuery, until_ms: i64) -> None:
        super().__init__(door.yard.new_number(), until_ms, 0)
        self._yard = door.yard
        self._call = call
        self._query = query
        self._yard.watchers.hold(self, self._yard.journal.history.next_durable)
        self._yard.arm(self, until_ms)
        call.wait(self)

    def events_came(self) -> None:
        """Answer if there is a new row."""
        page = page_of_events(self._yard, self._query)
        if page.count == 0 and page.tombstone is None:
            self._query.from_seq = page.next_from_seq
            if page.next_from_seq < page.head_seq:
                self._yard.watchers.notify_next_turn()
            return
        self._leave()
        answer_page(self._call, EVENTS_TOPIC, page)

    def ring(self, now_ms: i64) -> None:
        """Answer: the wait has timed out."""
        self.stop_waiting(now_ms)

    def stop_waiting(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer with the current page, even if it is empty."""
        self._leave()
        answer_page(self._call, EVENTS_TOPIC, page_of_events(self._yard, self._query))

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Stop waiting."""
        self._leave()

    def drained(self, now_ms: i64) -> None:
        """Ignore it: nothing is sent before the answer."""

    def _leave(self) -> None:
        self._yard.disarm(self)
        self._yard.watchers.drop(self)
