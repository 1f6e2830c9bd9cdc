"""Stages records for a topic under a transaction: they are stored, and no reader sees them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.topics import stages
from jobyard.engine.topics.staged_rows import ChunkDraft, StagedRow
from jobyard.errors import Refused
from jobyard.model.topic.config import TOPIC_NAME_MAX
from jobyard.model.topic.key_table import digest_of
from jobyard.model.topic.txn import ChunkPlace
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.topics.answers import begin, finish, put_bool, put_int
from jobyard.protocols.topics.api import check_name, check_open
from jobyard.protocols.topics.body import (
    array_place,
    check_head,
    check_strict,
    check_twins,
    fault_of,
    invalid,
    is_strict,
    text,
)
from jobyard.protocols.topics.find import find_queue, no_topic
from jobyard.protocols.topics.limits import check_bytes
from jobyard.protocols.topics.names import check_topic_name
from jobyard.protocols.topics.records.keys import only_for_queues, read_key
from jobyard.protocols.topics.records.record import record_of
from jobyard.protocols.topics.records.writes import (
    OBJECT_KEYS_MAX,
    RECORD_FIELDS,
    RECORDS_MAX,
    too_many,
)
from jobyard.protocols.topics.txn_fields import check_id, in_http, needed_whole, put_limits
from jobyard.protocols.topics.txns.access import check_txn
from jobyard.wire.json.check import JsonCheck
from jobyard.wire.json.read import Checked, JsonFields
from jobyard.wire.json.scan import JSON_DEPTH_MAX
from jobyard.wire.json.write import write_text
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

if TYPE_CHECKING:
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor

STAGE_BODY_MAX: Final = 8 << 20
PART_MAX: Final = 1 << 31
# Greater numbers are clamped to the next one.
ATTEMPT_MAX: Final = (1 << 62) - 1
CHUNKS_MAX: Final = 1 << 20
QUEUE_NAME_MAX: Final = 256

_FIELDS: Final = frozenset({"topic", "part", "attempt", "chunk", "records", "strict"})
_RECORD_FIELDS: Final = RECORD_FIELDS | {"with"}
_RECORD_UNITS: Final = 3
_KEYED_UNITS: Final = 4
_BYTES_PER_UNIT: Final = 1024


@final
class StageReading(Task):
    """Reads the body of a stage in slices."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.is_reading = True
        self._check = JsonCheck(body, JSON_DEPTH_MAX)
        self._checked = Checked(self._check)
        self._fields: JsonFields | None = None
        self._is_strict: bool = False
        self._node: str = ""
        self.draft = ChunkDraft()
        # Whether a record has fields that only jobs have.
        self.has_job_fields: bool = False

    def fields(self) -> JsonFields:
        """Return the fields of a body that was read to its end."""
        assert self._fields is not None
        return self._fields

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Check part of the body, then read some records."""
        done: i64 = 0
        if not self._check.is_done():
            done = self._check.proceed(most)
            if not self._check.is_done():
                return max(done, most)
        if self._fields is None:
            self._begin()
        while done < most and self._checked.has_more():
            done += self._read_one()
        return max(done, most) if self._checked.has_more() else min(done, most - 1)

    def _begin(self) -> None:
        fields = None if self._check.is_bad else self._checked.top(OBJECT_KEYS_MAX)
        if fields is None:
            raise invalid(fault_of(self._check.data))
        self._fields = check_twins(fields)
        self._is_strict = is_strict(fields, _FIELDS)
        start, end = array_place(fields, b"records")
        self._checked.enter(start, end)
        if not self._checked.has_more():
            raise invalid("records must not be empty")

    def _read_one(self) -> i64:
        one = self._checked.next(OBJECT_KEYS_MAX)
        if one is None:
            raise invalid("a record must be an object")
        is_bare = one.is_only(b"data")
        if not is_bare:
            check_twins(one)
            if self._is_strict:
                check_strict(one, _RECORD_FIELDS)
        if self.draft.rows.count() >= RECORDS_MAX:
            raise too_many()
        row = _bare_row(one) if is_bare else _row_of(one)
        self.has_job_fields = self.has_job_fields or row.is_for_queue()
        self.draft.add(row)
        if self.draft.rows.is_too_large:
            raise HttpRefused(400, "record_too_large", "the labels of a record are too long")
        units: i64 = _RECORD_UNITS if not row.key_digest else _KEYED_UNITS
        return units + len(row.data) // _BYTES_PER_UNIT


def _bare_row(one: JsonFields) -> StagedRow:
    return StagedRow(record_of(one, "").data, b"", "", "")


def _row_of(one: JsonFields) -> StagedRow:
    record = record_of(one, "")
    row = StagedRow(record.data, record.meta, record.tag, record.node)
    row.is_binary = record.is_binary
    row.delay_ms = record.delay_ms
    row.priority = record.priority
    row.name = record.name
    row.job_id = record.job_id
    row.max_attempts = record.max_attempts
    key = read_key(one)
    if key:
        row.key_digest = digest_of(key)
    if one.kind(b"with") not in (KIND_ABSENT, KIND_NIL):
        link = one.value(b"with")
        if not isinstance(link, list) or len(link) != 2:
            raise invalid("with must be a queue and a seq")
        queue, seq = link
        if not isinstance(queue, str) or not 0 < len(queue) <= QUEUE_NAME_MAX:
            raise invalid("with must be a queue and a seq")
        if not isinstance(seq, int) or isinstance(seq, bool) or not 0 < seq < 1 << 62:
            raise invalid("with must be a queue and a seq")
        row.with_queue = queue
        row.with_seq = seq
    return row


def stage(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/txns/{txn}/stage."""
    check_id(call.params[0], "the name of a transaction")
    check_open(call)
    check_head(call, STAGE_BODY_MAX)
    reading = StageReading(call.request.body)
    LongCall(door.yard.tasks, call, reading, partial(_stage_read, door, call, reading)).begin()


def _stage_read(door: TopicsDoor, call: HttpCall, reading: StageReading) -> None:
    name = call.params[0]
    check_txn(door.yard, call, name)
    fields = reading.fields()
    topic = staged_topic(door, call, fields)
    if reading.has_job_fields and topic in door.yard.logs:
        raise only_for_queues()
    part = needed_whole(fields, b"part", PART_MAX)
    attempt = needed_whole(fields, b"attempt", ATTEMPT_MAX)
    number = needed_whole(fields, b"chunk", CHUNKS_MAX - 1)
    place = ChunkPlace(topic, part, attempt, number)
    if door.limits.total_bytes > 0 and stages.is_new_chunk(door.yard, name, place):
        check_bytes(door, reading.draft.rows.content_size, call.now_ms)
    try:
        staged = stages.stage(door.yard, name, place, reading.draft, call.now_ms)
    except Refused as refused:
        raise in_http(refused) from None
    out = begin(topic)
    out.write(b',"txn":')
    write_text(out, name)
    put_int(out, b',"part":', part)
    put_int(out, b',"attempt":', attempt)
    put_int(out, b',"chunk":', number)
    put_int(out, b',"rows":', staged.rows)
    put_int(out, b',"bytes":', staged.size)
    put_limits(out, door.yard)
    put_bool(out, b',"duplicate":', value=staged.is_duplicate)
    call.await_batch(staged.batch)
    finish(call, out)


def named_topic(call: HttpCall, fields: JsonFields) -> str:
    """Return the topic that a stage or a part of a commit names."""
    topic = text(fields, b"topic", TOPIC_NAME_MAX)
    check_topic_name(topic)
    check_name(call, topic)
    return topic


def staged_topic(door: TopicsDoor, call: HttpCall, fields: JsonFields) -> str:
    """Return the topic that a stage names; it must exist."""
    topic = named_topic(call, fields)
    if topic not in door.yard.logs and find_queue(door.yard, topic) is None:
        raise no_topic(topic)
    return topic
