"""A job: what was put, its state, and what happened to it.

The hot part is small (184 bytes, not tracked by the garbage collector) because a yard holds
millions of jobs; rarely used fields are in `JobDetails`, made on first use. A job is in exactly one
state, and the state decides which index holds it:

    READY    the queue's `ready` heap, by (rank, stamp), or that of its group or ready list
    DELAYED  the queue's `delayed` heap, by (due time, stamp)
    LEASED   the queue's `leased` item set; its lease is in the holder's lease set
    DEAD     the queue's `dead` list, through its Outcome
    DONE     the queue's `done` list, through its Outcome
    BLOCKED  the queue's `blocked` item set, until other jobs are done
    GONE     nowhere; the object may outlive the job while references to it exist
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from jobyard.model.details import JobCounters, JobDetails, Outcome
from jobyard.model.index.item import Item

if TYPE_CHECKING:
    from jobyard.model.lease import Lease
    from jobyard.model.policy import Policy
    from jobyard.model.queue import Queue

READY: Final = 0
DELAYED: Final = 1
LEASED: Final = 2
DEAD: Final = 3
GONE: Final = 4
DONE: Final = 5
BLOCKED: Final = 6

# The encoding of the body; a body goes back byte for byte to the family it came from.
RAW: Final = 0
MSGPACK: Final = 1
JSON: Final = 2
# Long data as glide-mq clients send it: `gz:`, then the base64 of a gzip of any other text.
GZIP: Final = 3
# Bytes that their writer sent as such, where RAW may be text as well.
BYTES: Final = 4


@final
@mypyc_attr(acyclic=True)
class Job(Item):
    """One job. `key` is its seq in the queue, `stamp` its place in the queue within a rank."""

    def __init__(  # noqa: PLR0913, PLR0917  all of this is known when a job is made
        self,
        job_id: i64,
        queue: Queue,
        seq: i64,
        stamp: i64,
        rank: i64,
        now_ms: i64,
        delay_ms: i64,
        own_ms: i64,
        policy: Policy,
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
        # DELAYED: when it becomes ready. Otherwise: since when it could be taken.
        self.due_ms: i64 = now_ms + delay_ms
        self.delay_ms: i64 = delay_ms
        # The family's own number: beanstalk's time to run; bunqueue's wall time of the put, which
        # is part of the id its clients see; glide-mq's time as the client sent it.
        self.own_ms: i64 = own_ms
        # Segment << 32 | offset of the body's first byte; 0 without a journal.
        self.place: i64 = 0
        # Checksum of the body; known once the body is long or has left memory.
        self.crc: i64 = 0
        # Number of the batch with the last record that a reply about this job must wait for.
        self.batch: i64 = 0
        self.queue: Queue = queue
        self.policy: Policy = policy
        self.body: bytes | None = body
        self.lease: Lease | None = None
        self.details: JobDetails | None = None
        self.deliveries: i32 = 0
        # Segment that holds the newest record about this job after its base; 0 for none.
        self.trail: i32 = 0
        self.attempts: i16 = 0
        self.state: u8 = GONE
        self.family: u8 = family
        self.codec: u8 = codec
        # Which list holds it while ready (`model.throttle.ready_lists`); for most jobs the stream.
        self.ready_list: u8 = 0

    def ensure_details(self) -> JobDetails:
        """Return the rare fields, making them on first use."""
        details = self.details
        if details is None:
            details = JobDetails()
            self.details = details
        return details

    def counters(self) -> JobCounters:
        """Return the counters of rarer events."""
        details = self.ensure_details()
        counters = details.counters
        if counters is None:
            counters = JobCounters()
            details.counters = counters
        return counters

    def stalls(self) -> i64:
        """Return how often a holder of this job was silent for too long."""
        details = self.details
        if details is None or details.counters is None:
            return 0
        return i64(details.counters.stalls)

    def add_old_base(self) -> None:
        """Note that the current base stays behind when the body changes."""
        details = self.ensure_details()
        if details.old_bases is None:
            details.old_bases = []
        details.old_bases.append(int(self.place >> 32))

    def outcome(self) -> Outcome:
        """Return the outcome of an ended job."""
        details = self.details
        assert details is not None
        assert details.outcome is not None
        return details.outcome
