"""Reads and validates the fields of a PUSH; refusals use the original's error texts."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.put import NewJob, intern
from jobyard.errors import Refused
from jobyard.model.details import KEY_EXTENDS, KEY_PLAIN, KEY_REPLACES, JobDetails
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK
from jobyard.model.policy import (
    BACKOFF_EXPONENTIAL,
    BACKOFF_FIXED,
    CHILD_CONTINUES_PARENT,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    DURABLE,
    LIFO,
    REMOVE_DEAD,
    REMOVE_DONE,
    Policy,
)
from jobyard.model.throttle.settings import DAY_MS
from jobyard.protocols.bunqueue.commands.repeats import check_repeat
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.wire.msgpack.forms import (
    KIND_ABSENT,
    KIND_BOOL,
    KIND_MAP,
    KIND_NIL,
    KIND_TEXT,
    array_header,
    kind_of,
    skip,
)
from jobyard.wire.msgpack.read import MapFields, read_known
from jobyard.wire.msgpack.write import Raw, encode
from jobyard.wire.numbers import FINE, NO_NUMBER, NOT_FINITE, NOT_WHOLE, flaw_of, nearest

NAME_MAX: Final = 256
# Dependencies, children and tags of one job, each: as many as a flow may have jobs.
MEMBERS_MAX: Final = 10_000
YEAR_MS: Final = 365 * DAY_MS
# The largest integer that every client can represent.
SAFE_INTEGER_MAX: Final = (1 << 53) - 1
DATA_MAX: Final = 10 << 20
PRIORITY_MAX: Final = 1_000_000
GROUP_PRIORITY_MAX: Final = 2_097_151
ATTEMPTS_MAX: Final = 1000
ATTEMPTS_DEFAULT: Final = 3
BACKOFF_MS_DEFAULT: Final = 1000
BACKOFF_CAP_MS: Final = 3_600_000
# The latest time of a JavaScript Date.
DATE_MAX_MS: Final = 8_640_000_000_000_000

_WANTED: Final = {
    NO_NUMBER: "a number",
    NOT_FINITE: "a finite number",
    NOT_WHOLE: "an integer",
}

_NIL: Final = b"\xc0"
_MARKS_IN_NAME: Final = b"_-."
# Protocol fields: stored as sent and shown again; the engine does not use them.
_MARKS: Final = (
    b"tags",
    b"dependsOn",
    b"childrenIds",
    b"parentId",
    b"repeat",
    b"debounceId",
    b"debounceTtl",
)


@final
class PushEntries:
    """Iterates over the jobs of a command that adds many.

    An error in one of them is reported as `what`, its index, `colon` and the text of the error.
    """

    def __init__(self, fields: MapFields, what: str, most: i64, too_many: str, colon: str) -> None:
        self._data = fields.data
        self._ends = fields.ends
        self._what: str = what
        self._colon: str = colon
        self._place: int = 0
        start, self._end = fields.find(b"jobs")
        self.count: i64 = -1
        self._at: i64 = -1
        if start >= 0:
            self.count, self._at = array_header(self._data, start, self._end)
        if self.count < 0:
            raise Refused(f"{what} must be an array")
        if self.count > most:
            raise Refused(too_many)

    def size(self) -> i64:
        """Return the encoded size of the jobs."""
        return self._end - self._at

    def has_more(self) -> bool:
        """Return whether there is another job."""
        return self._at < self._end

    def next(self) -> MapFields:
        """Return the fields of the next job."""
        ends = self._ends
        if ends is None:
            after = skip(self._data, self._at, self._end)
        else:
            after = ends.after(self._data, self._at, self._end)
        entry = read_known(self._data, self._at, after, ends)
        if entry is None:
            raise Refused(f"{self._what}[{self._place}]{self._colon}must be an object")
        self._place += 1
        self._at = after
        return entry

    def all(self) -> list[MapFields]:
        """Return the fields of all jobs."""
        found: list[MapFields] = []
        while self.has_more():
            found.append(self.next())
        return found


def queue_name(fields: MapFields) -> str:
    """Return the queue name of a command, or refuse."""
    name = fields.content_at(fields.queue)
    if not name:
        raise Refused("Queue name is required")
    if len(name) > NAME_MAX:
        raise Refused("Queue name too long (max 256 characters)")
    for byte in name:
        # Letters, digits, and _ - . :
        if not (
            97 <= byte <= 122 or 48 <= byte <= 58 or 65 <= byte <= 90 or byte in _MARKS_IN_NAME
        ):
            raise Refused("Queue name contains invalid characters")
    return name.decode()


def number(fields: MapFields, key: bytes, otherwise: i64, least: i64, most: i64) -> i64:
    """Return an integer field within bounds; `otherwise` if it is missing."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return otherwise
    return checked(key.decode(), fields.value(key), least, most)


def needed(fields: MapFields, key: bytes, least: i64, most: i64) -> i64:
    """Return a required integer field within bounds."""
    if fields.kind(key) in (KIND_ABSENT, KIND_NIL):
        raise Refused(f"{key.decode()} is required")
    return checked(key.decode(), fields.value(key), least, most)


def checked(name: str, value: object, least: i64, most: i64) -> i64:
    """Return a value as an integer within bounds, or refuse."""
    flaw = flaw_of(value)
    if flaw != FINE:
        raise Refused(f"{name} must be {_WANTED[flaw]}")
    whole = nearest(value)
    if whole < least:
        raise Refused(f"{name} must be at least {least}")
    if whole > most:
        raise Refused(f"{name} must be at most {most}")
    return whole


def text(fields: MapFields, key: bytes) -> str:
    """Return a text field; empty if it is missing."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return ""
    value = fields.text(key)
    if value is None:
        raise Refused(f"{key.decode()} must be a string")
    return value


def job_data(fields: MapFields) -> bytes:
    """Return the encoded data of a job."""
    data = fields.raw_at(fields.job_data)
    if data is None:
        raise Refused("Job data is required")
    if len(data) > DATA_MAX:
        raise Refused("Job data too large (max 10MB)")
    return data


def read_new_job(door: BunqueueDoor, fields: MapFields, now_ms: i64) -> NewJob:
    """Read the job of a PUSH, or of one entry of a PUSHB."""
    data = job_data(fields)
    new_job = NewJob(BUNQUEUE, MSGPACK, data)
    new_job.own_ms = door.wall_ms(now_ms)
    name = _job_name(fields, data)
    if fields.others_count == 0 and fields.id < 0:
        new_job.policy = _plain_policy(door, name)
        return new_job
    new_job.delay_ms = number(fields, b"delay", 0, 0, YEAR_MS)
    new_job.details = _details(fields, now_ms)
    policy = _policy(fields, name)
    if new_job.details is not None and new_job.details.group_id:
        # Groups are always FIFO.
        policy.flags &= ~LIFO
        new_job.rank = number(fields, b"priority", 0, 0, GROUP_PRIORITY_MAX)
    else:
        new_job.rank = -number(fields, b"priority", 0, -PRIORITY_MAX, PRIORITY_MAX)
    new_job.policy = intern(door.yard, policy)
    stamped_ms = fields.number(b"timestamp", 0.0)
    if stamped_ms > DATE_MAX_MS:
        raise Refused(f"timestamp must be at most {DATE_MAX_MS}")
    if stamped_ms > 0:
        new_job.own_ms = nearest(stamped_ms)
    return new_job


def _job_name(fields: MapFields, data: bytes) -> str:
    kind: i64 = KIND_ABSENT
    if fields.name >= 0:
        kind = fields.kind(b"name")
    name: str | None = None
    if kind == KIND_TEXT:
        name = fields.text(b"name")
    elif kind not in (KIND_ABSENT, KIND_NIL):
        raise Refused("name must be a string")
    elif kind_of(data, 0) == KIND_MAP:
        # Older clients send the name in the data; it stays there too.
        inside = fields.inside_at(fields.job_data)
        name = None if inside is None else inside.text(b"name")
        if name is None or not 1 <= len(name) <= NAME_MAX:
            return "default"
    if name is None:
        return "default"
    if not 1 <= len(name) <= NAME_MAX:
        raise Refused("Job name must be between 1 and 256 characters")
    return name


def _plain_policy(door: BunqueueDoor, name: str) -> Policy:
    known = door.plain_policies.get(name)
    if known is not None and known.text in door.yard.policies:
        return known
    policy = Policy(0)
    policy.name = name
    policy.max_attempts = ATTEMPTS_DEFAULT
    policy.backoff_ms = BACKOFF_MS_DEFAULT
    policy.backoff_max_ms = BACKOFF_CAP_MS
    policy = intern(door.yard, policy)
    if len(door.plain_policies) > 1024:
        door.plain_policies.clear()
    door.plain_policies[name] = policy
    return policy


def _policy(fields: MapFields, name: str) -> Policy:
    policy = Policy(0)
    policy.name = name
    policy.max_attempts = number(fields, b"maxAttempts", ATTEMPTS_DEFAULT, 1, ATTEMPTS_MAX)
    policy.backoff_max_ms = BACKOFF_CAP_MS
    _read_backoff(fields, policy)
    policy.timeout_ms = number(fields, b"timeout", 0, 0, DAY_MS)
    policy.ttl_ms = number(fields, b"ttl", 0, 0, YEAR_MS)
    policy.stall_ms = number(fields, b"stallTimeout", 0, 0, DAY_MS)
    policy.stack_limit = number(fields, b"stackTraceLimit", 10, 0, 1000)
    policy.logs_kept = number(fields, b"keepLogs", -1, 0, 100_000)
    policy.size_limit = number(fields, b"sizeLimit", -1, 0, DATA_MAX)
    for key in (b"lifo", b"durable"):
        if fields.kind(key) not in (KIND_ABSENT, KIND_NIL, KIND_BOOL):
            raise Refused(f"{key.decode()} must be a boolean")
    for key, flag in (
        (b"lifo", LIFO),
        (b"removeOnComplete", REMOVE_DONE),
        (b"removeOnFail", REMOVE_DEAD),
        (b"durable", DURABLE),
    ):
        if fields.is_true(key):
            policy.flags |= flag
    for key, failure in (
        (b"failParentOnFailure", CHILD_FAILS_PARENT),
        (b"ignoreDependencyOnFailure", CHILD_IGNORED),
        (b"removeDependencyOnFailure", CHILD_REMOVED),
        (b"continueParentOnFailure", CHILD_CONTINUES_PARENT),
    ):
        if fields.is_true(key):
            policy.child_failure = failure
    return policy


def _read_backoff(fields: MapFields, policy: Policy) -> None:
    if fields.kind(b"backoff") == KIND_MAP:
        read_backoff_map(fields.value(b"backoff"), policy)
    else:
        policy.backoff_ms = number(fields, b"backoff", BACKOFF_MS_DEFAULT, 0, DAY_MS)
    if fields.kind(b"backoffConfig") == KIND_MAP:
        read_backoff_map(fields.value(b"backoffConfig"), policy)


def read_backoff_map(value: object, policy: Policy) -> None:
    """Read {type, delay, maxDelay} into a policy."""
    assert isinstance(value, dict)
    kind = value.get("type")
    if kind not in ("fixed", "exponential"):
        raise Refused("backoff.type must be 'fixed' or 'exponential'")
    policy.backoff_kind = BACKOFF_FIXED if kind == "fixed" else BACKOFF_EXPONENTIAL
    delay = value.get("delay", BACKOFF_MS_DEFAULT)
    policy.backoff_ms = checked("backoff.delay", delay, 0, DAY_MS)
    longest = value.get("maxDelay")
    if longest is not None:
        policy.backoff_max_ms = checked("backoff.maxDelay", longest, 0, DAY_MS)


def _details(fields: MapFields, now_ms: i64) -> JobDetails | None:
    details = JobDetails()
    details.custom_id = text(fields, b"jobId") or text(fields, b"customId")
    details.unique_key = text(fields, b"uniqueKey")
    if details.unique_key:
        _read_dedup(fields, details, now_ms)
    details.group_id = _group(fields)
    if fields.kind(b"tags") not in (KIND_ABSENT, KIND_NIL) and fields.texts(b"tags") is None:
        raise Refused("tags must be an array of strings")
    marks: dict[str, object] = {}
    for key in _MARKS:
        if fields.has(key) and not fields.is_nil(key):
            if fields.count(key) > MEMBERS_MAX:
                raise Refused(f"{key.decode()} must have at most {MEMBERS_MAX} entries")
            marks[key.decode()] = Raw(fields.raw(key) or _NIL)
    check_repeat(fields)
    if marks:
        details.protocol_fields = encode(marks)
    if not (details.custom_id or details.unique_key or details.group_id or details.protocol_fields):
        return None
    return details


def _read_dedup(fields: MapFields, details: JobDetails, now_ms: i64) -> None:
    details.key_mode = KEY_PLAIN
    if fields.kind(b"dedup") != KIND_MAP:
        return
    value = fields.value(b"dedup")
    assert isinstance(value, dict)
    ttl = value.get("ttl")
    if ttl is not None:
        details.key_ttl_ms = checked("dedup.ttl", ttl, 0, YEAR_MS)
        if details.key_ttl_ms > 0:
            details.key_until_ms = now_ms + details.key_ttl_ms
    if value.get("replace") is True:
        details.key_mode = KEY_REPLACES
    elif value.get("extend") is True:
        details.key_mode = KEY_EXTENDS


def _group(fields: MapFields) -> str:
    kind = fields.kind(b"groupId")
    if kind in (KIND_ABSENT, KIND_NIL):
        return ""
    name = fields.text(b"groupId")
    if not name:
        raise Refused("groupId must be a non-empty string")
    if len(name) > NAME_MAX:
        raise Refused("groupId must be at most 256 characters")
    if "\0" in name:
        raise Refused("groupId must not contain NUL")
    return name
