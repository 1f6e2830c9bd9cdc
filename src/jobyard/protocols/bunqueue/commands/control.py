"""Commands that change a job or a queue outside of the normal job life cycle.

Each checks whether the client may, then calls a verb of the engine, or a task for many jobs.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import PromotionTask, RemovalTask
from jobyard.engine.jobs.finish import fail, release
from jobyard.engine.jobs.listing import JobSelection, count_of
from jobyard.engine.jobs.move import (
    make_dead,
    promote,
    publish_event,
    remove,
    revive,
    set_body,
    set_due,
    set_rank,
)
from jobyard.engine.jobs.obliterate import Obliteration
from jobyard.engine.jobs.queues import (
    copy_settings,
    drop_if_idle,
    end_pause,
    is_ruled,
    open_queue,
    set_group,
    set_paused,
    set_settings,
    settings_of,
    stop_counting,
)
from jobyard.engine.state import bus
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.engine.subscriptions.subscriptions import drop_subscriptions
from jobyard.errors import Refused
from jobyard.model.details import FailureReason
from jobyard.model.family import BEANSTALK, BUNQUEUE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, JSON, LEASED, MSGPACK, RAW, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import DAY_MS, NO_LIMIT, Settings
from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.flow_links import with_relatives
from jobyard.protocols.bunqueue.commands.jobs import check_lease, named_job
from jobyard.protocols.bunqueue.commands.leases import ensure_room
from jobyard.protocols.bunqueue.commands.push_options import SAFE_INTEGER_MAX
from jobyard.protocols.bunqueue.commands.query import (
    add_result_lost,
    chosen,
    is_paused,
    refuse_unless_active,
    result_value,
    state_words,
)
from jobyard.protocols.bunqueue.door import Answer, BunqueueDoor
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.bunqueue.job_fields import created_ms, state_text
from jobyard.protocols.bunqueue.long_answers import LongList
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.wire.msgpack.read import MapFields
from jobyard.wire.msgpack.write import encode
from jobyard.wire.numbers import NO_NUMBER, NOT_FINITE, flaw_of, nearest
from jobyard.wire.payload import to_json, to_raw

WAIT_MS_DEFAULT: Final = 30_000
JOB_WAIT_MS_MAX: Final = 600_000
RATE_MS_DEFAULT: Final = 1000
CLEAN_LIMIT_DEFAULT: Final = 1000
RATE_LIMIT_MAX: Final = 1 << 31
# The cost of one row of a queue, in units of work.
ROW_UNITS: Final = 8

# Characters allowed in a queue name in addition to letters and digits.
_SIGNS: Final = str.maketrans("", "", "_-.:")
_PENDING: Final = (READY, DELAYED, BLOCKED)


# -- one job -----------------------------------------------------------------------------------


def _asked_job(session: BunqueueSession, request: Request) -> Job | None:
    name = request.fields.content(b"id")
    return None if name is None else find_job(session.yard, name)


def _check_token(session: BunqueueSession, job: Job, fields: MapFields) -> None:
    """Refuse unless the client may end the run of a job."""
    check_lease(session, job, fields.content(b"id") or b"", fields.content(b"token"))


def cancel(session: BunqueueSession, request: Request) -> Answer:
    """Remove a job that is neither running nor ended."""
    job = _asked_job(session, request)
    if job is None or job.state not in _PENDING:
        raise Refused("Job not found or cannot be cancelled")
    remove(session.yard, job, request.now_ms)
    return {}


def update(session: BunqueueSession, request: Request) -> Answer:
    """Replace the data of a job, even while it runs."""
    job = _asked_job(session, request)
    if job is None or job.state in (DEAD, DONE):
        raise Refused("Job not found or cannot be updated")
    body = push_options.job_data(request.fields)
    codec = JSON
    if job.family == BUNQUEUE:
        old = session.yard.bodies.fetch(job) if job.codec == MSGPACK else None
        body = body if old is None else with_relatives(old, body)
        codec = MSGPACK
    elif job.family == BEANSTALK:
        body = to_raw(MSGPACK, body)
        codec = RAW
    else:
        body = to_json(MSGPACK, body)
    set_body(session.yard, job, body, codec, request.now_ms)
    return {}


def change_priority(session: BunqueueSession, request: Request) -> Answer:
    """Change the priority of a waiting job, and optionally its LIFO or FIFO order."""
    job = _asked_job(session, request)
    if job is None or job.state not in _PENDING:
        raise Refused("Job not found or not in queue")
    value = request.fields.value(b"priority")
    is_lifo: bool | None = None
    details = job.details
    if details is not None and details.group_id:
        rank = push_options.checked("priority", value, 0, push_options.GROUP_PRIORITY_MAX)
    else:
        rank = -push_options.checked(
            "priority", value, -push_options.PRIORITY_MAX, push_options.PRIORITY_MAX
        )
        if request.fields.is_true(b"lifo"):
            is_lifo = True
        elif request.fields.is_false(b"lifo"):
            is_lifo = False
    ensure_room(session, job, 0, request.now_ms)
    set_rank(session.yard, job, rank, request.now_ms, is_lifo=is_lifo)
    return {}


def change_delay(session: BunqueueSession, request: Request) -> Answer:
    """Change the delay of a job, counted from now."""
    job = _asked_job(session, request)
    if job is None or job.state not in (READY, DELAYED, LEASED):
        raise Refused("Job not found or cannot change delay")
    delay_ms = push_options.checked(
        "delay", request.fields.value(b"delay"), 0, push_options.YEAR_MS
    )
    if job.state == LEASED:
        _delay_active(session, job, delay_ms, request)
    else:
        ensure_room(session, job, 0, request.now_ms)
        set_due(session.yard, job, delay_ms, request.now_ms)
    return {}


def move_to_delayed(session: BunqueueSession, request: Request) -> Answer:
    """End the run of a job and retry it after a delay, without counting an attempt."""
    job = named_job(session, request.fields)
    refuse_unless_active(job)
    _check_token(session, job, request.fields)
    delay_ms = push_options.needed(request.fields, b"delay", 0, push_options.YEAR_MS)
    _delay_active(session, job, delay_ms, request)
    return {}


def _delay_active(session: BunqueueSession, job: Job, delay_ms: i64, request: Request) -> None:
    _check_token(session, job, request.fields)
    yard = session.yard
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.DELAYED, job.queue, job, request.now_ms)
        event.before = "active"
        event.delay_ms = delay_ms
        yard.bus.publish(event)
    release(yard, job, job.rank, delay_ms, request.now_ms)


def promote_job(session: BunqueueSession, request: Request) -> Answer:
    """Make a delayed job ready now."""
    job = _asked_job(session, request)
    if job is None or job.state != DELAYED:
        raise Refused("Job not found or not delayed")
    ensure_room(session, job, 0, request.now_ms)
    promote(session.yard, job, request.now_ms)
    return {}


def promote_jobs(session: BunqueueSession, request: Request) -> Answer | None:
    """Make delayed jobs ready now, in the order in which they are due."""
    fields = request.fields
    queue = session.yard.queues.get(push_options.queue_name(fields))
    most = push_options.number(fields, b"count", SAFE_INTEGER_MAX, 0, SAFE_INTEGER_MAX)
    if queue is None:
        return {"count": 0}
    promotion = PromotionTask(session.yard, queue, most)
    return session.begin(request, promotion, lambda: {"count": int(promotion.count)})


def move_to_wait(session: BunqueueSession, request: Request) -> Answer:
    """Make a running, delayed or dead job ready."""
    yard = session.yard
    now_ms = request.now_ms
    job = _asked_job(session, request)
    if job is not None and job.state == LEASED:
        _check_token(session, job, request.fields)
        publish_event(yard, bus.EventName.WAITING, job, "active", now_ms)
        release(yard, job, job.rank, 0, now_ms)
    elif job is not None and job.state == DELAYED:
        ensure_room(session, job, 0, now_ms)
        promote(yard, job, now_ms)
    elif job is not None and job.state == DEAD:
        ensure_room(session, job, 0, now_ms)
        revive(yard, job, now_ms)
    elif job is None or job.state != READY:
        state = "unknown" if job is None else state_text(job)
        raise Refused(f"Cannot move job from state '{state}' to waiting")
    return {}


def discard(session: BunqueueSession, request: Request) -> Answer:
    """Move a job to the dead jobs."""
    job = named_job(session, request.fields)
    if job.state in (DEAD, DONE):
        raise Refused("Job not found")
    if job.state == LEASED:
        _check_token(session, job, request.fields)
        now_ms = request.now_ms
        fail(
            session.yard, job, "Job discarded", now_ms, reason=FailureReason.UNKNOWN, is_final=True
        )
    else:
        ensure_room(session, job, 0, request.now_ms)
        make_dead(session.yard, job, "Job discarded", request.now_ms)
    return {}


def wait_job(session: BunqueueSession, request: Request) -> Answer | None:
    """Answer when a job is done or the time is over."""
    fields = request.fields
    timeout_ms = push_options.number(fields, b"timeout", WAIT_MS_DEFAULT, 0, JOB_WAIT_MS_MAX)
    job = named_job(session, fields)
    if job.state == DONE:
        answer: Answer = {"completed": True}
        result = result_value(session.yard, job)
        if result is not None:
            answer["result"] = result
        else:
            add_result_lost(answer, job)
        return answer
    session.wait_job(job, request.req_id, request.now_ms + timeout_ms)
    return None


# -- a queue -----------------------------------------------------------------------------------


def pause_queue(session: BunqueueSession, request: Request) -> Answer:
    """Pause a queue until it is resumed."""
    name = push_options.queue_name(request.fields)
    ensure_room(session, None, 0, request.now_ms)
    set_paused(session.yard, open_queue(session.yard, name), request.now_ms, is_paused=True)
    return {}


def resume_queue(session: BunqueueSession, request: Request) -> Answer:
    """Resume a queue, even if another door paused it."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is not None:
        set_paused(session.yard, queue, request.now_ms, is_paused=False)
    return {}


def get_paused(session: BunqueueSession, request: Request) -> Answer:
    """Show whether a queue is paused."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    return {"paused": queue is not None and is_paused(queue, request.now_ms)}


def list_queues(session: BunqueueSession, request: Request) -> Answer | None:
    """List the queues that have jobs or settings."""
    rows = QueueStates(session.yard, _queue_row, request.now_ms)
    return session.begin(request, rows, lambda: {"queues": rows.rows.value()})


def _queue_row(queue: Queue, now_ms: i64) -> dict[str, object]:
    return {
        "name": queue.name,
        "waiting": int(count_of(queue, READY)),
        "delayed": int(count_of(queue, DELAYED)),
        "active": int(count_of(queue, LEASED)),
        "completed": int(count_of(queue, DONE)),
        "failed": int(count_of(queue, DEAD)),
        "paused": is_paused(queue, now_ms),
    }


# Returns the row of a queue in a list of queues.
RowOf = Callable[[Queue, i64], dict[str, object]]


@final
class QueueStates(Task):
    """Encodes all queues that clients can see, each with its state when its slice runs."""

    def __init__(self, yard: Yard, row_of: RowOf, now_ms: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._yard = yard
        self._names: list[str] = list(yard.queues)
        self._names.reverse()
        self._row_of: RowOf = row_of
        self._now_ms: i64 = now_ms
        self.rows = LongList()

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Encode some queues."""
        done: i64 = 0
        while done < most and self._names:
            queue = self._yard.queues.get(self._names.pop())
            done += ROW_UNITS
            if queue is not None and is_listed(queue):
                self.rows.add(encode(self._row_of(queue, self._now_ms)))
        return done


def is_listed(queue: Queue) -> bool:
    """Return whether clients can see a queue: it has jobs or settings, and a valid name."""
    is_known = queue.jobs_count() > 0 or (queue.rules is not None and is_ruled(queue.rules))
    return is_known and _is_spellable(queue.name)


def _is_spellable(name: str) -> bool:
    """Return whether this protocol allows a queue name; other doors allow more names."""
    letters = name.translate(_SIGNS)
    return name.isascii() and (letters.isalnum() or not letters)


# -- many jobs ---------------------------------------------------------------------------------


def drain(session: BunqueueSession, request: Request) -> Answer | None:
    """Remove all waiting jobs; delayed jobs stay."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is None:
        return {"count": 0}
    clearing = RemovalTask(session.yard, queue, JobSelection(frozenset((READY,))))
    return session.begin(request, clearing, lambda: {"count": int(clearing.count)})


def clean(session: BunqueueSession, request: Request) -> Answer | None:
    """Remove jobs that were put, or ended, before the grace period; never active ones."""
    fields = request.fields
    name = push_options.queue_name(fields)
    grace_ms = push_options.needed(fields, b"grace", 0, SAFE_INTEGER_MAX)
    limit = push_options.number(fields, b"limit", CLEAN_LIMIT_DEFAULT, 0, SAFE_INTEGER_MAX)
    words = state_words(fields)
    queue = session.yard.queues.get(name)
    if queue is None:
        return {"count": 0, "ids": []}
    choice = chosen(queue, words, request.now_ms)
    choice.states -= frozenset((LEASED,))
    until_ms = session.door.wall_ms(request.now_ms) - grace_ms
    clearing = RemovalTask(
        session.yard,
        queue,
        choice,
        lambda job: _age_from(session.door, job) <= until_ms,
        limit,
    )
    ids = LongList()
    clearing.on_removed = ids.add_id
    return session.begin(
        request, clearing, lambda: {"count": int(clearing.count), "ids": ids.value()}
    )


def _age_from(door: BunqueueDoor, job: Job) -> i64:
    """Return the wall time from which the age of a job is counted."""
    if job.state in (DEAD, DONE):
        return door.wall_ms(job.outcome().ended_ms)
    return created_ms(door, job)


def obliterate(session: BunqueueSession, request: Request) -> Answer | None:
    """Remove a queue with all its jobs, even active ones, and all its settings."""
    yard = session.yard
    queue = yard.queues.get(push_options.queue_name(request.fields))
    if queue is None:
        return {}
    task = Obliteration(yard, queue)
    task.then = lambda now_ms: _forget_queue(yard, queue, now_ms)
    return session.begin(request, task, dict)


def _forget_queue(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Remove the settings of a queue whose jobs are gone."""
    end_pause(yard, queue, now_ms)
    _forget_rules(yard, queue, now_ms)
    stop_counting(yard, queue)
    drop_subscriptions(yard, queue)


def _forget_rules(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Reset all rules of a queue, which removes the queue unless clients wait on it."""
    rules = queue.rules
    if rules is None:
        drop_if_idle(yard, queue)
        return
    for group in list(rules.groups.values()):
        group.concurrency = NO_LIMIT
        group.set_rate(NO_LIMIT, 0)
        group.is_paused = False
        group.closed_until_ms = 0
        set_group(yard, queue, group, now_ms)
    set_settings(yard, queue, Settings(), now_ms)


# -- limits ------------------------------------------------------------------------------------


def _limit(fields: MapFields) -> i64:
    """Read a limit; a negative limit counts as zero, which blocks all jobs."""
    value = fields.value(b"limit")
    if flaw_of(value) in (NO_NUMBER, NOT_FINITE):
        raise Refused("limit must be a finite number")
    return min(max(nearest(value), 0), RATE_LIMIT_MAX)


def rate_limit(session: BunqueueSession, request: Request) -> Answer:
    """Limit how many jobs of a queue are taken per duration."""
    fields = request.fields
    yard = session.yard
    name = push_options.queue_name(fields)
    limit = _limit(fields)
    duration_ms = push_options.number(fields, b"duration", RATE_MS_DEFAULT, 1, DAY_MS)
    ttl_ms = push_options.number(fields, b"ttl", 0, 0, push_options.YEAR_MS)
    ensure_room(session, None, 0, request.now_ms)
    queue = open_queue(yard, name)
    settings = copy_settings(queue)
    settings.rate_most = limit
    settings.rate_ms = duration_ms
    settings.rate_until_ms = session.door.wall_ms(request.now_ms) + ttl_ms if ttl_ms > 0 else 0
    set_settings(yard, queue, settings, request.now_ms)
    if ttl_ms > 0:
        yard.arm(RateEnd(yard, name), request.now_ms + ttl_ms)
    return {}


def rate_limit_clear(session: BunqueueSession, request: Request) -> Answer:
    """Remove the rate limit of a queue."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is not None and settings_of(queue).rate_most >= 0:
        _free_rate(session.yard, queue, request.now_ms)
    return {}


def _free_rate(yard: Yard, queue: Queue, now_ms: i64) -> None:
    settings = copy_settings(queue)
    settings.rate_most = NO_LIMIT
    settings.rate_ms = 0
    settings.rate_until_ms = 0
    set_settings(yard, queue, settings, now_ms)


@final
class RateEnd(Alarm):
    """Timer that ends a temporary rate limit."""

    def __init__(self, yard: Yard, name: str) -> None:
        number = yard.new_number()
        super().__init__(number, 0, number)
        self._yard = yard
        self._name = name

    def ring(self, now_ms: i64) -> None:
        """Remove the rate limit, unless it was set again to last longer."""
        queue = self._yard.queues.get(self._name)
        if queue is None:
            return
        until_ms = settings_of(queue).rate_until_ms
        if 0 < until_ms <= now_ms + self._yard.journal.wall_offset_ms:
            _free_rate(self._yard, queue, now_ms)


def arm_rate_ends(yard: Yard, now_ms: i64) -> None:
    """Arm the timers of temporary rate limits that were set before a restart."""
    for name, queue in yard.queues.items():
        until_ms = settings_of(queue).rate_until_ms
        if until_ms > 0:
            left_ms = until_ms - now_ms - yard.journal.wall_offset_ms
            yard.arm(RateEnd(yard, name), now_ms + max(left_ms, 0))


def set_concurrency(session: BunqueueSession, request: Request) -> Answer:
    """Limit how many jobs of a queue run at once."""
    name = push_options.queue_name(request.fields)
    limit = _limit(request.fields)
    ensure_room(session, None, 0, request.now_ms)
    _set_concurrency(session, open_queue(session.yard, name), limit, request.now_ms)
    return {}


def clear_concurrency(session: BunqueueSession, request: Request) -> Answer:
    """Remove the concurrency limit of a queue."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is not None and settings_of(queue).concurrency >= 0:
        _set_concurrency(session, queue, NO_LIMIT, request.now_ms)
    return {}


def _set_concurrency(session: BunqueueSession, queue: Queue, limit: i64, now_ms: i64) -> None:
    settings = copy_settings(queue)
    settings.concurrency = limit
    set_settings(session.yard, queue, settings, now_ms)


def get_queue_limits(session: BunqueueSession, request: Request) -> Answer:
    """Show the limits of a queue, and whether they are reached."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    limits: dict[str, object] = {
        "rateLimit": None,
        "rateLimitTtl": -2,
        "concurrencyLimit": None,
        "maxed": False,
    }
    if queue is not None:
        settings = settings_of(queue)
        if settings.rate_most >= 0:
            limits["rateLimit"] = {"max": settings.rate_most, "duration": settings.rate_ms}
            limits["rateLimitTtl"] = int(_closed_ms(session, queue, request.now_ms))
        if settings.concurrency >= 0:
            limits["concurrencyLimit"] = settings.concurrency
            limits["maxed"] = len(queue.leased.items) >= settings.concurrency
    return {"data": {"limits": limits}}


def _closed_ms(session: BunqueueSession, queue: Queue, now_ms: i64) -> i64:
    """Return the remaining time of a temporary rate limit, else the time until the next job."""
    rules = queue.rules
    assert rules is not None
    until_ms = rules.settings.rate_until_ms
    if until_ms > 0:
        return max(until_ms - session.door.wall_ms(now_ms), 0)
    bucket = rules.bucket
    if bucket is None or bucket.most <= 0:
        return 0
    return bucket.next_ms(now_ms) - now_ms


CONTROL_COMMANDS: Final[dict[bytes, Command]] = {
    b"Cancel": cancel,
    b"Update": update,
    b"ChangePriority": change_priority,
    b"ChangeDelay": change_delay,
    b"MoveToDelayed": move_to_delayed,
    b"Promote": promote_job,
    b"PromoteJobs": promote_jobs,
    b"MoveToWait": move_to_wait,
    b"Discard": discard,
    b"WaitJob": wait_job,
    b"Pause": pause_queue,
    b"Resume": resume_queue,
    b"IsPaused": get_paused,
    b"ListQueues": list_queues,
    b"Drain": drain,
    b"Clean": clean,
    b"Obliterate": obliterate,
    b"RateLimit": rate_limit,
    b"RateLimitClear": rate_limit_clear,
    b"SetConcurrency": set_concurrency,
    b"ClearConcurrency": clear_concurrency,
    b"GetQueueLimits": get_queue_limits,
}
