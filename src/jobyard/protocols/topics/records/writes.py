"""Writing to a topic: records for a log, jobs for a queue, all of a call or nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.logs import logs
from jobyard.engine.state.tasks import Task
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.topic_setup import config_of
from jobyard.errors import YardFull
from jobyard.model.topic.config import DISCARD_REJECT, FSYNC, QUEUE, TopicConfig
from jobyard.model.topic.log import Row, TopicFull, WriteTooLarge
from jobyard.model.topic.log_rows import LogRows
from jobyard.protocols.http.call import Call, HttpRefused
from jobyard.protocols.http.door import BODY_MAX
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.topics.answers import begin, finish, put_bool, put_int
from jobyard.protocols.topics.api import check_open, check_scope
from jobyard.protocols.topics.api_keys import ADMIN
from jobyard.protocols.topics.body import (
    SMALL_BODY_MAX,
    array_place,
    check_head,
    check_twins,
    fault_of,
    flag,
    invalid,
    objects,
    query_flag,
    read_body,
    signed,
    text,
    whole,
)
from jobyard.protocols.topics.find import (
    check_letters,
    drop_topic,
    find_queue,
    make_topic,
    no_topic,
    wanted_config,
)
from jobyard.protocols.topics.limits import check_bytes, check_topics
from jobyard.protocols.topics.names import check_topic_name
from jobyard.protocols.topics.records.jobs import earliest_seq
from jobyard.wire.json.check import JsonCheck
from jobyard.wire.json.read import Checked, JsonFields, read_object
from jobyard.wire.json.scan import DEPTH_MAX
from jobyard.wire.json.write import write_int
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_MAP, KIND_NIL

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor

RECORDS_MAX: Final = 10_000
RECORD_MAX: Final = 1 << 20
META_MAX: Final = 16 << 10
META_KEYS_MAX: Final = 64
TAG_MAX: Final = 256
NODE_MAX: Final = 128
KEY_MAX: Final = 256
DELAY_MS_MAX: Final = 365 * 86_400_000
PRIORITY_MAX: Final = 1_000_000
# A longer body is read in slices.
BODY_AT_ONCE: Final = 64 << 10
# Of one object in such a body; no write has any use for more.
KEYS_MAX: Final = 1024

# More than this is entered in a turn of its own, and what it came as is freed in those that follow.
OBJECTS_AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 1 << 20

# To read a record, in units of work.
_RECORD_UNITS: Final = 2
_BYTES_PER_UNIT: Final = 1024


@final
class Written:
    """What a write came to."""

    def __init__(self, first_seq: i64, last_seq: i64, batch: i64, *, is_deduped: bool) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        # Not told before this batch is safe.
        self.batch: i64 = batch
        self.is_deduped = is_deduped
        self.head_seq: i64 = last_seq
        self.is_created: bool = False
        self.is_synced: bool = False


@final
class Given:
    """The records of a write, as they came and as they are taken."""

    def __init__(self, yard: Yard, objects: list[JsonFields]) -> None:
        self._yard = yard
        self.objects = objects
        # Read ahead for a log, or for a queue, with the node they are from if they do not say.
        self.node: str = ""
        self.ahead_rows: LogRows | None = None
        self.ahead_jobs: topic_queue.Batch | None = None

    def rows(self, node: str) -> LogRows:
        """Return them as a log takes them."""
        rows = self.ahead_rows
        if rows is not None and self.node == node:
            return rows
        rows = LogRows(0, 0, 0)
        for one in self.objects:
            logs.draft(rows, _row(one, node))
        return rows

    def jobs(self, node: str) -> topic_queue.Batch:
        """Return them as a queue takes them."""
        jobs = self.ahead_jobs
        if jobs is not None and self.node == node:
            return jobs
        jobs = topic_queue.Batch(self._yard)
        for one in self.objects:
            jobs.add(_record(one, node))
        return jobs


@final
class Reading(Task):
    """Reads a long body, and the records in it for what the topic is at the beginning.

    Without a name it is the message of a socket, which may say anything and names the topic itself.
    """

    def __init__(self, door: TopicsDoor, name: str, body: bytes) -> None:
        super().__init__()
        self.is_reading = True
        self._check = JsonCheck(body, DEPTH_MAX)
        self._checked = Checked(self._check)
        self._fields: JsonFields | None = None
        self._yard = door.yard
        self._name: str = name
        self._is_through: bool = False
        self.given: Given | None = None
        self._stamping: logs.Stamping | None = None
        self._has_rested: bool = False

    def fields(self) -> JsonFields:
        """Return the fields of the body; there is no more to read."""
        assert self._fields is not None
        return self._fields

    def known_fields(self) -> JsonFields | None:
        """Return the fields of a body that was refused, if it came so far."""
        return self._fields

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some of the body, or read some records, or see that these have the right seqs."""
        done: i64 = 0
        if not self._check.is_done():
            done = self._check.go_on(most)
            if not self._check.is_done():
                return max(done, most)
        if self.given is None:
            self._begin_records(now_ms)
        given = self.given
        assert given is not None
        while done < most and not self._is_through:
            done += self._read_one(given)
        if not self._is_through:
            return done
        if self._must_rest():
            return max(done, most)
        done = min(done, most - 1)
        if self._stamping is not None:
            done += self._stamping.go_on(most - done, now_ms)
        if done < most and self._is_large():
            self._end_turn()
            self._yard.tasks.follow(Forgetting(given.objects, self._check.data))
        return done

    def _is_large(self) -> bool:
        objects = 0 if self.given is None else len(self.given.objects)
        return objects > OBJECTS_AT_ONCE or len(self._check.data) > BYTES_AT_ONCE

    def _must_rest(self) -> bool:
        """Tell whether what was read is so much that it is entered in a turn of its own."""
        if self._has_rested or not self._is_large():
            return False
        self._has_rested = True
        self._end_turn()
        return True

    def _end_turn(self) -> None:
        """Leave what follows to the next turn."""
        tasks = self._yard.tasks
        tasks.leave_less(tasks.units_per_turn)

    def _begin_records(self, now_ms: i64) -> None:
        body = self._check.data
        fields = None if self._check.is_bad else self._checked.top(KEYS_MAX)
        if fields is None:
            raise invalid(fault_of(body))
        self._fields = check_twins(fields)
        if not self._name:
            if not fields.has(b"records"):
                self.given = Given(self._yard, [])
                self._is_through = True
                return
            self._name = text(fields, b"topic", SMALL_BODY_MAX)
        start, end = array_place(fields, b"records")
        self._checked.enter(start, end)
        given = Given(self._yard, [])
        self.given = given
        given.node = text(fields, b"node", NODE_MAX)
        if self._is_for_queue(fields):
            given.ahead_jobs = topic_queue.Batch(self._yard)
        else:
            rows = LogRows(0, 0, 0)
            given.ahead_rows = rows
            self._stamping = logs.Stamping(self._yard, self._name, rows, now_ms)
        self._is_through = not self._checked.has_more()
        if self._is_through:
            raise invalid("records must not be empty")

    def _is_for_queue(self, fields: JsonFields) -> bool:
        """Tell whether the records are likely to become jobs; that is decided at the end."""
        if self._name in self._yard.logs or self._name in self._yard.queues:
            return self._name not in self._yard.logs
        start, end = fields.find(b"config")
        if not 0 <= start < end <= start + SMALL_BODY_MAX:
            return False
        config = read_object(fields.data, start, end)
        return config is not None and config.text(b"type") == QUEUE

    def _read_one(self, given: Given) -> i64:
        one = self._checked.next(KEYS_MAX)
        if one is None:
            raise invalid("a record must be an object")
        given.objects.append(check_twins(one))
        if len(given.objects) > RECORDS_MAX:
            raise too_many()
        self._is_through = not self._checked.has_more()
        jobs = given.ahead_jobs
        if jobs is not None:
            record = _record(one, given.node)
            jobs.add(record)
            return _RECORD_UNITS + len(record.data) // _BYTES_PER_UNIT
        row = _row(one, given.node)
        rows = given.ahead_rows
        assert rows is not None
        logs.draft(rows, row)
        return _RECORD_UNITS + len(row.data) // _BYTES_PER_UNIT


@final
class Forgetting(Task):
    """Frees what a write came as, after it was entered: 50 MiB take 6 ms.

    Everybody else who knows of it has let it go by then.
    """

    def __init__(self, objects: list[JsonFields], body: bytes) -> None:
        super().__init__()
        self._objects = objects
        self._body = body

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  nothing is left to be told
        """Free some records, and at last the body."""
        done: i64 = 0
        while done < most and self._objects:
            self._objects.pop()
            done += 1
        if done == 0:
            self._body = b""
            return 0
        return most


def write(door: TopicsDoor, call: Call) -> None:
    """POST /v0/topics/{topic}."""
    name = call.params[0]
    check_topic_name(name)
    check_open(call)
    # Looked at before anything is written.
    has_seqs = query_flag(call, "return_seqs", otherwise=True)
    if len(call.request.body) > BODY_AT_ONCE:
        check_head(call, BODY_MAX)
        reading = Reading(door, name, call.request.body)
        finish_write = partial(_write_read, door, call, reading, has_seqs=has_seqs)
        LongCall(door.yard.tasks, call, reading, finish_write).begin()
        return
    fields = read_body(call, may_be_empty=False, most=BODY_MAX)
    _write_fields(door, call, fields, Given(door.yard, _objects(fields)), has_seqs=has_seqs)


def _write_read(door: TopicsDoor, call: Call, reading: Reading, *, has_seqs: bool) -> None:
    """Write what was read over several turns."""
    given = reading.given
    assert given is not None
    _write_fields(door, call, reading.fields(), given, has_seqs=has_seqs)


def _write_fields(
    door: TopicsDoor, call: Call, fields: JsonFields, given: Given, *, has_seqs: bool
) -> None:
    name = call.params[0]
    header = call.header("idempotency-key")
    if len(header.encode()) > KEY_MAX:
        raise invalid(f"Idempotency-Key must be at most {KEY_MAX} bytes long")
    written = write_given(door, call, name, fields, given, header, call.now_ms)
    out = begin(name)
    put_written(out, written, has_seqs=has_seqs)
    call.await_batch(written.batch, is_synced=written.is_synced)
    finish(call, out, 201 if written.is_created else 200, is_synced=written.is_synced)


def write_records(
    door: TopicsDoor, call: Call, name: str, fields: JsonFields, key: str, now_ms: i64
) -> Written:
    """Write the records in a body, and make their topic if need be; all of it or nothing.

    `key` is that of a write whose body has none.
    """
    return write_given(door, call, name, fields, Given(door.yard, _objects(fields)), key, now_ms)


def write_given(
    door: TopicsDoor,
    call: Call,
    name: str,
    fields: JsonFields,
    given: Given,
    key: str,
    now_ms: i64,
) -> Written:
    """Write records that were found in a body."""
    node = text(fields, b"node", NODE_MAX)
    key = text(fields, b"idempotency_key", KEY_MAX) or key
    config = _config_if_new(door, call, fields, name)
    yard = door.yard
    is_weighed = config is not None or door.limits.total_bytes > 0
    try:
        if name in yard.logs or (config is not None and config.type != QUEUE):
            rows = given.rows(node)
            if is_weighed:
                _prepare(door, name, config, rows.count(), rows.content_size, now_ms)
            written = _write_log(door, name, rows, key, now_ms)
        else:
            jobs = given.jobs(node)
            if is_weighed:
                _prepare(door, name, config, len(jobs.wishes), jobs.size, now_ms)
            written = _write_queue(door, name, jobs, key, now_ms)
    except YardFull:
        if config is not None:
            drop_topic(yard, name, now_ms)
        raise
    written.is_created = config is not None
    return written


def _objects(fields: JsonFields) -> list[JsonFields]:
    """Return the records of a write as they came."""
    found = objects(fields, b"records", RECORDS_MAX)
    if found is None:
        raise invalid("a record must be an object")
    if not found:
        raise invalid("records must not be empty")
    if len(found) > RECORDS_MAX:
        raise too_many()
    return found


def too_many() -> HttpRefused:
    """Return the refusal of a write of too many records."""
    return HttpRefused(400, "batch_too_large", f"at most {RECORDS_MAX} records in one write")


def _wanted_config(call: Call, fields: JsonFields, name: str) -> TopicConfig | None:
    """Return how the topic is to be made that a write names; None if that is not said."""
    if fields.kind(b"config") in (KIND_ABSENT, KIND_NIL):
        return None
    value = fields.value(b"config")
    start, end = fields.find(b"config")
    inside = read_object(fields.data, start, end)
    if inside is None or not isinstance(value, dict):
        raise invalid("config must be an object")
    check_twins(inside)
    return wanted_config(call, name, value)


def _config_if_new(
    door: TopicsDoor, call: Call, fields: JsonFields, name: str
) -> TopicConfig | None:
    """Return how the topic of a write is to be made; None if it is there."""
    may_create = flag(fields, b"create", otherwise=True)
    wanted = _wanted_config(call, fields, name)
    if name in door.yard.logs or find_queue(door.yard, name) is not None:
        return None
    if not may_create:
        raise no_topic(name)
    if wanted is not None:
        # Not everybody may say how.
        check_scope(call, ADMIN)
        check_letters(door.yard, wanted)
    check_topics(door)
    return TopicConfig() if wanted is None else wanted


def _prepare(
    door: TopicsDoor, name: str, config: TopicConfig | None, count: i64, size: i64, now_ms: i64
) -> None:
    """See that there may be so much more, and make the topic if it is not there.

    It is not made where the write would not even fit into an empty one that lets nothing go.
    """
    if door.limits.total_bytes > 0:
        check_bytes(door, size, now_ms)
    if config is None:
        return
    if config.discard == DISCARD_REJECT and config.is_exceeded_by(count, size):
        raise too_large()
    make_topic(door.yard, name, config, now_ms)


def _row(record: JsonFields, node: str) -> Row:
    data, meta = _data_and_meta(record)
    return Row(data, meta, text(record, b"tag", TAG_MAX), text(record, b"node", NODE_MAX) or node)


def _record(record: JsonFields, node: str) -> topic_queue.Record:
    data, meta = _data_and_meta(record)
    delay_ms = whole(record, b"delay_ms", 0)
    priority = signed(record, b"priority", PRIORITY_MAX)
    if delay_ms > DELAY_MS_MAX:
        raise invalid(f"delay_ms must be at most {DELAY_MS_MAX}")
    tag = text(record, b"tag", TAG_MAX)
    made = topic_queue.Record(data, meta, tag, text(record, b"node", NODE_MAX) or node)
    made.delay_ms = delay_ms
    made.priority = priority
    return made


def _data_and_meta(record: JsonFields) -> tuple[bytes, bytes]:
    data = record.raw(b"data")
    if data is None:
        raise invalid("a record must have data")
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
            raise HttpRefused(400, "record_too_large", f"meta may have at most {most}")
    if len(data) + len(meta) > RECORD_MAX:
        raise HttpRefused(400, "record_too_large", f"a record may have at most {RECORD_MAX} bytes")
    return data, meta


def _write_log(door: TopicsDoor, name: str, rows: LogRows, key: str, now_ms: i64) -> Written:
    log = door.yard.logs[name]
    try:
        done = logs.append_drafted(door.yard, log, rows, key, now_ms)
    except WriteTooLarge:
        raise too_large() from None
    except TopicFull:
        seqs = (log.earliest_seq, log.next_seq - 1)
        raise topic_full(log.config, log.count, log.bytes, seqs) from None
    written = Written(done.first_seq, done.last_seq, done.batch, is_deduped=done.is_deduped)
    written.head_seq = log.next_seq - 1
    written.is_synced = log.config.durability == FSYNC
    return written


def _write_queue(
    door: TopicsDoor, name: str, jobs: topic_queue.Batch, key: str, now_ms: i64
) -> Written:
    queue = door.yard.queues[name]
    try:
        done = topic_queue.produce_batch(door.yard, queue, jobs, key, now_ms)
    except WriteTooLarge:
        raise too_large() from None
    except TopicFull:
        raise queue_full(queue) from None
    written = Written(done.first_seq, done.last_seq, done.batch, is_deduped=done.is_deduped)
    written.head_seq = queue.next_seq - 1
    written.is_synced = queue.is_synced
    return written


def too_large() -> HttpRefused:
    """Return the refusal of a write that no deletion could make room for."""
    return HttpRefused(400, "record_too_large", "the write is larger than the topic may ever be")


def queue_full(queue: Queue) -> HttpRefused:
    """Return the refusal of jobs for a queue that holds as much as it may."""
    counts = topic_queue.counts(queue)
    seqs = (earliest_seq(queue), queue.next_seq - 1)
    return topic_full(config_of(queue), counts.count, counts.bytes, seqs)


def topic_full(config: TopicConfig, count: i64, size: i64, seqs: tuple[i64, i64]) -> HttpRefused:
    """Return the refusal of a write to a topic that holds as much as it may."""
    detail: dict[str, object] = {
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "count": int(count),
        "bytes": int(size),
        "earliest_seq": int(seqs[0]),
        "head_seq": int(seqs[1]),
    }
    return HttpRefused(422, "topic_full", "the topic holds as much as it may", detail)


def put_written(out: BytesWriter, written: Written, *, has_seqs: bool) -> None:
    """Add what a write came to, to an answer that names the topic."""
    first = written.first_seq
    last = written.last_seq
    put_int(out, b',"first_seq":', first)
    put_int(out, b',"last_seq":', last)
    if has_seqs:
        _write_seqs(out, first, last)
    put_int(out, b',"head_seq":', written.head_seq)
    put_int(out, b',"count":', last - first + 1)
    put_bool(out, b',"created":', value=written.is_created)
    put_bool(out, b',"deduped":', value=written.is_deduped)


def _write_seqs(out: BytesWriter, first: i64, last: i64) -> None:
    out.write(b',"seqs":[')
    seq = first
    while seq <= last:
        if seq > first:
            out.write(b",")
        write_int(out, seq)
        seq += 1
    out.write(b"]")
