"""Repeating jobs, and the schedule hooks of this door.

`repeat` is stored with a job as it was sent. When the job is done, its successor has the same
options and a count that is one higher, and is due one interval (or one slot of the pattern) later.
Intervals are counted from the previous due time, so that they do not drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from jobyard.engine.jobs.put import NewJob
from jobyard.engine.jobs.schedule import ScheduleHooks
from jobyard.errors import Refused
from jobyard.model.details import JobDetails
from jobyard.model.limits import NEVER_MS
from jobyard.model.timetable import Timetable
from jobyard.wire.msgpack.forms import ABSENT, KIND_ABSENT, KIND_MAP, KIND_NIL
from jobyard.wire.msgpack.read import MapFields, read_fields
from jobyard.wire.msgpack.write import Raw, encode

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.model.job import Job
    from jobyard.protocols.bunqueue.door import BunqueueDoor

# Other protocol fields that the successor inherits.
_KEPT_MARKS: Final = ("tags", "debounceId", "debounceTtl")
_NUMBERS: Final = ("limit", "count", "startDate", "endDate", "prevMillis", "offset")
# Above this a float cannot represent every integer.
_TIME_MAX: Final = float(1 << 53)


def check_repeat(fields: MapFields) -> None:
    """Refuse an invalid `repeat`."""
    kind = fields.kind(b"repeat")
    if kind in (KIND_ABSENT, KIND_NIL):
        return
    if kind != KIND_MAP:
        raise Refused("repeat must be an object")
    repeat = _repeat_of(fields)
    every = repeat.get("every")
    pattern = repeat.get("pattern")
    has_pattern = isinstance(pattern, str) and pattern.strip() != ""
    if (every is not None) == has_pattern:
        raise Refused("repeat requires exactly one of every or pattern")
    if every is not None and _finite(every, 0.0) < 1:
        raise Refused("repeat.every must be a positive finite number")
    for name in _NUMBERS:
        if repeat.get(name) is not None and _finite(repeat[name], _TIME_MAX) == _TIME_MAX:
            raise Refused(f"repeat.{name} must be a finite number")
    if has_pattern:
        zone = repeat.get("tz")
        try:
            Timetable(str(pattern), zone if isinstance(zone, str) and zone else None)
        except Refused as refusal:
            raise Refused(f"Invalid repeat pattern: {refusal}") from None


def _repeat_of(fields: MapFields) -> dict[str, object]:
    value = fields.value(b"repeat")
    assert isinstance(value, dict)
    return {str(key): one for key, one in value.items() if one is not ABSENT}


def _finite(value: object, otherwise: float) -> float:
    """Return a value as a float; `otherwise` if it is not a number or out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    return float(value) if -_TIME_MAX < value < _TIME_MAX else otherwise


def next_run_ms(repeat: dict[str, object], wall_ms: int) -> int:
    """Return the wall time of the next run after `wall_ms`; NEVER_MS if there is none."""
    offset_ms = int(_finite(repeat.get("offset"), 0.0))
    start_ms = int(_finite(repeat.get("startDate"), 0.0))
    before_ms = int(_finite(repeat.get("prevMillis"), 0.0))
    every_ms = int(_finite(repeat.get("every"), 0.0))
    if every_ms > 0:
        next_ms = wall_ms + every_ms + offset_ms
        if before_ms > 0:
            next_ms = before_ms + every_ms
        elif start_ms > wall_ms:
            next_ms = start_ms + offset_ms
        earliest_ms = max(wall_ms + 1, start_ms)
        if next_ms < earliest_ms:
            next_ms += -((next_ms - earliest_ms) // every_ms) * every_ms
    else:
        zone = repeat.get("tz")
        table = Timetable(
            str(repeat.get("pattern", "")), zone if isinstance(zone, str) and zone else None
        )
        after_ms = max(wall_ms, start_ms - 1, before_ms) - offset_ms
        slot_ms = table.next_after(after_ms)
        next_ms = slot_ms if slot_ms >= NEVER_MS else slot_ms + offset_ms
    end_ms = int(_finite(repeat.get("endDate"), 0.0))
    return NEVER_MS if 0 < end_ms < next_ms else next_ms


@final
class DoorScheduleHooks(ScheduleHooks):
    """Schedule hooks: which queues have workers, and the successor of a repeating job."""

    def __init__(self, door: BunqueueDoor) -> None:
        self._door = door

    def has_worker(self, queue: str) -> bool:
        """Return whether a worker is registered for a queue."""
        return any(queue in worker.queues for worker in self._door.workers.by_id.values())

    def successor(self, job: Job, body: bytes, now_ms: i64) -> NewJob | None:
        """Return the job that follows a done one, or None."""
        theirs = job.details
        assert theirs is not None
        marks = read_fields(theirs.protocol_fields, 0, len(theirs.protocol_fields))
        if marks is None or marks.kind(b"repeat") != KIND_MAP:
            return None
        repeat = _repeat_of(marks)
        count = int(_finite(repeat.get("count"), 0.0))
        limit = repeat.get("limit")
        if limit is not None and count >= _finite(limit, 0.0):
            return None
        wall_ms = int(self._door.wall_ms(now_ms))
        try:
            next_ms = next_run_ms(repeat, wall_ms)
        except Refused:
            # The time zone of its pattern is no longer known.
            return None
        if next_ms >= NEVER_MS:
            return None
        repeat["count"] = count + 1
        repeat["prevMillis"] = float(next_ms)
        new_job = NewJob(job.family, job.codec, body)
        new_job.rank = job.rank
        new_job.delay_ms = max(0, next_ms - wall_ms)
        new_job.own_ms = wall_ms
        new_job.policy = job.policy
        new_job.details = _details_like(theirs, marks, repeat, now_ms)
        return new_job


def _details_like(
    theirs: JobDetails, marks: MapFields, repeat: dict[str, object], now_ms: i64
) -> JobDetails:
    details = JobDetails()
    details.unique_key = theirs.unique_key
    details.key_mode = theirs.key_mode
    details.key_ttl_ms = theirs.key_ttl_ms
    if details.unique_key and details.key_ttl_ms > 0:
        details.key_until_ms = now_ms + details.key_ttl_ms
    details.group_id = theirs.group_id
    kept: dict[str, object] = {}
    for key in _KEPT_MARKS:
        raw = marks.raw(key.encode())
        if raw is not None:
            kept[key] = Raw(raw)
    kept["repeat"] = repeat
    details.protocol_fields = encode(kept)
    return details
