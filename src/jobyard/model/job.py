"""A job: what was put, where it stands, and what happened to it.

The hot part is small (176 bytes and a GC header) because a yard holds millions of them; what few
jobs need lives in `Extra`, made on first use. A job is in exactly one state, and its state says in
which index it stands:

    READY    the queue's `ready` heap, by (rank, stamp)
    DELAYED  the queue's `delayed` heap, by (due time, stamp)
    LEASED   no heap; its lease stands in the holder's book
    DEAD     the queue's `dead` line, through its Outcome
    GONE     nowhere; the object may outlive the job for as long as someone holds a reference
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i16, i32, i64, u8

from jobyard.model.item import Item

if TYPE_CHECKING:
    from jobyard.model.queue import Lease, Queue

READY: Final = 0
DELAYED: Final = 1
LEASED: Final = 2
DEAD: Final = 3
GONE: Final = 4

# The door a job came in by; it decides what becomes of the job when a run of it ends.
BEANSTALK: Final = 1

# How the body is written; a body goes back byte for byte to the family it came from.
RAW: Final = 0


@final
class Tally:
    """How often a job went through the rarer turns of its life."""

    def __init__(self) -> None:
        self.timeouts: i32 = 0
        self.releases: i32 = 0
        self.buries: i32 = 0
        self.kicks: i32 = 0


@final
class Outcome(Item):
    """Why and when a job came to rest; `key` is its number among the endings of the queue."""

    def __init__(self, number: i64, job: Job, ended_ms: i64) -> None:
        super().__init__(number, 0, 0)
        self.job: Job = job
        self.ended_ms: i64 = ended_ms


@final
class Extra:
    """The parts of a job that most jobs never need."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.outcome: Outcome | None = None


@final
class Job(Item):
    """One job. `key` is its seq in the queue, `stamp` its place in line within a rank."""

    def __init__(  # noqa: PLR0913, PLR0917  a job is born with all of this known
        self,
        job_id: i64,
        queue: Queue,
        seq: i64,
        stamp: i64,
        rank: i64,
        now_ms: i64,
        delay_ms: i64,
        own_ms: i64,
        body: bytes | None,
        size: i64,
        family: u8,
        codec: u8,
    ) -> None:
        super().__init__(seq, rank, stamp)
        self.size: i32 = i32(size)
        self.id: i64 = job_id
        self.created_ms: i64 = now_ms
        self.rank: i64 = rank
        # DELAYED: becomes ready then. Otherwise: could be taken since then.
        self.due_ms: i64 = now_ms + delay_ms
        self.delay_ms: i64 = delay_ms
        # The family's own duration: for beanstalk the time to run.
        self.own_ms: i64 = own_ms
        # Segment << 32 | offset of the body's first byte; 0 without a journal.
        self.place: i64 = 0
        # Checksum of the body; known once the body is long or has left memory.
        self.crc: i64 = 0
        # Number of the batch with the last record an answer about this job must wait for.
        self.batch: i64 = 0
        self.queue: Queue = queue
        self.body: bytes | None = body
        self.lease: Lease | None = None
        self.extra: Extra | None = None
        self.deliveries: i32 = 0
        # Segment that holds the newest record about this job after its base; 0 if there is none.
        self.trail: i32 = 0
        self.attempts: i16 = 0
        self.state: u8 = GONE
        self.family: u8 = family
        self.codec: u8 = codec

    def tally(self) -> Tally:
        """Return the counters, making them on the first event."""
        extra = self.extra
        if extra is None:
            extra = Extra()
            self.extra = extra
        return extra.tally
