"""Cron, CronGet, CronList, CronDelete: the commands for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.engine.jobs.schedule import (
    CRON_KEY_PREFIX,
    SKIPS_IDLE,
    SKIPS_MISSED,
    Cron,
    crons_of,
    drop_cron,
    find_cron,
    set_cron,
)
from jobyard.errors import Refused
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.push_options import SAFE_INTEGER_MAX
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL
from jobyard.wire.msgpack.read import MapFields, read_fields
from jobyard.wire.msgpack.write import Raw, encode

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import NewJob
    from jobyard.protocols.bunqueue.command import Command
    from jobyard.protocols.bunqueue.door import Answer, BunqueueDoor
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

# Names are keys in the journal and part of deduplication keys.
CRON_NAME_MAX: Final = 1024

_JOB_OPTIONS: Final = (
    b"maxAttempts",
    b"backoff",
    b"timeout",
    b"delay",
    b"stallTimeout",
    b"removeOnComplete",
    b"removeOnFail",
)


def _is_said(fields: MapFields, key: bytes) -> bool:
    return fields.kind(key) not in (KIND_ABSENT, KIND_NIL)


def _said(fields: MapFields, keys: tuple[bytes, ...]) -> dict[str, object]:
    """Return the given fields that are present, still encoded."""
    return {key.decode(): Raw(fields.raw(key) or b"") for key in keys if _is_said(fields, key)}


def _cron_name(fields: MapFields) -> str:
    name = push_options.text(fields, b"name")
    if not name:
        raise Refused("Cron name is required")
    if len(name) > CRON_NAME_MAX:
        raise Refused(f"Cron name too long (max {CRON_NAME_MAX} characters)")
    return name


def _named_cron(session: BunqueueSession, request: Request) -> Cron:
    name = request.fields.text(b"name")
    cron = None if name is None else find_cron(session.yard, name)
    if cron is None:
        raise Refused("Cron job not found")
    return cron


def _read_new_job(door: BunqueueDoor, fields: MapFields, name: str, request: Request) -> NewJob:
    """Read the job of every run, as a PUSH with the same options would be read."""
    # Data is optional: the job name may be enough.
    asked: dict[str, object] = {"data": None}
    if _is_said(fields, b"data"):
        asked["data"] = Raw(push_options.job_data(fields))
    if _is_said(fields, b"jobName"):
        asked["name"] = Raw(fields.raw(b"jobName") or b"")
    asked.update(_said(fields, (b"priority", b"dedup")))
    unique_key = push_options.text(fields, b"uniqueKey")
    if not unique_key and not fields.is_false(b"preventOverlap"):
        unique_key = CRON_KEY_PREFIX + name
    if unique_key:
        asked["uniqueKey"] = unique_key
    if _is_said(fields, b"jobOptions"):
        start, end = fields.find(b"jobOptions")
        inside = read_fields(fields.data, start, end)
        if inside is None:
            raise Refused("jobOptions must be an object")
        asked.update(_said(inside, _JOB_OPTIONS))
    data = encode(asked)
    push = read_fields(data, 0, len(data))
    assert push is not None
    return push_options.read_new_job(door, push, request.now_ms)


def _read_times(cron: Cron, fields: MapFields) -> None:
    schedule = push_options.text(fields, b"schedule")
    zone = push_options.text(fields, b"timezone")
    has_interval = _is_said(fields, b"repeatEvery")
    if has_interval:
        every = fields.number(b"repeatEvery", 0.0)
        if not 1 <= every <= SAFE_INTEGER_MAX or every != int(every):
            raise Refused("Cron repeatEvery must be a positive safe integer number of milliseconds")
        cron.every_ms = int(every)
    if schedule:
        try:
            cron.set_schedule(schedule, zone)
        except Refused as refusal:
            text = str(refusal)
            if not text.startswith("Invalid cron expression: "):
                text = f"Invalid cron expression: {text}"
            raise Refused(text) from None
    elif not has_interval:
        raise Refused("Cron job must have either schedule or repeatEvery")
    else:
        cron.zone = zone


def set_schedule(session: BunqueueSession, request: Request) -> Answer:
    """Cron: create or replace a schedule."""
    fields = request.fields
    name = _cron_name(fields)
    cron = Cron(session.yard, name, push_options.queue_name(fields))
    _read_times(cron, fields)
    cron.set_job(_read_new_job(session.door, fields, name, request))
    limit = push_options.number(fields, b"maxLimit", 0, -SAFE_INTEGER_MAX, SAFE_INTEGER_MAX)
    cron.max_limit = max(0, limit)
    cron.flags = 0
    if not fields.is_false(b"skipMissedOnRestart"):
        cron.flags |= SKIPS_MISSED
    if fields.is_true(b"skipIfNoWorker"):
        cron.flags |= SKIPS_IDLE
    set_cron(session.yard, cron, request.now_ms, is_immediate=fields.is_true(b"immediately"))
    return {"cron": cron_value(cron)}


def cron_value(cron: Cron) -> dict[str, object]:
    """Return a schedule as clients see it; `nextRun` is None if it never fires again."""
    next_ms = cron.next_wall_ms()
    return {
        "name": cron.name,
        "jobName": cron.job_policy().name,
        "queue": cron.queue,
        "schedule": cron.schedule or None,
        "repeatEvery": int(cron.every_ms) or None,
        "nextRun": None if next_ms >= NEVER_MS else float(next_ms),
        "executions": int(cron.executions),
        "maxLimit": int(cron.max_limit) or None,
        "timezone": cron.zone or None,
        "priority": -int(cron.rank),
    }


def get_schedule(session: BunqueueSession, request: Request) -> Answer:
    """CronGet: show one schedule."""
    return {"cron": cron_value(_named_cron(session, request))}


def list_schedules(session: BunqueueSession, request: Request) -> Answer:
    """CronList: list all schedules."""
    del request
    crons = crons_of(session.yard).by_name
    return {"crons": [cron_value(cron) for cron in crons.values()]}


def delete_schedule(session: BunqueueSession, request: Request) -> Answer:
    """CronDelete: delete a schedule."""
    drop_cron(session.yard, _named_cron(session, request))
    return {}


SCHEDULE_COMMANDS: Final[dict[bytes, Command]] = {
    b"Cron": set_schedule,
    b"CronGet": get_schedule,
    b"CronList": list_schedules,
    b"CronDelete": delete_schedule,
}
