"""Fields of the hashes that show a queue: its settings, its ordering groups, its metrics."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.model.index.minute_counter import MINUTE_MS, MinuteCounter
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import OrderingGroup, find_ordering, part_of
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.job import number
from jobyard.protocols.glidemq.keyspace.views.sets import ready_lists_of

ORDER_DONE: Final = b"orderdone:"


def meta_fields(queue: Queue, now_ms: i64) -> dict[bytes, bytes]:
    """Return the settings of a queue that the yard enforces."""
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
    """Return up to which number the jobs of an ordering group are done.

    A worker that holds a job asks whether its turn has come. It has: else it could not be taken.
    """
    ordering = ordering_named(queue, key)
    if ordering is None:
        return None
    least = ordering.last_order + 1
    first = ordering.next_to_start()
    if first is not None:
        least = min(least, part_of(first).order)
    for item in queue.leased.items:
        assert isinstance(item, Job)
        details = item.details
        if details is not None and details.glide is not None and details.glide.ordering is ordering:
            least = min(least, details.glide.order)
    return number(least - 1)


def ordering_named(queue: Queue, key: str) -> OrderingGroup | None:
    """Return the ordering group of an ordering key."""
    return find_ordering(ready_lists_of(queue), key)


def ordering_fields(queue: Queue) -> dict[bytes, bytes]:
    """Return the last number of every ordering group."""
    ready_lists = ready_lists_of(queue)
    if ready_lists is None:
        return {}
    return {
        bytes_of(ordering.name): number(ordering.last_order)
        for ordering in ready_lists.orderings.values()
    }


def group_fields(yard: Yard, ordering: OrderingGroup, now_ms: i64) -> dict[bytes, bytes]:
    """Return the limits of an ordering group, and how much of them is used."""
    limits = ordering.limits
    found = {
        b"maxConcurrency": number(max(limits.concurrency, 1)),
        b"active": number(ordering.slots_used),
    }
    if limits.rate_most > 0:
        found[b"rateMax"] = number(limits.rate_most)
        found[b"rateDuration"] = number(limits.rate_ms)
        begin_ms, count = ordering.window()
        if count > 0:
            found[b"rateWindowStart"] = number(begin_ms + yard.journal.wall_offset_ms)
            found[b"rateCount"] = number(count)
    if limits.capacity > 0:
        found[b"tbCapacity"] = number(limits.capacity)
        found[b"tbRefillRate"] = number(limits.refill)
        found[b"tbTokens"] = number(ordering.tokens(now_ms))
        found[b"tbLastRefill"] = number(now_ms + yard.journal.wall_offset_ms)
        found[b"tbRefillRemainder"] = number(ordering.remainder())
    first = ordering.next_to_start()
    found[b"nextSeq"] = number(ordering.last_order + 1 if first is None else part_of(first).order)
    return found


def metrics_fields(
    yard: Yard, minute_counter: MinuteCounter, spent: MinuteCounter | None
) -> dict[bytes, bytes]:
    """Return how many jobs ended in each minute, and their total run time."""
    found: dict[bytes, bytes] = {}
    counts = minute_counter.by_minute()
    newest = int(minute_counter.last_ms + yard.journal.wall_offset_ms) // MINUTE_MS
    last = minute_counter.last_ms // MINUTE_MS
    for age in range(len(counts)):
        if counts[age] > 0:
            at_ms = (newest - age) * MINUTE_MS
            found[b"m:%d:c" % at_ms] = number(counts[age])
            found[b"m:%d:d" % at_ms] = number(0 if spent is None else spent.of_minute(last - age))
    return found
