"""Commands about jobs at rest: the dead-letter queue, done jobs that run again, and their settings.

The dead of all families stand in one line, so buried jobs of beanstalk are listed, retried and
purged here too; what is set for ages and numbers does not touch them.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import Remove, RestAct, RestWork, Revive
from jobyard.engine.jobs.listing import count_of
from jobyard.engine.jobs.move import remove, revive
from jobyard.engine.jobs.queues import open_queue, set_settings, settings_of
from jobyard.engine.jobs.retention import expires_ms, has_room, look_again, retries_ms
from jobyard.errors import Refused, YardFull
from jobyard.model.details import (
    ATTEMPTS_USED,
    DAMAGED,
    EXPLICIT,
    STALLED,
    TIMED_OUT,
    TTL_OVER,
    UNKNOWN,
    WORKER_LOST,
    Outcome,
)
from jobyard.model.family import counts_attempts
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import DAY_MS, DEFAULTS, Settings
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.door import Answer, BunqueueDoor, Command
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.bunqueue.job_fields import job_value
from jobyard.protocols.bunqueue.long_answers import BYTES_PER_UNIT, LongList
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_MAP, KIND_NIL
from jobyard.wire.msgpack.read import Fields
from jobyard.wire.msgpack.write import Raw, encode

# One answer tells no more than this, whatever was asked: it must fit into a frame, twice.
ENTRIES_MAX: Final = 10_000
ANSWER_BYTES_MAX: Final = 24 << 20
# What it takes to list one, in jobs looked at.
LIST_UNITS: Final = 16

YEAR_MS: Final = 365 * DAY_MS
COUNT_MAX: Final = 1_000_000_000

REASONS: Final = {
    EXPLICIT: "explicit_fail",
    ATTEMPTS_USED: "max_attempts_exceeded",
    TIMED_OUT: "timeout",
    STALLED: "stalled",
    TTL_OVER: "ttl_expired",
    WORKER_LOST: "worker_lost",
    UNKNOWN: "unknown",
}
# Nor is this one: what the disk gives for its data is not what was pushed.
CORRUPT: Final = "corrupt"
# Not a reason of the original: a client of beanstalk laid the job aside.
BURIED: Final = "buried"


def reason_text(outcome: Outcome) -> str:
    """Return why a job is dead, in the words of the protocol."""
    if outcome.reason == DAMAGED:
        return CORRUPT
    if not counts_attempts(outcome.job.family):
        return BURIED
    return REASONS.get(outcome.reason, BURIED)


# -- which of the dead are meant ---------------------------------------------------------------


@final
class Filter:
    """Which entries a command means; times are wall times."""

    def __init__(self, fields: Fields) -> None:
        self.reason: str = ""
        self.older_ms: float = 0.0
        self.newer_ms: float = 0.0
        self.is_retriable: bool = False
        self.is_expired: bool = False
        self.offset: i64 = push_options.number(fields, b"offset", 0, 0, COUNT_MAX)
        self.limit: i64 = push_options.number(fields, b"limit", COUNT_MAX, 0, COUNT_MAX)
        self.limit = push_options.number(fields, b"count", self.limit, 0, COUNT_MAX)
        kind = fields.kind(b"filter")
        if kind == KIND_MAP:
            self._read(fields.value(b"filter"))
        elif kind not in (KIND_ABSENT, KIND_NIL):
            raise Refused("filter must be an object")

    def _read(self, asked: object) -> None:
        assert isinstance(asked, dict)
        reason = asked.get("reason")
        if isinstance(reason, str):
            self.reason = reason
        elif reason is not None:
            raise Refused("filter.reason must be a string")
        self.older_ms = _time(asked, "olderThan")
        self.newer_ms = _time(asked, "newerThan")
        self.is_retriable = asked.get("retriable") is True
        self.is_expired = asked.get("expired") is True
        offset = asked.get("offset")
        if offset is not None:
            self.offset = push_options.checked("filter.offset", offset, 0, COUNT_MAX)
        limit = asked.get("limit")
        if limit is not None:
            self.limit = min(self.limit, push_options.checked("filter.limit", limit, 0, COUNT_MAX))

    def means(self, door: BunqueueDoor, settings: Settings, outcome: Outcome, now_ms: i64) -> bool:
        """Tell whether one entry is meant, its place in line aside."""
        entered_ms = float(door.wall_ms(outcome.ended_ms))
        if self.reason and reason_text(outcome) != self.reason:
            return False
        if self.older_ms and entered_ms > self.older_ms:
            return False
        if self.newer_ms and entered_ms < self.newer_ms:
            return False
        if self.is_retriable and retries_ms(settings, outcome.job) > now_ms:
            return False
        return not self.is_expired or expires_ms(settings, outcome.job) <= now_ms

    def walk(self, door: BunqueueDoor, queue: Queue, now_ms: i64, act: RestAct) -> RestWork:
        """Return the work of doing something to the entries that are meant, oldest first."""
        settings = settings_of(queue)
        return RestWork(
            queue.dead,
            lambda outcome: self.means(door, settings, outcome, now_ms),
            self.offset,
            self.limit,
            act,
        )


def _time(asked: dict[object, object], key: str) -> float:
    value = asked.get(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"filter.{key} must be a number")
    return float(value)


# -- what is told of them ----------------------------------------------------------------------


def _time_or_none(door: BunqueueDoor, at_ms: i64) -> float | None:
    return None if at_ms in (0, NEVER_MS) else float(door.wall_ms(at_ms))


def entry_value(door: BunqueueDoor, outcome: Outcome, job: Raw) -> dict[str, object]:
    """Return one entry of the dead-letter queue."""
    settings = settings_of(outcome.job.queue)
    extra = outcome.job.more()
    return {
        "job": job,
        "enteredAt": float(door.wall_ms(outcome.ended_ms)),
        "reason": reason_text(outcome),
        "error": outcome.error or None,
        "attempts": _attempts(door, outcome),
        "retryCount": int(extra.retries),
        "lastRetryAt": _time_or_none(door, extra.retried_ms),
        "nextRetryAt": _time_or_none(door, retries_ms(settings, outcome.job)),
        "expiresAt": _time_or_none(door, expires_ms(settings, outcome.job)),
    }


def _attempts(door: BunqueueDoor, outcome: Outcome) -> list[object]:
    failures = outcome.job.more().failures or []
    told: list[object] = []
    for failure in failures:
        reason = failure.reason
        if failure is failures[-1] and reason == EXPLICIT and outcome.reason == ATTEMPTS_USED:
            # It was this one that used them up.
            reason = ATTEMPTS_USED
        told.append(
            {
                "attempt": int(failure.attempt),
                "startedAt": float(door.wall_ms(failure.started_ms)),
                "failedAt": float(door.wall_ms(failure.failed_ms)),
                "reason": REASONS.get(reason, BURIED),
                "error": failure.error or None,
                "duration": int(failure.failed_ms - failure.started_ms),
            }
        )
    return told


@final
class Listed(RestAct):
    """Dead jobs and what is told of them, as far as one answer can hold them."""

    def __init__(self, door: BunqueueDoor, queue: Queue | None, *, with_jobs: bool) -> None:
        self._door = door
        self._queue = queue
        # Else entries alone, which hold the jobs too, and how many there are in all.
        self._with_jobs: bool = with_jobs
        self._size: i64 = 0
        self._units: i64 = 0
        self._jobs = LongList()
        self._entries = LongList()

    def answer(self) -> Answer:
        """Return what was listed."""
        if self._with_jobs:
            return {"jobs": self._jobs.value(), "entries": self._entries.value()}
        total = 0 if self._queue is None else int(count_of(self._queue, DEAD))
        return {"entries": self._entries.value(), "total": total}

    def units(self) -> i64:
        """Return what it took to list the last one."""
        return self._units

    def do(self, outcome: Outcome, now_ms: i64) -> bool:  # noqa: ARG002  it only looks
        """List one."""
        job = job_value(self._door, outcome.job)
        self._units = LIST_UNITS + len(job.data) // BYTES_PER_UNIT
        if self._size > 0 and self._size + len(job.data) > ANSWER_BYTES_MAX:
            return False
        self._size += len(job.data)
        if self._with_jobs:
            self._jobs.add(job.data)
        self._entries.add(encode(entry_value(self._door, outcome, job)))
        return True


def dlq(session: BunqueueSession, request: Request) -> Answer | None:
    """Dlq: list the dead, as far as one answer can hold them; `jobs: false` leaves a half out."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    choice = Filter(request.fields)
    choice.limit = min(choice.limit, ENTRIES_MAX)
    listed = Listed(session.door, queue, with_jobs=not request.fields.is_false(b"jobs"))
    if queue is None:
        return listed.answer()
    work = choice.walk(session.door, queue, request.now_ms, listed)
    work.is_reading = True
    return session.begin(request, work, listed.answer)


@final
class Counted(RestAct):
    """Dead jobs by what is told of them in numbers."""

    def __init__(self, door: BunqueueDoor, settings: Settings) -> None:
        self._door = door
        self._settings = settings
        self.reasons: dict[str, int] = dict.fromkeys(REASONS.values(), 0)
        self.total: i64 = 0
        self.pending: i64 = 0
        self.expired: i64 = 0
        self.oldest: float | None = None
        self.newest: float | None = None

    def do(self, outcome: Outcome, now_ms: i64) -> bool:
        """Count one."""
        self.total += 1
        reason = reason_text(outcome)
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if retries_ms(self._settings, outcome.job) <= now_ms:
            self.pending += 1
        if expires_ms(self._settings, outcome.job) <= now_ms:
            self.expired += 1
        self.newest = float(self._door.wall_ms(outcome.ended_ms))
        if self.oldest is None:
            self.oldest = self.newest
        return True

    def answer(self, name: str) -> Answer:
        """Return what was counted."""
        stats: dict[str, object] = {
            "total": int(self.total),
            "byReason": self.reasons,
            "byQueue": {name: int(self.total)},
            "pendingRetry": int(self.pending),
            "expired": int(self.expired),
            "oldestEntry": self.oldest,
            "newestEntry": self.newest,
        }
        return {"data": {"stats": stats}}


def get_dlq_stats(session: BunqueueSession, request: Request) -> Answer | None:
    """GetDlqStats: count the dead by reason."""
    name = push_options.queue_name(request.fields)
    queue = session.yard.queues.get(name)
    counted = Counted(session.door, DEFAULTS if queue is None else settings_of(queue))
    if queue is None:
        return counted.answer(name)
    work = RestWork(queue.dead, _is_any, 0, COUNT_MAX, counted)
    work.is_reading = True
    return session.begin(request, work, lambda: counted.answer(name))


def _is_any(outcome: Outcome) -> bool:  # noqa: ARG001  all are meant
    return True


# -- back to work, or away ---------------------------------------------------------------------


def named_at_rest(session: BunqueueSession, name: str, queue: str, state: i64) -> Job | None:
    """Return the job of that id if it is in that queue and at rest there."""
    job = find_job(session.yard, name.encode("utf-8", "replace"))
    if job is None or job.state != state or job.queue.name != queue:
        return None
    return job


def _revive_one(session: BunqueueSession, job: Job | None, now_ms: i64) -> Answer:
    if job is None:
        return {"count": 0}
    if not has_room(session.yard, job, now_ms):
        raise YardFull
    revive(session.yard, job, now_ms)
    return {"count": 1}


def retry_dlq(session: BunqueueSession, request: Request) -> Answer | None:
    """RetryDlq: bring back one dead job, some, or all."""
    fields = request.fields
    name = push_options.queue_name(fields)
    job_id = push_options.text(fields, b"jobId")
    if job_id:
        return _revive_one(session, named_at_rest(session, job_id, name, DEAD), request.now_ms)
    choice = Filter(fields)
    queue = session.yard.queues.get(name)
    if queue is None:
        return {"count": 0}
    work = choice.walk(session.door, queue, request.now_ms, Revive(session.yard))
    return session.begin(request, work, lambda: {"count": int(work.count)})


def purge_dlq(session: BunqueueSession, request: Request) -> Answer | None:
    """PurgeDlq: remove all the dead of a queue."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is None:
        return {"count": 0}
    work = RestWork(queue.dead, _is_any, 0, COUNT_MAX, Remove(session.yard))
    return session.begin(request, work, lambda: {"count": int(work.count)})


def remove_dlq_job(session: BunqueueSession, request: Request) -> Answer:
    """RemoveDlqJob: remove one dead job."""
    name = push_options.queue_name(request.fields)
    job = named_at_rest(session, push_options.text(request.fields, b"jobId"), name, DEAD)
    if job is not None:
        remove(session.yard, job, request.now_ms)
    return {"data": {"removed": job is not None}}


def retry_completed(session: BunqueueSession, request: Request) -> Answer | None:
    """RetryCompleted: run one done job again, or those up to a time, or all."""
    fields = request.fields
    name = push_options.queue_name(fields)
    job_id = push_options.text(fields, b"id")
    if job_id:
        return _revive_one(session, named_at_rest(session, job_id, name, DONE), request.now_ms)
    limit = push_options.number(fields, b"count", COUNT_MAX, 0, COUNT_MAX)
    until_ms = fields.number(b"timestamp", float("inf"))
    queue = session.yard.queues.get(name)
    if queue is None:
        return {"count": 0}
    door = session.door
    work = RestWork(
        queue.done,
        lambda outcome: float(door.wall_ms(outcome.ended_ms)) <= until_ms,
        0,
        limit,
        Revive(session.yard),
    )
    return session.begin(request, work, lambda: {"count": int(work.count)})


# -- settings ----------------------------------------------------------------------------------


def _config(fields: Fields) -> dict[object, object]:
    value = fields.value(b"config")
    if not isinstance(value, dict):
        raise Refused("config must be an object")
    return value


def _switch(config: dict[object, object], key: str, otherwise: bool) -> bool:  # noqa: FBT001
    value = config.get(key)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise Refused(f"{key} must be a boolean")
    return value


def _whole(config: dict[object, object], key: str, otherwise: i64, least: i64, most: i64) -> i64:
    value = config.get(key)
    return otherwise if value is None else push_options.checked(key, value, least, most)


def _known_settings(session: BunqueueSession, request: Request) -> Settings:
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    return DEFAULTS if queue is None else settings_of(queue)


def _set(session: BunqueueSession, name: str, settings: Settings, now_ms: i64) -> None:
    journal = session.yard.journal
    if journal.is_on and not journal.admit(len(settings.encode()) + len(name) + 64, now_ms):
        raise YardFull
    queue = open_queue(session.yard, name)
    set_settings(session.yard, queue, settings, now_ms)
    look_again(session.yard, queue, now_ms)


def set_dlq_config(session: BunqueueSession, request: Request) -> Answer:
    """SetDlqConfig: change what is named, and leave the rest."""
    name = push_options.queue_name(request.fields)
    config = _config(request.fields)
    settings = Settings()
    settings.fill(_known_settings(session, request).encode())
    settings.dead_auto_retry = _switch(config, "autoRetry", settings.dead_auto_retry)
    settings.dead_retry_ms = _whole(config, "autoRetryInterval", settings.dead_retry_ms, 1, YEAR_MS)
    settings.dead_retries_max = _whole(
        config, "maxAutoRetries", settings.dead_retries_max, 0, COUNT_MAX
    )
    settings.dead_age_ms = _whole(config, "maxAge", settings.dead_age_ms, 0, 100 * YEAR_MS)
    if "maxAge" in config and config["maxAge"] is None:
        settings.dead_age_ms = -1
    settings.dead_max = _whole(config, "maxEntries", settings.dead_max, 0, COUNT_MAX)
    _set(session, name, settings, request.now_ms)
    return {}


def get_dlq_config(session: BunqueueSession, request: Request) -> Answer:
    """GetDlqConfig: tell what is set, or would hold if something were."""
    settings = _known_settings(session, request)
    return {
        "config": {
            "autoRetry": settings.dead_auto_retry,
            "autoRetryInterval": int(settings.dead_retry_ms),
            "maxAutoRetries": int(settings.dead_retries_max),
            "maxAge": None if settings.dead_age_ms < 0 else int(settings.dead_age_ms),
            "maxEntries": int(settings.dead_max),
        }
    }


def set_stall_config(session: BunqueueSession, request: Request) -> Answer:
    """SetStallConfig: change what is named, and leave the rest."""
    name = push_options.queue_name(request.fields)
    config = _config(request.fields)
    settings = Settings()
    settings.fill(_known_settings(session, request).encode())
    settings.stalls_on = _switch(config, "enabled", settings.stalls_on)
    settings.stall_ms = _whole(config, "stallInterval", settings.stall_ms, 1, YEAR_MS)
    settings.stalls_max = _whole(config, "maxStalls", settings.stalls_max, 0, COUNT_MAX)
    settings.stall_grace_ms = _whole(config, "gracePeriod", settings.stall_grace_ms, 0, YEAR_MS)
    _set(session, name, settings, request.now_ms)
    return {}


def get_stall_config(session: BunqueueSession, request: Request) -> Answer:
    """GetStallConfig: tell what is set, or would hold if something were."""
    settings = _known_settings(session, request)
    return {
        "config": {
            "enabled": settings.stalls_on,
            "stallInterval": int(settings.stall_ms),
            "maxStalls": int(settings.stalls_max),
            "gracePeriod": int(settings.stall_grace_ms),
        }
    }


COMMANDS: Final[dict[bytes, Command]] = {
    b"Dlq": dlq,
    b"GetDlqStats": get_dlq_stats,
    b"RetryDlq": retry_dlq,
    b"PurgeDlq": purge_dlq,
    b"RemoveDlqJob": remove_dlq_job,
    b"RetryCompleted": retry_completed,
    b"SetDlqConfig": set_dlq_config,
    b"GetDlqConfig": get_dlq_config,
    b"SetStallConfig": set_stall_config,
    b"GetStallConfig": get_stall_config,
}
