"""Recent events of this door's queues, as the event stream that clients follow.

In memory only: after a restart, a ring starts with what can be rebuilt from the journal (`recall`),
and ids keep rising because they are times. A queue gets a ring when a client of this door first
touches it. Events come from the functions of this door and, through the bus, from verbs called at
any door.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.state import bus
from jobyard.engine.state.bus import Event, Listener
from jobyard.engine.state.yard import Yard
from jobyard.model.details import FailureReason
from jobyard.model.glidemq.stored_values import FIRST_ID, StreamEntry, StreamId, StreamReader
from jobyard.model.index.minute_counter import MinuteCounter
from jobyard.model.job import JSON, Job
from jobyard.model.policy import PLAIN, Policy
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.wire.payload import to_json

KEPT: Final = 1000
# How many more there may be before the oldest are dropped.
SLACK: Final = 100
# Bytes of one ring, beyond which the oldest events are dropped too: they may hold whole results.
RING_SIZE_MAX: Final = 8 << 20
# Queues with a ring; beyond this, the ring that was created first is dropped.
RINGS_MAX: Final = 10_000
# How far in the future an id set by a client may be.
AHEAD_MAX_MS: Final = 86_400_000


@final
class EventRing:
    """The newest events of one queue."""

    def __init__(self) -> None:
        self.entries: list[StreamEntry] = []
        self.last_id: StreamId = FIRST_ID
        # Whether it exists as a stream: from the first event on, until it is deleted.
        self.is_there: bool = False
        self.readers: list[StreamReader] = []
        # Run times in milliseconds of jobs that completed, and of jobs that failed for good.
        self.done_ms = MinuteCounter()
        self.failed_ms = MinuteCounter()
        # Bytes added since the last check of the size.
        self._grown: i64 = 0

    def add(self, entry_id: StreamId, fields: list[bytes]) -> None:
        """Add an event whose id is greater than the last."""
        self.last_id = entry_id
        self.is_there = True
        entries = self.entries
        entry = StreamEntry(entry_id, fields)
        entries.append(entry)
        self._grown += entry.size()
        if self._grown > RING_SIZE_MAX // 2:
            self._fit()
        if len(entries) > KEPT + SLACK:
            del entries[:SLACK]
        if self.readers:
            for reader in list(self.readers):
                reader.stream_grew()

    def _fit(self) -> None:
        """Drop the oldest events beyond the size limit; the newest stays whatever its size."""
        self._grown = 0
        size: i64 = 0
        at: i64 = len(self.entries)
        while at > 0 and size <= RING_SIZE_MAX // 2:
            at -= 1
            size += self.entries[at].size()
        if size > RING_SIZE_MAX // 2:
            del self.entries[: min(at + 1, len(self.entries) - 1)]

    def next_id(self, wall_ms: i64) -> StreamId:
        """Return the id of an event that happens now."""
        last_ms, last_n = self.last_id
        return (int(wall_ms), 0) if wall_ms > last_ms else (last_ms, last_n + 1)


@final
class QueueEvents(Listener):
    """The event rings of all queues."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self.rings: dict[str, EventRing] = {}
        # Set while a function runs that was asked to emit no events.
        self.is_quiet: bool = False
        # The policy of the job added last, and its name as bytes.
        self._policy: Policy = PLAIN
        self._name: bytes = b""

    def ring_of(self, name: str) -> EventRing:
        """Return the ring of a queue, created on first use."""
        ring = self.rings.get(name)
        if ring is None:
            if len(self.rings) >= RINGS_MAX:
                self._drop_one_unread()
            self._yard.bus.add_near(self, name)
            ring = EventRing()
            self.rings[name] = ring
        return ring

    def _drop_one_unread(self) -> None:
        """Drop the oldest ring without readers; readers of a dropped ring would wait forever."""
        for name, ring in self.rings.items():
            if not ring.readers:
                self._drop(name)
                return

    def forget_unused(self, name: str) -> None:
        """Drop the ring of a queue that never had an event."""
        ring = self.rings.get(name)
        if ring is not None and ring.last_id == FIRST_ID and not ring.readers:
            self._drop(name)

    def _drop(self, name: str) -> None:
        del self.rings[name]
        self._yard.bus.remove_near(self, name)

    def publish(
        self, queue: Queue, kind: bytes, job_id: bytes, more: list[bytes], at_ms: i64
    ) -> None:
        """Add an event of a queue, if the queue has a ring."""
        ring = self.rings.get(queue.name)
        if ring is None or self.is_quiet:
            return
        entry_id = ring.next_id(at_ms + self._yard.journal.wall_offset_ms)
        ring.add(entry_id, [b"event", kind, b"jobId", job_id, *more])

    def is_ahead(self, entry_id: StreamId) -> bool:
        """Return whether an id is so far ahead that the ids of later events would run out."""
        yard = self._yard
        # Ids are two unsigned 64-bit numbers, larger than a time can be.
        return entry_id[0] > int(yard.now_ms + yard.journal.wall_offset_ms + AHEAD_MAX_MS)

    def publish_job(self, job: Job, kind: bytes, at_ms: i64) -> None:
        """Add an event of a job, without further fields."""
        self.publish(job.queue, kind, bytes_of(glide_add.id_of(job)), [], at_ms)

    def pushed(self, queue: Queue, job: Job, at_ms: i64) -> None:
        """Add the event of a new job."""
        ring = self.rings.get(queue.name)
        if ring is None or self.is_quiet:
            return
        policy = job.policy
        if policy is not self._policy:
            self._policy = policy
            self._name = bytes_of(policy.name)
        job_id = glide_add.id_bytes(job)
        entry_id = ring.next_id(at_ms + self._yard.journal.wall_offset_ms)
        ring.add(entry_id, [b"event", b"added", b"jobId", job_id, b"name", self._name])

    def completed(self, queue: Queue, job: Job, result: bytes, codec: i64, at_ms: i64) -> None:
        """Add the event of a completed run."""
        ring = self.rings.get(queue.name)
        if ring is None:
            return
        lease = job.lease
        if lease is not None:
            ring.done_ms.add(at_ms, max(at_ms - lease.started_ms, 0))
        if self.is_quiet:
            return
        if result and codec != JSON:
            result = to_json(codec, result)
        entry_id = ring.next_id(at_ms + self._yard.journal.wall_offset_ms)
        shown = [b"event", b"completed", b"jobId", glide_add.id_bytes(job)]
        ring.add(entry_id, [*shown, b"returnvalue", result or b"null"])

    def happened(self, event: Event) -> None:
        """Add the event of what a verb did."""
        if event.kind == bus.EventName.FAILED and event.is_final:
            self._measure(event)
        if self.is_quiet:
            return
        job = event.job
        if job is None:
            if event.kind in (bus.EventName.PAUSED, bus.EventName.RESUMED):
                self.publish(event.queue, event.kind.encode(), b"0", [], event.at_ms)
            return
        shown = _shown_event(event, job)
        if shown is not None:
            self.publish(
                event.queue, shown[0], bytes_of(glide_add.id_of(job)), shown[1:], event.at_ms
            )

    def _measure(self, event: Event) -> None:
        """Record the run time of a job that failed for good."""
        ring = self.rings.get(event.queue.name)
        lease = None if event.job is None else event.job.lease
        if ring is not None and lease is not None:
            ring.failed_ms.add(event.at_ms, max(event.at_ms - lease.started_ms, 0))


def _shown_event(event: Event, job: Job) -> list[bytes] | None:
    """Return the name of an event at this door, followed by its further fields."""
    kind = event.kind
    shown: list[bytes] | None = None
    if kind == bus.EventName.FAILED:
        shown = _failed(event, job)
    elif kind in (bus.EventName.STALLED, bus.EventName.REMOVED, bus.EventName.WAITING_CHILDREN):
        shown = [kind.encode()]
    elif kind == bus.EventName.WAITING:
        # This is its name when the last job it waited for is done.
        shown = [b"active" if event.before == "waiting-children" else b"promoted"]
    return shown


def _failed(event: Event, job: Job) -> list[bytes]:
    error = bytes_of(event.error)
    if event.is_final:
        if event.reason == FailureReason.TTL_OVER:
            return [b"expired"]
        return [b"failed", b"failedReason", error]
    attempts = str(int(job.attempts) + 1).encode()
    delay = str(int(event.delay_ms)).encode()
    return [b"retrying", b"failedReason", error, b"attemptsMade", attempts, b"delay", delay]
