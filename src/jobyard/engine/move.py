"""The verbs for jobs that no one runs: kicked awake, or removed."""

from mypy_extensions import i64

from jobyard.engine.queues import drop_if_idle
from jobyard.engine.take import offer
from jobyard.engine.yard import Yard
from jobyard.errors import NotFound
from jobyard.journal.record import KICKED, REMOVED
from jobyard.model.job import DEAD, DELAYED, LEASED, READY, Job, Outcome
from jobyard.model.queue import Queue


def kick(yard: Yard, queue: Queue, bound: i64, now_ms: i64) -> i64:
    """Make up to `bound` jobs ready: the dead, oldest first; if there are none the delayed."""
    kicked: i64 = 0
    if queue.dead.live_count > 0:
        while kicked < bound:
            outcome = queue.dead.first()
            if outcome is None:
                break
            assert isinstance(outcome, Outcome)
            _kick(yard, outcome.job, now_ms)
            kicked += 1
    else:
        # Jobs kicked here may be handed out at once, so the heap is looked at anew each time.
        while kicked < bound and queue.delayed.items:
            job = queue.delayed.items[0]
            assert isinstance(job, Job)
            _kick(yard, job, now_ms)
            kicked += 1
    if kicked > 0:
        offer(yard, queue, now_ms)
    return kicked


def kick_job(yard: Yard, job_id: i64, now_ms: i64) -> Job:
    """Make one dead or delayed job ready."""
    job = yard.jobs.get(job_id)
    if job is None or job.state not in (DEAD, DELAYED):
        raise NotFound
    _kick(yard, job, now_ms)
    offer(yard, job.queue, now_ms)
    return job


def _kick(yard: Yard, job: Job, now_ms: i64) -> None:
    if yard.journal.is_on:
        yard.journal.append_move(job, KICKED, READY, now_ms, now_ms)
    yard.apply_move(job, KICKED, READY, now_ms, now_ms)


def remove(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job that nobody holds."""
    if job.state == LEASED:
        raise NotFound
    if yard.journal.is_on:
        yard.journal.append_gone(job, REMOVED, now_ms)
    yard.apply_gone(job)
    job.queue.finished_count += 1
    drop_if_idle(yard, job.queue)
