"""Operations on many jobs of a glide-mq queue at once, where its functions go one by one."""

from jobyard.engine.glidemq.move import retry
from jobyard.engine.jobs.listing import jobs_in
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.yard import Yard
from jobyard.model.details import Outcome
from jobyard.model.index.append_list import AppendList
from jobyard.model.job import DELAYED, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList


def retry_jobs(yard: Yard, queue: Queue, count: int, now_ms: int) -> list[Job]:
    """Retry failed jobs, oldest first, `count` of them or with 0 all; they are staged."""
    jobs = _at_rest(queue.dead, count)
    for job in jobs:
        retry(yard, job, now_ms)
    return jobs


def clean(
    yard: Yard, queue: Queue, line: AppendList, before_ms: int, limit: int, now_ms: int
) -> list[Job]:
    """Remove jobs that ended before a time, oldest first, `limit` of them or with 0 all."""
    jobs: list[Job] = []
    for job in _at_rest(line, limit):
        if job.outcome().ended_ms > before_ms:
            break
        yard.drop(job, now_ms)
        jobs.append(job)
    drop_if_idle(yard, queue)
    return jobs


def drain(yard: Yard, queue: Queue, now_ms: int, *, with_delayed: bool) -> list[Job]:
    """Remove every waiting job; delayed ones only if requested."""
    states = frozenset((READY, DELAYED)) if with_delayed else frozenset((READY,))
    jobs = [
        job for job in jobs_in(queue, states) if with_delayed or job.ready_list != ReadyList.STAGED
    ]
    jobs.sort(key=_seq_of)
    for job in reversed(jobs):
        erase(yard, job, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    drop_if_idle(yard, queue)
    return jobs


def _at_rest(line: AppendList, limit: int) -> list[Job]:
    """Return the first ended jobs, all of them if the limit is 0."""
    jobs: list[Job] = []
    for item in line.page(0, limit if limit > 0 else line.live_count, is_reversed=False):
        assert isinstance(item, Outcome)
        jobs.append(item.job)
    return jobs


def _seq_of(job: Job) -> int:
    return job.key
