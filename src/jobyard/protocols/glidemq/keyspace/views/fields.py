"""Fields of the hashes that show a queue: what is set for it, its lanes, its endings."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.model.index.minute_counter import MINUTE_MS, Meter
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import Lane, part_of
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.job import number
from jobyard.protocols.glidemq.keyspace.views.sets import shelves_of

ORDER_DONE: Final = b"orderdone:"


def meta_fields(queue: Queue, now_ms: i64) -> dict[bytes, bytes]:
    """Return what is set for a queue, as far as the yard acts by it."""
    found: dict[bytes, bytes] = {}
    rules = queue.rules
    if queue.pause_until_ms > now_ms or (rules is not None and rules.settings.is_paused):
        found[b"paused"] = b"1"
    if rules is None:
        return found
    settings = rules.settings
    if settings.concurrency >= 0:
        found[b"globalConcurrency"] = number(settings.concurrency)
    if settings.rate_most >= 0:
        found[b"rateLimitMax"] = number(settings.rate_most)
        found[b"rateLimitDuration"] = number(settings.rate_ms)
    return found


def order_done(queue: Queue, key: str) -> bytes | None:
    """Return up to which number the jobs of a lane are done.

    A worker that holds a job asks whether it is its turn, which it is: nobody else was given one.
    """
    lane = lane_named(queue, key)
    if lane is None:
        return None
    least = lane.last_order + 1
    first = lane.next_to_start()
    if first is not None:
        least = min(least, part_of(first).order)
    for item in queue.leased.items:
        assert isinstance(item, Job)
        extra = item.extra
        if extra is not None and extra.glide is not None and extra.glide.lane is lane:
            least = min(least, extra.glide.order)
    return number(least - 1)


def lane_named(queue: Queue, key: str) -> Lane | None:
    """Return the lane of an ordering key."""
    shelves = shelves_of(queue)
    return None if shelves is None else shelves.lanes.get(key)


def ordering_fields(queue: Queue) -> dict[bytes, bytes]:
    """Return the last number of every lane."""
    shelves = shelves_of(queue)
    if shelves is None:
        return {}
    return {bytes_of(lane.name): number(lane.last_order) for lane in shelves.lanes.values()}


def group_fields(yard: Yard, lane: Lane, now_ms: i64) -> dict[bytes, bytes]:
    """Return what a lane is limited to, and how far it is from that."""
    limits = lane.limits
    found = {
        b"maxConcurrency": number(max(limits.concurrency, 1)),
        b"active": number(lane.slots_used),
    }
    if limits.rate_most > 0:
        found[b"rateMax"] = number(limits.rate_most)
        found[b"rateDuration"] = number(limits.rate_ms)
        begin_ms, count = lane.window()
        if count > 0:
            found[b"rateWindowStart"] = number(begin_ms + yard.journal.wall_offset_ms)
            found[b"rateCount"] = number(count)
    if limits.capacity > 0:
        found[b"tbCapacity"] = number(limits.capacity)
        found[b"tbRefillRate"] = number(limits.refill)
        found[b"tbTokens"] = number(lane.tokens(now_ms))
        found[b"tbLastRefill"] = number(now_ms + yard.journal.wall_offset_ms)
        found[b"tbRefillRemainder"] = number(lane.remainder())
    first = lane.next_to_start()
    found[b"nextSeq"] = number(lane.last_order + 1 if first is None else part_of(first).order)
    return found


def metrics_fields(yard: Yard, meter: Meter, spent: Meter | None) -> dict[bytes, bytes]:
    """Return how many jobs ended in each minute, and how long they took together."""
    found: dict[bytes, bytes] = {}
    counts = meter.by_minute()
    newest = int(meter.last_ms + yard.journal.wall_offset_ms) // MINUTE_MS
    last = meter.last_ms // MINUTE_MS
    for age in range(len(counts)):
        if counts[age] > 0:
            at_ms = (newest - age) * MINUTE_MS
            found[b"m:%d:c" % at_ms] = number(counts[age])
            found[b"m:%d:d" % at_ms] = number(0 if spent is None else spent.of_minute(last - age))
    return found
