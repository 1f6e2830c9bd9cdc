"""Jobs that repeat themselves, and what the engine asks this door about schedules.

`repeat` travels with a job as it was sent. Once the job is done the next one is like it, counts one
more, and is due one interval (or one slot of the pattern) later; a rhythm that was begun is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from jobyard.engine.jobs.put import Wish
from jobyard.engine.jobs.schedule import Counsel
from jobyard.errors import Refused
from jobyard.model.details import Extra
from jobyard.model.limits import NEVER_MS
from jobyard.model.timetable import Timetable
from jobyard.wire.msgpack.forms import ABSENT, KIND_ABSENT, KIND_MAP, KIND_NIL
from jobyard.wire.msgpack.read import Fields, read_fields
from jobyard.wire.msgpack.write import Raw, encode

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.model.job import Job
    from jobyard.protocols.bunqueue.door import BunqueueDoor

# What else of the marks of a job its successor has.
_KEPT_MARKS: Final = ("tags", "debounceId", "debounceTtl")
_NUMBERS: Final = ("limit", "count", "startDate", "endDate", "prevMillis", "offset")
# Beyond this a float is no whole number of milliseconds any more.
_TIME_MAX: Final = float(1 << 53)


def check_repeat(fields: Fields) -> None:
    """Refuse a `repeat` from which no next job follows."""
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


def _repeat_of(fields: Fields) -> dict[str, object]:
    value = fields.value(b"repeat")
    assert isinstance(value, dict)
    return {str(key): one for key, one in value.items() if one is not ABSENT}


def _finite(value: object, otherwise: float) -> float:
    """Return a number that is one, within what a time can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    return float(value) if -_TIME_MAX < value < _TIME_MAX else otherwise


def next_run_ms(repeat: dict[str, object], wall_ms: int) -> int:
    """Return when the next job is due, after `wall_ms`; NEVER_MS when there is none."""
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
class DoorCounsel(Counsel):
    """Knows the workers of the door, and how its jobs repeat themselves."""

    def __init__(self, door: BunqueueDoor) -> None:
        self._door = door

    def has_worker(self, queue: str) -> bool:
        """Tell whether a worker registered for a queue."""
        return any(queue in worker.queues for worker in self._door.workers.by_id.values())

    def successor(self, job: Job, body: bytes, now_ms: i64) -> Wish | None:
        """Return the job that follows one that is done."""
        theirs = job.extra
        assert theirs is not None
        marks = read_fields(theirs.marks, 0, len(theirs.marks))
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
            # The zone of its pattern is known no more.
            return None
        if next_ms >= NEVER_MS:
            return None
        repeat["count"] = count + 1
        repeat["prevMillis"] = float(next_ms)
        wish = Wish(job.family, job.codec, body)
        wish.rank = job.rank
        wish.delay_ms = max(0, next_ms - wall_ms)
        wish.own_ms = wall_ms
        wish.policy = job.policy
        wish.extra = _extra_like(theirs, marks, repeat, now_ms)
        return wish


def _extra_like(theirs: Extra, marks: Fields, repeat: dict[str, object], now_ms: i64) -> Extra:
    extra = Extra()
    extra.unique_key = theirs.unique_key
    extra.key_mode = theirs.key_mode
    extra.key_ttl_ms = theirs.key_ttl_ms
    if extra.unique_key and extra.key_ttl_ms > 0:
        extra.key_until_ms = now_ms + extra.key_ttl_ms
    extra.group_id = theirs.group_id
    kept: dict[str, object] = {}
    for key in _KEPT_MARKS:
        raw = marks.raw(key.encode())
        if raw is not None:
            kept[key] = Raw(raw)
    kept["repeat"] = repeat
    extra.marks = encode(kept)
    return extra
