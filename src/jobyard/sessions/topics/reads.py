"""Reading a topic from a cursor, waiting for more, and deleting from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine import claims, logs
from jobyard.engine.alarm import Alarm
from jobyard.engine.queues import drop_watch, hold_watch
from jobyard.errors import TextDamaged
from jobyard.model.log import LogPage, LogQuery, LogReader, LogTopic, Tombstone
from jobyard.model.topic import FSYNC
from jobyard.sessions.http.call import Call, Pending, corrupt
from jobyard.sessions.topics.answers import begin, finish, put_bool, put_int
from jobyard.sessions.topics.body import flag, invalid, read_body, text, whole
from jobyard.sessions.topics.find import check_topic_name, find_queue, is_topic, no_topic
from jobyard.sessions.topics.jobs import earliest_seq, page_of_jobs
from jobyard.sessions.topics.limits import hold_wait
from jobyard.sessions.topics.news import QueueReader
from jobyard.sessions.topics.writes import NODE_MAX, TAG_MAX
from jobyard.wire.json_write import write_text
from jobyard.wire.msgpack import KIND_ABSENT, KIND_ARRAY, KIND_NIL, KIND_TEXT

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.model.queue import Queue
    from jobyard.sessions.topics.door import TopicsDoor
    from jobyard.wire.json_read import JsonFields

LIMIT_DEFAULT: Final = 256
LIMIT_MAX: Final = 1000
BYTES_DEFAULT: Final = 1 << 20
BYTES_MAX: Final = 8 << 20
WAIT_MS_MAX: Final = 30_000


def diff(door: TopicsDoor, call: Call) -> None:
    """POST /v0/topics/{topic}/diff."""
    name = call.params[0]
    check_topic_name(name)
    fields = read_body(call, may_be_empty=True)
    query = read_query(fields)
    wait_ms = min(whole(fields, b"wait_ms", 0), WAIT_MS_MAX)
    yard = door.yard
    log = yard.logs.get(name)
    if log is None:
        queue = find_queue(yard, name)
        if queue is None:
            raise no_topic(name)
        page = page_of_jobs(door, queue, query)
        if wait_ms > 0 and is_all_read(page):
            hold_wait(door, call)
            _JobWait(door, call, queue, query, call.now_ms + wait_ms)
        else:
            answer_page(call, name, page)
        return
    log.last_read_ms = call.now_ms
    page = logs.read(yard, log, query, call.now_ms)
    if wait_ms > 0 and is_all_read(page):
        hold_wait(door, call)
        _Wait(door, call, log, query, call.now_ms + wait_ms)
        return
    answer_page(call, name, page)


def is_all_read(page: LogPage) -> bool:
    """Tell whether a page has nothing to say but that there is no more now."""
    return page.count == 0 and page.tombstone is None and page.next_from_seq == page.head_seq


def read_query(fields: JsonFields) -> LogQuery:
    """Return what part of a topic is asked for."""
    limit = whole(fields, b"limit", LIMIT_DEFAULT)
    most = whole(fields, b"max_batch_bytes", BYTES_DEFAULT)
    return LogQuery(
        whole(fields, b"from_seq", 0),
        min(limit, LIMIT_MAX) if limit > 0 else LIMIT_DEFAULT,
        min(most, BYTES_MAX) if most > 0 else BYTES_DEFAULT,
        read_nodes(fields),
        include_tags=flag(fields, b"include_tags", otherwise=False),
        include_meta=flag(fields, b"include_meta", otherwise=True),
    )


def read_nodes(fields: JsonFields) -> tuple[str, ...]:
    """Return the nodes whose records a reader does not want: its own."""
    kind = fields.kind(b"node")
    if kind in (KIND_ABSENT, KIND_NIL):
        return ()
    if kind == KIND_TEXT:
        node = text(fields, b"node", NODE_MAX)
        return (node,) if node else ()
    nodes = fields.texts(b"node") if kind == KIND_ARRAY else None
    if nodes is None:
        raise invalid("node must be a text or an array of texts")
    if any(len(node.encode()) > NODE_MAX for node in nodes):
        raise invalid(f"a node must be at most {NODE_MAX} bytes long")
    return tuple(nodes)


def answer_page(call: Call, name: str, page: LogPage) -> None:
    """Answer with a page."""
    out = begin(name)
    out.write(b',"records":[')
    for piece in page.records:
        out.write(piece)
    put_int(out, b'],"next_from_seq":', page.next_from_seq)
    put_int(out, b',"head_seq":', page.head_seq)
    put_int(out, b',"earliest_seq":', page.earliest_seq)
    put_bool(out, b',"caught_up":', value=page.next_from_seq == page.head_seq)
    out.write(b',"tombstone":')
    if page.tombstone is None:
        out.write(b"null")
    else:
        write_tombstone(out, page.tombstone)
    put_int(out, b',"lag":', page.head_seq - page.next_from_seq)
    call.await_batch(page.batch, is_synced=page.is_synced)
    finish(call, out)


def write_tombstone(out: BytesWriter, stone: Tombstone) -> None:
    """Write what was lost before it could be read."""
    put_int(out, b'{"gap_from":', stone.gap_from)
    put_int(out, b',"gap_to":', stone.gap_to)
    out.write(b',"reason":')
    write_text(out, stone.reason)
    put_int(out, b',"missed_estimate":', stone.missed_estimate)
    put_int(out, b',"earliest_seq":', stone.earliest_seq)
    put_int(out, b',"head_seq":', stone.head_seq)
    out.write(b"}")


@final
class _Wait(Alarm, Pending, LogReader):
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
class _JobWait(Alarm, Pending, QueueReader):
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
        page = page_of_jobs(self._door, queue, self._query)
        if page.count == 0 and page.tombstone is None:
            self._query.from_seq = page.next_from_seq
            return
        answer_page(self._call, queue.name, page)
        self._leave()

    def ring(self, now_ms: i64) -> None:
        """Answer that nothing came."""
        self.hurry(now_ms)

    def hurry(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer with what there is."""
        page = page_of_jobs(self._door, self._queue, self._query)
        answer_page(self._call, self._queue.name, page)
        self._leave()

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Wait no more."""
        self._leave()

    def _leave(self) -> None:
        self._door.yard.disarm(self)
        self._door.news.drop(self._queue, self)
        drop_watch(self._door.yard, self._queue)


def delete(door: TopicsDoor, call: Call) -> None:
    """POST /v0/topics/{topic}/delete."""
    name = call.params[0]
    check_topic_name(name)
    fields = read_body(call, may_be_empty=False)
    before_seq: i64 = -1
    if fields.kind(b"before_seq") not in (KIND_ABSENT, KIND_NIL):
        before_seq = whole(fields, b"before_seq", 0)
    tag, is_prefix, has_match = read_match(fields, b"match")
    if before_seq < 0 and not has_match:
        raise invalid("before_seq or match must be given")
    yard = door.yard
    log = yard.logs.get(name)
    out = begin(name)
    if log is not None:
        gone = logs.erase(yard, log, before_seq, tag, is_prefix, has_match, call.now_ms)
        put_int(out, b',"deleted":', gone)
        put_int(out, b',"earliest_seq":', log.earliest_seq)
        put_int(out, b',"head_seq":', log.next_seq - 1)
        put_int(out, b',"count":', log.count)
        put_int(out, b',"bytes":', log.bytes)
        is_synced = log.config.durability == FSYNC
    else:
        queue = find_queue(yard, name)
        if queue is None:
            raise no_topic(name)
        gone = claims.remove_matching(
            yard,
            queue,
            before_seq,
            tag,
            call.now_ms,
            is_prefix=is_prefix,
            has_match=has_match,
        )
        counts = claims.counts(queue)
        put_int(out, b',"deleted":', gone)
        put_int(out, b',"earliest_seq":', earliest_seq(queue))
        put_int(out, b',"head_seq":', queue.next_seq - 1)
        put_int(out, b',"count":', counts.count)
        put_int(out, b',"bytes":', counts.bytes)
        is_synced = queue.is_synced
    call.await_batch(yard.journal.newest(), is_synced=is_synced)
    finish(call, out, is_synced=is_synced)


def read_match(fields: JsonFields, key: bytes) -> tuple[str, bool, bool]:
    """Return the tag to be matched, whether it is only the beginning of one, and if any is."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return "", False, False
    if kind == KIND_TEXT:
        tag = text(fields, key, TAG_MAX + 1)
        if tag.endswith("*"):
            return tag[:-1], True, True
        return tag, False, True
    words = fields.texts(key) if kind == KIND_ARRAY else None
    if words is None or len(words) != 3 or words[0] != "tag" or words[1] not in ("Eq", "Glob"):
        forms = '["tag", "Eq", TAG] or ["tag", "Glob", "PREFIX*"]'
        raise invalid(f"{key.decode()} must be {forms}")
    if words[1] == "Eq":
        return words[2], False, True
    if not words[2].endswith("*") or "*" in words[2][:-1]:
        raise invalid("a Glob ends with its only star")
    return words[2][:-1], True, True
