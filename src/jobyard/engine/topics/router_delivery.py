"""What a router appends to its destination, and whether the destination takes it."""

import json

from mypy_extensions import i64

from jobyard.engine.logs import logs
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics import topic_queue
from jobyard.errors import StorageFull, YardFull
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.log import LogRecord, TopicFull, WriteTooLarge
from jobyard.model.topic.router import EXACTLY_ONCE, Router


def copy_of(router: Router, row: LogRecord, seq: i64) -> LogRecord:
    """Return the copy of a record that has this seq in the source."""
    if router.copies_all():
        return row
    meta = row.meta
    if router.guarantee == EXACTLY_ONCE:
        meta = _stamped(router, meta, seq)
    tag = row.tag if router.preserve_tag else ""
    node = row.node if router.preserve_node else ""
    return LogRecord(row.data, meta, tag, node, is_binary=row.is_binary)


def _stamped(router: Router, meta: bytes, seq: i64) -> bytes:
    """Return meta with the origin of the record added."""
    stamp = {"router": router.name, "source": router.source, "seq": int(seq)}
    fields = json.loads(meta) if meta else {}
    fields["_topics_router"] = stamp
    return json.dumps(fields, separators=(",", ":")).encode()


def deliver(yard: Yard, router: Router, rows: list[LogRecord], now_ms: i64) -> i64:
    """Append to the destination; return how many records it took, or will never take."""
    if len(rows) > 1:
        try:
            _append(yard, router, rows, now_ms)
        except TopicFull:
            # Not all of it fits at once; some of it may.
            pass
        except (YardFull, StorageFull):
            return 0
        else:
            return len(rows)
    taken: i64 = 0
    for row in rows:
        if not _is_taken(yard, router, row, now_ms):
            break
        taken += 1
    return taken


def _is_taken(yard: Yard, router: Router, row: LogRecord, now_ms: i64) -> bool:
    try:
        _append(yard, router, [row], now_ms)
    except WriteTooLarge:
        # It will never fit; the records after it may.
        return True
    except (YardFull, StorageFull):
        return False
    return True


def _append(yard: Yard, router: Router, rows: list[LogRecord], now_ms: i64) -> None:
    name = router.dest
    log = yard.logs.get(name)
    queue = yard.queues.get(name)
    if log is None and queue is not None and queue.config is not None:
        records = [topic_queue.new_record_of(row) for row in rows]
        topic_queue.produce(yard, queue, records, "", now_ms)
        return
    if log is None:
        if not router.create_dest:
            raise YardFull
        log = logs.open_log(yard, name, TopicConfig(), now_ms)
    logs.append(yard, log, rows, "", now_ms)
