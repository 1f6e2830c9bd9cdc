"""Streams that show a queue: its jobs as entries, and its recent events."""

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import STAMP_SHIFT, Yard
from jobyard.engine.subscriptions.subscriptions import (
    drop_subscriptions,
    is_subscribed,
    unwatch,
    watch,
)
from jobyard.model.glidemq.stored_values import StreamEntry, StreamId, StreamReader, ValueKind
from jobyard.model.glidemq.subscriptions import has_entry
from jobyard.model.job import LEASED, Job
from jobyard.protocols.glidemq.errors import NOT_CHANGED_SO, Wrong
from jobyard.protocols.glidemq.events import EventRing, QueueEvents
from jobyard.protocols.glidemq.keyspace.gather import FoundTask, Gather, JobsBySeqGather
from jobyard.protocols.glidemq.keyspace.key import RedisKey
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace, text_of
from jobyard.protocols.glidemq.keyspace.views.stream import (
    ENTRY_MAX,
    GROUP,
    StreamGather,
    entry_fields,
    entry_stamp,
    find_entry,
    stream_length,
    stream_page,
    stream_upkeep,
)
from jobyard.protocols.glidemq.keyspace.views.writes import readmit, remove_if_may, remove_job

if TYPE_CHECKING:
    from jobyard.model.queue import Queue

_LOW_MAX: Final = (1 << STAMP_SHIFT) - 1
_HIGH_MAX: Final = (1 << (63 - STAMP_SHIFT)) - 1
# Recently acknowledged entries; beyond this, the first is forgotten.
RECENTLY_ACKED_MAX: Final = 10_000
_ENTRY_FIELDS: Final = frozenset((b"jobId", b"name", b"retryGroup"))


def stamp_of(entry_id: StreamId) -> i64:
    """Return an entry id as one number, capped at the greatest."""
    high = min(entry_id[0], _HIGH_MAX)
    low = _LOW_MAX if entry_id[0] > _HIGH_MAX else min(entry_id[1], _LOW_MAX)
    return i64(high << STAMP_SHIFT | low)


def id_of(stamp: i64) -> StreamId:
    """Return the id of an entry."""
    return int(stamp >> STAMP_SHIFT), int(stamp & _LOW_MAX)


def _id_of(entry: StreamEntry) -> StreamId:
    return entry.id


@final
class RecentlyAcked:
    """Entries that were acknowledged and are gone, but that clients still delete.

    In memory only, and limited: a client deletes an entry right after it has acknowledged it.
    """

    def __init__(self) -> None:
        self._stamps: dict[int, None] = {}

    def add(self, stamp: i64) -> None:
        """Remember an entry; stamps are unique across queues."""
        if len(self._stamps) >= RECENTLY_ACKED_MAX:
            del self._stamps[next(iter(self._stamps))]
        self._stamps[int(stamp)] = None

    def take(self, stamp: i64) -> bool:
        """Forget an entry; return whether it was remembered."""
        if int(stamp) not in self._stamps:
            return False
        del self._stamps[int(stamp)]
        return True


@final
class StreamKey(RedisKey):
    """Jobs in the stream of a queue, and jobs taken from it."""

    def __init__(
        self,
        yard: Yard,
        name: str,
        recently_acked: RecentlyAcked,
        now_ms: i64,
        groups: dict[str, dict[str, int]],
        events: QueueEvents,
    ) -> None:
        self._yard = yard
        self._events = events
        self._name = name
        self._queue: Queue | None = yard.queues.get(name)
        self._recently_acked = recently_acked
        self._groups = groups
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a stream, if it has an entry or a consumer group."""
        is_made = self._name in self._groups
        is_made = is_made or (self._queue is not None and is_subscribed(self._queue))
        return ValueKind.STREAM if is_made or self.entries_count() > 0 else ValueKind.NONE

    def entries_count(self) -> i64:
        """Return the number of entries."""
        return 0 if self._queue is None else stream_length(self._queue)

    def entries(
        self, first: StreamId, last: StreamId, count: i64, *, is_reversed: bool
    ) -> list[StreamEntry]:
        """Return at most `count` entries from `first` to `last`, both included."""
        queue = self._queue
        if queue is None:
            return []
        low, high = stamp_of(first), stamp_of(last)
        jobs = stream_page(queue, low, high, count, is_reversed=is_reversed)
        return [StreamEntry(id_of(entry_stamp(job)), entry_fields(job)) for job in jobs]

    def find_entries(self, first: StreamId, last: StreamId, *, is_reversed: bool) -> Gather | None:
        """Return a task that finds the jobs whose entries are between two ids."""
        queue = self._queue
        if queue is None:
            return None
        low, high = stamp_of(first), min(stamp_of(last), ENTRY_MAX - 1)
        return StreamGather(queue, low, high, is_reversed=is_reversed)

    def upkeep(self) -> Task | None:
        """Return a task that sorts entries, if it is long."""
        return None if self._queue is None else stream_upkeep(self._queue)

    def last_id(self) -> StreamId:
        """Return the greatest id there ever was."""
        return id_of(self._yard.last_stamp)

    def drop_entries(self, ids: list[StreamId]) -> i64:
        """Remove jobs that are in the stream; a held job is for its worker to end."""
        queue = self._queue
        gone: i64 = 0
        for entry_id in ids:
            stamp = stamp_of(entry_id)
            if self._recently_acked.take(stamp):
                gone += 1
                continue
            job = None if queue is None else find_entry(queue, stamp)
            if job is not None and job.state != LEASED:
                remove_job(self._yard, job, self._now_ms)
                gone += 1
        return gone

    def adopt_entry(self, asked: bytes, fields: list[bytes]) -> StreamId | None:
        """Move an existing job into the stream, for all or for one group."""
        if asked != b"*":
            raise Wrong("ERR the server chooses the ids of entries: use *")
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        if b"jobId" not in named or not named.keys() <= _ENTRY_FIELDS:
            raise Wrong(NOT_CHANGED_SO)
        queue = self._queue
        job = None if queue is None else glide_add.find(self._yard, queue, text_of(named[b"jobId"]))
        if queue is None or job is None:
            raise Wrong("ERR an entry is a job, and there is no job with this id: add it first")
        return id_of(readmit(self._yard, job, named.get(b"retryGroup", GROUP), self._now_ms))

    def trim_oldest(self, count: i64) -> FoundTask | None:
        """Return a task that removes the oldest `count` jobs that are not running."""
        queue = self._queue
        if queue is None:
            return None
        found = StreamGather(queue, 0, ENTRY_MAX - 1, is_reversed=False)
        # All running jobs may be among the oldest.
        found.limit(0, count + len(queue.leased.items))
        return self.trim_found(found, count)

    def trim_found(self, found: Gather, most: i64) -> FoundTask:
        """Return a task that removes up to `most` of the jobs found that are not running."""
        treat = FoundTask(self._events, found, self._trim)
        treat.oldest_first = True
        treat.is_quiet = False
        treat.most = most
        return treat

    def _trim(self, job: Job, now_ms: i64) -> bool:
        return job.state != LEASED and has_entry(job) and remove_if_may(self._yard, job, now_ms)

    def delete(self) -> bool:
        """Report a stream without jobs as deleted, and drop its groups."""
        is_there = self.kind() != ValueKind.NONE
        # Consumers that still read are added again with their next read.
        self._groups.pop(self._name, None)
        if self._queue is not None:
            drop_subscriptions(self._yard, self._queue)
        return is_there

    def clear(self) -> FoundTask | None:
        """Return a task that removes all jobs, including those that run at this door."""
        queue = self._queue
        if queue is None or stream_length(queue) == 0:
            return None
        self.delete()
        found = JobsBySeqGather(queue, has_entry)
        return FoundTask(self._events, found, self._remove)

    def held_count(self) -> i64:
        """Return how many jobs have an entry."""
        return self.entries_count()

    def _remove(self, job: Job, now_ms: i64) -> bool:
        return has_entry(job) and remove_if_may(self._yard, job, now_ms)

    def watch(self, reader: StreamReader) -> None:
        """Notify a reader of every job that comes here."""
        self._queue = open_queue(self._yard, self._name)
        watch(self._queue, reader)

    def unwatch(self, reader: StreamReader) -> None:
        """Stop notifying a reader."""
        if self._queue is not None:
            unwatch(self._yard, self._queue, reader)


@final
class EventsKey(RedisKey):
    """Recent events of a queue."""

    def __init__(self, events: QueueEvents, place: KeyPlace) -> None:
        self._events = events
        self._name = place.queue_name

    def _ring(self) -> EventRing | None:
        return self._events.rings.get(self._name)

    def kind(self) -> i64:
        """Return that it is a stream, once there was an event."""
        ring = self._ring()
        return ValueKind.STREAM if ring is not None and ring.is_there else ValueKind.NONE

    def entries_count(self) -> i64:
        """Return the number of events."""
        ring = self._ring()
        return 0 if ring is None else len(ring.entries)

    def entries(
        self, first: StreamId, last: StreamId, count: i64, *, is_reversed: bool
    ) -> list[StreamEntry]:
        """Return at most `count` events from `first` to `last`, both included."""
        ring = self._ring()
        if ring is None:
            return []
        entries = ring.entries
        start: i64 = bisect_left(entries, first, key=_id_of)
        end: i64 = bisect_right(entries, last, key=_id_of)
        if 0 <= count < end - start:
            if is_reversed:
                start = end - count
            else:
                end = start + count
        found = entries[start:end]
        if is_reversed:
            found.reverse()
        return found

    def last_id(self) -> StreamId:
        """Return the id of the newest event."""
        return self._events.ring_of(self._name).last_id

    def add_entry(self, entry_id: StreamId, fields: list[bytes]) -> None:
        """Add an event from a client."""
        if self._events.is_ahead(entry_id):
            raise Wrong("ERR event ids are times, and this one is too far in the future")
        self._events.ring_of(self._name).add(entry_id, fields)

    def drop_entries(self, ids: list[StreamId]) -> i64:
        """Remove events."""
        ring = self._ring()
        if ring is None:
            return 0
        before = len(ring.entries)
        wanted = set(ids)
        ring.entries = [one for one in ring.entries if one.id not in wanted]
        return before - len(ring.entries)

    def drop_oldest(self, count: i64) -> None:
        """Remove the oldest `count` events."""
        ring = self._ring()
        if ring is not None:
            del ring.entries[: int(count)]

    def delete(self) -> bool:
        """Remove all events."""
        ring = self._ring()
        if ring is None or not ring.is_there:
            return False
        ring.entries.clear()
        ring.is_there = False
        return True

    def watch(self, reader: StreamReader) -> None:
        """Notify a reader of every new event."""
        self._events.ring_of(self._name).readers.append(reader)

    def unwatch(self, reader: StreamReader) -> None:
        """Stop notifying a reader."""
        ring = self._ring()
        if ring is not None and reader in ring.readers:
            ring.readers.remove(reader)
