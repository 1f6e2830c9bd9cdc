"""One row of the yard's history: a thing that happened to a job, as readers of `_events` see it.

Rows are never stored as such. They are read out of the records of the journal when someone asks,
and their numbers are the record numbers, so they rise, are stable, and have holes.
"""

from typing import Final, final

from mypy_extensions import i64

# What happened. The words are what readers see.
ENQUEUED: Final = "enqueued"
CLAIMED: Final = "claimed"

# A row says 0 or "" where its kind of record does not know.


@final
class HistoryRow:
    """Something that happened to a job."""

    def __init__(self, seq: i64, ts_ms: i64, event: str, queue: str, job_id: i64) -> None:
        self.seq: i64 = seq
        # Wall time.
        self.ts_ms: i64 = ts_ms
        self.event: str = event
        self.queue: str = queue
        self.job_id: i64 = job_id
        # What the job was after it: ready, delayed, leased, dead, done, blocked or gone.
        self.state: str = ""
        self.family: str = ""
        self.rank: i64 = 0
        self.attempts: i64 = 0
        self.deliveries: i64 = 0
        self.size: i64 = 0
        # The number of the lease and of its holder, and the door it was given at.
        self.lease: i64 = 0
        self.holder: i64 = 0
        self.door: str = ""
        self.ttl_ms: i64 = 0
        # Wall times of the whole attempt, in the row that closes it.
        self.due_ms: i64 = 0
        self.enqueued_ms: i64 = 0
        self.available_ms: i64 = 0
        self.claimed_ms: i64 = 0
        self.finished_ms: i64 = 0
        self.error: str = ""
