"""How a run of a job ends at the door of glide-mq.

A worker proves that it holds a job by the entry it was given, "" for a job of a list. A worker that
lost a job, by a restart or because it sent no heartbeat for too long, may still end it until the
job is taken again. NotHeld changes nothing. What happens to the job depends on its family.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import entry_of, is_own
from jobyard.engine.jobs import finish as ends
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.errors import NotHeld
from jobyard.journal.format.record import Cause
from jobyard.model.details import Outcome
from jobyard.model.details_codec import FieldWriter, overlay_field
from jobyard.model.family import counts_attempts
from jobyard.model.index.append_list import AppendList
from jobyard.model.index.item import Item
from jobyard.model.job import DEAD, DELAYED, GONE, JSON, MSGPACK, READY, Job
from jobyard.model.lease import Lease, Proof
from jobyard.model.queue import Queue
from jobyard.model.transition import Transition

# The most ended jobs that one end removes.
_TRIM_MAX: Final = 1000
# The longest time without a heartbeat if a job sets none.
_LOCK_MS: Final = 30_000


@final
class Keep:
    """Which ended jobs are kept; -1 for no bound."""

    def __init__(self, *, is_kept: bool = True, count: i64 = -1, age_ms: i64 = -1) -> None:
        self.is_kept: bool = is_kept
        self.count: i64 = count
        self.age_ms: i64 = age_ms


def is_held(job: Job, entry: str) -> bool:
    """Return whether a worker with `entry` may end the run of a job."""
    lease = job.lease
    if lease is None:
        may_be_late = job.state == READY and job.deliveries > 0 and counts_attempts(job.family)
        return may_be_late and entry in ("", entry_of(job))
    if not lease.terms.is_entry():
        return False
    return not entry if lease.terms.proof == Proof.LISTED else entry == entry_of(job)


def is_held_by(job: Job, stamp: i64) -> bool:
    """Return whether a job taken from the stream is held under the entry with that stamp."""
    lease = job.lease
    return lease is not None and lease.terms.proof == Proof.ENTRY and abs_stamp(job.stamp) == stamp


def complete(yard: Yard, job: Job, entry: str, returnvalue: bytes, keep: Keep, now_ms: i64) -> None:
    """End a run successfully; the result is text, for other families MessagePack."""
    if not is_held(job, entry):
        raise NotHeld
    complete_held(yard, job, returnvalue, keep, now_ms)


def complete_held(yard: Yard, job: Job, returnvalue: bytes, keep: Keep, now_ms: i64) -> None:
    """End a run successfully; the caller has checked that it is held."""
    queue = job.queue
    yard.now_ms = max(yard.now_ms, now_ms)
    if not is_own(job):
        ends.complete(yard, job, returnvalue, MSGPACK, ends.KEEP_AS_ASKED, now_ms)
        return
    kept: i64 = 1 if keep.is_kept else ends.KEEP_NOT
    ends.complete(yard, job, returnvalue, JSON, kept, now_ms)
    _trim(yard, queue, queue.done, keep, now_ms)


def fail(  # noqa: PLR0913, PLR0917  the options of a failure
    yard: Yard,
    job: Job,
    entry: str,
    reason: str,
    max_attempts: i64,
    backoff_ms: i64,
    keep: Keep,
    now_ms: i64,
) -> str:
    """End a run as failed; return "retrying" or "failed". Limits apply only to glide-mq jobs."""
    if not is_held(job, entry):
        raise NotHeld
    queue = job.queue
    yard.now_ms = max(yard.now_ms, now_ms)
    if is_own(job):
        ends.fail(
            yard,
            job,
            reason,
            now_ms,
            delay_ms=max(backoff_ms, 0),
            limit=max(max_attempts, 0),
            is_removed=not keep.is_kept,
        )
        if job.state in (DEAD, GONE):
            _trim(yard, queue, queue.dead, keep, now_ms)
    else:
        ends.fail(yard, job, reason, now_ms)
    return "failed" if job.state in (DEAD, GONE) else "retrying"


def defer(yard: Yard, job: Job, entry: str, delay_ms: i64, now_ms: i64) -> None:
    """Give a job back, to the end of the stream or with a delay."""
    if not is_held(job, entry):
        raise NotHeld
    yard.now_ms = max(yard.now_ms, now_ms)
    if not is_own(job):
        ends.release(yard, job, job.rank, delay_ms, now_ms)
        return
    end = Transition(job, Cause.RELEASED, DELAYED if delay_ms > 0 else READY)
    end.due_ms = now_ms + delay_ms
    end.stamp = yard.stamp(now_ms)
    if delay_ms > 0 and is_delay_apart(job):
        end.changed_fields = delay_fields(delay_ms)
    elif delay_ms == 0 and job.delay_ms > 0 and not is_delay_apart(job):
        end.changed_fields = delay_fields(job.delay_ms)
    ends.end_run(yard, job, end, now_ms)


def is_delay_apart(job: Job) -> bool:
    """Return whether the delay that clients see is not the current delay of a job.

    That is so once a glide-mq job has failed, since its delay is then the backoff, and once it was
    promoted before its requested delay was over.
    """
    details = job.details
    if details is None or not is_own(job):
        return False
    part = details.glide
    is_noted = part is not None and part.overlay is not None and b"delay" in part.overlay
    return is_noted or details.failures is not None


def delay_fields(delay_ms: i64) -> bytes:
    """Return the changed fields that make clients see a delay, whatever the job has."""
    fields = FieldWriter()
    overlay_field(fields, b"delay", str(int(delay_ms)).encode())
    return fields.done()


def reclaim(
    yard: Yard,
    queue: Queue,
    min_idle_ms: i64,
    max_stalled: i64,
    now_ms: i64,
    *,
    is_list: bool = False,
    most: int = 1000,
) -> list[Job]:
    """End the runs whose workers sent no heartbeat for too long; return the jobs.

    They are ready again, or dead if they stalled too often.
    """
    yard.now_ms = max(yard.now_ms, now_ms)
    silent: list[Lease] = []
    for item in queue.leased.items:
        assert isinstance(item, Job)
        lease = item.lease
        if lease is None or lease.terms.proof != (Proof.LISTED if is_list else Proof.ENTRY):
            continue
        lock_ms = item.policy.stall_ms if is_own(item) else 0
        if now_ms - lease.beat_ms >= (lock_ms if lock_ms > 0 else min_idle_ms):
            silent.append(lease)
    return _give_up(yard, silent, max_stalled, most, now_ms)


def reclaim_lost(
    yard: Yard, queue: Queue, present: dict[str, int], max_stalled: i64, now_ms: i64
) -> list[Job]:
    """End the runs of consumers that are not present and sent no heartbeat for too long.

    The consumer of a job from a list is not known: any present consumer may be it.
    """
    yard.now_ms = max(yard.now_ms, now_ms)
    lost: list[Lease] = []
    for item in queue.leased.items:
        assert isinstance(item, Job)
        lease = item.lease
        if lease is None or not lease.terms.is_entry():
            continue
        label = lease.terms.label
        if present and (not label or label in present):
            continue
        lock_ms = item.policy.stall_ms if is_own(item) else 0
        if now_ms - lease.beat_ms >= 2 * (lock_ms if lock_ms > 0 else _LOCK_MS):
            lost.append(lease)
    return _give_up(yard, lost, max_stalled, 1000, now_ms) if lost else []


def _give_up(
    yard: Yard, silent: list[Lease], max_stalled: i64, most: int, now_ms: i64
) -> list[Job]:
    """End abandoned runs, the `most` with the oldest heartbeats; return their jobs."""
    silent.sort(key=_beat_of)
    del silent[most:]
    # Each end may serve a waiter, so the best jobs come first.
    silent.sort(key=_turn_of)
    jobs: list[Job] = []
    for lease in silent:
        job = lease.job
        if job.lease is not lease:
            continue
        jobs.append(job)
        if is_own(job):
            ends.stall(yard, job, max_stalled, now_ms)
        else:
            ends.expire(yard, lease, now_ms)
    return jobs


def _beat_of(lease: Lease) -> int:
    return lease.beat_ms


def _turn_of(lease: Lease) -> tuple[int, int]:
    return lease.job.rank, abs_stamp(lease.job.stamp)


def _trim(yard: Yard, queue: Queue, line: AppendList, keep: Keep, now_ms: i64) -> None:
    """Remove the oldest jobs of this family that are not kept."""
    if not keep.is_kept or (keep.count < 0 and keep.age_ms < 0):
        return
    over: i64 = line.live_count - keep.count if keep.count >= 0 else 0
    for _ in range(_TRIM_MAX):
        oldest = line.first()
        if oldest is None or not _is_over(oldest, over, keep, now_ms):
            break
        assert isinstance(oldest, Outcome)
        if not is_own(oldest.job):
            _trim_among(yard, line, over, keep, now_ms)
            break
        yard.drop(oldest.job, now_ms)
        over -= 1
    if yard.queues.get(queue.name) is queue:
        # Checked, since on a full disk the job is removed when it ends, maybe with its queue.
        drop_if_idle(yard, queue)


def _trim_among(yard: Yard, line: AppendList, over: i64, keep: Keep, now_ms: i64) -> None:
    """Remove jobs of this family among those of others, which this door must not remove."""
    # Dead slots are few: a list is compacted before they are a quarter.
    for item in line.items[: 2 * _TRIM_MAX]:
        if item.pos < 0:
            continue
        if not _is_over(item, over, keep, now_ms):
            break
        assert isinstance(item, Outcome)
        over -= 1
        if is_own(item.job):
            yard.drop(item.job, now_ms)


def _is_over(item: Item, over: i64, keep: Keep, now_ms: i64) -> bool:
    assert isinstance(item, Outcome)
    return over > 0 or 0 <= keep.age_ms < now_ms - item.ended_ms
