"""A job: what was put, where it stands, and what happened to it.

The hot part is small (184 bytes, unknown to the garbage collector) because a yard holds millions of
them; what few jobs need lives in `Extra`, made on first use. A job is in exactly one state, and its
state says in which index it stands:

    READY    the queue's `ready` heap, by (rank, stamp), or that of its group, lane or shelf
    DELAYED  the queue's `delayed` heap, by (due time, stamp)
    LEASED   the queue's `leased` bag; its lease stands in the holder's book
    DEAD     the queue's `dead` line, through its Outcome
    DONE     the queue's `done` line, through its Outcome
    BLOCKED  the queue's `blocked` bag, until other jobs are done
    GONE     nowhere; the object may outlive the job for as long as someone holds a reference
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from jobyard.model.details import Extra, Outcome, Tally
from jobyard.model.index.item import Item

if TYPE_CHECKING:
    from jobyard.model.policy import Policy
    from jobyard.model.queue import Lease, Queue

READY: Final = 0
DELAYED: Final = 1
LEASED: Final = 2
DEAD: Final = 3
GONE: Final = 4
DONE: Final = 5
BLOCKED: Final = 6

# How the body is written; a body goes back byte for byte to the family it came from.
RAW: Final = 0
MSGPACK: Final = 1
JSON: Final = 2
# As clients of glide-mq write what is long: `gz:`, and then in base64 a gzip of some other text.
GZIP: Final = 3


@final
@mypyc_attr(acyclic=True)
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
        # DELAYED: becomes ready then. Otherwise: could be taken since then.
        self.due_ms: i64 = now_ms + delay_ms
        self.delay_ms: i64 = delay_ms
        # The family's own number: beanstalk's time to run; bunqueue's wall time of the put, which
        # is part of the id its clients know; glide-mq's time as the client told it.
        self.own_ms: i64 = own_ms
        # Segment << 32 | offset of the body's first byte; 0 without a journal.
        self.place: i64 = 0
        # Checksum of the body; known once the body is long or has left memory.
        self.crc: i64 = 0
        # Number of the batch with the last record an answer about this job must wait for.
        self.batch: i64 = 0
        self.queue: Queue = queue
        self.policy: Policy = policy
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
        # Where among the ready it stands, as `model.shelves` names them; most stand in the stream.
        self.shelf: u8 = 0

    def more(self) -> Extra:
        """Return the rare parts, making them on first use."""
        extra = self.extra
        if extra is None:
            extra = Extra()
            self.extra = extra
        return extra

    def tally(self) -> Tally:
        """Return the counters of rarer events."""
        extra = self.more()
        tally = extra.tally
        if tally is None:
            tally = Tally()
            extra.tally = tally
        return tally

    def stalls(self) -> i64:
        """Return how often a holder of this job was not heard of for too long."""
        extra = self.extra
        if extra is None or extra.tally is None:
            return 0
        return i64(extra.tally.stalls)

    def add_old_base(self) -> None:
        """Note that the base as it is now stays behind when the body changes."""
        extra = self.more()
        if extra.old_bases is None:
            extra.old_bases = []
        extra.old_bases.append(int(self.place >> 32))

    def outcome(self) -> Outcome:
        """Return how a job at rest came to rest."""
        extra = self.extra
        assert extra is not None
        assert extra.outcome is not None
        return extra.outcome
