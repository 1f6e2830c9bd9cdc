"""Decides which job of a queue with rules may leave it now, and when to look again.

Jobs without a group go first; then the groups take turns. A gate is asked before a job is taken and
told once it was.
"""

from mypy_extensions import i64

from jobyard.model.job import Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.rules import Group, Rules


def is_open(queue: Queue, rules: Rules, now_ms: i64) -> bool:
    """Tell whether the rules of the whole queue let a job pass."""
    settings = rules.settings
    if settings.is_paused:
        return False
    if 0 <= settings.concurrency <= len(queue.leased.items):
        return False
    bucket = rules.bucket
    return bucket is None or bucket.has_one(now_ms)


def open_head(queue: Queue, rules: Rules, now_ms: i64) -> Job | None:
    """Return the job that may leave next, or None."""
    if not queue.ready.items and not rules.ring:
        return None
    if not is_open(queue, rules, now_ms):
        return None
    ready = queue.ready.items
    if ready:
        job = ready[0]
        assert isinstance(job, Job)
        return job
    for group in rules.ring:
        if _is_group_open(group, now_ms):
            job = group.ready.items[0]
            assert isinstance(job, Job)
            return job
    return None


def _is_group_open(group: Group, now_ms: i64) -> bool:
    if group.is_paused or group.closed_until_ms > now_ms:
        return False
    limit = group.limit()
    if 0 <= limit <= group.leased_count:
        return False
    bucket = group.rate()
    return bucket is None or bucket.has_one(now_ms)


def passed(job: Job, rules: Rules) -> None:
    """Count a job that leaves against every limit, and end the turn of its group."""
    if rules.bucket is not None:
        rules.bucket.take_one()
    extra = job.extra
    if extra is None or extra.group is None:
        return
    group = extra.group
    bucket = group.rate()
    if bucket is not None:
        bucket.take_one()
    rules.ring.remove(group)
    rules.ring.append(group)


def next_open_ms(queue: Queue, rules: Rules, now_ms: i64) -> i64:
    """Return when time alone may open a gate, or NEVER_MS."""
    if not queue.ready.items and not rules.ring:
        return NEVER_MS
    if rules.settings.is_paused:
        return NEVER_MS
    bucket = rules.bucket
    if bucket is not None and not bucket.has_one(now_ms):
        return bucket.next_ms(now_ms)
    soonest: i64 = NEVER_MS
    for group in rules.ring:
        if group.closed_until_ms > now_ms:
            soonest = min(soonest, group.closed_until_ms)
        rate = group.rate()
        if rate is not None and not rate.has_one(now_ms):
            soonest = min(soonest, rate.next_ms(now_ms))
    return soonest
