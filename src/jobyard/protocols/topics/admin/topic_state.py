"""Shows the state of a topic, at once or when there is a row that the caller does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.logs import logs
from jobyard.engine.state.history import queue_incarnation
from jobyard.engine.state.history_watch import HistoryWatcher
from jobyard.engine.state.timers import Alarm
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.topic.config import FSYNC, QUEUE
from jobyard.model.topic.log import LogReader, LogTopic, incarnation_of
from jobyard.protocols.http.call import HttpCall, HttpRefused, PendingCall
from jobyard.protocols.topics.admin.cursors import cursor_states
from jobyard.protocols.topics.answers import begin, finish
from jobyard.protocols.topics.body import query_whole
from jobyard.protocols.topics.find import find_queue, no_topic
from jobyard.protocols.topics.limits import hold_wait
from jobyard.protocols.topics.names import EVENTS_TOPIC, check_read_name
from jobyard.protocols.topics.records.events import events_state, is_events
from jobyard.protocols.topics.records.jobs import earliest_seq, written_ms
from jobyard.protocols.topics.records.news import QueueReader
from jobyard.protocols.topics.records.reads import WAIT_MS_MAX
from jobyard.wire.http.request import parse_query

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor


def get_topic(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}."""
    name = call.params[0]
    check_read_name(name)
    asked = parse_query(call.request.query)
    after_seq = query_whole(asked, "after_seq", -1)
    wait_ms = min(query_whole(asked, "wait_ms", 0), WAIT_MS_MAX)
    if wait_ms > 0 and after_seq >= 0 and head_row_seq(door.yard, name) <= after_seq:
        hold_wait(door, call)
        StateWait(door, call, after_seq, call.now_ms + wait_ms)
        return
    _answer(door, call, call.now_ms)


def head_row_seq(yard: Yard, name: str) -> i64:
    """Return the last seq of a topic that is a record, a job or a row; refuse if there is none."""
    if is_events(yard, name):
        return yard.journal.history.last_row
    log = yard.logs.get(name)
    if log is not None:
        return log.next_seq - 1
    queue = find_queue(yard, name) if name != EVENTS_TOPIC else None
    if queue is None:
        raise no_topic(name)
    return queue.next_seq - 1


def _answer(door: TopicsDoor, call: HttpCall, now_ms: i64) -> None:
    name = call.params[0]
    yard = door.yard
    log = yard.logs.get(name)
    queue = find_queue(yard, name) if name != EVENTS_TOPIC else None
    is_synced = False
    if is_events(yard, name):
        # Only durable rows are visible, so there is no sync to wait for.
        state = events_state(yard)
    elif log is not None:
        state = log_state(door, log, now_ms)
        is_synced = log.config.durability == FSYNC
    elif queue is not None:
        state = queue_state(door, queue)
        is_synced = queue.is_synced
    else:
        raise no_topic(name)
    cursors = cursor_states(door, name)
    if cursors:
        state["cursors"] = cursors
    out = begin(name)
    out.write(b",")
    out.write(json.dumps(state, separators=(",", ":")).encode()[1:-1])
    call.await_batch(yard.journal.newest(), is_synced=is_synced)
    finish(call, out)


@final
class StateWait(Alarm, PendingCall, LogReader, QueueReader, HistoryWatcher):
    """A call for the state of a topic that waits for a row beyond the last one it knows.

    It also ends when the topic is removed or made again, and holds a queue in existence meanwhile.
    """

    def __init__(self, door: TopicsDoor, call: HttpCall, after_seq: i64, until_ms: i64) -> None:
        super().__init__(door.yard.new_number(), until_ms, 0)
        yard = door.yard
        name = call.params[0]
        self._door = door
        self._call = call
        self._after_seq = after_seq
        self._log: LogTopic | None = yard.logs.get(name)
        self._queue: Queue | None = None
        if is_events(yard, name):
            yard.watchers.hold(self, yard.journal.history.next_durable)
        elif self._log is not None:
            logs.hold_reader(self._log, self)
        else:
            queue = find_queue(yard, name)
            assert queue is not None
            self._queue = queue
            hold_watch(queue)
            door.queue_readers.hold(queue, self)
        yard.arm(self, until_ms)
        call.wait(self)

    def appended(self, log: LogTopic) -> None:  # noqa: ARG002  there is only one
        """Look at the log: it has new records, or is gone."""
        self._look()

    def events_came(self) -> None:
        """Look at the history: it goes further."""
        self._look()

    def queue_changed(self, queue: Queue) -> None:  # noqa: ARG002  there is only one
        """Look before the turn ends: the event comes while the verb that puts the job runs."""
        self._call.wake()

    def drained(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Look at the queue."""
        if self._queue is not None:
            self._look()

    def _look(self) -> None:
        """Answer if the topic has changed."""
        yard = self._door.yard
        name = self._call.params[0]
        if self._queue is not None:
            is_same = find_queue(yard, name) is self._queue
        else:
            is_same = yard.logs.get(name) is self._log
        if not is_same or head_row_seq(yard, name) > self._after_seq:
            self.stop_waiting(yard.now_ms)

    def ring(self, now_ms: i64) -> None:
        """Answer: the wait has timed out."""
        self.stop_waiting(now_ms)

    def stop_waiting(self, now_ms: i64) -> None:
        """Answer with the state as it is."""
        try:
            _answer(self._door, self._call, now_ms)
        except HttpRefused as refused:
            self._call.answer_refusal(refused)
        # Not before: a queue may exist only because of this.
        self._leave()

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Stop waiting."""
        self._leave()

    def _leave(self) -> None:
        yard = self._door.yard
        yard.disarm(self)
        yard.watchers.drop(self)
        if self._log is not None:
            logs.drop_reader(self._log, self)
        if self._queue is not None:
            self._door.queue_readers.drop(self._queue, self)
            drop_watch(yard, self._queue)


def log_state(door: TopicsDoor, log: LogTopic, now_ms: i64) -> dict[str, object]:
    """Return the state of a log as clients see it."""
    logs.trim(door.yard, log, now_ms)
    return {
        "type": log.config.type,
        "head_seq": int(log.next_seq - 1),
        "head_row_seq": int(log.next_seq - 1),
        "earliest_seq": int(log.earliest_seq),
        "next_seq": int(log.next_seq),
        "count": int(log.count),
        "bytes": int(log.bytes),
        "config": log.config.fields(),
        "effective_priority": log.config.priority or 0,
        "last_write_ts": int(log.last_write_ms) or None,
        "last_read_ts": int(door.wall_ms(log.last_read_ms)) if log.last_read_ms else None,
        "incarnation": incarnation_of(log),
    }


def queue_state(door: TopicsDoor, queue: Queue) -> dict[str, object]:
    """Return the state of a queue as clients see it."""
    config = config_of(queue)
    counts = topic_queue.counts(queue)
    written = written_ms(queue)
    read = 0 if queue.topic_state is None else queue.topic_state.last_read_ms
    return {
        "type": QUEUE,
        "head_seq": int(queue.next_seq - 1),
        "head_row_seq": int(queue.next_seq - 1),
        "earliest_seq": int(earliest_seq(queue)),
        "next_seq": int(queue.next_seq),
        "count": int(counts.count),
        "bytes": int(counts.bytes),
        "config": config.fields(),
        "effective_priority": config.priority or 0,
        "last_write_ts": int(door.wall_ms(written)) if written else None,
        "last_read_ts": int(door.wall_ms(read)) if read else None,
        "incarnation": queue_incarnation(door.yard, queue),
        "queue": {
            "ready": int(counts.ready),
            "in_flight": int(counts.in_flight),
            "delayed": int(counts.delayed),
            "dead_lettered": int(counts.dead_lettered),
        },
    }
