"""Writes to a topic: records for a log, jobs for a queue. A write is all or nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.logs import logs
from jobyard.engine.state.record_keys import compare_keys, keys_of
from jobyard.engine.state.tasks import Task
from jobyard.engine.topics import topic_queue
from jobyard.errors import YardFull
from jobyard.model.topic.config import DISCARD_REJECT, FSYNC, QUEUE, TopicConfig
from jobyard.model.topic.log import TopicFull, WriteTooLarge
from jobyard.model.topic.log_rows import LogRows
from jobyard.model.topic.new_keys import NewKeys
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.http.door import BODY_MAX
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.topics.answers import begin, finish
from jobyard.protocols.topics.api import check_open, check_scope
from jobyard.protocols.topics.api_keys import Scope
from jobyard.protocols.topics.body import (
    SMALL_BODY_MAX,
    array_place,
    check_head,
    check_strict,
    check_twins,
    fault_of,
    flag,
    invalid,
    is_strict,
    objects,
    query_flag,
    read_body,
    text,
)
from jobyard.protocols.topics.find import (
    check_dead_letter_topic,
    drop_topic,
    find_queue,
    make_topic,
    no_topic,
    wanted_config,
)
from jobyard.protocols.topics.limits import check_bytes, check_topics
from jobyard.protocols.topics.names import check_topic_name
from jobyard.protocols.topics.records.keys import (
    KEY_MAX,
    find_duplicates,
    nothing_new,
    read_key,
    read_label,
)
from jobyard.protocols.topics.records.record import NODE_MAX, record_of, row_of
from jobyard.protocols.topics.records.written import (
    Written,
    put_written,
    queue_full,
    too_large,
    topic_full,
)
from jobyard.wire.json.check import JsonCheck
from jobyard.wire.json.read import Checked, JsonFields, read_object
from jobyard.wire.json.scan import JSON_DEPTH_MAX
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.protocols.topics.door import TopicsDoor

RECORDS_MAX: Final = 10_000
# The fields of a write over HTTP, of one over a socket, and of a record, for callers that want
# others refused.
WRITE_FIELDS: Final = frozenset(
    ("records", "node", "idempotency_key", "config", "create", "strict")
)
PUBLISH_FIELDS: Final = WRITE_FIELDS | {"op", "request_id", "topic", "return_seqs"}
RECORD_FIELDS: Final = frozenset(
    ("data", "data_b64", "meta", "tag", "node", "key", "delay_ms", "priority")
) | {"name", "job_id", "max_attempts"}
CONFIG_FIELDS: Final = frozenset(TopicConfig().fields())
# A longer body is read in slices.
BODY_AT_ONCE: Final = 64 << 10
# Most keys of one object in such a body; no write needs more.
OBJECT_KEYS_MAX: Final = 1024

# A larger write is entered in a turn of its own, and its input is freed in the following turns.
OBJECTS_AT_ONCE: Final = 1000
WRITE_BYTES_AT_ONCE: Final = 1 << 20

# Cost of reading a record, in units of work.
_RECORD_UNITS: Final = 2
_BYTES_PER_UNIT: Final = 1024


@final
class WriteRecords:
    """The records of a write: as JSON, and prepared for a log or a queue."""

    def __init__(self, yard: Yard, objects: list[JsonFields]) -> None:
        self._yard = yard
        self.objects = objects
        # Prepared ahead for a log or for a queue, with this default node.
        self.node: str = ""
        self.ahead_rows: LogRows | None = None
        self.ahead_jobs: topic_queue.JobBatch | None = None
        # The keys as far as they are read, and which records the rows prepared ahead are of.
        self.ahead_keys: NewKeys | None = None
        self.ahead_kept: list[int] = []

    def keys(self) -> NewKeys | None:
        """Return the keys of the records; None if none has one."""
        keys = self.ahead_keys
        if keys is None:
            keys = NewKeys()
            for one in self.objects:
                keys.add(read_key(one), read_label(one, b"job_id"))
            self.ahead_keys = keys
        return keys if keys.count > 0 else None

    def rows(self, node: str) -> LogRows:
        """Return the records that are no duplicates as rows of a log."""
        keys = self.keys()
        rows = self.ahead_rows
        kept = [] if keys is None else keys.kept
        if rows is None or self.node != node or kept != self.ahead_kept:
            rows = LogRows(0, 0, 0)
            for one in self.objects:
                logs.draft(rows, row_of(one, node))
            if keys is not None and keys.duplicates:
                rows.keep(keys.kept)
        rows.record_keys = keys
        return rows

    def jobs(self, node: str) -> topic_queue.JobBatch:
        """Return the records that are no duplicates as jobs of a queue."""
        jobs = self.ahead_jobs
        if jobs is None or self.node != node:
            jobs = topic_queue.JobBatch(self._yard)
            for one in self.objects:
                jobs.add(record_of(one, node))
        keys = self.keys()
        if keys is not None and keys.duplicates:
            jobs.keep(keys.kept)
        jobs.record_keys = keys
        return jobs


@final
class WriteReading(Task):
    """Reads a long body, and prepares its records for the type that the topic has at the start.

    Without a name the body is a message of a socket, which may be any command and names the topic.
    """

    def __init__(self, door: TopicsDoor, name: str, body: bytes) -> None:
        super().__init__()
        self.is_reading = True
        self._check = JsonCheck(body, JSON_DEPTH_MAX)
        self._checked = Checked(self._check)
        self._fields: JsonFields | None = None
        self._yard = door.yard
        self._name: str = name
        self._is_through: bool = False
        self.given: WriteRecords | None = None
        self._stamping: logs.WriteDraft | None = None
        self._has_rested: bool = False
        self._is_strict: bool = False
        # Whether records were dropped that are duplicates.
        self._is_sorted_out: bool = False

    def fields(self) -> JsonFields:
        """Return the fields of a body that was read to its end."""
        assert self._fields is not None
        return self._fields

    def known_fields(self) -> JsonFields | None:
        """Return the fields of a refused body, if it was read that far."""
        return self._fields

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check part of the body, read some records, or stamp them with their seqs."""
        done: i64 = 0
        if not self._check.is_done():
            done = self._check.proceed(most)
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
        if not self._is_sorted_out:
            self._sort_out(given, now_ms)
        if self._must_rest():
            return max(done, most)
        done = min(done, most - 1)
        if self._stamping is not None:
            done += self._stamping.proceed(most - done, now_ms)
        if done < most and self._is_large():
            self._end_turn()
            self._yard.tasks.follow(WriteFreeing(given.objects, self._check.data))
        return done

    def _is_large(self) -> bool:
        objects = 0 if self.given is None else len(self.given.objects)
        return objects > OBJECTS_AT_ONCE or len(self._check.data) > WRITE_BYTES_AT_ONCE

    def _must_rest(self) -> bool:
        """Return whether the write is so large that it must be entered in a turn of its own."""
        if self._has_rested or not self._is_large():
            return False
        self._has_rested = True
        self._end_turn()
        return True

    def _end_turn(self) -> None:
        """Leave the rest to the next turn."""
        tasks = self._yard.tasks
        tasks.leave_less(tasks.units_per_turn)

    def _begin_records(self, now_ms: i64) -> None:
        body = self._check.data
        fields = None if self._check.is_bad else self._checked.top(OBJECT_KEYS_MAX)
        if fields is None:
            raise invalid(fault_of(body))
        self._fields = check_twins(fields)
        known = WRITE_FIELDS if self._name else PUBLISH_FIELDS
        self._is_strict = fields.has(b"records") and is_strict(fields, known)
        if not self._name:
            if not fields.has(b"records"):
                self.given = WriteRecords(self._yard, [])
                self._is_through = True
                return
            self._name = text(fields, b"topic", SMALL_BODY_MAX)
        start, end = array_place(fields, b"records")
        self._checked.enter(start, end)
        given = WriteRecords(self._yard, [])
        self.given = given
        given.ahead_keys = NewKeys()
        given.node = text(fields, b"node", NODE_MAX)
        if self._is_for_queue(fields):
            given.ahead_jobs = topic_queue.JobBatch(self._yard)
        else:
            rows = LogRows(0, 0, 0)
            given.ahead_rows = rows
            self._stamping = logs.WriteDraft(self._yard, self._name, rows, now_ms)
        self._is_through = not self._checked.has_more()
        if self._is_through:
            raise invalid("records must not be empty")

    def _is_for_queue(self, fields: JsonFields) -> bool:
        """Guess whether the records will become jobs; the topic's type is final only at the end."""
        if self._name in self._yard.logs or self._name in self._yard.queues:
            return self._name not in self._yard.logs
        start, end = fields.find(b"config")
        if not 0 <= start < end <= start + SMALL_BODY_MAX:
            return False
        config = read_object(fields.data, start, end)
        return config is not None and config.text(b"type") == QUEUE

    def _sort_out(self, given: WriteRecords, now_ms: i64) -> None:
        """Drop rows that are duplicates by now, so that the others get their texts over turns."""
        self._is_sorted_out = True
        keys = given.keys()
        rows = given.ahead_rows
        if keys is None or rows is None:
            return
        compare_keys(self._yard, keys_of(self._yard, self._name), keys, now_ms)
        if keys.duplicates:
            rows.keep(keys.kept)
        given.ahead_kept = keys.kept

    def _read_one(self, given: WriteRecords) -> i64:
        one = self._checked.next(OBJECT_KEYS_MAX)
        if one is None:
            raise invalid("a record must be an object")
        given.objects.append(check_twins(one))
        if len(given.objects) > RECORDS_MAX:
            raise too_many()
        self._is_through = not self._checked.has_more()
        assert given.ahead_keys is not None
        if one.is_only(b"data"):
            given.ahead_keys.add("", "")
        else:
            if self._is_strict:
                check_strict(one, RECORD_FIELDS)
            given.ahead_keys.add(read_key(one), read_label(one, b"job_id"))
        jobs = given.ahead_jobs
        if jobs is not None:
            record = record_of(one, given.node)
            jobs.add(record)
            return _RECORD_UNITS + len(record.data) // _BYTES_PER_UNIT
        row = row_of(one, given.node)
        rows = given.ahead_rows
        assert rows is not None
        logs.draft(rows, row)
        return _RECORD_UNITS + len(row.data) // _BYTES_PER_UNIT


@final
class WriteFreeing(Task):
    """Frees the input of a write after it was entered: 50 MiB take 6 ms.

    By then this task holds the last references to it.
    """

    def __init__(self, objects: list[JsonFields], body: bytes) -> None:
        super().__init__()
        self._objects = objects
        self._body = body

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Free some records, and finally the body."""
        done: i64 = 0
        while done < most and self._objects:
            self._objects.pop()
            done += 1
        if done == 0:
            self._body = b""
            return 0
        return most


def write(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}."""
    name = call.params[0]
    check_topic_name(name)
    check_open(call)
    # Checked before anything is written.
    has_seqs = query_flag(call, "return_seqs", otherwise=True)
    if len(call.request.body) > BODY_AT_ONCE:
        check_head(call, BODY_MAX)
        reading = WriteReading(door, name, call.request.body)
        finish_write = partial(_write_read, door, call, reading, has_seqs=has_seqs)
        LongCall(door.yard.tasks, call, reading, finish_write).begin()
        return
    fields = read_body(call, may_be_empty=False, most=BODY_MAX)
    given = WriteRecords(door.yard, _objects(fields, WRITE_FIELDS))
    _write_fields(door, call, fields, given, has_seqs=has_seqs)


def _write_read(door: TopicsDoor, call: HttpCall, reading: WriteReading, *, has_seqs: bool) -> None:
    """Write records that were read over several turns."""
    given = reading.given
    assert given is not None
    _write_fields(door, call, reading.fields(), given, has_seqs=has_seqs)


def _write_fields(
    door: TopicsDoor, call: HttpCall, fields: JsonFields, given: WriteRecords, *, has_seqs: bool
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
    door: TopicsDoor, call: HttpCall, name: str, fields: JsonFields, key: str, now_ms: i64
) -> Written:
    """Write the records of a message, all or nothing; create the topic if it is missing.

    `key` is the idempotency key if the body has none.
    """
    given = WriteRecords(door.yard, _objects(fields, PUBLISH_FIELDS))
    return write_given(door, call, name, fields, given, key, now_ms)


def write_given(
    door: TopicsDoor,
    call: HttpCall,
    name: str,
    fields: JsonFields,
    given: WriteRecords,
    key: str,
    now_ms: i64,
) -> Written:
    """Write records that were already read from a body."""
    node = text(fields, b"node", NODE_MAX)
    key = text(fields, b"idempotency_key", KEY_MAX) or key
    config = _config_if_new(door, call, fields, name)
    yard = door.yard
    keys = given.keys()
    if keys is not None:
        if key:
            raise HttpRefused(
                409,
                "two_kinds_of_keys",
                "a write has an idempotency_key or records with a key or job_id, not both",
            )
        find_duplicates(yard, name, config, keys, now_ms)
        if not keys.kept:
            return nothing_new(yard, name, keys)
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
                _prepare(door, name, config, len(jobs.new_jobs), jobs.size, now_ms)
            written = _write_queue(door, name, jobs, key, now_ms)
    except YardFull:
        if config is not None:
            drop_topic(yard, name, now_ms)
        raise
    written.is_created = config is not None
    written.keys = keys
    return written


def _objects(fields: JsonFields, known: frozenset[str]) -> list[JsonFields]:
    """Return the records of a write as JSON objects; `known` are the fields that it may have."""
    must_know = is_strict(fields, known)
    found = objects(fields, b"records", RECORDS_MAX)
    if found is None:
        raise invalid("a record must be an object")
    if not found:
        raise invalid("records must not be empty")
    if len(found) > RECORDS_MAX:
        raise too_many()
    if must_know:
        for one in found:
            check_strict(one, RECORD_FIELDS)
    return found


def too_many() -> HttpRefused:
    """Return the refusal of a write of too many records."""
    return HttpRefused(400, "batch_too_large", f"a write has at most {RECORDS_MAX} records")


def _wanted_config(call: HttpCall, fields: JsonFields, name: str) -> TopicConfig | None:
    """Return the configuration in the body of a write; None if there is none."""
    if fields.kind(b"config") in (KIND_ABSENT, KIND_NIL):
        return None
    value = fields.value(b"config")
    start, end = fields.find(b"config")
    inside = read_object(fields.data, start, end)
    if inside is None or not isinstance(value, dict):
        raise invalid("config must be an object")
    check_twins(inside)
    if flag(fields, b"strict", otherwise=False):
        check_strict(inside, CONFIG_FIELDS)
    return wanted_config(call, name, value)


def _config_if_new(
    door: TopicsDoor, call: HttpCall, fields: JsonFields, name: str
) -> TopicConfig | None:
    """Return the configuration for the topic that a write creates; None if the topic exists."""
    may_create = flag(fields, b"create", otherwise=True)
    wanted = _wanted_config(call, fields, name)
    if name in door.yard.logs or find_queue(door.yard, name) is not None:
        return None
    if not may_create:
        raise no_topic(name)
    if wanted is not None:
        # Choosing a configuration needs the admin scope, as in PUT.
        check_scope(call, Scope.ADMIN)
        check_dead_letter_topic(door.yard, wanted)
    check_topics(door)
    return TopicConfig() if wanted is None else wanted


def _prepare(
    door: TopicsDoor, name: str, config: TopicConfig | None, count: i64, size: i64, now_ms: i64
) -> None:
    """Check the limit on bytes, and create the topic if it is missing.

    The topic is not created if it rejects writes when full and the write exceeds even its caps.
    """
    if door.limits.total_bytes > 0:
        check_bytes(door, size, now_ms)
    if config is None:
        return
    if config.discard == DISCARD_REJECT and config.is_exceeded_by(count, size):
        raise too_large()
    make_topic(door.yard, name, config, now_ms)


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
    door: TopicsDoor, name: str, jobs: topic_queue.JobBatch, key: str, now_ms: i64
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
