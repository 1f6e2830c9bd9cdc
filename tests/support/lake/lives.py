"""Lives of jobs, drawn from a choice of numbers: the rows that a yard would write of them.

Time goes on between two rows, over the ends of minutes, hours and days. Jobs are put with delays,
taken, ended in every way there is, lost without an end, retried, removed, and redriven.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Row = dict[str, Any]
YARD: Final = "yard-1"
# Two minutes before the end of an hour and of a day.
BEGIN: Final = datetime(2026, 11, 15, 23, 58, tzinfo=UTC)
QUEUES: Final = ("mails", "orders-eu", "")
ERRORS: Final = (
    None,
    "ValueError: no address 12 in 'x'",
    "ValueError: no address 7 in 'yy'",
    "java.io.IOException: 0xFF is broken",
    "http://example.org/a is away",
    "it simply failed, after 3 s",
    'KeyError: "1c9f3a1e-0000-4000-8000-123456789abc"',
)
COLUMNS: Final = (
    *("seq", "ts", "event", "queue", "job_id", "queue_seq", "client_id", "name", "state"),
    *("family", "door", "worker", "rank", "attempts", "deliveries", "size", "lease", "holder"),
    *("ttl_ms", "due_at", "enqueued_at", "available_at", "claimed_at", "finished_at", "error"),
    *("origin_id", "origin_queue", "reason", "letter_topic", "letter_seq"),
)


class _Job:
    def __init__(self, number: int, queue: str) -> None:
        self.id = number
        self.queue = queue
        self.state = "ready"
        self.deliveries = 0
        self.rank = number % 4
        self.enqueued_at: datetime | None = None
        self.available_at: datetime | None = None
        self.lease = 0
        self.worker = ""
        self.claimed_at: datetime | None = None
        # Runs whose end was not written, by number: they may still end late.
        self.lost: dict[int, tuple[int, str, datetime]] = {}


class Lives:
    """A yard that has only its history."""

    def __init__(self, pick: Callable[[int], int]) -> None:
        # Returns a number below another.
        self._pick = pick
        self.rows: list[Row] = []
        self.now = BEGIN
        self._seq = 0
        self._lease = 0
        self._jobs: list[_Job] = []

    def live(self, steps: int) -> list[Row]:
        """Return the rows of so many steps."""
        for _ in range(steps):
            self.now += timedelta(milliseconds=(1, 700, 20_000, 61_000, 1_500_000)[self._pick(5)])
            alive = [job for job in self._jobs if job.state != "gone"]
            if not alive or self._pick(4) == 0:
                self._put()
            else:
                self._act(alive[self._pick(len(alive))])
        return self.rows

    def _write(self, job: _Job, event: str, state: str, **fields: Any) -> None:
        # Other numbers of the journal are no rows.
        self._seq += 1 + self._pick(3)
        row: Row = dict.fromkeys(COLUMNS)
        row |= {"rank": 0, "attempts": 0, "deliveries": 0, "size": 0}
        row |= {"seq": self._seq, "ts": self.now, "event": event, "queue": job.queue or None}
        row |= {"job_id": job.id, "state": state}
        self.rows.append(row | fields)
        job.state = state

    def _put(self) -> None:
        job = _Job(len(self._jobs) + 1, QUEUES[self._pick(len(QUEUES))])
        self._jobs.append(job)
        delay = timedelta(seconds=(0, 0, 90)[self._pick(3)])
        job.enqueued_at, job.available_at = self.now, self.now + delay
        self._write(
            job, "enqueued", "delayed" if delay else "ready", size=10 + job.id, rank=job.rank,
            family="topics", queue_seq=job.id, enqueued_at=self.now,
            available_at=job.available_at, due_at=job.available_at if delay else None,
            origin_id=77 if self._pick(6) == 0 else None,
        )  # fmt: skip

    def _act(self, job: _Job) -> None:
        if job.state in ("ready", "delayed"):
            acts = [self._claim] * 5 + [self._priority, self._remove, self._spend]
        elif job.state == "leased":
            acts = [self._end] * 7 + [self._crash, self._crash, self._remove]
        else:
            acts = [self._revive, self._remove]
        acts[self._pick(len(acts))](job)
        if job.lost and self._pick(4) == 0:
            self._end_late(job)

    def _claim(self, job: _Job) -> None:
        job.deliveries += 1
        self._lease += 1
        job.lease, job.claimed_at = self._lease, self.now
        job.worker = ("w1", "w2", "")[self._pick(3)]
        if job.available_at is None or job.available_at > self.now:
            job.available_at = self.now
        if self._pick(8) == 0:
            # The disk was full: there is no row of it.
            job.state = "leased"
            return
        self._write(
            job, "claimed", "leased", family="topics", door="topics", lease=job.lease,
            worker=job.worker or None, deliveries=job.deliveries, claimed_at=self.now,
            queue_seq=job.id, ttl_ms=30_000, holder=3,
        )  # fmt: skip

    def _run_of(self, job: _Job) -> Row:
        return {
            "family": "topics", "door": "topics", "lease": job.lease, "holder": 3,
            "worker": job.worker or None, "deliveries": job.deliveries, "rank": job.rank,
            "queue_seq": job.id, "client_id": f"c{job.id}" if job.id % 2 else None,
            "name": "mail" if job.id % 3 else None, "enqueued_at": job.enqueued_at,
            "available_at": job.available_at, "claimed_at": job.claimed_at,
            "finished_at": self.now,
        }  # fmt: skip

    def _end(self, job: _Job) -> None:
        fields = self._run_of(job)
        error = ERRORS[self._pick(len(ERRORS))]
        how = self._pick(9)
        if how < 3:
            self._write(job, "completed", ("gone", "done")[how % 2], **fields)
        elif how == 3:
            self._write(job, "buried", "dead", **fields, error=error)
        elif how == 4:
            letter = {"reason": "given_up", "letter_topic": "dead", "letter_seq": job.id}
            self._write(job, "dead_lettered", "gone", **fields, error=error, **letter)
        elif how == 5:
            self._write(job, "failed", "dead", **fields, error=error, attempts=1)
        else:
            event = ("released", "failed", "expired", "stalled", "disconnected", "abandoned")
            due = self.now + timedelta(seconds=30) if self._pick(2) else None
            self._write(
                job, event[self._pick(6)], "delayed" if due else "ready", **fields, due_at=due,
                error=error,
            )  # fmt: skip
            job.available_at = due or self.now

    def _crash(self, job: _Job) -> None:
        """Lose a run: nothing tells of its end."""
        assert job.claimed_at is not None
        job.lost[job.deliveries] = (job.lease, job.worker, job.claimed_at)
        job.state = "ready"

    def _end_late(self, job: _Job) -> None:
        """Write the end of a run that was lost, maybe after others of the same job."""
        number = min(job.lost)
        now = (job.lease, job.worker, job.claimed_at, job.deliveries)
        job.lease, job.worker, job.claimed_at = job.lost.pop(number)
        fields = self._run_of(job) | {"deliveries": number}
        job.lease, job.worker, job.claimed_at, job.deliveries = now
        self._write(job, "expired", job.state, **fields)

    def _spend(self, job: _Job) -> None:
        """Make a job a dead letter that would be taken once more."""
        if job.deliveries == 0:
            return
        self._write(
            job, "dead_lettered", "gone", deliveries=job.deliveries, family="topics",
            reason="max_deliveries", letter_topic="dead", letter_seq=1, queue_seq=job.id,
            enqueued_at=job.enqueued_at, finished_at=self.now, error=ERRORS[self._pick(3)],
        )  # fmt: skip

    def _priority(self, job: _Job) -> None:
        job.rank = 9
        self._write(job, "priority", job.state, rank=9)

    def _remove(self, job: _Job) -> None:
        event = ("removed", "removed", "corrupt")[self._pick(3)]
        self._write(job, event, "gone", finished_at=self.now)

    def _revive(self, job: _Job) -> None:
        if job.state == "done":
            return
        job.available_at = self.now
        self._write(job, ("kicked", "retried")[self._pick(2)], "ready")
