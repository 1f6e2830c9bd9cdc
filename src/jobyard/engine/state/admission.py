"""Decides which job of a queue with rules may leave it now, and when to check again.

Jobs without a group go first; then the groups take turns. The limits are checked before a job is
taken (`open_head`) and counted after it was (`passed`).
"""

from mypy_extensions import i64

from jobyard.model.index.item import Item
from jobyard.model.job import Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.throttle.settings import Group, Rules


def is_open(queue: Queue, rules: Rules, now_ms: i64) -> bool:
    """Return whether the rules of the whole queue let a job leave."""
    settings = rules.settings
    if settings.is_paused:
        return False
    if 0 <= settings.concurrency <= len(queue.leased.items):
        return False
    bucket = rules.bucket
    return bucket is None or bucket.has_one(now_ms)


def open_head(queue: Queue, rules: Rules, now_ms: i64) -> Job | None:
    """Return the job that may leave next, or None."""
    ready_lists = rules.ready_lists
    if ready_lists is None:
        return stream_head(queue, rules, now_ms)
    if queue.held_count == 0 and not queue.ready.items:
        return None
    if not is_open(queue, rules, now_ms):
        return None
    best = first_ready(queue)
    if best is None:
        return stream_head(queue, rules, now_ms)
    assert isinstance(best, Job)
    return best


def first_ready(queue: Queue) -> Item | None:
    """Return the first job of all ready lists, whether or not it may leave now."""
    ready = queue.ready.items
    best: Item | None = ready[0] if ready else None
    rules = queue.rules
    if rules is None or rules.ready_lists is None:
        return best
    ready_lists = rules.ready_lists
    best = _better(best, ready_lists.staged.items)
    best = _better(best, ready_lists.promoted.items)
    return _better(best, ready_lists.lifo.items)


def _better(best: Item | None, items: list[Item]) -> Item | None:
    if not items:
        return best
    head = items[0]
    if best is None or head.sort_key < best.sort_key:
        return head
    return head if head.sort_key == best.sort_key and head.stamp < best.stamp else best


def list_head(queue: Queue, rules: Rules, ready_list: i64, now_ms: i64) -> Job | None:
    """Return the job that may leave one ready list next, or None."""
    if ready_list == ReadyList.STREAM:
        return stream_head(queue, rules, now_ms)
    ready_lists = rules.ready_lists
    if ready_lists is None:
        return None
    items = ready_lists.heap(ready_list).items
    if not items or not is_open(queue, rules, now_ms):
        return None
    job = items[0]
    assert isinstance(job, Job)
    return job


def stream_head(queue: Queue, rules: Rules, now_ms: i64) -> Job | None:
    """Return the job that may leave the stream next, or None."""
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


def passed(job: Job, rules: Rules, now_ms: i64) -> None:
    """Count a job that leaves against every limit, and move its group to the end of the ring."""
    if rules.bucket is not None:
        rules.bucket.take_one()
    details = job.details
    if details is None:
        return
    part = details.glide
    if part is not None and part.ordering is not None and job.deliveries == 0:
        part.ordering.start(part.due_cost(), now_ms)
    group = details.group
    if group is None:
        return
    bucket = group.rate()
    if bucket is not None:
        bucket.take_one()
    rules.ring.remove(group)
    rules.ring.append(group)


def next_open_ms(queue: Queue, rules: Rules, now_ms: i64) -> i64:
    """Return when a limit ends by time alone, or NEVER_MS."""
    if not queue.ready.items and queue.held_count == 0:
        return NEVER_MS
    if rules.settings.is_paused:
        return NEVER_MS
    bucket = rules.bucket
    if bucket is not None and not bucket.has_one(now_ms):
        return bucket.next_ms(now_ms)
    soonest: i64 = NEVER_MS if rules.ready_lists is None else rules.ready_lists.opens_ms()
    for group in rules.ring:
        if group.closed_until_ms > now_ms:
            soonest = min(soonest, group.closed_until_ms)
        rate = group.rate()
        if rate is not None and not rate.has_one(now_ms):
            soonest = min(soonest, rate.next_ms(now_ms))
    return soonest
