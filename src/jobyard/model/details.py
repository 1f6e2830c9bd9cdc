"""The parts of a job that most jobs never need, and the bytes they are remembered as.

An `Extra` is made on first use. What is remembered is a run of fields: tag u8, size i32, bytes. The
same fields tell the whole of it (in a base or a state record) or only what is new (in the record of
an end or a note); `absorb` reads both. `size_of` says what the whole would weigh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, mypyc_attr, u8

from jobyard.model.glidemq.fields import EXPECTANT, GlidePart
from jobyard.model.index.item import Item
from jobyard.model.members import MemberIndex

if TYPE_CHECKING:
    from jobyard.model.job import Job
    from jobyard.model.throttle.settings import Group

CUSTOM_ID: Final = 1
UNIQUE_KEY: Final = 2
GROUP: Final = 3
MARKS: Final = 4
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
REMARK: Final = 18
LEASE: Final = 19
# The part of a job of glide-mq, and one field of its overlay.
GLIDE: Final = 20
OVERLAY: Final = 21

TAG_SIZE: Final = 5

# Failed attempts that are told one by one; beyond these only the count is known.
FAILURES_KEPT: Final = 20

# Why a run or a job failed.
EXPLICIT: Final = 0
ATTEMPTS_USED: Final = 1
TIMED_OUT: Final = 2
STALLED: Final = 3
TTL_OVER: Final = 4
WORKER_LOST: Final = 5
UNKNOWN: Final = 6
LAID_ASIDE: Final = 7
DAMAGED: Final = 8
# Of a job that is done: a full disk had no room for its result.
RESULT_LOST: Final = 9

# How a member of a flow stands.
OPEN: Final = 0
SETTLED: Final = 1
FAILED: Final = 2
IGNORED: Final = 3
DROPPED: Final = 4

# What a second put with the same key does.
KEY_PLAIN: Final = 0
KEY_EXTENDS: Final = 1
KEY_REPLACES: Final = 2


@final
class Tally:
    """How often a job went through the rarer turns of its life."""

    def __init__(self) -> None:
        self.timeouts: i32 = 0
        self.releases: i32 = 0
        self.buries: i32 = 0
        self.kicks: i32 = 0
        self.stalls: i32 = 0


@final
@mypyc_attr(acyclic=True)
class Outcome(Item):
    """Why and when a job came to rest; `key` is its number among the endings of the queue."""

    def __init__(self, number: i64, job: Job, ended_ms: i64) -> None:
        super().__init__(number, 0, 0)
        self.job: Job = job
        self.ended_ms: i64 = ended_ms
        self.started_ms: i64 = 0
        self.reason: i64 = UNKNOWN
        self.error: str = ""
        self.codec: i64 = 0
        # What the job came to: empty while it is on disk only, where it is found by its place.
        self.result: bytes = b""
        self.result_size: i64 = 0
        self.result_place: i64 = 0
        self.result_crc: i64 = 0
        # How much of it is counted as held in memory.
        self.result_counted: i64 = 0

    def set_result(self, codec: i64, result: bytes) -> None:
        """Note what the job came to."""
        self.codec = codec
        self.result = result
        self.result_size = len(result)


@final
class Failure:
    """One failed attempt."""

    def __init__(
        self, attempt: i64, started_ms: i64, failed_ms: i64, reason: i64, error: str
    ) -> None:
        self.attempt: i64 = attempt
        self.started_ms: i64 = started_ms
        self.failed_ms: i64 = failed_ms
        self.reason: i64 = reason
        self.error: str = error


@final
class LogLine:
    """One line a worker wrote about a job."""

    def __init__(self, at_ms: i64, level: str, text: str) -> None:
        self.at_ms: i64 = at_ms
        self.level: str = level
        self.text: str = text


@final
class Member:
    """A job that another waits for, as the one that waits remembers it."""

    def __init__(self, child_id: i64, label: str) -> None:
        self.child_id: i64 = child_id
        self.label: str = label
        self.state: i64 = OPEN
        # Its result, or the text of its failure.
        self.value: bytes = b""

    def is_open(self) -> bool:
        """Tell whether it is still waited for."""
        return self.state == OPEN

    def weight(self) -> i64:
        """Return what it weighs as a field."""
        return TAG_SIZE + 24 + len(self.label.encode()) + len(self.value)


@final
class Remark:
    """What the writer of a record said of it beside its data; what is empty was not said."""

    def __init__(self, tag: str, node: str, meta: bytes) -> None:
        self.tag: str = tag
        self.node: str = node
        self.meta: bytes = meta


@final
class KeptLease:
    """A lease as the next boot must know it."""

    def __init__(self, name: str, node: str, started_ms: i64, until_ms: i64, ttl_ms: i64) -> None:
        self.name: str = name
        self.node: str = node
        self.started_ms: i64 = started_ms
        self.until_ms: i64 = until_ms
        self.ttl_ms: i64 = ttl_ms


@final
class Extra:
    """Everything rare about one job."""

    def __init__(self) -> None:
        # First what every job that enters is asked for: close together it is in memory sooner.
        self.custom_id: str = ""
        self.unique_key: str = ""
        self.group_id: str = ""
        self.group: Group | None = None
        self.remark: Remark | None = None
        self.glide: GlidePart | None = None
        self.members: list[Member] | None = None
        self._member_index: MemberIndex | None = None
        self.parent_id: i64 = 0
        # What these fields weigh where the ledger counts them.
        self.base_weight: i32 = 0
        self.trail_weight: i32 = 0
        # All of it as it is written when its job enters, if that was made ready.
        self.ahead: bytes = b""
        self.marks: bytes = b""
        self.tally: Tally | None = None
        self.outcome: Outcome | None = None
        self.key_mode: i64 = KEY_PLAIN
        self.key_ttl_ms: i64 = 0
        # 0: for as long as the job is not final.
        self.key_until_ms: i64 = 0
        self.progress: str = ""
        self.message: str = ""
        self.logs: list[LogLine] | None = None
        self.failures: list[Failure] | None = None
        self.stack: str = ""
        self.retries: i64 = 0
        self.retried_ms: i64 = 0
        # Of the lease that a job has, where it is to outlive the boot.
        self.kept: KeptLease | None = None
        # Its alarm for the end of its time to live; not remembered, made anew.
        self.expiry: Item | None = None
        # The lease by token that ended last, while nobody took the job since; not remembered.
        self.last_lease: i64 = 0
        # Segments with bases of this job from before its body was changed; found anew by replay.
        self.old_bases: list[int] | None = None

    def open_count(self) -> i64:
        """Return how many members are still waited for."""
        return 0 if self.members is None else self.member_index().open_count

    def set_members(self, members: list[Member] | None) -> None:
        """Wait for these and for no others."""
        self.members = members
        self._member_index = None

    def member_index(self) -> MemberIndex:
        """Return what is known of all members; whoever changes one elsewhere sets all anew."""
        index = self._member_index
        if index is None:
            if self.members is None:
                self.members = []
            index = MemberIndex(self.members)
            self._member_index = index
        return index


def is_put_blocked(extra: Extra) -> bool:
    """Tell whether a job waits for others from the beginning, be they known or still to come."""
    part = extra.glide
    return extra.open_count() > 0 or (part is not None and part.flags & EXPECTANT != 0)


@final
class Fields:
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


def failure_field(fields: Fields, failure: Failure) -> None:
    """Write one failed attempt."""
    numbers = (failure.attempt, failure.started_ms, failure.failed_ms, failure.reason)
    fields.numbers(FAILURE, numbers, failure.error.encode())


def log_field(fields: Fields, line: LogLine) -> None:
    """Write one line of a job's log."""
    fields.numbers(LOG, (line.at_ms,), f"{line.level}\0{line.text}".encode())


def member_field(fields: Fields, member: Member) -> None:
    """Write one member of a flow."""
    label = member.label.encode()
    rest = label + member.value
    fields.numbers(MEMBER, (member.child_id, member.state, len(label)), rest)


def key_field(fields: Fields, extra: Extra) -> None:
    """Write the key that keeps others like this job out."""
    fields.numbers(UNIQUE_KEY, (extra.key_mode, extra.key_ttl_ms), extra.unique_key.encode())
    if extra.key_until_ms != 0:
        fields.numbers(KEY_UNTIL, (extra.key_until_ms,), b"")


def remark_field(fields: Fields, remark: Remark) -> None:
    """Write what was said of a record."""
    tag = remark.tag.encode()
    node = remark.node.encode()
    fields.numbers(REMARK, (len(tag), len(node)), tag + node + remark.meta)


def kept_field(fields: Fields, kept: KeptLease) -> None:
    """Write a lease that is to outlive the boot."""
    name = kept.name.encode()
    numbers = (kept.started_ms, kept.until_ms, kept.ttl_ms, len(name))
    fields.numbers(LEASE, numbers, name + kept.node.encode())


def glide_field(fields: Fields, part: GlidePart) -> None:
    """Write the part of a job of glide-mq, but for its overlay."""
    data = part.encode()
    fields.begin(GLIDE, len(data))
    fields.out.write(data)


def overlay_field(fields: Fields, name: bytes, value: bytes | None) -> None:
    """Write one field that a client set, or that it is no more."""
    is_set = 0 if value is None else 1
    fields.numbers(OVERLAY, (is_set, len(name)), name + (value or b""))


def result_field(fields: Fields, codec: i64, result: bytes) -> None:
    """Write what a job came to."""
    fields.numbers(RESULT, (codec,), result)


def encode_extra(extra: Extra) -> bytes:
    """Return the whole of it as fields."""
    fields = Fields()
    _first_fields(fields, extra)
    if extra.members is not None:
        for member in extra.members:
            member_field(fields, member)
    _last_fields(fields, extra)
    outcome = extra.outcome
    if outcome is not None and outcome.result_size > 0:
        # The last of all: so it is found again where the record ends.
        assert len(outcome.result) == outcome.result_size
        result_field(fields, outcome.codec, outcome.result)
    return fields.done()


def _first_fields(fields: Fields, extra: Extra) -> None:
    if extra.custom_id:
        fields.text(CUSTOM_ID, extra.custom_id)
    if extra.unique_key:
        key_field(fields, extra)
    if extra.group_id:
        fields.text(GROUP, extra.group_id)
    if extra.marks:
        fields.begin(MARKS, len(extra.marks))
        fields.out.write(extra.marks)
    if extra.parent_id:
        fields.numbers(PARENT, (extra.parent_id,), b"")
    if extra.remark is not None:
        remark_field(fields, extra.remark)
    part = extra.glide
    if part is not None:
        glide_field(fields, part)
        if part.overlay is not None:
            for name, value in part.overlay.items():
                overlay_field(fields, name, value)


def _last_fields(fields: Fields, extra: Extra) -> None:
    if extra.progress or extra.message:
        fields.text(PROGRESS, f"{extra.progress}\0{extra.message}")
    if extra.logs is not None:
        for line in extra.logs:
            log_field(fields, line)
    if extra.failures is not None:
        for failure in extra.failures:
            failure_field(fields, failure)
    if extra.stack:
        fields.text(STACK, extra.stack)
    if extra.retries:
        fields.numbers(RETRIES, (extra.retries, extra.retried_ms), b"")
    if extra.kept is not None:
        kept_field(fields, extra.kept)
    outcome = extra.outcome
    if outcome is not None:
        _outcome_fields(fields, outcome)


def _result_weight(extra: Extra) -> i64:
    outcome = extra.outcome
    if outcome is None or outcome.result_size == 0:
        return 0
    return TAG_SIZE + 8 + outcome.result_size


def _outcome_fields(fields: Fields, outcome: Outcome) -> None:
    if outcome.reason != UNKNOWN or outcome.error:
        fields.numbers(REASON, (outcome.reason,), outcome.error.encode())
    if outcome.started_ms:
        fields.numbers(STARTED, (outcome.started_ms,), b"")


def place_result(job: Job, segment: i64, end: i64) -> None:
    """Note where the result of a job lies: at the end of a record that tells all of the job."""
    extra = job.extra
    outcome = None if extra is None else extra.outcome
    if outcome is not None and outcome.result_size > 0:
        outcome.result_place = (segment << 32) | (end - outcome.result_size)


def size_of(extra: Extra) -> i64:
    """Return the length of `encode_extra`; most extras hold counters only, which are no fields."""
    if not (
        extra.marks
        or extra.remark is not None
        or extra.glide is not None
        or extra.custom_id
        or extra.unique_key
        or extra.group_id
        or extra.parent_id
        or extra.members is not None
        or extra.progress
        or extra.message
        or extra.logs is not None
        or extra.failures is not None
        or extra.stack
        or extra.retries
        or extra.kept is not None
    ):
        outcome = extra.outcome
        if outcome is None:
            return 0
        size: i64 = 0
        if outcome.reason != UNKNOWN or outcome.error:
            size += TAG_SIZE + 8 + len(outcome.error.encode())
        if outcome.started_ms:
            size += TAG_SIZE + 8
        return size + _result_weight(extra)
    fields = Fields()
    _first_fields(fields, extra)
    _last_fields(fields, extra)
    size = len(fields.done()) + _result_weight(extra)
    return size if extra.members is None else extra.member_index().size + size


def absorb(extra: Extra, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    """Take on what fields say; times in them are moved by `offset_ms` onto this boot's clock."""
    while at < end:
        tag: i64 = data[at]
        size = i64(read_i32_le(data, at + 1))
        at += TAG_SIZE
        _absorb_one(extra, tag, data, at, at + size, offset_ms)
        at += size


def _absorb_one(extra: Extra, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    if tag in (RESULT, REASON, STARTED):
        _absorb_outcome(extra, tag, data, at, end, offset_ms)
    elif tag == FAILURE:
        _absorb_failure(extra, data, at, end, offset_ms)
    elif tag == STACK:
        extra.stack = data[at:end].decode()
    elif tag == PROGRESS:
        extra.progress, _, extra.message = data[at:end].decode().partition("\0")
    elif tag == LOG:
        level, _, text = data[at + 8 : end].decode().partition("\0")
        if extra.logs is None:
            extra.logs = []
        extra.logs.append(LogLine(read_i64_le(data, at) + offset_ms, level, text))
    elif tag == LOGS_CUT:
        kept = int(read_i64_le(data, at))
        extra.logs = extra.logs[-kept:] if extra.logs is not None and kept > 0 else None
    elif tag == MEMBER:
        _absorb_member(extra, data, at, end)
    else:
        _absorb_identity(extra, tag, data, at, end, offset_ms)


def _absorb_identity(
    extra: Extra, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64
) -> None:
    if tag == CUSTOM_ID:
        extra.custom_id = data[at:end].decode()
    elif tag == UNIQUE_KEY:
        extra.key_mode = read_i64_le(data, at)
        extra.key_ttl_ms = read_i64_le(data, at + 8)
        extra.unique_key = data[at + 16 : end].decode()
    elif tag == KEY_UNTIL:
        extra.key_until_ms = read_i64_le(data, at) + offset_ms
    elif tag == KEY_DROPPED:
        extra.unique_key = ""
    elif tag == GROUP:
        extra.group_id = data[at:end].decode()
    elif tag == MARKS:
        extra.marks = data[at:end]
    elif tag == PARENT:
        extra.parent_id = read_i64_le(data, at)
    elif tag == RETRIES:
        extra.retries = read_i64_le(data, at)
        extra.retried_ms = read_i64_le(data, at + 8) + offset_ms
    elif tag == REMARK:
        _absorb_remark(extra, data, at, end)
    else:
        _absorb_kept(extra, tag, data, at, end, offset_ms)


def _absorb_kept(extra: Extra, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    if tag in (GLIDE, OVERLAY):
        _absorb_glide(extra, tag, data, at, end, offset_ms)
        return
    if tag != LEASE:
        return
    name_end: i64 = at + 32 + read_i64_le(data, at + 24)
    extra.kept = KeptLease(
        data[at + 32 : name_end].decode(),
        data[name_end:end].decode(),
        read_i64_le(data, at) + offset_ms,
        read_i64_le(data, at + 8) + offset_ms,
        read_i64_le(data, at + 16),
    )


def _absorb_glide(extra: Extra, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    part = extra.glide
    if part is None:
        part = GlidePart()
        extra.glide = part
    if tag == GLIDE:
        part.fill(data, at, offset_ms)
        return
    value_at: i64 = at + 16 + read_i64_le(data, at + 8)
    is_set = read_i64_le(data, at) != 0
    part.set_field(data[at + 16 : value_at], data[value_at:end] if is_set else None)


def _absorb_remark(extra: Extra, data: bytes, at: i64, end: i64) -> None:
    tag_at: i64 = at + 16
    node_at: i64 = tag_at + read_i64_le(data, at)
    meta_at: i64 = node_at + read_i64_le(data, at + 8)
    extra.remark = Remark(
        data[tag_at:node_at].decode(), data[node_at:meta_at].decode(), data[meta_at:end]
    )


def _absorb_outcome(extra: Extra, tag: i64, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    outcome = extra.outcome
    if outcome is None:
        return
    if tag == RESULT:
        outcome.set_result(read_i64_le(data, at), data[at + 8 : end])
    elif tag == REASON:
        outcome.reason = read_i64_le(data, at)
        outcome.error = data[at + 8 : end].decode()
    else:
        outcome.started_ms = read_i64_le(data, at) + offset_ms


def _absorb_failure(extra: Extra, data: bytes, at: i64, end: i64, offset_ms: i64) -> None:
    failures = extra.failures
    if failures is None:
        failures = []
        extra.failures = failures
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


def _absorb_member(extra: Extra, data: bytes, at: i64, end: i64) -> None:
    label_end = at + 24 + read_i64_le(data, at + 16)
    member = Member(read_i64_le(data, at), data[at + 24 : label_end].decode())
    member.state = read_i64_le(data, at + 8)
    member.value = data[label_end:end]
    extra.member_index().put(member)
