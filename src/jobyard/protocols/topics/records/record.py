"""One record of a write, as the engine takes it: checked, and with defaults for what it lacks.

Knows neither the write around it nor the topic that it is for.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.topics.job_batch import NewRecord
from jobyard.model.topic.log import LogRecord
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.topics.body import invalid, signed, text, whole
from jobyard.protocols.topics.records.data import RECORD_MAX, read_data
from jobyard.protocols.topics.records.keys import only_for_queues, read_label
from jobyard.wire.json.read import JsonFields, read_object
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_MAP, KIND_NIL

META_MAX: Final = 16 << 10
META_KEYS_MAX: Final = 64
TAG_MAX: Final = 256
NODE_MAX: Final = 128
WRITE_DELAY_MS_MAX: Final = 365 * 86_400_000
PRIORITY_MAX: Final = 1_000_000
ATTEMPTS_MAX: Final = 1000
_QUEUE_FIELDS: Final = (b"name", b"job_id", b"max_attempts")


def row_of(record: JsonFields, node: str) -> LogRecord:
    """Return a record of a log; `node` is that of the whole write."""
    data, meta, is_binary = _data_and_meta(record)
    _refuse_job_fields(record)
    tag = text(record, b"tag", TAG_MAX)
    named = text(record, b"node", NODE_MAX) or node
    return LogRecord(data, meta, tag, named, is_binary=is_binary)


def record_of(record: JsonFields, node: str) -> NewRecord:
    """Return a record with everything that a job has; `node` is that of the whole write."""
    if record.is_only(b"data"):
        return _bare_record(record, node)
    data, meta, is_binary = _data_and_meta(record)
    delay_ms = whole(record, b"delay_ms", 0)
    priority = signed(record, b"priority", PRIORITY_MAX)
    if delay_ms > WRITE_DELAY_MS_MAX:
        raise invalid(f"delay_ms must be at most {WRITE_DELAY_MS_MAX}")
    tag = text(record, b"tag", TAG_MAX)
    made = NewRecord(data, meta, tag, text(record, b"node", NODE_MAX) or node)
    made.is_binary = is_binary
    made.delay_ms = delay_ms
    made.priority = priority
    made.name = read_label(record, b"name")
    made.job_id = read_label(record, b"job_id")
    made.max_attempts = _max_attempts(record)
    return made


def _bare_record(record: JsonFields, node: str) -> NewRecord:
    """Return a record of nothing but data, as most are, without a look for anything else."""
    data = record.raw(b"data")
    assert data is not None
    _check_size(len(data))
    return NewRecord(data, b"", "", node)


def _check_size(size: i64) -> None:
    """Refuse a record whose data and meta have too many bytes."""
    if size > RECORD_MAX:
        raise HttpRefused(400, "record_too_large", f"a record must have at most {RECORD_MAX} bytes")


def _max_attempts(record: JsonFields) -> i64:
    """Return how often a job may be delivered; 0 if the record does not say."""
    if record.kind(b"max_attempts") in (KIND_ABSENT, KIND_NIL):
        return 0
    most = whole(record, b"max_attempts", 0)
    if not 1 <= most <= ATTEMPTS_MAX:
        raise invalid(f"max_attempts must be a whole number from 1 to {ATTEMPTS_MAX}")
    return most


def _refuse_job_fields(record: JsonFields) -> None:
    """Refuse what only jobs have in a record for a log."""
    for name in _QUEUE_FIELDS:
        if record.kind(name) not in (KIND_ABSENT, KIND_NIL):
            raise only_for_queues()


def _data_and_meta(record: JsonFields) -> tuple[bytes, bytes, bool]:
    """Return data and meta of a record, and whether data are bytes."""
    data, is_binary = read_data(record)
    meta = b""
    kind = record.kind(b"meta")
    if kind not in (KIND_ABSENT, KIND_NIL):
        meta = record.raw(b"meta") or b""
        is_long = len(meta) > META_MAX
        inside = read_object(meta, 0, len(meta)) if kind == KIND_MAP and not is_long else None
        if kind != KIND_MAP:
            raise invalid("meta must be an object")
        if inside is None or len(inside.keys()) > META_KEYS_MAX:
            most = f"{META_MAX} bytes and {META_KEYS_MAX} keys"
            raise HttpRefused(400, "record_too_large", f"meta must have at most {most}")
    _check_size(len(data) + len(meta))
    return data, meta, is_binary
