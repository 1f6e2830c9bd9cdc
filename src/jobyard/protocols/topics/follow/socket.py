"""A WebSocket of the topics API: subscribe, unsubscribe, publish, ping, all as JSON messages.

One connection follows topics and writes to them. Every command is checked with the key that opened
the socket, and commands are answered in order; records of subscribed topics come in between. A
socket leaves no state behind when it closes. Commands wait while the client does not read answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.state.tasks import Task, TaskOwner
from jobyard.engine.state.timers import Alarm
from jobyard.errors import Refused, StorageFull
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.http.long_calls import in_http
from jobyard.protocols.http.websocket import MessageReceiver, WebSocket, handshake
from jobyard.protocols.topics.answers import put_int
from jobyard.protocols.topics.api import check_name, check_open, check_scope
from jobyard.protocols.topics.api_keys import Scope
from jobyard.protocols.topics.body import array, check_twins, flag, invalid, text
from jobyard.protocols.topics.find import no_topic
from jobyard.protocols.topics.follow.watch import (
    BATCH_BYTES_DEFAULT,
    TOPICS_MAX,
    WatchOptions,
    open_cursor,
    read_cursors,
    write_damage,
    write_gap,
    write_starts,
)
from jobyard.protocols.topics.limits import StreamSlot
from jobyard.protocols.topics.names import check_read_name, check_topic_name
from jobyard.protocols.topics.records.feed import Cursor, Feed, FeedWriter, Gap
from jobyard.protocols.topics.records.reads import PAGE_RECORDS_MAX
from jobyard.protocols.topics.records.writes import (
    BODY_AT_ONCE,
    WriteReading,
    WriteRecords,
    write_given,
    write_records,
)
from jobyard.protocols.topics.records.written import put_written
from jobyard.wire.http.websocket import CLOSE_UNSUPPORTED
from jobyard.wire.json.read import JsonFields, read_object, text_at
from jobyard.wire.json.write import encode, quoted, write_texts
from jobyard.wire.msgpack.forms import KIND_ARRAY, KIND_MAP, KIND_TEXT

if TYPE_CHECKING:
    from jobyard.errors import TextDamaged
    from jobyard.model.topic.log import LogPage
    from jobyard.protocols.topics.door import TopicsDoor

MESSAGE_MAX: Final = 8 << 20
PING_MS: Final = 30_000

_NO_COMMAND: Final = "a command must be a JSON object"
_UPGRADE_HEADERS: Final = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"


def open_socket(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/ws."""
    request = call.request
    if not request.is_upgrade:
        raise HttpRefused(
            426, "invalid_request", "a WebSocket upgrade is required", headers=_UPGRADE_HEADERS
        )
    lines = handshake(call)
    call.take_over(101, lines, FollowSocket(door, call, StreamSlot(door, call)).line)


@final
class FollowSocket(Alarm, MessageReceiver, FeedWriter, TaskOwner):
    """The commands and subscriptions of one socket. Its alarm rings to ping the client."""

    def __init__(self, door: TopicsDoor, call: HttpCall, slot: StreamSlot) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._door = door
        self._slot = slot
        # The call that opened the socket, with its key.
        self._call = call
        self._http = call.session
        self.line = WebSocket(call.session, self, MESSAGE_MAX, call.now_ms)
        self._feed = Feed(door, self)
        # A long command that is being read, and how long it is.
        self._reading: WriteReading | None = None
        self._reading_size: i64 = 0
        door.yard.arm(self, call.now_ms + PING_MS)

    # -- the connection ------------------------------------------------------------------------

    def pump(self, now_ms: i64) -> None:
        """Send new records of subscribed topics."""
        self._feed.pump(now_ms)

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Stop following topics."""
        if self._reading is not None:
            self._door.yard.tasks.leave(self._reading)
            self._reading = None
        self._feed.leave()
        self._door.yard.disarm(self)
        self._slot.free()

    def ring(self, now_ms: i64) -> None:
        """Ping the client, and check subscribed queues."""
        if self.line.is_over:
            return
        self.line.look(now_ms)
        self._feed.look_at_queues()
        self._http.peer.wake()
        self._door.yard.arm(self, now_ms + PING_MS)

    # -- commands ------------------------------------------------------------------------------

    def heard(self, content: bytes, now_ms: i64, *, is_text: bool) -> None:
        """Run a command."""
        if not is_text:
            self.line.end(CLOSE_UNSUPPORTED, "commands must be text messages")
        elif len(content) > BODY_AT_ONCE:
            self._read_long(content, now_ms)
        else:
            self._command(content, now_ms)

    def unread_size(self) -> i64:
        """Return the size of a command that is being read; later commands wait."""
        return self._reading_size

    def _command(self, content: bytes, now_ms: i64) -> None:
        fields = read_object(content, 0, len(content))
        try:
            if fields is None:
                raise invalid(_NO_COMMAND)
            self._run(check_twins(fields), None, now_ms)
        except (Refused, StorageFull) as refusal:
            self._refuse(fields, in_http(refusal))

    def _read_long(self, content: bytes, now_ms: i64) -> None:
        """Read a long command over several turns."""
        reading = WriteReading(self._door, "", content)
        try:
            if self._door.yard.tasks.begin(reading, self, now_ms):
                self._run(reading.fields(), reading.given, now_ms)
            else:
                self._reading = reading
                self._reading_size = len(content)
        except (Refused, StorageFull) as refusal:
            self._refuse(reading.known_fields(), in_http(refusal))

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:
        """Run a command that was read, and continue with the next one."""
        assert isinstance(task, WriteReading)
        self._reading = None
        self._reading_size = 0
        self.line.is_running = True
        try:
            if refusal is not None:
                self._refuse(task.known_fields(), in_http(refusal))
            else:
                self._run(task.fields(), task.given, now_ms)
        except (Refused, StorageFull) as refused:
            self._refuse(task.known_fields(), in_http(refused))
        self._http.await_synced(self._http.journal.take_command_sync_batch())
        self.line.is_running = False
        self._http.is_stalled = True
        self._http.peer.wake()

    def _run(self, fields: JsonFields, given: WriteRecords | None, now_ms: i64) -> None:
        op = text(fields, b"op", 32)
        if op == "subscribe":
            self._subscribe(fields)
        elif op == "unsubscribe":
            self._unsubscribe(fields)
        elif op == "publish":
            self._publish(fields, given, now_ms)
        elif op == "ping":
            out = _begin(b"pong", fields)
            put_int(out, b',"ts":', self._door.wall_ms(now_ms))
            self._send(out)
        else:
            raise invalid("op must be subscribe, unsubscribe, publish or ping")

    def _refuse(self, fields: JsonFields | None, refused: HttpRefused) -> None:
        out = _begin(b"error", fields)
        out.write(b',"code":')
        out.write(quoted(refused.code))
        out.write(b',"message":')
        out.write(quoted(str(refused)))
        if refused.detail is not None:
            out.write(b',"detail":')
            out.write(encode(refused.detail))
        self._send(out)

    def _subscribe(self, fields: JsonFields) -> None:
        check_scope(self._call, Scope.READ)
        terms = WatchOptions(fields, PAGE_RECORDS_MAX, BATCH_BYTES_DEFAULT)
        is_lenient = flag(fields, b"lenient", otherwise=False)
        cursors: dict[str, Cursor] = {}
        if fields.kind(b"topics") == KIND_MAP:
            cursors = read_cursors(self._door, self._call, fields, terms, is_lenient=is_lenient)
        else:
            name = self._topic(fields)
            check_read_name(name)
            cursor = open_cursor(self._door, name, fields, terms)
            if cursor is not None:
                cursors[name] = cursor
            elif not is_lenient:
                raise no_topic(name)
        if len(self._feed.cursors.keys() | cursors.keys()) > TOPICS_MAX:
            raise invalid(f"a socket can follow at most {TOPICS_MAX} topics")
        out = _begin(b"subscribed", fields)
        out.write(b',"topics":{')
        write_starts(out, cursors)
        out.write(b"}")
        self._send(out)
        for cursor in cursors.values():
            self._feed.add(cursor)

    def _unsubscribe(self, fields: JsonFields) -> None:
        names: list[str] = []
        if fields.kind(b"topics") == KIND_ARRAY:
            for start, end in array(fields, b"topics", MESSAGE_MAX):
                name = text_at(fields.data, start, end)
                if name is None:
                    raise invalid("topics must be strings")
                names.append(name)
        elif fields.kind(b"topic") == KIND_TEXT:
            names.append(text(fields, b"topic", MESSAGE_MAX))
        else:
            raise invalid("topic or topics is required")
        out = _begin(b"unsubscribed", fields)
        out.write(b',"topics":')
        write_texts(out, [name for name in names if self._feed.remove(name)])
        self._send(out)

    def _publish(self, fields: JsonFields, given: WriteRecords | None, now_ms: i64) -> None:
        check_scope(self._call, Scope.WRITE)
        check_open(self._call)
        name = self._topic(fields)
        check_topic_name(name)
        if given is None or not given.objects:
            written = write_records(self._door, self._call, name, fields, "", now_ms)
        else:
            written = write_given(self._door, self._call, name, fields, given, "", now_ms)
        out = _begin(b"ack", fields)
        out.write(b',"topic":')
        out.write(quoted(name))
        put_written(out, written, has_seqs=flag(fields, b"return_seqs", otherwise=True))
        self._call.await_batch(written.batch, is_synced=written.is_synced)
        self._send(out)

    def _topic(self, fields: JsonFields) -> str:
        name = text(fields, b"topic", MESSAGE_MAX)
        if not name:
            raise invalid("topic is required")
        check_name(self._call, name)
        return name

    def _send(self, out: BytesWriter) -> None:
        out.write(b"}")
        self.line.say(out.getvalue())

    # -- the feed ------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make sure that the feed is pumped before this turn ends."""
        self._http.peer.wake()

    def has_room(self) -> bool:
        """Return whether there is room to send."""
        return self.line.has_room()

    def unsent_size(self) -> i64:
        """Return the size of sent data that has not left yet."""
        return self._http.unsent_size()

    def send_page(self, cursor: Cursor, page: LogPage, from_seq: i64) -> None:
        """Send records."""
        out = _begin_about(b"record", cursor)
        out.write(b',"records":[')
        for piece in page.records:
            out.write(piece)
        put_int(out, b'],"from_seq":', from_seq)
        put_int(out, b',"to_seq":', page.next_from_seq)
        put_int(out, b',"head_seq":', page.head_seq)
        self._call.await_batch(page.batch, is_synced=page.is_synced)
        self._send(out)

    def send_caught_up(self, cursor: Cursor, head_seq: i64) -> None:
        """Send that the reader has caught up."""
        out = _begin_about(b"caught_up", cursor)
        put_int(out, b',"head_seq":', head_seq)
        self._send(out)

    def send_gap(self, cursor: Cursor, page: LogPage, gap: Gap) -> None:
        """Send that records were removed before the reader reached them."""
        out = _begin_about(b"tombstone", cursor)
        write_gap(out, page, gap)
        self._call.await_batch(page.batch, is_synced=page.is_synced)
        self._send(out)

    def send_deleted(self, cursor: Cursor) -> None:
        """Send that a topic was removed; the others continue."""
        out = _begin_about(b"topic_deleted", cursor)
        put_int(out, b',"head_seq":', cursor.last_seq())
        out.write(b',"reason":"deleted"')
        self._send(out)

    def send_damaged(self, cursor: Cursor, damage: TextDamaged) -> None:
        """Send that the next records of a topic are damaged; the others continue."""
        out = _begin_about(b"error", cursor)
        write_damage(out, damage, b"message")
        self._send(out)


def _begin(op: bytes, fields: JsonFields | None) -> BytesWriter:
    """Begin the answer to a command, with its request id."""
    out = BytesWriter()
    out.write(b'{"op":"')
    out.write(op)
    out.write(b'"')
    request_id = fields.raw(b"request_id") if fields is not None else None
    if request_id is not None:
        out.write(b',"request_id":')
        out.write(request_id)
    return out


def _begin_about(op: bytes, cursor: Cursor) -> BytesWriter:
    out = _begin(op, None)
    out.write(b',"topic":')
    out.write(cursor.quoted)
    return out
