"""What time alone triggers: the ends of delays, leases, pauses and waits."""

from mypy_extensions import i64

from jobyard.engine.jobs.finish import expire
from jobyard.engine.jobs.move import expire_ttl
from jobyard.engine.jobs.take import cancel_wait, offer
from jobyard.engine.state.job_waits import JobWait
from jobyard.engine.state.names import Expiry
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.model.index.item import Item
from jobyard.model.job import Job
from jobyard.model.lease import Lease, LeaseSet
from jobyard.model.limits import FIRINGS_PER_TURN, FULL_WAIT_MS
from jobyard.model.queue import Queue
from jobyard.model.waiter import Waiter


def tick(yard: Yard, now_ms: i64) -> i64:
    """Fire due timers in order; return when to call again (`now_ms` if work is left)."""
    yard.now_ms = now_ms
    timers = yard.timers.items
    left: i64 = FIRINGS_PER_TURN
    while timers:
        item = timers[0]
        if item.sort_key > now_ms:
            return item.sort_key
        if left <= 0:
            return now_ms
        if isinstance(item, LeaseSet):
            left -= _ring_lease_set(yard, item, now_ms, left)
        elif isinstance(item, Queue):
            left -= _ring_queue(yard, item, now_ms, left)
        else:
            # Such an item leaves the timers before it rings, so an error cannot repeat every turn.
            yard.errors.changes_before_ring = yard.changes()
            _ring_other(yard, item, now_ms)
            yard.errors.changes_before_ring = -1
            left -= 1
    return yard.next_timer_ms()


def _ring_lease_set(yard: Yard, lease_set: LeaseSet, now_ms: i64, most: i64) -> i64:
    fired: i64 = 0
    leases = lease_set.leases.items
    while leases and fired < most:
        lease = leases[0]
        if lease.sort_key > now_ms:
            break
        assert isinstance(lease, Lease)
        try:
            expire(yard, lease, now_ms)
        except (YardFull, StorageFull):
            # The disk has no room yet for the records of the end and of dependent jobs.
            lease.sort_key = now_ms + FULL_WAIT_MS
            lease_set.leases.moved(lease)
        fired += 1
    _rearm(yard, lease_set, lease_set.soonest_ms(), is_needed=len(leases) > 0)
    return fired + 1


def _ring_queue(yard: Yard, queue: Queue, now_ms: i64, most: i64) -> i64:
    if queue.pause_ms != 0 and queue.pause_until_ms <= now_ms:
        queue.pause_ms = 0
    fired: i64 = 0
    delayed = queue.delayed.items
    while delayed and fired < most:
        job = delayed[0]
        if job.sort_key > now_ms:
            break
        assert isinstance(job, Job)
        yard.delay_over(job)
        fired += 1
    at_ms = delayed[0].sort_key if delayed else queue.pause_until_ms
    if queue.pause_ms != 0:
        at_ms = min(at_ms, queue.pause_until_ms)
    _rearm(yard, queue, at_ms, is_needed=len(delayed) > 0 or queue.pause_ms != 0)
    offer(yard, queue, now_ms)
    return fired + 1


def _ring_other(yard: Yard, item: Item, now_ms: i64) -> None:
    if isinstance(item, Waiter):
        cancel_wait(yard, item)
        item.lease_set.holder.waited_enough(item, is_deadline_soon=item.soon_ms <= now_ms)
        return
    yard.disarm(item)
    if isinstance(item, Expiry):
        if item.job.id < item.job.queue.gone_before:
            # It is gone and waits only to be freed.
            return
        try:
            expire_ttl(yard, item.job, now_ms)
        except (YardFull, StorageFull):
            yard.arm(item, now_ms + FULL_WAIT_MS)
    elif isinstance(item, JobWait):
        yard.waits.remove(item)
        item.job_waiter.job_done(item, None)
    else:
        assert isinstance(item, Alarm)
        try:
            item.ring(now_ms)
        except (YardFull, StorageFull):
            yard.arm(item, now_ms + FULL_WAIT_MS)


def _rearm(yard: Yard, item: LeaseSet | Queue, at_ms: i64, *, is_needed: bool) -> None:
    """Reset the timer of an item that has just rung; ringing may have disarmed it."""
    yard.disarm(item)
    if is_needed:
        yard.arm(item, at_ms)
