"""The ends of runs that a transaction makes: jobs that are done, given back, or given up.

An end whose lease is lost is skipped, with the reason, and never stops the others. Changes nothing
before `apply_end`.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.dead_letters import DEAD_LETTER_ROOM
from jobyard.engine.jobs.durable_leases import lease_name
from jobyard.engine.jobs.finish import bury, finish
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_queue import return_job
from jobyard.journal.format.record import END_ROOM, LEASE_ROOM, STATE_SIZE
from jobyard.model.details_codec import size_of
from jobyard.model.family import counts_attempts
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.members import TAG_SIZE
from jobyard.model.queue import Queue

if TYPE_CHECKING:
    from jobyard.model.lease import Lease

# Notes about a job that waits for others, or that others wait for.
_LINK_ROOM: Final = 1024


@final
class EndKind:
    """How a run ends."""

    ACK: Final = 0
    NACK: Final = 1
    DEAD_LETTER: Final = 2


@final
class SkipReason:
    """Why a run could not be ended."""

    EXPIRED: Final = "expired"
    OTHER_HOLDER: Final = "other_holder"
    GONE: Final = "gone"
    NO_ROOM: Final = "no_room"


@final
class RunEnd:
    """The requested end of one run."""

    def __init__(self, kind: i64, queue: str, node: str, seq: i64, lease_id: str) -> None:
        self.kind: i64 = kind
        self.queue: str = queue
        self.node: str = node
        self.seq: i64 = seq
        # Empty if it is not checked.
        self.lease_id: str = lease_id
        # -1 for none given.
        self.delay_ms: i64 = -1
        self.error: str = ""


@final
class HeldRuns:
    """Which of the requested ends can be made now, and why the others cannot."""

    def __init__(self, yard: Yard, wanted: list[RunEnd]) -> None:
        self._yard = yard
        self._wanted = wanted
        self._next: i64 = 0
        self.ends: list[RunEnd] = []
        self.leases: list[Lease] = []
        self.skipped: list[RunEnd] = []
        self.reasons: list[str] = []
        # The jobs whose runs end, by queue and seq.
        self.ending: set[tuple[str, int]] = set()

    def proceed(self, most: i64, now_ms: i64) -> i64:
        """Look at about `most` ends; fewer mean that all were looked at."""
        yard = self._yard
        done: i64 = 0
        while done < most and self._next < len(self._wanted):
            end = self._wanted[self._next]
            self._next += 1
            done += 1
            queue = yard.queues.get(end.queue)
            job = None if queue is None else _job_of(queue, end.seq)
            reason = _reason(yard, job, end, now_ms)
            if reason or job is None or job.lease is None:
                self.skip(end, reason)
            else:
                self.ends.append(end)
                self.leases.append(job.lease)
                self.ending.add((end.queue, int(end.seq)))
        return done

    def skip(self, end: RunEnd, reason: str) -> None:
        """Note that an end is not made."""
        self.skipped.append(end)
        self.reasons.append(reason)
        self.ending.discard((end.queue, int(end.seq)))

    def letter_bytes(self) -> i64:
        """Return the size of the data that dead letters repeat."""
        size: i64 = 0
        for each, lease in enumerate(self.leases):
            if _makes_letter(lease.job, self.ends[each]):
                size += i64(lease.job.size)
        return size

    def room(self) -> i64:
        """Return the most journal bytes that the ends take."""
        room: i64 = 0
        for each, lease in enumerate(self.leases):
            room += _room_of(lease.job, self.ends[each])
        return room


def _job_of(queue: Queue, seq: i64) -> Job | None:
    return jobs_by_seq_of(queue).find(seq) if 0 < seq < queue.next_seq else None


def _reason(yard: Yard, job: Job | None, end: RunEnd, now_ms: i64) -> str:
    """Return why a run cannot be ended; empty if it can."""
    if job is None or job.state in (DONE, DEAD):
        return SkipReason.GONE
    lease = job.lease
    if lease is None:
        return SkipReason.EXPIRED
    if not lease.terms.is_node(end.node):
        return SkipReason.OTHER_HOLDER
    if end.lease_id and end.lease_id != lease_name(yard, lease):
        # The same node has claimed it again since.
        return SkipReason.EXPIRED
    return SkipReason.EXPIRED if lease.sort_key <= now_ms else ""


def _room_of(job: Job, end: RunEnd) -> i64:
    details = job.details
    weight: i64 = 0 if details is None else size_of(details)
    error_size: i64 = len(end.error.encode()) + TAG_SIZE
    # A new segment repeats the state and the worker's name; an end repeats the client's id.
    room = STATE_SIZE + END_ROOM + LEASE_ROOM + 2 * weight + error_size
    if counts_attempts(job.family) or (details is not None and details.members is not None):
        room += _LINK_ROOM + weight
    if _makes_letter(job, end):
        # The letter repeats the body and the meta of the job.
        room += 2 * i64(job.size) + 2 * weight + DEAD_LETTER_ROOM
        # In JSON, a byte of the error takes at most six.
        room += 6 * error_size
    return room


def _makes_letter(job: Job, end: RunEnd) -> bool:
    config = job.queue.config
    has_log = config is not None and config.dead_letter is not None
    return has_log and end.kind == EndKind.DEAD_LETTER


def apply_end(yard: Yard, job: Job, end: RunEnd, now_ms: i64) -> None:
    """End a run; YardFull and StorageFull change nothing."""
    if end.kind == EndKind.ACK:
        finish(yard, job, now_ms)
    elif end.kind == EndKind.DEAD_LETTER:
        bury(yard, job, job.rank, now_ms, error=end.error)
    else:
        return_job(yard, job, end.delay_ms, end.error, now_ms)
