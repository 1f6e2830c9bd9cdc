"""The bytes in which the details of a job are stored.

A job's details are a run of fields: tag u8, size i32, bytes. A run holds either all fields (in a
base or a state record) or only the changed ones (in the record of an end or a note); `absorb` reads
both. `size_of` returns the size of all fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from jobyard.model.details import (
    FAILURES_KEPT,
    DurableLease,
    Failure,
    FailureReason,
    JobDetails,
    LogLine,
    Origin,
    Outcome,
    RecordMeta,
)
from jobyard.model.glidemq.fields import GlidePart
from jobyard.model.members import TAG_SIZE, Member

if TYPE_CHECKING:
    from jobyard.model.job import Job


@final
class Tag:
    """The tag of an encoded field."""

    CUSTOM_ID: Final = 1
    UNIQUE_KEY: Final = 2
    GROUP: Final = 3
    PROTOCOL_FIELDS: Final = 4
    MEMBER: Final = 5
    PROGRESS: Final = 6
    LOG: Final = 7
    FAILURE: Final = 8
    STACK: Final = 9
    RESULT: Final = 10
    REASON: Final = 11
    KEY_UNTIL: Final = 12
    KEY_DROPPED: Final = 13
    LOGS_CUT: Final = 14
    RETRIES: Final = 15
    STARTED: Final = 16
    PARENT: Final = 17
    RECORD_META: Final = 18
    LEASE: Final = 19
    # The glide-mq part of a job, and one field of its overlay.
    GLIDE: Final = 20
    OVERLAY: Final = 21
    ERROR: Final = 22
    # Where a dead letter is, and why the job became one; only in the record of its end.
    LETTER: Final = 23
    ORIGIN: Final = 24


@final
class FieldWriter:
    """Writes a run of fields."""

    def __init__(self) -> None:
        self.out = BytesWriter()

    def begin(self, tag: i64, size: i64) -> None:
        """Write the head of a field whose `size` bytes follow."""
        self.out.append(u8(tag))
        write_i32_le(self.out, i32(size))

    def text(self, tag: i64, text: str) -> None:
        """Write a field of text."""
        data = text.encode()
        self.begin(tag, len(data))
        self.out.write(data)

    def number(self, tag: i64, number: i64) -> None:
        """Write a field of one number."""
        self.begin(tag, 8)
        write_i64_le(self.out, number)

    def numbers(self, tag: i64, numbers: tuple[i64, ...], rest: bytes) -> None:
        """Write a field of numbers followed by bytes."""
        self.begin(tag, 8 * len(numbers) + len(rest))
        for number in numbers:
            write_i64_le(self.out, number)
        self.out.write(rest)

    def done(self) -> bytes:
        """Return all fields."""
        return self.out.getvalue()


def failure_field(fields: FieldWriter, failure: Failure) -> None:
    """Write one failed attempt."""
    numbers = (failure.attempt, failure.started_ms, failure.failed_ms, failure.reason)
    fields.numbers(Tag.FAILURE, numbers, failure.error.encode())


def log_field(fields: FieldWriter, line: LogLine) -> None:
    """Write one line of a job's log."""
    fields.numbers(Tag.LOG, (line.at_ms,), f"{line.level}\0{line.text}".encode())


def member_field(fields: FieldWriter, member: Member) -> None:
    """Write one member of a flow."""
    label = member.label.encode()
    rest = label + member.value
    fields.numbers(Tag.MEMBER, (member.child_id, member.state, len(label)), rest)


def key_field(fields: FieldWriter, details: JobDetails) -> None:
    """Write the key that keeps duplicates of this job out."""
    fields.numbers(
        Tag.UNIQUE_KEY, (details.key_mode, details.key_ttl_ms), details.unique_key.encode()
    )
    if details.key_until_ms != 0:
        fields.numbers(Tag.KEY_UNTIL, (details.key_until_ms,), b"")


def record_meta_field(fields: FieldWriter, record_meta: RecordMeta) -> None:
    """Write the metadata of a record."""
    tag = record_meta.tag.encode()
    node = record_meta.node.encode()
    fields.numbers(Tag.RECORD_META, (len(tag), len(node)), tag + node + record_meta.meta)


def durable_lease_field(fields: FieldWriter, lease: DurableLease) -> None:
    """Write a durable lease."""
    name = lease.name.encode()
    numbers = (lease.started_ms, lease.until_ms, lease.ttl_ms, len(name))
    fields.numbers(Tag.LEASE, numbers, name + lease.node.encode())


def error_field(error: str) -> bytes:
    """Return the error of a run as the only changed field; nothing if it is empty."""
    if not error:
        return b""
    fields = FieldWriter()
    fields.text(Tag.ERROR, error)
    return fields.done()


def letter_field(topic: str, seq: i64, reason: str) -> bytes:
    """Return where a dead letter is, and why the job became one, as a field."""
    name = topic.encode()
    fields = FieldWriter()
    fields.numbers(Tag.LETTER, (seq, len(name)), name + reason.encode())
    return fields.done()


def glide_field(fields: FieldWriter, part: GlidePart) -> None:
    """Write the glide-mq part of a job, without its overlay."""
    data = part.encode()
    fields.begin(Tag.GLIDE, len(data))
    fields.out.write(data)


def overlay_field(fields: FieldWriter, name: bytes, value: bytes | None) -> None:
    """Write one field that a client set, or its removal."""
    is_set = 0 if value is None else 1
    fields.numbers(Tag.OVERLAY, (is_set, len(name)), name + (value or b""))


def result_field(fields: FieldWriter, codec: i64, result: bytes) -> None:
    """Write the result of a job."""
    fields.numbers(Tag.RESULT, (codec,), result)


def encode_details(details: JobDetails) -> bytes:
    """Return all details as fields."""
    fields = FieldWriter()
    _first_fields(fields, details)
    if details.members is not None:
        for member in details.members:
            member_field(fields, member)
    _last_fields(fields, details)
    outcome = details.outcome
    if outcome is not None and outcome.result_size > 0:
        # The last field, so that it is found again by the end of the record.
        assert len(outcome.result) == outcome.result_size
        result_field(fields, outcome.codec, outcome.result)
    return fields.done()


def _first_fields(fields: FieldWriter, details: JobDetails) -> None:
    if details.custom_id:
        fields.text(Tag.CUSTOM_ID, details.custom_id)
    if details.unique_key:
        key_field(fields, details)
    if details.group_id:
        fields.text(Tag.GROUP, details.group_id)
    if details.protocol_fields:
        fields.begin(Tag.PROTOCOL_FIELDS, len(details.protocol_fields))
        fields.out.write(details.protocol_fields)
    if details.parent_id:
        fields.numbers(Tag.PARENT, (details.parent_id,), b"")
    _topic_fields(fields, details)
    part = details.glide
    if part is not None:
        glide_field(fields, part)
        if part.overlay is not None:
            for name, value in part.overlay.items():
                overlay_field(fields, name, value)


def _topic_fields(fields: FieldWriter, details: JobDetails) -> None:
    if details.record_meta is not None:
        record_meta_field(fields, details.record_meta)
    origin = details.origin
    if origin is not None:
        fields.numbers(Tag.ORIGIN, (origin.job_id,), origin.queue.encode())


def _error_fields(fields: FieldWriter, details: JobDetails) -> None:
    if details.failures is not None:
        for failure in details.failures:
            failure_field(fields, failure)
    if details.stack:
        fields.text(Tag.STACK, details.stack)
    if details.last_error:
        fields.text(Tag.ERROR, details.last_error)


def _last_fields(fields: FieldWriter, details: JobDetails) -> None:
    if details.progress or details.message:
        fields.text(Tag.PROGRESS, f"{details.progress}\0{details.message}")
    if details.logs is not None:
        for line in details.logs:
            log_field(fields, line)
    _error_fields(fields, details)
    if details.retries:
        fields.numbers(Tag.RETRIES, (details.retries, details.retried_ms), b"")
    if details.durable_lease is not None:
        durable_lease_field(fields, details.durable_lease)
    outcome = details.outcome
    if outcome is not None:
        _outcome_fields(fields, outcome)


def _result_weight(details: JobDetails) -> i64:
    outcome = details.outcome
    if outcome is None or outcome.result_size == 0:
        return 0
    return TAG_SIZE + 8 + outcome.result_size


def _outcome_fields(fields: FieldWriter, outcome: Outcome) -> None:
    if outcome.reason != FailureReason.UNKNOWN or outcome.error:
        fields.numbers(Tag.REASON, (outcome.reason,), outcome.error.encode())
    if outcome.started_ms:
        fields.numbers(Tag.STARTED, (outcome.started_ms,), b"")


def place_result(job: Job, segment: i64, end: i64) -> None:
    """Note where the result of a job is: at the end of a record that holds the whole job."""
    details = job.details
    outcome = None if details is None else details.outcome
    if outcome is not None and outcome.result_size > 0:
        outcome.result_place = (segment << 32) | (end - outcome.result_size)


def size_of(details: JobDetails) -> i64:
    """Return the length of `encode_details`; most jobs have at most an outcome."""
    if not (
        details.protocol_fields
        or details.record_meta is not None
        or details.glide is not None
        or details.custom_id
        or details.unique_key
        or details.group_id
        or details.parent_id
        or details.members is not None
        or details.progress
        or details.message
        or details.logs is not None
        or details.failures is not None
        or details.stack
        or details.last_error
        or details.origin is not None
        or details.retries
        or details.durable_lease is not None
    ):
        outcome = details.outcome
        if outcome is None:
            return 0
        size: i64 = 0
        if outcome.reason != FailureReason.UNKNOWN or outcome.error:
            size += TAG_SIZE + 8 + len(outcome.error.encode())
        if outcome.started_ms:
            size += TAG_SIZE + 8
        return size + _result_weight(details)
    fields = FieldWriter()
    _first_fields(fields, details)
    _last_fields(fields, details)
    size = len(fields.done()) + _result_weight(details)
    return size if details.members is None else details.member_index().size + size


def absorb(details: JobDetails, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    """Apply encoded fields; times in them are moved by `offset_ms` onto this boot's clock."""
    while at < end:
        tag: i64 = data[at]
        size = i64(read_i32_le(data, at + 1))
        at += TAG_SIZE
        _absorb_one(details, tag, data, at, at + size, offset_ms)
        at += size


def _absorb_one(
    details: JobDetails, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64
) -> None:
    if tag in (Tag.RESULT, Tag.REASON, Tag.STARTED):
        _absorb_outcome(details, tag, data, at, end, offset_ms)
    elif tag == Tag.FAILURE:
        _absorb_failure(details, data, at, end, offset_ms)
    elif tag == Tag.STACK:
        details.stack = data[at:end].decode()
    elif tag == Tag.PROGRESS:
        details.progress, _, details.message = data[at:end].decode().partition("\0")
    elif tag == Tag.LOG:
        level, _, text = data[at + 8 : end].decode().partition("\0")
        if details.logs is None:
            details.logs = []
        details.logs.append(LogLine(read_i64_le(data, at) + offset_ms, level, text))
    elif tag == Tag.LOGS_CUT:
        kept = int(read_i64_le(data, at))
        details.logs = details.logs[-kept:] if details.logs is not None and kept > 0 else None
    elif tag == Tag.MEMBER:
        _absorb_member(details, data, at, end)
    else:
        _absorb_identity(details, tag, data, at, end, offset_ms)


def _absorb_identity(
    details: JobDetails, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64
) -> None:
    if tag == Tag.CUSTOM_ID:
        details.custom_id = data[at:end].decode()
    elif tag == Tag.UNIQUE_KEY:
        details.key_mode = read_i64_le(data, at)
        details.key_ttl_ms = read_i64_le(data, at + 8)
        details.unique_key = data[at + 16 : end].decode()
    elif tag == Tag.KEY_UNTIL:
        details.key_until_ms = read_i64_le(data, at) + offset_ms
    elif tag == Tag.KEY_DROPPED:
        details.unique_key = ""
    elif tag == Tag.GROUP:
        details.group_id = data[at:end].decode()
    elif tag == Tag.PROTOCOL_FIELDS:
        details.protocol_fields = data[at:end]
    elif tag == Tag.PARENT:
        details.parent_id = read_i64_le(data, at)
    elif tag == Tag.RETRIES:
        details.retries = read_i64_le(data, at)
        details.retried_ms = read_i64_le(data, at + 8) + offset_ms
    elif tag in (Tag.RECORD_META, Tag.ERROR, Tag.ORIGIN):
        _absorb_of_topic(details, tag, data, at, end)
    else:
        _absorb_durable_lease(details, tag, data, at, end, offset_ms)


def _absorb_durable_lease(
    details: JobDetails, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64
) -> None:
    if tag in (Tag.GLIDE, Tag.OVERLAY):
        _absorb_glide(details, tag, data, at, end, offset_ms)
        return
    if tag != Tag.LEASE:
        return
    name_end: i64 = at + 32 + read_i64_le(data, at + 24)
    details.durable_lease = DurableLease(
        data[at + 32 : name_end].decode(),
        data[name_end:end].decode(),
        read_i64_le(data, at) + offset_ms,
        read_i64_le(data, at + 8) + offset_ms,
        read_i64_le(data, at + 16),
    )


def _absorb_glide(
    details: JobDetails, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64
) -> None:
    part = details.glide
    if part is None:
        part = GlidePart()
        details.glide = part
    if tag == Tag.GLIDE:
        part.fill(data, at, offset_ms)
        return
    value_at: i64 = at + 16 + read_i64_le(data, at + 8)
    is_set = read_i64_le(data, at) != 0
    part.set_field(data[at + 16 : value_at], data[value_at:end] if is_set else None)


def _absorb_of_topic(details: JobDetails, tag: i64, data: bytes, at: i64, end: i64) -> None:
    if tag == Tag.ERROR:
        details.last_error = data[at:end].decode()
        return
    if tag == Tag.ORIGIN:
        details.origin = Origin(read_i64_le(data, at), data[at + 8 : end].decode())
        return
    tag_at: i64 = at + 16
    node_at: i64 = tag_at + read_i64_le(data, at)
    meta_at: i64 = node_at + read_i64_le(data, at + 8)
    details.record_meta = RecordMeta(
        data[tag_at:node_at].decode(), data[node_at:meta_at].decode(), data[meta_at:end]
    )


def _absorb_outcome(
    details: JobDetails, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64
) -> None:
    outcome = details.outcome
    if outcome is None:
        return
    if tag == Tag.RESULT:
        outcome.set_result(read_i64_le(data, at), data[at + 8 : end])
    elif tag == Tag.REASON:
        outcome.reason = read_i64_le(data, at)
        outcome.error = data[at + 8 : end].decode()
    else:
        outcome.started_ms = read_i64_le(data, at) + offset_ms


def _absorb_failure(details: JobDetails, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    failures = details.failures
    if failures is None:
        failures = []
        details.failures = failures
    failures.append(
        Failure(
            read_i64_le(data, at),
            read_i64_le(data, at + 8) + offset_ms,
            read_i64_le(data, at + 16) + offset_ms,
            read_i64_le(data, at + 24),
            data[at + 32 : end].decode(),
        )
    )
    if len(failures) > FAILURES_KEPT:
        del failures[0]


def _absorb_member(details: JobDetails, data: bytes, at: i64, end: i64) -> None:
    label_end = at + 24 + read_i64_le(data, at + 16)
    member = Member(read_i64_le(data, at), data[at + 24 : label_end].decode())
    member.state = read_i64_le(data, at + 8)
    member.value = data[label_end:end]
    details.member_index().put(member)
