"""Finds the keys that show queues and their jobs, by name and by iteration."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.state.yard import Yard
from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.job import GONE, Job
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.events import QueueEvents
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key import KeyScan, Projections, RedisKey
from jobyard.protocols.glidemq.keyspace.key_names import (
    KEY_PREFIX,
    KEY_SIZE_MAX,
    KeyName,
    parse_key,
)
from jobyard.protocols.glidemq.keyspace.key_parts import TEXTS, KeyPlace, bytes_of, find_place
from jobyard.protocols.glidemq.keyspace.views.job_keys import JobKey, LogKey, MembersKey
from jobyard.protocols.glidemq.keyspace.views.queue import (
    FewKey,
    ListKey,
    MetaKey,
    MetricsKey,
    NoPart,
    NumberKey,
    OrderingGroupKey,
    ParkedKey,
    RestKey,
    ScheduledKey,
)
from jobyard.protocols.glidemq.keyspace.views.sets import HiddenMembers, log_lines, members_of
from jobyard.protocols.glidemq.keyspace.views.streams import EventsKey, RecentlyAcked, StreamKey
from jobyard.wire.glob import is_match, literal_start
from jobyard.wire.resp.read import Command

# A cursor: the number of its queue above; below, the seq of the last job shown.
_QUEUE_SHIFT: Final = 40
_SEQ_BITS: Final = (1 << _QUEUE_SHIFT) - 1
_QUEUES_MAX: Final = (1 << 21) - 1
# Units of work: queues skipped in one unit, cost of checking all parts of a queue, and jobs in one
# unit.
_PASSED_PER_UNIT: Final = 4
# Cost of giving a queue a number, in queues skipped.
_NEW_PASSES: Final = 3
_WHOLE_UNITS: Final = 48
_JOBS_PER_UNIT: Final = 2
# What an argument may add to the journal in addition to its own bytes.
_RECORD_ROOM: Final = 128


_WHOLE: Final = (
    key_parts.KeyPart.ID,
    key_parts.KeyPart.STREAM,
    key_parts.KeyPart.SCHEDULED,
    key_parts.KeyPart.COMPLETED,
    key_parts.KeyPart.FAILED,
    key_parts.KeyPart.EVENTS,
    key_parts.KeyPart.META,
    key_parts.KeyPart.ORDERING,
    key_parts.KeyPart.RATELIMITED,
    key_parts.KeyPart.LIFO,
    key_parts.KeyPart.PRIORITY,
    key_parts.KeyPart.LIST_ACTIVE,
    key_parts.KeyPart.SUSPENDED,
    key_parts.KeyPart.METRICS_COMPLETED,
    key_parts.KeyPart.METRICS_FAILED,
)


@final
class QueueProjections(Projections):
    """Shows the queues of one yard."""

    def __init__(
        self,
        yard: Yard,
        events: QueueEvents,
        groups: dict[str, dict[str, int]],
        recently_acked: RecentlyAcked,
    ) -> None:
        self._yard = yard
        self._events = events
        self._groups = groups
        self._recently_acked = recently_acked
        self._hidden = HiddenMembers()
        # Queues in the order they were first seen; cursors point into this list.
        self._seen: list[str] = []
        self._known: dict[str, int] = {}

    def find(self, name: KeyName, now_ms: i64) -> RedisKey | None:
        """Return the key if it shows a queue or a job; None if it is a stored key."""
        place = find_place(name)
        part = place.part
        if part in (key_parts.KeyPart.STORED, key_parts.KeyPart.DEDUP):
            return None
        yard = self._yard
        queue = yard.queues.get(place.queue_name)
        if part in _OF_JOBS:
            job = None if queue is None else glide_add.find(yard, queue, place.rest)
            return _job_key(yard, job, place, now_ms)
        if part == key_parts.KeyPart.STREAM:
            return StreamKey(
                yard, place.queue_name, self._recently_acked, now_ms, self._groups, self._events
            )
        if part == key_parts.KeyPart.EVENTS:
            return EventsKey(self._events, place)
        return self._part(queue, place, now_ms)

    def _part(self, queue: Queue | None, place: KeyPlace, now_ms: i64) -> RedisKey:
        """Return a key about a queue that is not a stream."""
        yard = self._yard
        part = place.part
        if part == key_parts.KeyPart.META:
            return MetaKey(yard, queue, place, now_ms)
        if part in (key_parts.KeyPart.ID, key_parts.KeyPart.LIST_ACTIVE):
            return NumberKey(yard, queue, place)
        if part in (key_parts.KeyPart.METRICS_COMPLETED, key_parts.KeyPart.METRICS_FAILED):
            return MetricsKey(yard, place, self._events.rings.get(place.queue_name))
        if queue is None:
            return NoPart()
        if part in (key_parts.KeyPart.COMPLETED, key_parts.KeyPart.FAILED):
            return RestKey(ValueKind.ZSET, yard, queue, place, now_ms, self._events, self._hidden)
        return _part(yard, queue, place, now_ms, self._events)

    def scan(self, scan: KeyScan, most: i64, now_ms: i64) -> i64:
        """Continue the scan over the keys of queues and jobs."""
        used: i64 = 0
        if scan.cursor == 0:
            used = self._look_around(scan, most)
            if scan.unseen:
                return used
        at: i64 = scan.cursor >> _QUEUE_SHIFT
        seq: i64 = scan.cursor & _SEQ_BITS
        end: i64 = len(self._seen)
        name = _one_queue(scan.pattern)
        if name:
            only: i64 = self._known.get(name, -1)
            at, end = max(at, only), only + 1
        passed: i64 = 0
        while 0 <= at < end and used < most and not scan.is_enough():
            queue = self._yard.queues.get(self._seen[at])
            base = None if queue is None else _base(queue)
            if queue is None or base is None or not _may_match(scan.pattern, base):
                at, seq = at + 1, 0
                passed += 1
                if passed % _PASSED_PER_UNIT == 0:
                    used += 1
                continue
            if seq == 0:
                self._add_whole(scan.names, base, scan.pattern, now_ms)
                scan.looked += 1
                used += _WHOLE_UNITS
            most_jobs = max(most - used, 1) * _JOBS_PER_UNIT
            jobs = self._some_jobs(scan, queue, base, seq, most_jobs)
            used += len(jobs) // _JOBS_PER_UNIT + 1
            # A queue without jobs ends at seq 0, and so does its cursor.
            at, seq = (at, jobs[len(jobs) - 1].key) if jobs else (at + 1, 0)
        scan.is_over = not 0 <= at < end
        scan.cursor = 0 if scan.is_over else (at << _QUEUE_SHIFT) | seq
        return used

    def _some_jobs(
        self, scan: KeyScan, queue: Queue, base: bytes, seq: i64, most: i64
    ) -> list[Job]:
        """Check some jobs of a queue after a seq; return them."""
        if not _may_match_job(scan.pattern, base):
            return []
        most = min(most, max(scan.count - scan.looked, 1))
        jobs = jobs_by_seq_of(queue).walk(seq, most)
        for job in jobs:
            _add_job(scan.names, base, scan.pattern, job)
        scan.looked += len(jobs)
        return jobs

    def _look_around(self, scan: KeyScan, most: i64) -> i64:
        """Number the queues that have no number; return the cost, `most` if some are left."""
        unseen = scan.unseen
        done: i64 = 0
        if unseen is None:
            unseen = list(self._yard.queues)
            # In the order they were created.
            unseen.reverse()
            scan.unseen = unseen
            done = len(unseen) // 2
        while unseen and done < most * _PASSED_PER_UNIT:
            name = unseen.pop()
            done += 1
            if name not in self._known and len(self._seen) < _QUEUES_MAX:
                self._known[name] = len(self._seen)
                self._seen.append(name)
                done += _NEW_PASSES
        return most if unseen else done // _PASSED_PER_UNIT

    def _add_whole(self, found: list[bytes], base: bytes, pattern: bytes, now_ms: i64) -> None:
        for part in _WHOLE:
            key = base + TEXTS[part]
            if pattern and not is_match(pattern, key):
                continue
            keyed = self.find(parse_key(key), now_ms)
            if keyed is not None and keyed.kind() != ValueKind.NONE:
                found.append(key)


_OF_JOBS: Final = (
    key_parts.KeyPart.JOB,
    key_parts.KeyPart.DEPS,
    key_parts.KeyPart.PARENTS,
    key_parts.KeyPart.LOG,
)


def room_of(yard: Yard, commands: list[Command]) -> i64:
    """Return the room in the journal that commands may need, judged by their bytes and keys."""
    room: i64 = 0
    for command in commands:
        count = command.count()
        # Each argument may become an entry of its own, which holds the key too.
        element = _RECORD_ROOM + (command.size(1) if count > 1 else 0)
        room += command.weight() + element * count + _room_of_jobs(yard, command)
    return room


def _room_of_jobs(yard: Yard, command: Command) -> i64:
    """Return the room in the journal for the jobs that a command names, besides its own changes.

    A job is written again as a whole if its earlier changes are in an older segment.
    """
    room: i64 = 0
    for at in range(1, command.count()):
        if command.size(at) <= KEY_SIZE_MAX:
            job = _named_job(yard, command.arg(at))
            room += 0 if job is None else yard.journal.state_room(job)
    return room


def _named_job(yard: Yard, key: bytes) -> Job | None:
    behind = key.find(b"}:")
    if behind < 0 or key.find(b":", behind + 2) < 0:
        # A key of a job has its id after the family.
        return None
    try:
        place = find_place(parse_key(key))
    except Wrong:
        return None
    queue = yard.queues.get(place.queue_name)
    if queue is None or place.part not in _OF_JOBS:
        return None
    return glide_add.find(yard, queue, place.rest)


def _job_key(yard: Yard, job: Job | None, place: KeyPlace, now_ms: i64) -> RedisKey | None:
    """Return a key about one job; None for a hash without a job, which is a stored key."""
    if place.part == key_parts.KeyPart.JOB:
        return None if job is None else JobKey(yard, job, now_ms)
    if place.part == key_parts.KeyPart.LOG:
        return LogKey(yard, job, now_ms)
    return MembersKey(yard, job, place, now_ms)


def _part(yard: Yard, queue: Queue, place: KeyPlace, now_ms: i64, events: QueueEvents) -> RedisKey:
    """Return a key that shows one part of a queue and nothing else."""
    part = place.part
    if part == key_parts.KeyPart.SCHEDULED:
        return ScheduledKey(ValueKind.ZSET, yard, queue, place, now_ms, events)
    if part in (key_parts.KeyPart.PRIORITY, key_parts.KeyPart.LIFO):
        return ListKey(ValueKind.LIST, yard, queue, place, now_ms, events)
    if part == key_parts.KeyPart.GROUPQ:
        return ParkedKey(ValueKind.LIST, yard, queue, place, now_ms, events)
    if part in (key_parts.KeyPart.ORDERING, key_parts.KeyPart.GROUP):
        return OrderingGroupKey(ValueKind.HASH, yard, queue, place, now_ms, events)
    return FewKey(ValueKind.ZSET, yard, queue, place, now_ms, events)


def _base(queue: Queue) -> bytes | None:
    """Return the start of all keys of a queue; None for a queue that no key can name."""
    name = bytes_of(queue.name)
    prefix, colon, rest = name.rpartition(b":")
    if not colon:
        prefix, rest = KEY_PREFIX, name
    if not prefix or not rest or b"{" in name or b"}" in name:
        return None
    return prefix + b":{" + rest + b"}:"


def _may_match(pattern: bytes, head: bytes) -> bool:
    """Return whether a key that starts with `head` may match the literal start of the pattern."""
    size = min(len(literal_start(pattern)), len(head))
    return pattern[:size] == head[:size]


def _may_match_job(pattern: bytes, base: bytes) -> bool:
    """Return whether any key about a job of a queue may match."""
    return any(_may_match(pattern, base + TEXTS[part]) for part in _OF_JOBS)


def _one_queue(pattern: bytes) -> str:
    """Return the one queue whose keys a pattern can match; "" if there may be more."""
    end = pattern.find(b"}:")
    if end < 0 or len(literal_start(pattern)) <= end:
        return ""
    try:
        return parse_key(pattern[:end] + b"}:id").queue
    except Wrong:
        return ""


def _add_job(found: list[bytes], base: bytes, pattern: bytes, job: Job) -> None:
    if job.state == GONE:
        return
    job_id = bytes_of(glide_add.id_of(job))
    keys = [base + b"job:" + job_id]
    if log_lines(job):
        keys.append(base + b"log:" + job_id)
    if members_of(job):
        keys.append(base + b"deps:" + job_id)
    found += [key for key in keys if not pattern or is_match(pattern, key)]
