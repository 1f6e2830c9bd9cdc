"""The newest events after a restart, rebuilt from the end of the journal's history.

Only for jobs of this door that still exist: the history lacks the fields that clients expect of
others. Events that came only from clients or functions (progress, pauses, counts) are not included.
An event keeps its millisecond, so ids continue to rise.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.state.history import recent_history
from jobyard.engine.state.yard import Yard
from jobyard.model.details import FailureReason
from jobyard.model.family import GLIDE
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.topic.history_row import HistoryRow
from jobyard.protocols.glidemq.events import QueueEvents
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.job import number

# How much is read: it takes some tens of milliseconds before the door opens.
RECALLED_BYTES: Final = 4 << 20
RECALLED_ROWS: Final = 20_000

_PLAIN: Final = {"promoted": b"promoted", "stalled": b"stalled", "unblocked": b"active"}


def recall(events: QueueEvents, yard: Yard) -> None:
    """Fill the event rings with what happened before the restart."""
    for row in recent_history(yard, RECALLED_BYTES, RECALLED_ROWS):
        job = yard.jobs.get(row.job_id)
        if job is None or job.family != GLIDE or job.queue.name != row.queue:
            continue
        shown = _shown_event(yard, row, job)
        if shown:
            ring = events.ring_of(row.queue)
            head = [b"event", shown[0], b"jobId", glide_add.id_bytes(job)]
            ring.add(ring.next_id(row.ts_ms), head + shown[1:])


def _shown_event(yard: Yard, row: HistoryRow, job: Job) -> list[bytes]:
    """Return the event name of a row, followed by its further fields; empty for some rows."""
    event = row.event
    if event in _PLAIN:
        return [_PLAIN[event]]
    if event == "enqueued":
        return [b"added", b"name", bytes_of(job.policy.name)]
    if event == "completed":
        result = yard.bodies.fetch_result(job) if job.state == DONE else b""
        return [b"completed", b"returnvalue", result or b"null"]
    if event == "failed":
        return _failed(row, job)
    return []


def _failed(row: HistoryRow, job: Job) -> list[bytes]:
    error = bytes_of(row.error)
    if row.state == "dead":
        if job.state == DEAD and job.outcome().reason == FailureReason.TTL_OVER:
            return [b"expired"]
        return [b"failed", b"failedReason", error]
    delay_ms: i64 = max(row.due_ms - row.ts_ms, 0) if row.due_ms > 0 else 0
    attempts, delay = number(row.attempts), number(delay_ms)
    return [b"retrying", b"failedReason", error, b"attemptsMade", attempts, b"delay", delay]
