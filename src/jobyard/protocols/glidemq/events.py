"""What happened in the queues of this door lately, as the stream of events that clients follow.

In memory only: a restart begins with what the journal can tell again (`recall`), and ids go on
rising because they are times. A queue has a ring once a client of this door touched it. Told by the
functions of this door, and through the bus of what the verbs do, at whatever door.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.state import bus
from jobyard.engine.state.bus import Event, Listener
from jobyard.engine.state.yard import Yard
from jobyard.model.details import TTL_OVER
from jobyard.model.glidemq.stored_values import FIRST_ID, StreamEntry, StreamId, StreamReader
from jobyard.model.index.minute_counter import Meter
from jobyard.model.job import JSON, Job
from jobyard.model.policy import PLAIN, Policy
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.wire.payload import to_json

KEPT: Final = 1000
# How many more there may be before the oldest go.
SLACK: Final = 100
# Bytes of one ring, beyond which the oldest events go too: they may hold whole results.
RING_SIZE_MAX: Final = 8 << 20
# Queues whose events are kept; beyond these the ring that was made first goes.
RINGS_MAX: Final = 10_000
# How far ahead of the time an id may be that a client gives.
AHEAD_MAX_MS: Final = 86_400_000


@final
class Ring:
    """The newest events of one queue."""

    def __init__(self) -> None:
        self.entries: list[StreamEntry] = []
        self.last_id: StreamId = FIRST_ID
        # Whether it counts as a stream: once anything was told, until it is deleted.
        self.is_there: bool = False
        self.readers: list[StreamReader] = []
        # How many milliseconds the jobs took that were done, and those that failed for good.
        self.done_ms = Meter()
        self.failed_ms = Meter()
        # Bytes of what was added since it was last looked at.
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
        """Let the oldest go that are too long together; the newest stays whatever its size."""
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
class Events(Listener):
    """The rings of all queues."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self.rings: dict[str, Ring] = {}
        # While a call asked that nothing be told of what it does.
        self.is_quiet: bool = False
        # The last policy a job was put with, and its name.
        self._policy: Policy = PLAIN
        self._name: bytes = b""

    def ring_of(self, name: str) -> Ring:
        """Return the ring of a queue, made on first use."""
        ring = self.rings.get(name)
        if ring is None:
            if len(self.rings) >= RINGS_MAX:
                self._let_one_go()
            self._yard.bus.add_near(self, name)
            ring = Ring()
            self.rings[name] = ring
        return ring

    def _let_one_go(self) -> None:
        """Drop the ring that was made first; who reads one would wait for ever at another."""
        for name, ring in self.rings.items():
            if not ring.readers:
                self._drop(name)
                return

    def forget_unused(self, name: str) -> None:
        """Drop the ring of a queue of which nothing was ever told."""
        ring = self.rings.get(name)
        if ring is not None and ring.last_id == FIRST_ID and not ring.readers:
            self._drop(name)

    def _drop(self, name: str) -> None:
        del self.rings[name]
        self._yard.bus.remove_near(self, name)

    def tell(self, queue: Queue, kind: bytes, job_id: bytes, more: list[bytes], at_ms: i64) -> None:
        """Add an event of a queue, if anybody may want to know."""
        ring = self.rings.get(queue.name)
        if ring is None or self.is_quiet:
            return
        entry_id = ring.next_id(at_ms + self._yard.journal.wall_offset_ms)
        ring.add(entry_id, [b"event", kind, b"jobId", job_id, *more])

    def is_ahead(self, entry_id: StreamId) -> bool:
        """Tell whether an id is so far ahead that the ids of later events would run out."""
        yard = self._yard
        # Two numbers of 64 bits without a sign: more than a time can be.
        return entry_id[0] > int(yard.now_ms + yard.journal.wall_offset_ms + AHEAD_MAX_MS)

    def tell_job(self, job: Job, kind: bytes, at_ms: i64) -> None:
        """Add an event of a job of which nothing more is to be said."""
        self.tell(job.queue, kind, bytes_of(glide_add.id_of(job)), [], at_ms)

    def pushed(self, queue: Queue, job: Job, at_ms: i64) -> None:
        """Take note of a new job."""
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
        """Take note of a run that ended well."""
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
        told = [b"event", b"completed", b"jobId", glide_add.id_bytes(job)]
        ring.add(entry_id, [*told, b"returnvalue", result or b"null"])

    def happened(self, event: Event) -> None:
        """Take note of what a verb did."""
        if event.kind == bus.FAILED and event.is_final:
            self._measure(event)
        if self.is_quiet:
            return
        job = event.job
        if job is None:
            if event.kind in (bus.PAUSED, bus.RESUMED):
                self.tell(event.queue, event.kind.encode(), b"0", [], event.at_ms)
            return
        told = _told(event, job)
        if told is not None:
            self.tell(event.queue, told[0], bytes_of(glide_add.id_of(job)), told[1:], event.at_ms)

    def _measure(self, event: Event) -> None:
        """Count how long a job took that failed for good."""
        ring = self.rings.get(event.queue.name)
        lease = None if event.job is None else event.job.lease
        if ring is not None and lease is not None:
            ring.failed_ms.add(event.at_ms, max(event.at_ms - lease.started_ms, 0))


def _told(event: Event, job: Job) -> list[bytes] | None:
    """Return what an event is called here, followed by what more there is to it."""
    kind = event.kind
    told: list[bytes] | None = None
    if kind == bus.FAILED:
        told = _failed(event, job)
    elif kind in (bus.STALLED, bus.REMOVED, bus.WAITING_CHILDREN):
        told = [kind.encode()]
    elif kind == bus.WAITING:
        # So it is called when the last of those it waited for is done.
        told = [b"active" if event.before == "waiting-children" else b"promoted"]
    return told


def _failed(event: Event, job: Job) -> list[bytes]:
    error = bytes_of(event.error)
    if event.is_final:
        if event.reason == TTL_OVER:
            return [b"expired"]
        return [b"failed", b"failedReason", error]
    attempts = str(int(job.attempts) + 1).encode()
    delay = str(int(event.delay_ms)).encode()
    return [b"retrying", b"failedReason", error, b"attemptsMade", attempts, b"delay", delay]
