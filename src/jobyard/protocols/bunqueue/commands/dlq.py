"""Commands for ended jobs: the dead-letter queue, retries of done jobs, and their settings.

Dead jobs of all families are in one list, so buried beanstalk jobs are listed, retried and purged
here too; the limits of age and number do not apply to them.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import EndedJobAction, EndedJobsTask, RemoveEnded, ReviveEnded
from jobyard.engine.jobs.listing import count_of
from jobyard.engine.jobs.move import remove, revive
from jobyard.engine.jobs.queues import open_queue, set_settings, settings_of
from jobyard.engine.jobs.retention import expires_ms, has_room, look_again, retries_ms
from jobyard.errors import Refused, YardFull
from jobyard.model.details import FailureReason, Outcome
from jobyard.model.family import counts_attempts
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import DEFAULTS, Settings
from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.push_options import YEAR_MS
from jobyard.protocols.bunqueue.door import Answer, BunqueueDoor
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.bunqueue.job_fields import job_value
from jobyard.protocols.bunqueue.long_answers import WRITTEN_PER_UNIT, LongList
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_MAP, KIND_NIL
from jobyard.wire.msgpack.read import MapFields
from jobyard.wire.msgpack.write import Raw, encode

# Limits of one answer: it must fit into a frame with every job listed twice.
ENTRIES_MAX: Final = 10_000
ANSWER_BYTES_MAX: Final = 24 << 20
# The cost of listing one job, in units of work.
LIST_UNITS: Final = 16

DLQ_COUNT_MAX: Final = 1_000_000_000

REASONS: Final = {
    FailureReason.EXPLICIT: "explicit_fail",
    FailureReason.ATTEMPTS_USED: "max_attempts_exceeded",
    FailureReason.TIMED_OUT: "timeout",
    FailureReason.STALLED: "stalled",
    FailureReason.TTL_OVER: "ttl_expired",
    FailureReason.WORKER_LOST: "worker_lost",
    FailureReason.UNKNOWN: "unknown",
}
# Not a reason of the original: the job's data is damaged on disk.
CORRUPT_REASON: Final = "corrupt"
# Not a reason of the original: a beanstalk client buried the job.
BURIED_REASON: Final = "buried"


def reason_text(outcome: Outcome) -> str:
    """Return the protocol's word for the reason why a job is dead."""
    if outcome.reason == FailureReason.DAMAGED:
        return CORRUPT_REASON
    if not counts_attempts(outcome.job.family):
        return BURIED_REASON
    return REASONS.get(outcome.reason, BURIED_REASON)


# -- filters -----------------------------------------------------------------------------------


@final
class DeadFilter:
    """The entries that a command selects; times are wall times."""

    def __init__(self, fields: MapFields) -> None:
        self.reason: str = ""
        self.older_ms: float = 0.0
        self.newer_ms: float = 0.0
        self.is_retriable: bool = False
        self.is_expired: bool = False
        self.offset: i64 = push_options.number(fields, b"offset", 0, 0, DLQ_COUNT_MAX)
        self.limit: i64 = push_options.number(fields, b"limit", DLQ_COUNT_MAX, 0, DLQ_COUNT_MAX)
        self.limit = push_options.number(fields, b"count", self.limit, 0, DLQ_COUNT_MAX)
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
            self.offset = push_options.checked("filter.offset", offset, 0, DLQ_COUNT_MAX)
        limit = asked.get("limit")
        if limit is not None:
            self.limit = min(
                self.limit, push_options.checked("filter.limit", limit, 0, DLQ_COUNT_MAX)
            )

    def means(self, door: BunqueueDoor, settings: Settings, outcome: Outcome, now_ms: i64) -> bool:
        """Return whether an entry is selected, apart from offset and limit."""
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

    def walk(
        self, door: BunqueueDoor, queue: Queue, now_ms: i64, act: EndedJobAction
    ) -> EndedJobsTask:
        """Return a task that applies an action to the selected entries, oldest first."""
        settings = settings_of(queue)
        return EndedJobsTask(
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


# -- listing -----------------------------------------------------------------------------------


def _time_or_none(door: BunqueueDoor, at_ms: i64) -> float | None:
    return None if at_ms in (0, NEVER_MS) else float(door.wall_ms(at_ms))


def entry_value(door: BunqueueDoor, outcome: Outcome, job: Raw) -> dict[str, object]:
    """Return one entry of the dead-letter queue."""
    settings = settings_of(outcome.job.queue)
    details = outcome.job.ensure_details()
    return {
        "job": job,
        "enteredAt": float(door.wall_ms(outcome.ended_ms)),
        "reason": reason_text(outcome),
        "error": outcome.error or None,
        "attempts": _attempts(door, outcome),
        "retryCount": int(details.retries),
        "lastRetryAt": _time_or_none(door, details.retried_ms),
        "nextRetryAt": _time_or_none(door, retries_ms(settings, outcome.job)),
        "expiresAt": _time_or_none(door, expires_ms(settings, outcome.job)),
    }


def _attempts(door: BunqueueDoor, outcome: Outcome) -> list[object]:
    failures = outcome.job.ensure_details().failures or []
    rows: list[object] = []
    for failure in failures:
        reason = failure.reason
        if (
            failure is failures[-1]
            and reason == FailureReason.EXPLICIT
            and outcome.reason == FailureReason.ATTEMPTS_USED
        ):
            # This failure used up the last attempt.
            reason = FailureReason.ATTEMPTS_USED
        rows.append(
            {
                "attempt": int(failure.attempt),
                "startedAt": float(door.wall_ms(failure.started_ms)),
                "failedAt": float(door.wall_ms(failure.failed_ms)),
                "reason": REASONS.get(reason, BURIED_REASON),
                "error": failure.error or None,
                "duration": int(failure.failed_ms - failure.started_ms),
            }
        )
    return rows


@final
class DeadListing(EndedJobAction):
    """Collects dead jobs and their entries, up to the size limit of an answer."""

    def __init__(self, door: BunqueueDoor, queue: Queue | None, *, with_jobs: bool) -> None:
        self._door = door
        self._queue = queue
        # If not: only the entries, which contain the jobs, and the total count.
        self._with_jobs: bool = with_jobs
        self._size: i64 = 0
        self._units: i64 = 0
        self._jobs = LongList()
        self._entries = LongList()

    def answer(self) -> Answer:
        """Return the answer of the listing."""
        if self._with_jobs:
            return {"jobs": self._jobs.value(), "entries": self._entries.value()}
        total = 0 if self._queue is None else int(count_of(self._queue, DEAD))
        return {"entries": self._entries.value(), "total": total}

    def units(self) -> i64:
        """Return the cost of the last entry in units of work."""
        return self._units

    def do(self, outcome: Outcome, now_ms: i64) -> bool:  # noqa: ARG002  it only reads
        """Add one entry; False if it does not fit."""
        job = job_value(self._door, outcome.job)
        self._units = LIST_UNITS + len(job.data) // WRITTEN_PER_UNIT
        if self._size > 0 and self._size + len(job.data) > ANSWER_BYTES_MAX:
            return False
        self._size += len(job.data)
        if self._with_jobs:
            self._jobs.add(job.data)
        self._entries.add(encode(entry_value(self._door, outcome, job)))
        return True


def dlq(session: BunqueueSession, request: Request) -> Answer | None:
    """Dlq: list dead jobs, as many as fit; `jobs: false` returns only the entries."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    choice = DeadFilter(request.fields)
    choice.limit = min(choice.limit, ENTRIES_MAX)
    listed = DeadListing(session.door, queue, with_jobs=not request.fields.is_false(b"jobs"))
    if queue is None:
        return listed.answer()
    work = choice.walk(session.door, queue, request.now_ms, listed)
    work.is_reading = True
    return session.begin(request, work, listed.answer)


@final
class DeadCount(EndedJobAction):
    """Counts dead jobs by reason, pending retry and expiry."""

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
        """Count one entry."""
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
        """Return the answer with the counts."""
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
    """GetDlqStats: count dead jobs by reason."""
    name = push_options.queue_name(request.fields)
    queue = session.yard.queues.get(name)
    counted = DeadCount(session.door, DEFAULTS if queue is None else settings_of(queue))
    if queue is None:
        return counted.answer(name)
    work = EndedJobsTask(queue.dead, _is_any, 0, DLQ_COUNT_MAX, counted)
    work.is_reading = True
    return session.begin(request, work, lambda: counted.answer(name))


def _is_any(outcome: Outcome) -> bool:  # noqa: ARG001  all are meant
    return True


# -- retrying and removing ---------------------------------------------------------------------


def named_ended(session: BunqueueSession, name: str, queue: str, state: i64) -> Job | None:
    """Return the job with that id if it is in that queue and state, else None."""
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
    """RetryDlq: retry one dead job, some, or all."""
    fields = request.fields
    name = push_options.queue_name(fields)
    job_id = push_options.text(fields, b"jobId")
    if job_id:
        return _revive_one(session, named_ended(session, job_id, name, DEAD), request.now_ms)
    choice = DeadFilter(fields)
    queue = session.yard.queues.get(name)
    if queue is None:
        return {"count": 0}
    work = choice.walk(session.door, queue, request.now_ms, ReviveEnded(session.yard))
    return session.begin(request, work, lambda: {"count": int(work.count)})


def purge_dlq(session: BunqueueSession, request: Request) -> Answer | None:
    """PurgeDlq: remove all dead jobs of a queue."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is None:
        return {"count": 0}
    work = EndedJobsTask(queue.dead, _is_any, 0, DLQ_COUNT_MAX, RemoveEnded(session.yard))
    return session.begin(request, work, lambda: {"count": int(work.count)})


def remove_dlq_job(session: BunqueueSession, request: Request) -> Answer:
    """RemoveDlqJob: remove one dead job."""
    name = push_options.queue_name(request.fields)
    job = named_ended(session, push_options.text(request.fields, b"jobId"), name, DEAD)
    if job is not None:
        remove(session.yard, job, request.now_ms)
    return {"data": {"removed": job is not None}}


def retry_completed(session: BunqueueSession, request: Request) -> Answer | None:
    """RetryCompleted: run one done job again, those that ended up to a time, or all."""
    fields = request.fields
    name = push_options.queue_name(fields)
    job_id = push_options.text(fields, b"id")
    if job_id:
        return _revive_one(session, named_ended(session, job_id, name, DONE), request.now_ms)
    limit = push_options.number(fields, b"count", DLQ_COUNT_MAX, 0, DLQ_COUNT_MAX)
    until_ms = fields.number(b"timestamp", float("inf"))
    queue = session.yard.queues.get(name)
    if queue is None:
        return {"count": 0}
    door = session.door
    work = EndedJobsTask(
        queue.done,
        lambda outcome: float(door.wall_ms(outcome.ended_ms)) <= until_ms,
        0,
        limit,
        ReviveEnded(session.yard),
    )
    return session.begin(request, work, lambda: {"count": int(work.count)})


# -- settings ----------------------------------------------------------------------------------


def _config(fields: MapFields) -> dict[object, object]:
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
    """SetDlqConfig: change the given settings and keep the others."""
    name = push_options.queue_name(request.fields)
    config = _config(request.fields)
    settings = Settings()
    settings.fill(_known_settings(session, request).encode())
    settings.dead_auto_retry = _switch(config, "autoRetry", settings.dead_auto_retry)
    settings.dead_retry_ms = _whole(config, "autoRetryInterval", settings.dead_retry_ms, 1, YEAR_MS)
    settings.dead_retries_max = _whole(
        config, "maxAutoRetries", settings.dead_retries_max, 0, DLQ_COUNT_MAX
    )
    settings.dead_age_ms = _whole(config, "maxAge", settings.dead_age_ms, 0, 100 * YEAR_MS)
    if "maxAge" in config and config["maxAge"] is None:
        settings.dead_age_ms = -1
    settings.dead_max = _whole(config, "maxEntries", settings.dead_max, 0, DLQ_COUNT_MAX)
    _set(session, name, settings, request.now_ms)
    return {}


def get_dlq_config(session: BunqueueSession, request: Request) -> Answer:
    """GetDlqConfig: show the settings, or the defaults if nothing was set."""
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
    """SetStallConfig: change the given settings and keep the others."""
    name = push_options.queue_name(request.fields)
    config = _config(request.fields)
    settings = Settings()
    settings.fill(_known_settings(session, request).encode())
    settings.stalls_on = _switch(config, "enabled", settings.stalls_on)
    settings.stall_ms = _whole(config, "stallInterval", settings.stall_ms, 1, YEAR_MS)
    settings.stalls_max = _whole(config, "maxStalls", settings.stalls_max, 0, DLQ_COUNT_MAX)
    settings.stall_grace_ms = _whole(config, "gracePeriod", settings.stall_grace_ms, 0, YEAR_MS)
    _set(session, name, settings, request.now_ms)
    return {}


def get_stall_config(session: BunqueueSession, request: Request) -> Answer:
    """GetStallConfig: show the settings, or the defaults if nothing was set."""
    settings = _known_settings(session, request)
    return {
        "config": {
            "enabled": settings.stalls_on,
            "stallInterval": int(settings.stall_ms),
            "maxStalls": int(settings.stalls_max),
            "gracePeriod": int(settings.stall_grace_ms),
        }
    }


DLQ_COMMANDS: Final[dict[bytes, Command]] = {
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
