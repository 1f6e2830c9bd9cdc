"""The topic `_events`: the history of jobs as a read-only log.

A view of the journal's history. Its seqs are the numbers of journal records, so they rise with
gaps; `head_seq` and `earliest_seq` are the first and last numbers, which may not be rows. A row can
be read once it is durable. Fields that a row does not have are left out of its data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.logs.read import gap
from jobyard.engine.state.history import has_history, read_history, yard_id
from jobyard.model.topic.config import FSYNC, LOG, TopicConfig
from jobyard.model.topic.log import MIXED, RECREATED, LogPage, LogQuery
from jobyard.protocols.topics.answers import put_int
from jobyard.protocols.topics.names import EVENTS_TOPIC
from jobyard.wire.json.write import write_text

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.history_row import HistoryRow

# Smallest size of a row, to read no more rows than fit into a page.
ROW_SIZE_MIN: Final = 100


def is_events(yard: Yard, name: str) -> bool:
    """Return whether a name is `_events` and the yard keeps a history."""
    return name == EVENTS_TOPIC and has_history(yard)


def head_seq(yard: Yard) -> i64:
    """Return the newest seq."""
    return yard.journal.history.next_durable - 1


def earliest_seq(yard: Yard) -> i64:
    """Return the seq from which on no row was lost."""
    return max(yard.journal.history.rows_floor, 1)


def page_of_events(yard: Yard, query: LogQuery) -> LogPage:
    """Return rows as the records of a log."""
    page = LogPage(head_seq(yard), earliest_seq(yard), yard.journal.durable)
    after: i64 = max(query.from_seq, 0)
    if after > page.head_seq:
        page.tombstone = gap(page, 1, page.earliest_seq - 1, RECREATED)
        after = page.earliest_seq - 1
    rows_max = min(query.limit, max(query.max_bytes // ROW_SIZE_MIN, 1))
    found = read_history(yard, after, rows_max)
    # Reading may find that the oldest part is gone.
    page.earliest_seq = earliest_seq(yard)
    if page.tombstone is None and after + 1 < page.earliest_seq:
        page.tombstone = gap(page, after + 1, page.earliest_seq - 1, MIXED)
    page.next_from_seq = found.to_seq
    left = query.max_bytes
    for row in found.rows:
        record = _record(row, query)
        if page.count > 0 and len(record) > left:
            page.next_from_seq = row.seq - 1
            break
        page.records.append(b"," + record if page.count > 0 else record)
        page.count += 1
        left = max(left - len(record), 0)
    return page


def _record(row: HistoryRow, query: LogQuery) -> bytes:
    out = BytesWriter()
    put_int(out, b'{"$seq":', row.seq)
    put_int(out, b',"$ts":', row.ts_ms)
    if query.include_tags and row.queue:
        out.write(b',"$tag":')
        write_text(out, row.queue)
    if query.include_data:
        out.write(b',"data":')
        _write_data(out, row)
    out.write(b"}")
    return out.getvalue()


def _write_data(out: BytesWriter, row: HistoryRow) -> None:
    out.write(b'{"event":')
    write_text(out, row.event)
    out.write(b',"queue":')
    write_text(out, row.queue)
    put_int(out, b',"id":', row.job_id)
    out.write(b',"state":')
    write_text(out, row.state)
    _put_text(out, b',"family":', row.family)
    _put_text(out, b',"door":', row.door)
    _put_number(out, b',"rank":', row.rank)
    _put_number(out, b',"size":', row.size)
    _put_number(out, b',"attempts":', row.attempts)
    _put_number(out, b',"deliveries":', row.deliveries)
    _put_number(out, b',"lease":', row.lease)
    _put_number(out, b',"holder":', row.holder)
    _put_number(out, b',"ttl_ms":', row.ttl_ms)
    _put_number(out, b',"due_at":', row.due_ms)
    _put_number(out, b',"enqueued_at":', row.enqueued_ms)
    _put_number(out, b',"available_at":', row.available_ms)
    _put_number(out, b',"claimed_at":', row.claimed_ms)
    _put_number(out, b',"finished_at":', row.finished_ms)
    _put_text(out, b',"error":', row.error)
    _put_text(out, b',"worker":', row.worker)
    _put_number(out, b',"queue_seq":', row.queue_seq)
    _put_text(out, b',"client_id":', row.client_id)
    _put_text(out, b',"name":', row.name)
    _put_number(out, b',"origin_id":', row.origin_id)
    _put_text(out, b',"origin_queue":', row.origin_queue)
    _put_text(out, b',"reason":', row.reason)
    _put_text(out, b',"letter_topic":', row.letter_topic)
    _put_number(out, b',"letter_seq":', row.letter_seq)
    out.write(b"}")


def _put_number(out: BytesWriter, key: bytes, value: i64) -> None:
    if value != 0:
        put_int(out, key, value)


def _put_text(out: BytesWriter, key: bytes, value: str) -> None:
    if value:
        out.write(key)
        write_text(out, value)


def events_state(yard: Yard) -> dict[str, object]:
    """Return the state of the topic; `count` counts seqs, some of which are not rows."""
    history = yard.journal.history
    config = TopicConfig()
    config.durability = FSYNC
    config.ttl_ms = int(history.age_ms)
    config.cap_bytes = int(history.bytes_max)
    head = head_seq(yard)
    earliest = earliest_seq(yard)
    newest_ms = history.segments[-1].newest_ms if history.segments else 0
    return {
        "type": LOG,
        "head_seq": int(head),
        "head_row_seq": int(history.last_row),
        "earliest_seq": int(earliest),
        "next_seq": int(head + 1),
        "count": int(max(head - earliest + 1, 0)),
        "bytes": sum(int(segment.end) for segment in history.segments),
        "config": config.fields(),
        "effective_priority": 0,
        "last_write_ts": int(newest_ms) or None,
        "last_read_ts": None,
        "incarnation": yard_id(yard),
        "read_only": True,
    }
