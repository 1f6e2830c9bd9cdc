"""Readers who have seen all there is of a topic, and wait for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.logs import logs
from jobyard.engine.state.history_watch import Onlooker
from jobyard.engine.state.timers import Alarm
from jobyard.errors import TextDamaged
from jobyard.model.topic.log import LogPage, LogQuery, LogReader, LogTopic
from jobyard.protocols.http.call import Call, Pending, corrupt
from jobyard.protocols.topics.find import is_topic, no_topic
from jobyard.protocols.topics.names import EVENTS
from jobyard.protocols.topics.records.events import page_of_events
from jobyard.protocols.topics.records.jobs import page_of_jobs
from jobyard.protocols.topics.records.news import QueueReader
from jobyard.protocols.topics.records.pages import answer_page

if TYPE_CHECKING:
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor


@final
class LogWait(Alarm, Pending, LogReader):
    """A reader who has read all there is, and waits for more."""

    def __init__(
        self, door: TopicsDoor, call: Call, log: LogTopic, query: LogQuery, until_ms: i64
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
        """Look whether what came is for this reader; own records are not."""
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
        """Return what there is now; None if that is damaged, which was answered then."""
        try:
            return logs.read(self._door.yard, self._log, self._query, now_ms)
        except TextDamaged as damage:
            self._leave()
            self._call.answer_refusal(corrupt(damage))
            return None

    def ring(self, now_ms: i64) -> None:
        """Answer that nothing came."""
        self.hurry(now_ms)

    def hurry(self, now_ms: i64) -> None:
        """Answer with what there is."""
        page = self._read(now_ms)
        if page is not None:
            self._leave()
            answer_page(self._call, self._log.name, page)

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Wait no more."""
        self._leave()

    def drained(self, now_ms: i64) -> None:
        """Nothing was sent yet."""

    def _leave(self) -> None:
        self._door.yard.disarm(self)
        logs.drop_reader(self._log, self)


@final
class JobWait(Alarm, Pending, QueueReader):
    """A reader who has seen all jobs of a queue, and waits for the next.

    The queue stays as long, though nobody else may refer to it.
    """

    def __init__(
        self, door: TopicsDoor, call: Call, queue: Queue, query: LogQuery, until_ms: i64
    ) -> None:
        super().__init__(door.yard.new_number(), until_ms, 0)
        self._door = door
        self._call = call
        self._queue = queue
        self._query = query
        hold_watch(queue)
        door.news.hold(queue, self)
        door.yard.arm(self, until_ms)
        call.wait(self)

    def queue_changed(self, queue: Queue) -> None:  # noqa: ARG002  there is only one
        """Look before this turn ends: a job is told of in the midst of the verb that puts it."""
        self._call.stir()

    def drained(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Look whether what came is for this reader; own jobs are not."""
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
        """Return what there is now; None if that is damaged, which was answered then."""
        try:
            return page_of_jobs(self._door, self._queue, self._query)
        except TextDamaged as damage:
            self._call.answer_refusal(corrupt(damage))
            self._leave()
            return None

    def ring(self, now_ms: i64) -> None:
        """Answer that nothing came."""
        self.hurry(now_ms)

    def hurry(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer with what there is."""
        page = self._read()
        if page is not None:
            answer_page(self._call, self._queue.name, page)
            self._leave()

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Wait no more."""
        self._leave()

    def _leave(self) -> None:
        self._door.yard.disarm(self)
        self._door.news.drop(self._queue, self)
        drop_watch(self._door.yard, self._queue)


@final
class EventsWait(Alarm, Pending, Onlooker):
    """A reader who has read all of history there is, and waits for more."""

    def __init__(self, door: TopicsDoor, call: Call, query: LogQuery, until_ms: i64) -> None:
        super().__init__(door.yard.new_number(), until_ms, 0)
        self._yard = door.yard
        self._call = call
        self._query = query
        self._yard.onlookers.hold(self, self._yard.journal.history.next_durable)
        self._yard.arm(self, until_ms)
        call.wait(self)

    def events_came(self) -> None:
        """Look whether there is a row among what came."""
        page = page_of_events(self._yard, self._query)
        if page.count == 0 and page.tombstone is None:
            self._query.from_seq = page.next_from_seq
            if page.next_from_seq < page.head_seq:
                self._yard.onlookers.tell_again()
            return
        self._leave()
        answer_page(self._call, EVENTS, page)

    def ring(self, now_ms: i64) -> None:
        """Answer that nothing came."""
        self.hurry(now_ms)

    def hurry(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer with what there is."""
        self._leave()
        answer_page(self._call, EVENTS, page_of_events(self._yard, self._query))

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Wait no more."""
        self._leave()

    def drained(self, now_ms: i64) -> None:
        """Nothing was sent yet."""

    def _leave(self) -> None:
        self._yard.disarm(self)
        self._yard.onlookers.drop(self)
