"""Remove ended jobs (done or dead) after their time, and retry dead ones where that is set.

A queue with such jobs has one alarm among the timers, set for the first of them that is due; a
queue without any has none, and no turn pays for it. The promise: whatever is due is done within
GAP_MS, and one ring removes or retries at most RING_MAX jobs. Also counts ended jobs by the minute.

Dead jobs of beanstalk and of topics are in the same list and stay there until a client kicks or
deletes them.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.flows import room_to_look
from jobyard.engine.jobs.move import revive
from jobyard.engine.jobs.queues import drop_if_idle, settings_of
from jobyard.engine.state import bus
from jobyard.engine.state.timers import Alarm, EndObserver
from jobyard.engine.state.yard import Yard
from jobyard.journal.format.record import MOVE_SIZE, STATE_SIZE, Cause
from jobyard.model.details import Outcome
from jobyard.model.details_codec import size_of
from jobyard.model.family import DEAD_PERISH, counts_attempts, traits
from jobyard.model.index.minute_counter import MinuteCounters
from jobyard.model.job import DEAD, Job
from jobyard.model.limits import FULL_WAIT_MS, NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import DAY_MS, Settings

# Results are read soon or never.
DONE_AGE_MS: Final = 7 * DAY_MS
RING_MAX: Final = 500
# Dead jobs that one ring looks at; the next ring continues after them.
LOOK_MAX: Final = 10_000
# The least time between two rings of a queue.
GAP_MS: Final = 20
# Queues with minute counters; beyond this the oldest counters are dropped.
METERS_MAX: Final = 10_000
_DOUBLINGS_MAX: Final = 20


@final
class RetentionAlarm(Alarm):
    """The alarm of one queue."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue
        # How far the dead jobs were searched, and when the first of those is due.
        self.cursor: i64 = 0
        self.next_ms: i64 = NEVER_MS

    def begin_again(self) -> None:
        """Search the dead jobs from the first one."""
        self.cursor = 0
        self.next_ms = NEVER_MS

    def ring(self, now_ms: i64) -> None:
        """Do what is due in the queue."""
        sweep(self._yard, self._queue, now_ms)


@final
class Retention(EndObserver):
    """Sets the alarms of all queues."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    def rested(self, job: Job) -> None:
        """Set the alarm for a job that has ended."""
        if not counts_attempts(job.family):
            return
        queue = job.queue
        ended_ms = job.outcome().ended_ms
        minute_counters = _meters(self._yard, queue)
        if job.state != DEAD:
            minute_counters.done.add(ended_ms)
            _arm(self._yard, queue, ended_ms + DONE_AGE_MS)
            return
        minute_counters.failed.add(ended_ms)
        if not traits(job.family) & DEAD_PERISH:
            return
        settings = settings_of(queue)
        if queue.perishable_count > settings.dead_max:
            _arm(self._yard, queue, ended_ms)
        else:
            _arm(self._yard, queue, min(expires_ms(settings, job), retries_ms(settings, job)))

    def left(self, job: Job, why: i64, now_ms: i64) -> None:
        """Count a job that is not kept."""
        if not counts_attempts(job.family):
            return
        minute_counters = _meters(self._yard, job.queue)
        if why == Cause.FINISHED:
            minute_counters.done.add(now_ms)
        elif why in (Cause.FAILED, Cause.STALLED, Cause.HANDED_BACK, Cause.BURIED):
            minute_counters.failed.add(now_ms)


def _meters(yard: Yard, queue: Queue) -> MinuteCounters:
    minute_counters = queue.minute_counters
    if minute_counters is None:
        minute_counters = yard.minute_counters.get(queue.name)
        if minute_counters is None:
            if len(yard.minute_counters) >= METERS_MAX:
                del yard.minute_counters[next(iter(yard.minute_counters))]
            minute_counters = MinuteCounters()
            yard.minute_counters[queue.name] = minute_counters
        queue.minute_counters = minute_counters
    return minute_counters


def watch(yard: Yard, now_ms: i64) -> Retention:
    """Start retention, also for jobs that have already ended."""
    rests = Retention(yard)
    yard.keeper = rests
    for queue in yard.queues.values():
        look_again(yard, queue, now_ms)
    return rests


def look_again(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Search a queue soon: something may be due earlier than its alarm."""
    if queue.dead.live_count > 0 or queue.done.live_count > 0:
        _arm(yard, queue, now_ms)
        _alarm_of(yard, queue).begin_again()


def _arm(yard: Yard, queue: Queue, at_ms: i64) -> None:
    if at_ms < NEVER_MS:
        yard.arm(_alarm_of(yard, queue), at_ms)


def _alarm_of(yard: Yard, queue: Queue) -> RetentionAlarm:
    alarm = queue.sweep
    if alarm is None:
        alarm = RetentionAlarm(yard, queue)
        queue.sweep = alarm
    assert isinstance(alarm, RetentionAlarm)
    return alarm


def expires_ms(settings: Settings, job: Job) -> i64:
    """Return when a dead job is removed, or NEVER_MS."""
    if settings.dead_age_ms < 0 or not traits(job.family) & DEAD_PERISH:
        return NEVER_MS
    return job.outcome().ended_ms + settings.dead_age_ms


def retries_ms(settings: Settings, job: Job) -> i64:
    """Return when a dead job is retried automatically, or NEVER_MS; the wait doubles each time."""
    if not settings.dead_auto_retry or not traits(job.family) & DEAD_PERISH:
        return NEVER_MS
    retries = job.ensure_details().retries
    if retries >= settings.dead_retries_max:
        return NEVER_MS
    return job.outcome().ended_ms + (settings.dead_retry_ms << min(retries, _DOUBLINGS_MAX))


def sweep(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Do what is due in one queue, and set its alarm for what is due next."""
    next_ms = min(_sweep_done(yard, queue, now_ms), _sweep_dead(yard, queue, now_ms))
    if yard.queues.get(queue.name) is not queue:
        return
    drop_if_idle(yard, queue)
    if next_ms < NEVER_MS:
        _arm(yard, queue, max(next_ms, now_ms + GAP_MS))


def _sweep_done(yard: Yard, queue: Queue, now_ms: i64) -> i64:
    """Remove old done jobs; return when to sweep next."""
    left: i64 = RING_MAX
    while True:
        outcome = queue.done.first()
        if outcome is None:
            return NEVER_MS
        assert isinstance(outcome, Outcome)
        due_ms = outcome.ended_ms + DONE_AGE_MS
        if due_ms > now_ms or left == 0:
            return due_ms
        left -= 1
        yard.drop(outcome.job, now_ms)


def _sweep_dead(yard: Yard, queue: Queue, now_ms: i64) -> i64:
    """Remove or retry dead jobs; return when to sweep next."""
    settings = settings_of(queue)
    alarm = _alarm_of(yard, queue)
    left: i64 = RING_MAX - trim_dead(yard, queue, RING_MAX, now_ms)
    next_ms = alarm.next_ms
    expired: i64 = 0
    retried: i64 = 0
    items = queue.dead.after(alarm.cursor, LOOK_MAX, is_reversed=False)
    is_through: bool = len(items) < LOOK_MAX
    for item in items:
        assert isinstance(item, Outcome)
        job = item.job
        if item.pos != 0 or not traits(job.family) & DEAD_PERISH:
            alarm.cursor = item.key
            continue
        expiry_ms = expires_ms(settings, job)
        retry_ms = retries_ms(settings, job)
        if left == expired + retried:
            is_through = False
            break
        if expiry_ms <= now_ms:
            expired += 1
            yard.drop(job, now_ms)
        elif retry_ms > now_ms:
            next_ms = min(next_ms, expiry_ms, retry_ms)
        elif has_room(yard, job, now_ms):
            retried += 1
            revive(yard, job, now_ms)
        else:
            next_ms = min(next_ms, now_ms + FULL_WAIT_MS)
        # Only now: if the disk is full, the same job is tried again.
        alarm.cursor = item.key
    if yard.bus.is_on:
        _publish_swept(yard, queue, bus.EventName.DEAD_EXPIRED, expired, now_ms)
        _publish_swept(yard, queue, bus.EventName.DEAD_RETRIED, retried, now_ms)
    if is_through:
        alarm.begin_again()
        return next_ms
    alarm.next_ms = next_ms
    return now_ms


def _publish_swept(yard: Yard, queue: Queue, what: str, count: i64, now_ms: i64) -> None:
    if count > 0:
        yard.bus.note(what, {"queue": queue.name, "count": int(count)}, now_ms)


def trim_dead(yard: Yard, queue: Queue, most: i64, now_ms: i64) -> i64:
    """Remove the oldest dead jobs beyond the limit, up to `most`; return how many."""
    left: i64 = min(most, queue.perishable_count - settings_of(queue).dead_max)
    trimmed: i64 = 0
    if left <= 0:
        return trimmed
    for item in queue.dead.items:
        assert isinstance(item, Outcome)
        if item.pos == 0 and traits(item.job.family) & DEAD_PERISH:
            yard.drop(item.job, now_ms)
            trimmed += 1
            if trimmed == left:
                break
    return trimmed


def has_room(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Return whether the journal has room for the record that brings a job back."""
    journal = yard.journal
    details = job.details
    size: i64 = 0 if details is None else size_of(details)
    return not journal.is_on or journal.admit_change(
        STATE_SIZE + MOVE_SIZE + 64 + size + room_to_look(yard, job), now_ms
    )
