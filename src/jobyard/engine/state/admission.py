"""Decides which job of a queue with rules may leave it now, and when to look again.

Jobs without a group go first; then the groups take turns. A gate is asked before a job is taken and
told once it was.
"""

from mypy_extensions import i64

from jobyard.model.index.item import Item
from jobyard.model.job import Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import STREAM
from jobyard.model.throttle.settings import Group, Rules


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
    shelves = rules.shelves
    if shelves is None:
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
    """Return the best job on any shelf, whether or not it may leave now."""
    ready = queue.ready.items
    best: Item | None = ready[0] if ready else None
    rules = queue.rules
    if rules is None or rules.shelves is None:
        return best
    shelves = rules.shelves
    best = _better(best, shelves.staged.items)
    best = _better(best, shelves.promoted.items)
    return _better(best, shelves.stack.items)


def _better(best: Item | None, items: list[Item]) -> Item | None:
    if not items:
        return best
    head = items[0]
    if best is None or head.sort_key < best.sort_key:
        return head
    return head if head.sort_key == best.sort_key and head.stamp < best.stamp else best


def shelf_head(queue: Queue, rules: Rules, shelf: i64, now_ms: i64) -> Job | None:
    """Return the job that may leave one shelf next, or None."""
    if shelf == STREAM:
        return stream_head(queue, rules, now_ms)
    shelves = rules.shelves
    if shelves is None:
        return None
    items = shelves.heap(shelf).items
    if not items or not is_open(queue, rules, now_ms):
        return None
    job = items[0]
    assert isinstance(job, Job)
    return job


def stream_head(queue: Queue, rules: Rules, now_ms: i64) -> Job | None:
    """Return the job that may leave next of those that stand on no other shelf, or None."""
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
    """Count a job that leaves against every limit, and end the turn of its group."""
    if rules.bucket is not None:
        rules.bucket.take_one()
    extra = job.extra
    if extra is None:
        return
    part = extra.glide
    if part is not None and part.lane is not None and job.deliveries == 0:
        part.lane.start(part.due_cost(), now_ms)
    group = extra.group
    if group is None:
        return
    bucket = group.rate()
    if bucket is not None:
        bucket.take_one()
    rules.ring.remove(group)
    rules.ring.append(group)


def next_open_ms(queue: Queue, rules: Rules, now_ms: i64) -> i64:
    """Return when time alone may open a gate, or NEVER_MS."""
    if not queue.ready.items and queue.held_count == 0:
        return NEVER_MS
    if rules.settings.is_paused:
        return NEVER_MS
    bucket = rules.bucket
    if bucket is not None and not bucket.has_one(now_ms):
        return bucket.next_ms(now_ms)
    soonest: i64 = NEVER_MS if rules.shelves is None else rules.shelves.opens_ms()
    for group in rules.ring:
        if group.closed_until_ms > now_ms:
            soonest = min(soonest, group.closed_until_ms)
        rate = group.rate()
        if rate is not None and not rate.has_one(now_ms):
            soonest = min(soonest, rate.next_ms(now_ms))
    return soonest
