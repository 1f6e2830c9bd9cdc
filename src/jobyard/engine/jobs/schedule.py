"""Schedules: crons that put a job at each of their slots, and jobs with a successor.

A cron with an expression follows the wall clock, one with an interval the steady clock. A run is
recorded in one batch: the cron with that slot passed, then the job. A slot is fired at most once,
across restarts and whatever the wall clock does: if it jumps ahead, one run makes up for all slots
in between; if it is set back, slots that were fired are not fired again.

The wall clock may move after a timer was set by it, so while there is a cron with an expression
the table of crons rings every second and resets their timers if the clock was moved. A cron that
rings checks the wall clock itself, and is never early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le
from mypy_extensions import i64, mypyc_attr, u8

from jobyard.engine.jobs.put import NewJob, intern, make_room
from jobyard.engine.jobs.put_transaction import commit, reserve, room_of
from jobyard.engine.jobs.queues import drop_if_idle, drop_user, hold_user, open_queue
from jobyard.engine.jobs.take import offer
from jobyard.engine.state import bus
from jobyard.engine.state.timers import Alarm
from jobyard.errors import Refused, YardFull
from jobyard.journal.format.record import END_ROOM, ENTRY_SIZE, STATE_SIZE
from jobyard.model.details import JobDetails
from jobyard.model.details_codec import size_of
from jobyard.model.entry import EntryKind
from jobyard.model.limits import NEVER_MS
from jobyard.model.policy import PLAIN, Policy
from jobyard.model.throttle.settings import encode_numbers
from jobyard.model.timetable import Timetable
from jobyard.model.topic.log import TopicFull, WriteTooLarge

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.job import Job
    from jobyard.model.queue import Queue

# Prefix of the unique keys that prevent a second run of a cron while the first one lives.
CRON_KEY_PREFIX: Final = "cron:"

SKIPS_MISSED: Final = 1
SKIPS_IDLE: Final = 2

# How often the wall clock is checked, and by how much it must have moved to reset timers.
WATCH_MS: Final = 1000
MOVED_MS: Final = 100
# The delay before a run for which there was no room is retried.
SCHEDULE_RETRY_MS: Final = 1000
# Fired slots further ahead than this came from a wrong wall clock; waiting may take years.
TRUST_MS: Final = 2 * 86_400_000

# Prefixes of the name in the journal keys of a cron: its definition, and its progress. They are
# separate entries because a run changes only the few bytes of the latter.
_ASKED: Final = "="
_PROGRESS: Final = "#"
_PROGRESS_SIZE: Final = 24

_NUMBERS: Final = 9


@mypyc_attr(allow_interpreted_subclasses=True)
class ScheduleHooks:
    """Answers that only the door of the jobs can give."""

    def has_worker(self, queue: str) -> bool:
        """Return whether a worker is registered for a queue."""
        raise NotImplementedError

    def successor(self, job: Job, body: bytes, now_ms: i64) -> NewJob | None:
        """Return the successor of a job that is done, if it repeats itself."""
        raise NotImplementedError


@final
class Cron(Alarm):
    """One schedule. `sort_key` is when it rings."""

    def __init__(self, yard: Yard, name: str, queue: str) -> None:
        super().__init__(0, NEVER_MS, yard.new_number())
        self.yard = yard
        self.name: str = name
        self.queue: str = queue
        # The job to put.
        self.family: i64 = 0
        self.codec: i64 = 0
        self.body: bytes = b""
        self.rank: i64 = 0
        self.delay_ms: i64 = 0
        self.policy: bytes = b""
        self.unique_key: str = ""
        self.key_mode: i64 = 0
        self.key_ttl_ms: i64 = 0
        # When: an expression and its zone, or else an interval.
        self.schedule: str = ""
        self.zone: str = ""
        self.every_ms: i64 = 0
        # 0: no limit.
        self.max_limit: i64 = 0
        self.flags: i64 = SKIPS_MISSED
        self.executions: i64 = 0
        # Wall time of the slot that was fired last.
        self.last_slot_ms: i64 = 0
        # Expression: the wall time of its next slot. Interval: the steady time of its next run.
        self.next_ms: i64 = NEVER_MS
        # None for an interval, and for an expression in a zone that is no longer known.
        self.timetable: Timetable | None = None

    def set_job(self, new_job: NewJob) -> None:
        """Set the job to put at every slot."""
        self.family = i64(new_job.family)
        self.codec = i64(new_job.codec)
        self.body = new_job.body
        self.rank = new_job.rank
        self.delay_ms = new_job.delay_ms
        self.policy = new_job.policy.text
        details = new_job.details
        if details is not None:
            self.unique_key = details.unique_key
            self.key_mode = details.key_mode
            self.key_ttl_ms = details.key_ttl_ms

    def set_schedule(self, schedule: str, zone: str) -> None:
        """Follow an expression; Refused if it cannot be read."""
        self.timetable = Timetable(schedule, zone or None)
        self.schedule = schedule
        self.zone = zone

    def job_policy(self) -> Policy:
        """Return the policy of its jobs."""
        if not self.policy:
            return PLAIN
        policy = Policy(0)
        policy.fill(self.policy)
        return policy

    def new_job(self, now_ms: i64) -> NewJob:
        """Return the job of one run."""
        new_job = NewJob(u8(self.family), u8(self.codec), self.body)
        new_job.rank = self.rank
        new_job.delay_ms = self.delay_ms
        new_job.own_ms = now_ms + self.yard.journal.wall_offset_ms
        policy = self.job_policy()
        # The yard may have dropped the policy since the last run, and its number with it.
        new_job.policy = policy if policy is PLAIN else intern(self.yard, policy)
        if self.unique_key:
            details = JobDetails()
            details.unique_key = self.unique_key
            details.key_mode = self.key_mode
            details.key_ttl_ms = self.key_ttl_ms
            if self.key_ttl_ms > 0:
                details.key_until_ms = now_ms + self.key_ttl_ms
            new_job.details = details
        return new_job

    # -- time ----------------------------------------------------------------------------------

    def next_wall_ms(self) -> i64:
        """Return the wall time of the next run, or NEVER_MS."""
        if self.schedule or self.next_ms >= NEVER_MS:
            return self.next_ms
        return self.next_ms + self.yard.journal.wall_offset_ms

    def due_ms(self) -> i64:
        """Return the steady time of the next run, or NEVER_MS."""
        if not self.schedule or self.next_ms >= NEVER_MS:
            return self.next_ms
        return self.next_ms - self.yard.journal.wall_offset_ms

    def begin(self, now_ms: i64, *, is_immediate: bool) -> None:
        """Set the first run."""
        wall_ms = now_ms + self.yard.journal.wall_offset_ms
        if is_immediate:
            self.next_ms = wall_ms if self.schedule else now_ms
        elif self.schedule:
            self.next_ms = self.slot_after(wall_ms)
        else:
            self.next_ms = now_ms + self.every_ms

    def slot_after(self, wall_ms: i64) -> i64:
        """Return the next slot of the expression that was never fired."""
        if self.timetable is None:
            return NEVER_MS
        after_ms = wall_ms
        if self.last_slot_ms <= wall_ms + TRUST_MS:
            after_ms = max(wall_ms, self.last_slot_ms)
        return self.timetable.next_after(int(after_ms))

    def pass_slot(self, now_ms: i64) -> None:
        """Move past the slot that is due, and all others that have passed."""
        self.last_slot_ms = self.next_wall_ms()
        if self.schedule:
            self.next_ms = self.slot_after(now_ms + self.yard.journal.wall_offset_ms)
            return
        self.next_ms += self.every_ms
        if self.next_ms <= now_ms:
            self.next_ms += ((now_ms - self.next_ms) // self.every_ms + 1) * self.every_ms

    def is_used_up(self) -> bool:
        """Return whether it has reached its limit of runs."""
        return 0 < self.max_limit <= self.executions

    def ring(self, now_ms: i64) -> None:
        """Run."""
        fire(self.yard, self, now_ms)

    # -- bytes ---------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return its definition as bytes."""
        out = BytesWriter()
        numbers: tuple[i64, ...] = (
            self.family,
            self.codec,
            self.rank,
            self.delay_ms,
            self.key_mode,
            self.key_ttl_ms,
            self.every_ms,
            self.max_limit,
            self.flags,
        )
        out.write(encode_numbers(numbers))
        for part in (
            self.queue.encode(),
            self.schedule.encode(),
            self.zone.encode(),
            self.unique_key.encode(),
            self.policy,
            self.body,
        ):
            write_i32_le(out, len(part))
            out.write(part)
        return out.getvalue()

    def fill(self, data: bytes) -> None:
        """Restore what `encode` wrote."""
        self.family = read_i64_le(data, 0)
        self.codec = read_i64_le(data, 8)
        self.rank = read_i64_le(data, 16)
        self.delay_ms = read_i64_le(data, 24)
        self.key_mode = read_i64_le(data, 32)
        self.key_ttl_ms = read_i64_le(data, 40)
        self.every_ms = read_i64_le(data, 48)
        self.max_limit = read_i64_le(data, 56)
        self.flags = read_i64_le(data, 64)
        parts: list[bytes] = []
        at: i64 = 8 * _NUMBERS
        while len(parts) < 6:
            end: i64 = at + 4 + i64(read_i32_le(data, at))
            parts.append(data[at + 4 : end])
            at = end
        self.queue = parts[0].decode()
        self.schedule = parts[1].decode()
        self.zone = parts[2].decode()
        self.unique_key = parts[3].decode()
        self.policy = parts[4]
        self.body = parts[5]

    def encode_progress(self) -> bytes:
        """Return its progress as bytes; the times in it are wall times."""
        return encode_numbers((self.executions, self.last_slot_ms, self.next_wall_ms()))

    def fill_progress(self, data: bytes) -> None:
        """Restore what `encode_progress` wrote; `next_ms` is the wall time then planned."""
        self.executions = read_i64_le(data, 0)
        self.last_slot_ms = read_i64_le(data, 8)
        self.next_ms = read_i64_le(data, 16)


@final
class Crons(Alarm):
    """All crons by name; as a timer it checks the wall clock for crons with an expression."""

    def __init__(self, yard: Yard) -> None:
        super().__init__(0, NEVER_MS, yard.new_number())
        self._yard = yard
        self.by_name: dict[str, Cron] = {}
        self.hooks: ScheduleHooks | None = None
        self._offset_ms: i64 = 0

    def watch(self, now_ms: i64) -> None:
        """Start checking the wall clock."""
        if self.pos < 0:
            self._offset_ms = self._yard.journal.wall_offset_ms
            self._yard.arm(self, now_ms + WATCH_MS)

    def ring(self, now_ms: i64) -> None:
        """Reset timers if the wall clock was moved."""
        offset_ms = self._yard.journal.wall_offset_ms
        is_moved = not -MOVED_MS < offset_ms - self._offset_ms < MOVED_MS
        is_needed = False
        for cron in self.by_name.values():
            if cron.schedule:
                is_needed = True
                if is_moved:
                    _plan_again(self._yard, cron, now_ms)
        if is_moved:
            self._offset_ms = offset_ms
        if is_needed:
            self._yard.arm(self, now_ms + WATCH_MS)


def crons_of(yard: Yard) -> Crons:
    """Return the crons of a yard; create their table on first use."""
    crons = _known_crons(yard)
    if crons is None:
        crons = Crons(yard)
        yard.crons = crons
    return crons


def _known_crons(yard: Yard) -> Crons | None:
    crons = yard.crons
    return crons if isinstance(crons, Crons) else None


def find_cron(yard: Yard, name: str) -> Cron | None:
    """Return a cron by name."""
    crons = _known_crons(yard)
    return None if crons is None else crons.by_name.get(name)


def _rearm(yard: Yard, cron: Cron) -> None:
    yard.disarm(cron)
    due_ms = cron.due_ms()
    if due_ms < NEVER_MS:
        yard.arm(cron, due_ms)


def _plan_again(yard: Yard, cron: Cron, now_ms: i64) -> None:
    """Adapt to a wall clock that was moved; back to earlier slots too, if they never fired."""
    wall_ms = now_ms + yard.journal.wall_offset_ms
    if cron.next_ms > wall_ms:
        cron.next_ms = cron.slot_after(wall_ms)
    _rearm(yard, cron)


# -- verbs -------------------------------------------------------------------------------------


def _key(what: str, cron: Cron) -> bytes:
    return (what + cron.name).encode()


def _entry_room(cron: Cron) -> i64:
    return ENTRY_SIZE + len(_key(_PROGRESS, cron)) + _PROGRESS_SIZE


def set_cron(yard: Yard, cron: Cron, now_ms: i64, *, is_immediate: bool) -> None:
    """Add a cron, or replace the one with its name and continue its count of runs."""
    crons = crons_of(yard)
    old = crons.by_name.get(cron.name)
    if old is not None:
        cron.executions = old.executions
        cron.last_slot_ms = old.last_slot_ms
    cron.begin(now_ms, is_immediate=is_immediate and old is None)
    if cron.next_ms >= NEVER_MS:
        raise Refused("Invalid cron expression: it never fires")
    value = cron.encode()
    make_room(yard, len(value) + 2 * _entry_room(cron), now_ms)
    if yard.journal.is_on:
        yard.journal.set_entry(EntryKind.CRON, _key(_ASKED, cron), value)
        yard.journal.set_entry(EntryKind.CRON, _key(_PROGRESS, cron), cron.encode_progress())
    if old is not None:
        yard.disarm(old)
    crons.by_name[cron.name] = cron
    _rearm(yard, cron)
    if cron.schedule:
        crons.watch(now_ms)
    if cron.due_ms() <= now_ms:
        # At once, so that the reply about the cron includes its first run.
        fire(yard, cron, now_ms)


def drop_cron(yard: Yard, cron: Cron) -> None:
    """Remove a cron; jobs that it has put stay."""
    if yard.journal.is_on:
        yard.journal.drop_entry(EntryKind.CRON, _key(_ASKED, cron))
        yard.journal.drop_entry(EntryKind.CRON, _key(_PROGRESS, cron))
    yard.disarm(cron)
    del crons_of(yard).by_name[cron.name]


def fire(yard: Yard, cron: Cron, now_ms: i64) -> None:
    """Run a cron if its slot is due, and set the next one."""
    if cron.due_ms() > now_ms:
        _rearm(yard, cron)
        return
    if cron.is_used_up():
        drop_cron(yard, cron)
        return
    if cron.flags & SKIPS_IDLE and not _has_worker(yard, cron.queue):
        cron.pass_slot(now_ms)
        _rearm(yard, cron)
        _publish(yard, bus.EventName.CRON_SKIPPED, cron, "reason", "no-worker", now_ms)
        return
    queue = open_queue(yard, cron.queue)
    new_job = cron.new_job(now_ms)
    room = room_of(queue, new_job, None, now_ms) + 2 * _entry_room(cron)
    try:
        reserve(yard, queue, 1, len(new_job.body), room, now_ms)
    except YardFull as refusal:
        drop_if_idle(yard, queue)
        yard.disarm(cron)
        yard.arm(cron, now_ms + SCHEDULE_RETRY_MS)
        _publish(yard, bus.EventName.CRON_MISSED, cron, "error", _why_missed(refusal), now_ms)
        return
    cron.executions += 1
    cron.pass_slot(now_ms)
    if cron.is_used_up():
        drop_cron(yard, cron)
    else:
        if yard.journal.is_on:
            yard.journal.set_entry(EntryKind.CRON, _key(_PROGRESS, cron), cron.encode_progress())
        _rearm(yard, cron)
    _put(yard, queue, new_job, now_ms)
    _publish(yard, bus.EventName.CRON_FIRED, cron, "", "", now_ms)


def _why_missed(refusal: YardFull) -> str:
    if isinstance(refusal, WriteTooLarge):
        return "Job too large for its topic"
    if isinstance(refusal, TopicFull):
        return "Topic full"
    # A log has the name of the queue.
    return str(refusal) or "Storage full"


def _publish(yard: Yard, what: str, cron: Cron, key: str, value: str, now_ms: i64) -> None:
    if yard.bus.is_on:
        fields: dict[str, object] = {"name": cron.name, "queue": cron.queue}
        if key:
            fields[key] = value
        yard.bus.note(what, fields, now_ms)


def _put(yard: Yard, queue: Queue, new_job: NewJob, now_ms: i64) -> None:
    commit(yard, queue, new_job, None, now_ms)
    offer(yard, queue, now_ms)


def _has_worker(yard: Yard, queue: str) -> bool:
    hooks = crons_of(yard).hooks
    return hooks is not None and hooks.has_worker(queue)


def load_cron(yard: Yard, key: str, value: bytes, now_ms: i64) -> None:
    """Load a cron of the last boot; nothing is recorded and nothing runs yet.

    Slots that it missed meanwhile become one run, or none if it skips them. An interval keeps its
    rhythm, and its next run is at most one interval away, whatever the wall clock did.
    """
    if not key.startswith(_ASKED):
        return
    name = key[len(_ASKED) :]
    cron = Cron(yard, name, "")
    cron.fill(value)
    progress = yard.journal.entries.get((EntryKind.CRON, _key(_PROGRESS, cron)))
    if progress is not None and not progress.is_gone:
        # Progress that a repair could not recover starts from zero.
        cron.fill_progress(progress.value)
    crons = crons_of(yard)
    crons.by_name[name] = cron
    wall_ms = now_ms + yard.journal.wall_offset_ms
    is_missed = cron.next_ms <= wall_ms
    is_skipped = cron.flags & (SKIPS_MISSED | SKIPS_IDLE) != 0
    if cron.schedule:
        try:
            cron.timetable = Timetable(cron.schedule, cron.zone or None)
        except Refused:
            # The zone is no longer known. The cron stays listed, so that it can be set again.
            cron.next_ms = NEVER_MS
            return
        if not is_missed or is_skipped:
            cron.next_ms = cron.slot_after(wall_ms)
        crons.watch(now_ms)
    elif not is_missed:
        cron.next_ms = now_ms + min(cron.next_ms - wall_ms, cron.every_ms)
    elif is_skipped:
        cron.next_ms = now_ms + cron.every_ms - (wall_ms - cron.next_ms) % cron.every_ms
    else:
        cron.next_ms = now_ms
    _rearm(yard, cron)


def is_run(yard: Yard, job: Job) -> bool:
    """Return whether a job is the single run that its cron allows at a time."""
    details = job.details
    crons = _known_crons(yard)
    if crons is None or details is None or not details.unique_key.startswith(CRON_KEY_PREFIX):
        return False
    return details.unique_key[len(CRON_KEY_PREFIX) :] in crons.by_name


# -- jobs that repeat themselves ---------------------------------------------------------------


def hold_successor(yard: Yard, job: Job, result_size: i64, now_ms: i64) -> NewJob | None:
    """Return the successor to put once a job is done; hold its queue and reserve room for both.

    Raises YardFull, and holds nothing, if there is no room for both in one batch: the end of the
    job then has to wait, because a job that ended without its successor would never repeat again.
    """
    details = job.details
    crons = _known_crons(yard)
    if details is None or not details.protocol_fields or crons is None or crons.hooks is None:
        return None
    body = yard.bodies.fetch(job)
    if body is None and job.lease is not None:
        # The stored body was damaged since the worker got it.
        body = job.lease.body
    new_job = None if body is None else crons.hooks.successor(job, body, now_ms)
    if new_job is None:
        return None
    ending: i64 = STATE_SIZE + END_ROOM + size_of(details) + result_size
    make_room(yard, 2 * ending + room_of(job.queue, new_job, None, now_ms), now_ms)
    hold_user(job.queue)
    return new_job


def put_successor(yard: Yard, queue: Queue, new_job: NewJob, now_ms: i64) -> None:
    """Put the successor of a job that has just ended."""
    _put(yard, queue, new_job, now_ms)
    drop_user(yard, queue)
