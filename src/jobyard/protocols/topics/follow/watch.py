"""Watches many topics over one event stream, and resumes where the previous stream ended.

A watch is created first and outlives its streams for a while; it stores the position in each topic.
It has one stream at a time: a new one ends the previous one.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.state.timers import Alarm
from jobyard.model.limits import NEVER_MS
from jobyard.model.topic.log import LogPage, LogQuery
from jobyard.protocols.http.call import EVENT_STREAM, HttpCall, HttpRefused, PendingCall
from jobyard.protocols.topics.answers import finish, put_int
from jobyard.protocols.topics.api import check_name
from jobyard.protocols.topics.body import check_twins, flag, invalid, read_body, text, whole
from jobyard.protocols.topics.find import find_queue, no_topic
from jobyard.protocols.topics.limits import check_watches, hold_stream
from jobyard.protocols.topics.names import EVENTS_TOPIC, check_read_name
from jobyard.protocols.topics.queue.work import STREAM_HEADERS, WORK_RETRY_MS, check_accept
from jobyard.protocols.topics.records.events import is_events
from jobyard.protocols.topics.records.feed import Cursor, Feed, FeedWriter, Gap
from jobyard.protocols.topics.records.reads import (
    BYTES_DEFAULT,
    LIMIT_DEFAULT,
    PAGE_RECORDS_MAX,
    read_nodes,
)
from jobyard.wire.http.sse import comment, event, retry
from jobyard.wire.http.target import parse_query
from jobyard.wire.json.read import JsonFields, read_object
from jobyard.wire.json.write import quoted, write_int, write_text
from jobyard.wire.msgpack.forms import KIND_MAP, KIND_NIL

if TYPE_CHECKING:
    from jobyard.errors import TextDamaged
    from jobyard.protocols.topics.door import TopicsDoor

TOPICS_MAX: Final = 256
WATCH_IDLE_MS: Final = 300_000
WID_BYTES: Final = 16
BATCH_BYTES_DEFAULT: Final = 256 << 10
# Largest event id before base64, which makes it a third longer; all headers of a request may have
# 16 KiB. And the most that a seq takes in it, with colon and comma.
ID_SIZE_MAX: Final = 6000
SEQ_SIZE: Final = 21
HEARTBEAT_MS_DEFAULT: Final = 15_000
HEARTBEAT_MS_MIN: Final = 1000
HEARTBEAT_MS_MAX: Final = 60_000


@final
class WatchOptions:
    """The options of a reader: page limits, skipped nodes and included fields."""

    def __init__(self, fields: JsonFields, limit: i64, max_bytes: i64) -> None:
        asked_limit = whole(fields, b"limit", limit)
        asked_bytes = whole(fields, b"max_batch_bytes", max_bytes)
        self._limit: i64 = min(asked_limit, PAGE_RECORDS_MAX) if asked_limit > 0 else limit
        self._bytes: i64 = min(asked_bytes, BYTES_DEFAULT) if asked_bytes > 0 else max_bytes
        self._nodes = read_nodes(fields)
        self._tags = flag(fields, b"include_tags", otherwise=False)
        self._meta = flag(fields, b"include_meta", otherwise=True)
        self._data = flag(fields, b"include_data", otherwise=True)

    def query(self, from_seq: i64) -> LogQuery:
        """Return the query that reads a topic from a seq."""
        return LogQuery(
            from_seq,
            self._limit,
            self._bytes,
            self._nodes,
            include_tags=self._tags,
            include_meta=self._meta,
            include_data=self._data,
        )


def read_cursors(
    door: TopicsDoor, call: HttpCall, fields: JsonFields, terms: WatchOptions, *, is_lenient: bool
) -> dict[str, Cursor]:
    """Return cursors for the requested topics, by name; `is_lenient` leaves out missing ones."""
    raw = fields.raw(b"topics") if fields.kind(b"topics") == KIND_MAP else None
    inside = read_object(raw, 0, len(raw)) if raw is not None else None
    if inside is None:
        raise invalid("topics must be an object")
    names = check_twins(inside).keys()
    if not 1 <= len(names) <= TOPICS_MAX:
        raise invalid(f"topics must name 1 to {TOPICS_MAX} topics")
    cursors: dict[str, Cursor] = {}
    for name in names:
        check_read_name(name)
        check_name(call, name)
        cursor = open_cursor(door, name, _where(inside, name), terms)
        if cursor is not None:
            cursors[name] = cursor
        elif not is_lenient:
            raise no_topic(name)
    return cursors


def _where(topics: JsonFields, name: str) -> JsonFields:
    kind = topics.kind(name.encode())
    raw = b"{}" if kind == KIND_NIL else topics.raw(name.encode())
    where = read_object(raw, 0, len(raw)) if raw is not None else None
    if where is None:
        raise invalid("each value of topics must be an object")
    return check_twins(where)


def open_cursor(
    door: TopicsDoor, name: str, where: JsonFields, terms: WatchOptions
) -> Cursor | None:
    """Return a cursor into a topic; None if the topic does not exist."""
    yard = door.yard
    # Checked first: invalid values are refused even if the topic does not exist.
    from_seq = whole(where, b"from_seq", 0)
    is_tail = flag(where, b"tail", otherwise=False)
    log = yard.logs.get(name)
    queue = find_queue(yard, name) if log is None and name != EVENTS_TOPIC else None
    if log is None and queue is None and not is_events(yard, name):
        return None
    cursor = Cursor(name, log, queue, terms.query(from_seq))
    if name == EVENTS_TOPIC:
        cursor.history = yard.journal.history
    if is_tail:
        cursor.query.from_seq = cursor.head_seq()
    cursor.safe_seq = cursor.query.from_seq
    return cursor


def create(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/watch."""
    fields = read_body(call, may_be_empty=False)
    if text(fields, b"consistency", 16) not in ("", "eventual", "strong"):
        raise invalid("consistency must be eventual or strong")
    heartbeat_ms = whole(fields, b"heartbeat_ms", HEARTBEAT_MS_DEFAULT)
    heartbeat_ms = max(HEARTBEAT_MS_MIN, min(heartbeat_ms, HEARTBEAT_MS_MAX))
    terms = WatchOptions(fields, LIMIT_DEFAULT, BATCH_BYTES_DEFAULT)
    is_lenient = parse_query(call.request.query).get("lenient") == "true"
    cursors = read_cursors(door, call, fields, terms, is_lenient=is_lenient)
    check_watches(door)
    drawn = urlsafe_b64encode(door.random_source.draw(WID_BYTES)).rstrip(b"=")
    wid = "wid_" + drawn.decode()
    door.watches[wid] = Watch(door, wid, call.identity, cursors, heartbeat_ms, call.now_ms)
    out = BytesWriter()
    out.write(b'{"wid":')
    write_text(out, wid)
    out.write(b',"stream_url":')
    write_text(out, f"/v0/watch/{wid}")
    put_int(out, b',"session_ttl_ms":', WATCH_IDLE_MS)
    out.write(b',"topics":{')
    write_starts(out, cursors)
    out.write(b"}")
    finish(call, out)


def write_starts(out: BytesWriter, cursors: dict[str, Cursor]) -> None:
    """Write the start position, head and earliest seq of each topic."""
    is_first = True
    for cursor in cursors.values():
        if not is_first:
            out.write(b",")
        is_first = False
        out.write(cursor.quoted)
        put_int(out, b':{"from_seq":', cursor.query.from_seq)
        put_int(out, b',"head_seq":', cursor.head_seq())
        put_int(out, b',"earliest_seq":', cursor.earliest_seq())
        out.write(b"}")


def stream(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/watch/{wid}."""
    found = door.watches.get(call.params[0])
    watch = found if isinstance(found, Watch) else None
    if watch is None:
        raise HttpRefused(404, "not_found", "this watch does not exist or has expired")
    if watch.identity is not call.identity:
        raise HttpRefused(401, "unauthorized", "this watch was created with another key")
    check_accept(call)
    if call.is_head():
        # HEAD must not end the stream of another client.
        call.answer_stream_head(EVENT_STREAM, STREAM_HEADERS)
        return
    if not watch.is_shown():
        hold_stream(door, call)
    watch.open_stream(call)


@final
class Watch(Alarm):
    """The positions of a reader in some topics. Removed when it has had no stream for a while."""

    def __init__(
        self,
        door: TopicsDoor,
        wid: str,
        identity: object,
        cursors: dict[str, Cursor],
        heartbeat_ms: i64,
        now_ms: i64,
    ) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._door = door
        self._wid = wid
        # The key that created it; other keys may not read it.
        self.identity = identity
        self.cursors = cursors
        self.heartbeat_ms: i64 = heartbeat_ms
        size: i64 = 0
        for cursor in cursors.values():
            size += len(cursor.quoted) + SEQ_SIZE
        # A client that sends back an id longer than a head may be could never reconnect.
        self._has_ids: bool = size <= ID_SIZE_MAX
        self._stream: _Stream | None = None
        door.yard.arm(self, now_ms + WATCH_IDLE_MS)

    def ring(self, now_ms: i64) -> None:  # noqa: ARG002  the base's
        """Remove the watch: no stream was opened in time."""
        del self._door.watches[self._wid]

    def open_stream(self, call: HttpCall) -> None:
        """Send new records on this call; end the previous stream."""
        stream = self._stream
        if stream is not None:
            # The new stream takes over the slot: there may be no free one.
            stream.hand_slot(call)
            stream.end(b"stream_replaced", b"another stream replaced this one", call.now_ms)
        self._rewind(call.header("last-event-id"))
        self._door.yard.disarm(self)
        self._stream = _Stream(self._door, self, call)

    def is_shown(self) -> bool:
        """Return whether the watch has a stream now."""
        return self._stream is not None

    def stream_ended(self, now_ms: i64) -> None:
        """Start the idle timeout until the next stream."""
        self._stream = None
        self._door.yard.arm(self, now_ms + WATCH_IDLE_MS)

    def event_id(self) -> bytes:
        """Return the positions in all topics as an event id; empty if it would be too long."""
        if not self._has_ids:
            return b""
        out = BytesWriter()
        out.write(b"{")
        is_first = True
        for cursor in self.cursors.values():
            if not is_first:
                out.write(b",")
            is_first = False
            out.write(cursor.quoted)
            out.write(b":")
            write_int(out, cursor.query.from_seq)
        out.write(b"}")
        return urlsafe_b64encode(out.getvalue()).rstrip(b"=")

    def _rewind(self, last_id: str) -> None:
        """Move cursors back to what the reader received last; ignore an invalid id."""
        if not last_id:
            return
        try:
            seen = json.loads(urlsafe_b64decode(last_id.encode() + b"=" * (-len(last_id) % 4)))
        except (NotBase64, ValueError, RecursionError):
            return
        if not isinstance(seen, dict):
            return
        for cursor in self.cursors.values():
            seq = seen.get(cursor.name)
            if isinstance(seq, int) and 0 <= seq < cursor.query.from_seq:
                cursor.rewind(seq)


@final
class _Stream(Alarm, PendingCall, FeedWriter):
    """One stream of a watch. Its alarm rings to send heartbeats."""

    def __init__(self, door: TopicsDoor, watch: Watch, call: HttpCall) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._door = door
        self._watch = watch
        self._call = call
        self._now_ms: i64 = call.now_ms
        self._sent_ms: i64 = call.now_ms
        # The positions of all cursors after the last move.
        self._event_id: bytes = b""
        self._has_moved: bool = True
        self._feed = Feed(door, self)
        call.begin_stream(self, EVENT_STREAM, STREAM_HEADERS)
        call.send(retry(WORK_RETRY_MS))
        for cursor in watch.cursors.values():
            cursor.is_caught_up = False
            self._feed.add(cursor)
        door.yard.arm(self, call.now_ms + watch.heartbeat_ms)
        self._feed.pump(call.now_ms)

    # -- the connection ------------------------------------------------------------------------

    def drained(self, now_ms: i64) -> None:
        """Send more."""
        self._now_ms = now_ms
        self._feed.pump(now_ms)

    def stop_waiting(self, now_ms: i64) -> None:
        """End the stream: the server stops, or the client has closed its side."""
        self.end(b"server_shutting_down", b"the server is shutting down", now_ms)

    def hand_slot(self, call: HttpCall) -> None:
        """Hand the slot of this stream over to another call."""
        call.slot = self._call.slot
        self._call.slot = None

    def end(self, code: bytes, message: bytes, now_ms: i64) -> None:
        """End the stream with an error event."""
        self._leave(now_ms)
        self._call.send(event(b"", b"error", b'{"code":"%s","error":"%s"}' % (code, message)))
        self._call.end_stream()

    def gone(self, now_ms: i64) -> None:
        """Detach from the watch, which waits for the next stream."""
        self._leave(now_ms)

    def _leave(self, now_ms: i64) -> None:
        self._door.yard.disarm(self)
        self._feed.leave()
        self._watch.stream_ended(now_ms)

    def ring(self, now_ms: i64) -> None:
        """Send a heartbeat, unless something was sent recently or is still unsent."""
        self._feed.look_at_queues()
        due_ms = self._sent_ms + self._watch.heartbeat_ms
        if now_ms >= due_ms:
            if self._call.unsent_size() == 0:
                wall_ms = int(self._door.wall_ms(now_ms))
                self._call.await_batch(0)
                self._call.send(comment(b"hb %d" % wall_ms))
            self._sent_ms = now_ms
            due_ms = now_ms + self._watch.heartbeat_ms
        self._door.yard.arm(self, due_ms)

    # -- the feed ------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make sure that the feed is pumped before this turn ends."""
        self._call.wake()

    def has_room(self) -> bool:
        """Return whether there is room to send."""
        return self._call.has_room()

    def unsent_size(self) -> i64:
        """Return the size of sent data that has not left yet."""
        return self._call.unsent_size()

    def send_page(self, cursor: Cursor, page: LogPage, from_seq: i64) -> None:
        """Send records."""
        out = _begin(cursor)
        out.write(b',"records":[')
        for piece in page.records:
            out.write(piece)
        put_int(out, b'],"from_seq":', from_seq)
        put_int(out, b',"to_seq":', page.next_from_seq)
        put_int(out, b',"head_seq":', page.head_seq)
        self._call.await_batch(page.batch, is_synced=page.is_synced)
        self._send(cursor, b"record", out)

    def send_caught_up(self, cursor: Cursor, head_seq: i64) -> None:
        """Send that the reader has caught up."""
        out = _begin(cursor)
        put_int(out, b',"head_seq":', head_seq)
        self._send(cursor, b"caught-up", out)

    def send_gap(self, cursor: Cursor, page: LogPage, gap: Gap) -> None:
        """Send that records were removed before the reader reached them."""
        out = _begin(cursor)
        write_gap(out, page, gap)
        self._call.await_batch(page.batch, is_synced=page.is_synced)
        self._send(cursor, b"tombstone", out)

    def send_deleted(self, cursor: Cursor) -> None:
        """Send that a topic was removed; the others continue."""
        self._watch.cursors.pop(cursor.name, None)
        self._has_moved = True
        out = _begin(cursor)
        put_int(out, b',"head_seq":', cursor.last_seq())
        out.write(b',"reason":"deleted"')
        self._send(cursor, b"topic-deleted", out)

    def send_damaged(self, cursor: Cursor, damage: TextDamaged) -> None:
        """Send that the next records of a topic are damaged; the others continue."""
        out = _begin(cursor)
        write_damage(out, damage, b"error")
        self._send(cursor, b"error", out)

    def _send(self, cursor: Cursor, name: bytes, out: BytesWriter) -> None:
        out.write(b"}")
        if self._has_moved or cursor.event_id_seq != cursor.query.from_seq:
            cursor.event_id_seq = cursor.query.from_seq
            self._event_id = self._watch.event_id()
            self._has_moved = False
        self._call.send(event(self._event_id, name, out.getvalue()))
        self._sent_ms = self._now_ms


def _begin(cursor: Cursor) -> BytesWriter:
    out = BytesWriter()
    out.write(b'{"topic":')
    out.write(cursor.quoted)
    return out


def write_damage(out: BytesWriter, damage: TextDamaged, story: bytes) -> None:
    """Write which records are damaged; `story` is the name of the message field."""
    out.write(b',"code":"corrupt","%s":' % story)
    out.write(quoted(str(damage)))
    put_int(out, b',"first_seq":', damage.first_seq)
    put_int(out, b',"last_seq":', damage.last_seq)


def write_gap(out: BytesWriter, page: LogPage, gap: Gap) -> None:
    """Write a gap, and the earliest and newest seq of the topic."""
    out.write(b',"reason":')
    out.write(quoted(gap.reason))
    put_int(out, b',"gap_from":', gap.first_seq)
    put_int(out, b',"gap_to":', gap.last_seq)
    put_int(out, b',"earliest_seq":', page.earliest_seq)
    put_int(out, b',"head_seq":', page.head_seq)
