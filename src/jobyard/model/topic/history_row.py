"""One row of the yard's history: an event of a job, as readers of `_events` see it.

Rows are never stored as such. They are read from the records of the journal on request, and their
numbers are the record numbers, so they rise, are stable, and have gaps.
"""

from typing import Final, final

from mypy_extensions import i64

# The event names that readers see.
ENQUEUED: Final = "enqueued"
CLAIMED: Final = "claimed"
DEAD_LETTERED: Final = "dead_lettered"
ABANDONED: Final = "abandoned"

# A field is 0 or "" if its kind of record does not store it.


@final
class HistoryRow:
    """An event of a job."""

    def __init__(self, seq: i64, ts_ms: i64, event: str, queue: str, job_id: i64) -> None:
        self.seq: i64 = seq
        # Wall time.
        self.ts_ms: i64 = ts_ms
        self.event: str = event
        self.queue: str = queue
        self.job_id: i64 = job_id
        # The state of the job after the event: ready, delayed, leased, dead, done, blocked or gone.
        self.state: str = ""
        self.family: str = ""
        # How clients know the job: its number in the queue, its custom id, and its name.
        self.queue_seq: i64 = 0
        self.client_id: str = ""
        self.name: str = ""
        self.rank: i64 = 0
        self.attempts: i64 = 0
        self.deliveries: i64 = 0
        self.size: i64 = 0
        # Of a run, in the row of its claim and in that of its end: the number of the lease, that of
        # its first holder, the door through which the job was taken, and the name of the worker.
        self.lease: i64 = 0
        self.holder: i64 = 0
        self.door: str = ""
        self.worker: str = ""
        self.ttl_ms: i64 = 0
        # Wall times of the whole attempt, in the row that ends it.
        self.due_ms: i64 = 0
        self.enqueued_ms: i64 = 0
        self.available_ms: i64 = 0
        self.claimed_ms: i64 = 0
        self.finished_ms: i64 = 0
        self.error: str = ""
        # Of a job that was a dead letter before: its id then, 0 if unknown, and its queue.
        self.origin_id: i64 = 0
        self.origin_queue: str = ""
        # Of a job that becomes a dead letter: why, and where that is.
        self.reason: str = ""
        self.letter_topic: str = ""
        self.letter_seq: i64 = 0
