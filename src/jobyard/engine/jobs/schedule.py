"""Schedules: crons that put a job at each of their slots, and jobs that are followed by another.

A cron with an expression follows the wall clock, one with an interval the steady clock. What a slot
led to is recorded in one batch: the cron with that slot behind it, then the job. A slot is fired at
most once, over restarts and whatever the wall clock does: one that jumps ahead makes up for all it
passed over with one run, one that is set back is waited for.

The wall clock may move under a timer that was set by it, so while there is a cron with an
expression its table rings every second and sets their timers anew if the clock was moved. A cron
that rings asks the wall itself, and is never early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le
from mypy_extensions import i64, mypyc_attr, u8

from jobyard.engine.jobs.put import Wish, intern, make_room
from jobyard.engine.jobs.put_transaction import commit, reserve, room_of
from jobyard.engine.jobs.queues import drop_if_idle, drop_user, hold_user, open_queue
from jobyard.engine.jobs.take import offer
from jobyard.engine.state import bus
from jobyard.engine.state.timers import Alarm
from jobyard.errors import Refused, YardFull
from jobyard.journal.format.record import END_SIZE, ENTRY_SIZE, STATE_SIZE
from jobyard.model.details import Extra, size_of
from jobyard.model.entry import CRON
from jobyard.model.limits import NEVER_MS
from jobyard.model.policy import PLAIN, Policy
from jobyard.model.throttle.settings import encode_numbers
from jobyard.model.timetable import Timetable

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.job import Job
    from jobyard.model.queue import Queue

# Keys of the jobs of crons that keep a second run out while the first one lives.
KEY_PREFIX: Final = "cron:"

SKIPS_MISSED: Final = 1
SKIPS_IDLE: Final = 2

# How often the wall clock is looked at, and by how much it must have moved to set timers anew.
WATCH_MS: Final = 1000
MOVED_MS: Final = 100
# How soon a run for which there was no room is tried again.
RETRY_MS: Final = 1000
# Slots further ahead than this were fired by a wall clock gone wrong: nobody waits for years.
TRUST_MS: Final = 2 * 86_400_000

# Before its name in the key under which it is remembered: what was asked for, and how far it has
# come. Apart, because a run changes only the few bytes of the latter.
_ASKED: Final = "="
_PROGRESS: Final = "#"
_PROGRESS_SIZE: Final = 24

_NUMBERS: Final = 9


@mypyc_attr(allow_interpreted_subclasses=True)
class Counsel:
    """What only the door of the jobs knows."""

    def has_worker(self, queue: str) -> bool:
        """Tell whether a worker says that it works on a queue."""
        raise NotImplementedError

    def successor(self, job: Job, body: bytes, now_ms: i64) -> Wish | None:
        """Return the job that follows a job that is done, if it repeats itself."""
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
        # None for an interval, and for an expression in a zone that is known no more.
        self.timetable: Timetable | None = None

    def set_job(self, wish: Wish) -> None:
        """Put such a job at every slot."""
        self.family = i64(wish.family)
        self.codec = i64(wish.codec)
        self.body = wish.body
        self.rank = wish.rank
        self.delay_ms = wish.delay_ms
        self.policy = wish.policy.text
        extra = wish.extra
        if extra is not None:
            self.unique_key = extra.unique_key
            self.key_mode = extra.key_mode
            self.key_ttl_ms = extra.key_ttl_ms

    def set_schedule(self, schedule: str, zone: str) -> None:
        """Follow an expression; Refused if it cannot be read."""
        self.timetable = Timetable(schedule, zone or None)
        self.schedule = schedule
        self.zone = zone

    def job_policy(self) -> Policy:
        """Return what is asked for its jobs."""
        if not self.policy:
            return PLAIN
        policy = Policy(0)
        policy.fill(self.policy)
        return policy

    def wish(self, now_ms: i64) -> Wish:
        """Return the job of one run."""
        wish = Wish(u8(self.family), u8(self.codec), self.body)
        wish.rank = self.rank
        wish.delay_ms = self.delay_ms
        wish.own_ms = now_ms + self.yard.journal.wall_offset_ms
        policy = self.job_policy()
        # Since the last run the yard may have forgotten the policy, and its number with it.
        wish.policy = policy if policy is PLAIN else intern(self.yard, policy)
        if self.unique_key:
            extra = Extra()
            extra.unique_key = self.unique_key
            extra.key_mode = self.key_mode
            extra.key_ttl_ms = self.key_ttl_ms
            if self.key_ttl_ms > 0:
                extra.key_until_ms = now_ms + self.key_ttl_ms
            wish.extra = extra
        return wish

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
        """Return the next slot of the expression that lies ahead and was never fired."""
        if self.timetable is None:
            return NEVER_MS
        after_ms = wall_ms
        if self.last_slot_ms <= wall_ms + TRUST_MS:
            after_ms = max(wall_ms, self.last_slot_ms)
        return self.timetable.next_after(int(after_ms))

    def pass_slot(self, now_ms: i64) -> None:
        """Leave the slot that is due behind, and all others that are past."""
        self.last_slot_ms = self.next_wall_ms()
        if self.schedule:
            self.next_ms = self.slot_after(now_ms + self.yard.journal.wall_offset_ms)
            return
        self.next_ms += self.every_ms
        if self.next_ms <= now_ms:
            self.next_ms += ((now_ms - self.next_ms) // self.every_ms + 1) * self.every_ms

    def is_used_up(self) -> bool:
        """Tell whether it ran as often as it may."""
        return 0 < self.max_limit <= self.executions

    def ring(self, now_ms: i64) -> None:
        """Run."""
        fire(self.yard, self, now_ms)

    # -- bytes ---------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return what was asked for."""
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
        """Take on what `encode` wrote down."""
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
        """Return how far it has come; the times in it are wall times."""
        return encode_numbers((self.executions, self.last_slot_ms, self.next_wall_ms()))

    def fill_progress(self, data: bytes) -> None:
        """Take on what `encode_progress` wrote down; `next_ms` is the wall time then planned."""
        self.executions = read_i64_le(data, 0)
        self.last_slot_ms = read_i64_le(data, 8)
        self.next_ms = read_i64_le(data, 16)


@final
class Crons(Alarm):
    """All crons by name; as a timer it watches the wall clock for those that follow it."""

    def __init__(self, yard: Yard) -> None:
        super().__init__(0, NEVER_MS, yard.new_number())
        self._yard = yard
        self.by_name: dict[str, Cron] = {}
        self.counsel: Counsel | None = None
        self._offset_ms: i64 = 0

    def watch(self, now_ms: i64) -> None:
        """Begin to watch the wall clock."""
        if self.pos < 0:
            self._offset_ms = self._yard.journal.wall_offset_ms
            self._yard.arm(self, now_ms + WATCH_MS)

    def ring(self, now_ms: i64) -> None:
        """Set timers anew if the wall clock was moved."""
        offset_ms = self._yard.journal.wall_offset_ms
        is_moved = not -MOVED_MS < offset_ms - self._offset_ms < MOVED_MS
        is_needed = False
        for cron in self.by_name.values():
            if cron.schedule:
                is_needed = True
                if is_moved:
                    _plan_anew(self._yard, cron, now_ms)
        if is_moved:
            self._offset_ms = offset_ms
        if is_needed:
            self._yard.arm(self, now_ms + WATCH_MS)


def crons_of(yard: Yard) -> Crons:
    """Return the crons of a yard, making their table on first use."""
    crons = yard.crons
    if crons is None:
        crons = Crons(yard)
        yard.crons = crons
    return crons


def find_cron(yard: Yard, name: str) -> Cron | None:
    """Return a cron by name."""
    crons = yard.crons
    return None if crons is None else crons.by_name.get(name)


def _rearm(yard: Yard, cron: Cron) -> None:
    yard.disarm(cron)
    due_ms = cron.due_ms()
    if due_ms < NEVER_MS:
        yard.arm(cron, due_ms)


def _plan_anew(yard: Yard, cron: Cron, now_ms: i64) -> None:
    """Follow a wall clock that was moved: back to slots that were not fired yet, too."""
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
    """Add a cron, or put it in the place of the one with its name, whose runs go on counting."""
    crons = crons_of(yard)
    old = crons.by_name.get(cron.name)
    if old is not None:
        cron.executions = old.executions
        cron.last_slot_ms = old.last_slot_ms
    cron.begin(now_ms, is_immediate=is_immediate and old is None)
    if cron.next_ms >= NEVER_MS:
        raise Refused("Invalid cron expression: there is no time it fires at")
    value = cron.encode()
    make_room(yard, len(value) + 2 * _entry_room(cron), now_ms)
    if yard.journal.is_on:
        yard.journal.set_entry(CRON, _key(_ASKED, cron), value)
        yard.journal.set_entry(CRON, _key(_PROGRESS, cron), cron.encode_progress())
    if old is not None:
        yard.disarm(old)
    crons.by_name[cron.name] = cron
    _rearm(yard, cron)
    if cron.schedule:
        crons.watch(now_ms)
    if cron.due_ms() <= now_ms:
        # At once, so that whoever is told of the cron is told of its first run too.
        fire(yard, cron, now_ms)


def drop_cron(yard: Yard, cron: Cron) -> None:
    """Let a cron go; jobs it has put stay."""
    if yard.journal.is_on:
        yard.journal.drop_entry(CRON, _key(_ASKED, cron))
        yard.journal.drop_entry(CRON, _key(_PROGRESS, cron))
    yard.disarm(cron)
    del crons_of(yard).by_name[cron.name]


def fire(yard: Yard, cron: Cron, now_ms: i64) -> None:
    """Run a cron if its slot has come, and set the next."""
    if cron.due_ms() > now_ms:
        _rearm(yard, cron)
        return
    if cron.is_used_up():
        drop_cron(yard, cron)
        return
    if cron.flags & SKIPS_IDLE and not _has_worker(yard, cron.queue):
        cron.pass_slot(now_ms)
        _rearm(yard, cron)
        _tell(yard, bus.CRON_SKIPPED, cron, "reason", "no-worker", now_ms)
        return
    queue = open_queue(yard, cron.queue)
    wish = cron.wish(now_ms)
    room = room_of(queue, wish, None, now_ms) + 2 * _entry_room(cron)
    try:
        reserve(yard, queue, 1, len(wish.body), room, now_ms)
    except YardFull:
        drop_if_idle(yard, queue)
        yard.disarm(cron)
        yard.arm(cron, now_ms + RETRY_MS)
        _tell(yard, bus.CRON_MISSED, cron, "error", "Storage full", now_ms)
        return
    cron.executions += 1
    cron.pass_slot(now_ms)
    if cron.is_used_up():
        drop_cron(yard, cron)
    else:
        if yard.journal.is_on:
            yard.journal.set_entry(CRON, _key(_PROGRESS, cron), cron.encode_progress())
        _rearm(yard, cron)
    _put(yard, queue, wish, now_ms)
    _tell(yard, bus.CRON_FIRED, cron, "", "", now_ms)


def _tell(yard: Yard, what: str, cron: Cron, key: str, value: str, now_ms: i64) -> None:
    if yard.bus.is_on:
        told: dict[str, object] = {"name": cron.name, "queue": cron.queue}
        if key:
            told[key] = value
        yard.bus.note(what, told, now_ms)


def _put(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> None:
    commit(yard, queue, wish, None, now_ms)
    offer(yard, queue, now_ms)


def _has_worker(yard: Yard, queue: str) -> bool:
    counsel = crons_of(yard).counsel
    return counsel is not None and counsel.has_worker(queue)


def load_cron(yard: Yard, key: str, value: bytes, now_ms: i64) -> None:
    """Take up a cron of the last boot; nothing is recorded and nothing runs yet.

    What it missed meanwhile is one run, or none if it skips them. An interval keeps its rhythm, and
    whatever the wall clock did, it is not waited for longer than once.
    """
    if not key.startswith(_ASKED):
        return
    name = key[len(_ASKED) :]
    cron = Cron(yard, name, "")
    cron.fill(value)
    progress = yard.journal.entries.get((CRON, _key(_PROGRESS, cron)))
    if progress is not None and not progress.is_gone:
        # What a repair could not save begins anew.
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
            # The zone is known no more. It stays listed, for someone to set it anew.
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
    """Tell whether a job is the one run that its cron keeps alive at a time."""
    extra = job.extra
    crons = yard.crons
    if crons is None or extra is None or not extra.unique_key.startswith(KEY_PREFIX):
        return False
    return extra.unique_key[len(KEY_PREFIX) :] in crons.by_name


# -- jobs that repeat themselves ---------------------------------------------------------------


def hold_successor(yard: Yard, job: Job, result_size: i64, now_ms: i64) -> Wish | None:
    """Return what is to be put once a job is done, with its queue held and room made for both.

    Raises YardFull, and holds nothing, if there is no room for both in one batch: rather the end of
    the job has to wait than that nothing ever follows it.
    """
    extra = job.extra
    crons = yard.crons
    if extra is None or not extra.marks or crons is None or crons.counsel is None:
        return None
    body = yard.bodies.fetch(job)
    if body is None and job.lease is not None:
        # Damaged since the worker got it.
        body = job.lease.body
    wish = None if body is None else crons.counsel.successor(job, body, now_ms)
    if wish is None:
        return None
    ending: i64 = STATE_SIZE + END_SIZE + size_of(extra) + result_size
    make_room(yard, 2 * ending + room_of(job.queue, wish, None, now_ms), now_ms)
    hold_user(job.queue)
    return wish


def put_successor(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> None:
    """Put what follows a job that has just ended."""
    _put(yard, queue, wish, now_ms)
    drop_user(yard, queue)
