"""Sets, shows, lists and removes the cursors of readers.

A cursor names the last seq that a reader is done with; the reader itself continues from any seq it
wants. So that the server can tell how far the reader is behind, and keep what it has not read yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.logs.columns import count_between
from jobyard.engine.logs.cursors import cursor_head, drop_cursor, set_cursor
from jobyard.engine.state.history import read_history, rows_after
from jobyard.errors import Refused
from jobyard.model.job import DONE
from jobyard.model.topic.config import FSYNC
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.topics.answers import finish, put_bool
from jobyard.protocols.topics.api import check_scope
from jobyard.protocols.topics.api_keys import Scope
from jobyard.protocols.topics.body import is_strict, read_body
from jobyard.protocols.topics.cursor_fields import cursor_refusal, read_cursor
from jobyard.protocols.topics.find import no_topic
from jobyard.protocols.topics.limits import check_cursors
from jobyard.protocols.topics.names import EVENTS_TOPIC, check_read_name
from jobyard.wire.json.write import encode

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.cursor import TopicCursor
    from jobyard.protocols.topics.door import TopicsDoor

# Jobs that are done are passed over; behind more of them the first one is not looked for.
_JOBS_LOOKED_AT: Final = 4096
# Journal bytes read to find the time of the first row after a cursor of `_events`.
_READ_FOR_TIME: Final = 64 << 10
_FIELDS: Final = frozenset(("seq", "incarnation", "hold", "force", "strict"))


def put_cursor(door: TopicsDoor, call: HttpCall) -> None:
    """PUT /v0/topics/{topic}/cursors/{cursor}."""
    topic, name = call.params
    yard = door.yard
    _head_seq(yard, topic)
    fields = read_body(call, may_be_empty=False)
    is_strict(fields, _FIELDS)
    wanted = read_cursor(yard, call, topic, name, fields)
    new = wanted.cursor
    if yard.cursors.get(topic, name) is None:
        check_cursors(door, topic)
    try:
        is_new = set_cursor(yard, wanted, call.now_ms)
    except Refused as refused:
        raise cursor_refusal(refused) or refused from None
    out = BytesWriter()
    out.write(encode(cursor_state(door, new))[:-1])
    put_bool(out, b',"created":', value=is_new)
    log = yard.logs.get(topic)
    is_synced = log is not None and log.config.durability == FSYNC
    call.await_batch(yard.journal.newest(), is_synced=is_synced)
    finish(call, out, 201 if is_new else 200, is_synced=is_synced)


def get_cursor(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/cursors/{cursor}."""
    topic, name = call.params
    _head_seq(door.yard, topic)
    cursor = door.yard.cursors.get(topic, name)
    if cursor is None:
        raise HttpRefused(404, "cursor_not_found", f"{topic} has no cursor {name}")
    out = BytesWriter()
    out.write(encode(cursor_state(door, cursor))[:-1])
    finish(call, out)


def list_cursors(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/cursors."""
    topic = call.params[0]
    _head_seq(door.yard, topic)
    out = BytesWriter()
    out.write(b'{"cursors":')
    out.write(encode(cursor_states(door, topic)))
    finish(call, out)


def delete_cursor(door: TopicsDoor, call: HttpCall) -> None:
    """DELETE /v0/topics/{topic}/cursors/{cursor}; deleting a missing cursor is not an error.

    The topic need not exist: a queue without configuration is gone when it is empty.
    """
    topic, name = call.params
    check_read_name(topic)
    cursor = door.yard.cursors.get(topic, name)
    if cursor is not None:
        if cursor.holds:
            # What it holds may go at once.
            check_scope(call, Scope.ADMIN)
        drop_cursor(door.yard, cursor)
    out = BytesWriter()
    out.write(encode({"cursor": name, "topic": topic})[:-1])
    put_bool(out, b',"deleted":', value=cursor is not None)
    finish(call, out)


def cursor_states(door: TopicsDoor, topic: str) -> list[dict[str, object]]:
    """Return all cursors of a topic as clients see them."""
    return [cursor_state(door, cursor) for cursor in door.yard.cursors.of(topic)]


def cursor_state(door: TopicsDoor, cursor: TopicCursor) -> dict[str, object]:
    """Return a cursor as clients see it."""
    yard = door.yard
    return {
        "cursor": cursor.name,
        "topic": cursor.topic,
        "seq": int(cursor.seq),
        "incarnation": cursor.incarnation,
        "hold": cursor.holds,
        "is_broken": cursor.is_broken,
        "lag": int(_lag(yard, cursor)),
        "lag_ms": int(_lag_ms(door, cursor)),
        "updated_ms": int(cursor.updated_ms),
    }


def _lag(yard: Yard, cursor: TopicCursor) -> i64:
    """Return how many records, jobs or rows a reader has not read yet."""
    if cursor.topic == EVENTS_TOPIC:
        return rows_after(yard, cursor)
    head = _head_seq(yard, cursor.topic)
    log = yard.logs.get(cursor.topic)
    if log is None:
        return max(head - cursor.seq, 0)
    first = log.earliest_seq
    if cursor.seq - first < head - cursor.seq:
        # Whole parts of a log are counted at once, and from here there are fewer of them.
        return log.count - count_between(log, first - 1, cursor.seq)
    return count_between(log, cursor.seq, head)


def _lag_ms(door: TopicsDoor, cursor: TopicCursor) -> i64:
    """Return the age of the first record, or job, after a cursor; 0 if there is none."""
    yard = door.yard
    queue = yard.queues.get(cursor.topic)
    if queue is not None and cursor.topic not in yard.logs:
        for job in jobs_by_seq_of(queue).walk(cursor.seq, _JOBS_LOOKED_AT):
            if job.state != DONE:
                return max(yard.now_ms - job.created_ms, 0)
        return 0
    ts: i64 = 0
    if cursor.topic == EVENTS_TOPIC:
        page = read_history(yard, cursor.seq, 1, _READ_FOR_TIME)
        if page.rows:
            ts = page.rows[0].ts_ms
    else:
        log = yard.logs.get(cursor.topic)
        if log is None:
            return 0
        ts = log.ts_after(cursor.seq)
    return max(yard.now_ms + yard.journal.wall_offset_ms - ts, 0) if ts > 0 else 0


def _head_seq(yard: Yard, topic: str) -> i64:
    """Return the newest seq of a topic; refuse a topic that does not exist."""
    check_read_name(topic)
    head_seq = cursor_head(yard, topic)
    if head_seq < 0:
        raise no_topic(topic)
    return head_seq
