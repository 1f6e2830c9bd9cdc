"""Reads a topic from a cursor, waits for new records, and deletes records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from jobyard.engine.logs import logs
from jobyard.engine.logs.erase import Erasure
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.removal import Removal
from jobyard.model.topic.config import FSYNC
from jobyard.model.topic.log import LogQuery
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.topics.answers import begin, finish, put_int
from jobyard.protocols.topics.body import flag, invalid, is_strict, read_body, text, whole
from jobyard.protocols.topics.find import find_queue, no_topic
from jobyard.protocols.topics.limits import hold_wait
from jobyard.protocols.topics.names import EVENTS_TOPIC, check_read_name, check_topic_name
from jobyard.protocols.topics.records.events import is_events, page_of_events
from jobyard.protocols.topics.records.jobs import earliest_seq, page_of_jobs
from jobyard.protocols.topics.records.pages import answer_page, is_all_read
from jobyard.protocols.topics.records.record import NODE_MAX, TAG_MAX
from jobyard.protocols.topics.records.waits import EventsWait, LogWait, QueueWait
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_ARRAY, KIND_NIL, KIND_TEXT

if TYPE_CHECKING:
    from jobyard.model.queue import Queue
    from jobyard.model.topic.log import LogTopic
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor
    from jobyard.wire.json.read import JsonFields

LIMIT_DEFAULT: Final = 256
PAGE_RECORDS_MAX: Final = 1000
BYTES_DEFAULT: Final = 1 << 20
BYTES_MAX: Final = 8 << 20
WAIT_MS_MAX: Final = 30_000
_PAGE_FIELDS: Final = ("from_seq", "limit", "max_batch_bytes", "include_tags", "include_meta")
_DIFF_FIELDS: Final = frozenset((*_PAGE_FIELDS, "node", "wait_ms", "strict"))


def diff(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/diff."""
    name = call.params[0]
    check_read_name(name)
    fields = read_body(call, may_be_empty=True)
    is_strict(fields, _DIFF_FIELDS)
    query = read_query(fields)
    wait_ms = min(whole(fields, b"wait_ms", 0), WAIT_MS_MAX)
    yard = door.yard
    if name == EVENTS_TOPIC:
        _diff_events(door, call, query, wait_ms)
        return
    log = yard.logs.get(name)
    if log is None:
        queue = find_queue(yard, name)
        if queue is None:
            raise no_topic(name)
        page = page_of_jobs(door, queue, query)
        if wait_ms > 0 and is_all_read(page):
            hold_wait(door, call)
            QueueWait(door, call, queue, query, call.now_ms + wait_ms)
        else:
            answer_page(call, name, page)
        return
    log.last_read_ms = call.now_ms
    page = logs.read(yard, log, query, call.now_ms)
    if wait_ms > 0 and is_all_read(page):
        hold_wait(door, call)
        LogWait(door, call, log, query, call.now_ms + wait_ms)
        return
    answer_page(call, name, page)


def _diff_events(door: TopicsDoor, call: HttpCall, query: LogQuery, wait_ms: i64) -> None:
    if not is_events(door.yard, EVENTS_TOPIC):
        raise no_topic(EVENTS_TOPIC)
    page = page_of_events(door.yard, query)
    if wait_ms > 0 and page.count == 0 and page.tombstone is None:
        hold_wait(door, call)
        query.from_seq = page.next_from_seq
        EventsWait(door, call, query, call.now_ms + wait_ms)
        if not is_all_read(page):
            # A long stretch of history may have no rows.
            door.yard.watchers.notify_next_turn()
        return
    answer_page(call, EVENTS_TOPIC, page)


def read_query(fields: JsonFields) -> LogQuery:
    """Return the query in the body of a read."""
    limit = whole(fields, b"limit", LIMIT_DEFAULT)
    most = whole(fields, b"max_batch_bytes", BYTES_DEFAULT)
    return LogQuery(
        whole(fields, b"from_seq", 0),
        min(limit, PAGE_RECORDS_MAX) if limit > 0 else LIMIT_DEFAULT,
        min(most, BYTES_MAX) if most > 0 else BYTES_DEFAULT,
        read_nodes(fields),
        include_tags=flag(fields, b"include_tags", otherwise=False),
        include_meta=flag(fields, b"include_meta", otherwise=True),
    )


def read_nodes(fields: JsonFields) -> tuple[str, ...]:
    """Return the reader's own nodes, whose records it skips."""
    kind = fields.kind(b"node")
    if kind in (KIND_ABSENT, KIND_NIL):
        return ()
    if kind == KIND_TEXT:
        node = text(fields, b"node", NODE_MAX)
        return (node,) if node else ()
    nodes = fields.texts(b"node") if kind == KIND_ARRAY else None
    if nodes is None:
        raise invalid("node must be a string or an array of strings")
    if any(len(node.encode()) > NODE_MAX for node in nodes):
        raise invalid(f"a node must be at most {NODE_MAX} bytes long")
    return tuple(nodes)


def delete(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/delete."""
    name = call.params[0]
    check_topic_name(name)
    fields = read_body(call, may_be_empty=False)
    before_seq: i64 = -1
    if fields.kind(b"before_seq") not in (KIND_ABSENT, KIND_NIL):
        before_seq = whole(fields, b"before_seq", 0)
    tag, is_prefix, has_match = read_match(fields, b"match")
    if before_seq < 0 and not has_match:
        raise invalid("before_seq or match is required")
    yard = door.yard
    log = yard.logs.get(name)
    if log is not None:
        erasure = Erasure(yard, log, before_seq, tag, is_prefix=is_prefix, has_match=has_match)
        LongCall(yard.tasks, call, erasure, lambda: _erased(door, call, log, erasure)).begin()
        return
    queue = find_queue(yard, name)
    if queue is None:
        raise no_topic(name)
    removal = Removal(yard, queue, before_seq, tag, is_prefix=is_prefix, has_match=has_match)
    LongCall(yard.tasks, call, removal, lambda: _removed(door, call, queue, removal)).begin()


def _erased(door: TopicsDoor, call: HttpCall, log: LogTopic, erasure: Erasure) -> None:
    """Answer with the counts of a log after a delete."""
    if log.is_dropped:
        raise no_topic(log.name)
    seqs = (log.earliest_seq, log.next_seq - 1)
    sizes = (log.count, log.bytes)
    is_synced = log.config.durability == FSYNC
    _answer_deleted(door, call, erasure.count, seqs, sizes, is_synced=is_synced)


def _removed(door: TopicsDoor, call: HttpCall, queue: Queue, removal: Removal) -> None:
    """Answer with the counts of a queue after a delete."""
    counts = topic_queue.counts(queue)
    seqs = (earliest_seq(queue), queue.next_seq - 1)
    sizes = (counts.count, counts.bytes)
    _answer_deleted(door, call, removal.count, seqs, sizes, is_synced=queue.is_synced)


def _answer_deleted(
    door: TopicsDoor,
    call: HttpCall,
    deleted: i64,
    seqs: tuple[i64, i64],
    sizes: tuple[i64, i64],
    *,
    is_synced: bool,
) -> None:
    out = begin(call.params[0])
    put_int(out, b',"deleted":', deleted)
    put_int(out, b',"earliest_seq":', seqs[0])
    put_int(out, b',"head_seq":', seqs[1])
    put_int(out, b',"count":', sizes[0])
    put_int(out, b',"bytes":', sizes[1])
    call.await_batch(door.yard.journal.newest(), is_synced=is_synced)
    finish(call, out, is_synced=is_synced)


def read_match(fields: JsonFields, key: bytes) -> tuple[str, bool, bool]:
    """Return the tag to match, whether it is a prefix, and whether a match is given at all."""
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
        raise invalid("a Glob must have exactly one star, at its end")
    return words[2][:-1], True, True
