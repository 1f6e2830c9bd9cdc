"""What callers of the topics API may use up, and the refusal of whoever wants more.

Things that last a while hold a slot, which is given back when they end, however they do. What is
counted per key is not counted where no keys are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.protocols.http.call import Call, HttpRefused, Slot
from jobyard.protocols.topics.api_keys import Key
from jobyard.protocols.topics.find import is_topic

if TYPE_CHECKING:
    from jobyard.protocols.topics.door import TopicsDoor

_RETRY: Final = b"Retry-After: 1\r\n"
# How long a sum of all bytes is good for; what is written meanwhile is added to it.
SUM_MS: Final = 1000


def throttled(limit: str, most: i64) -> HttpRefused:
    """Return the refusal of one more than there may be."""
    detail: dict[str, object] = {"limit": limit, "max": int(most)}
    return HttpRefused(429, "throttled", f"{limit} is {most}", detail, _RETRY)


def check_topics(door: TopicsDoor, more: i64 = 1) -> None:
    """Refuse so many more topics than there may be."""
    yard = door.yard
    most = door.limits.topics
    if most == 0 or len(yard.logs) + len(yard.queues) + more <= most:
        return
    # Queues that nobody put anything into count for no door but their own.
    if len(yard.logs) + sum(is_topic(queue) for queue in yard.queues.values()) + more > most:
        raise throttled("max_topics", most)


def check_routers(door: TopicsDoor) -> None:
    """Refuse one more router than there may be."""
    most = door.limits.routers
    if 0 < most <= len(door.yard.routers.by_name):
        raise throttled("max_routers", most)


def check_watches(door: TopicsDoor) -> None:
    """Refuse one more watch than there may be."""
    most = door.limits.watches
    if 0 < most <= len(door.watches):
        raise throttled("max_watch_sessions", most)


def check_bytes(door: TopicsDoor, size: i64, now_ms: i64) -> None:
    """Refuse a write of more bytes than there may be in all topics together."""
    limits = door.limits
    most = limits.total_bytes
    if most == 0:
        return
    if now_ms >= limits.sum_until_ms:
        limits.bytes_sum = _sum_bytes(door)
        limits.sum_until_ms = now_ms + SUM_MS
    if limits.bytes_sum + size > most:
        raise throttled("max_total_bytes", most)
    limits.bytes_sum += size


def _sum_bytes(door: TopicsDoor) -> i64:
    found: i64 = 0
    for log in door.yard.logs.values():
        found += log.bytes
    for queue in door.yard.queues.values():
        # One without a roster was never used as a topic; one that is long has one in any case.
        if queue.roster is not None and is_topic(queue):
            found += queue.roster.bytes
    return found


@final
class StreamSlot(Slot):
    """One stream of events or of columns, or one socket."""

    def __init__(self, door: TopicsDoor, call: Call) -> None:
        limits = door.limits
        if 0 < limits.streams <= limits.streams_count:
            raise throttled("max_sse_connections", limits.streams)
        identity = call.identity
        self._key = identity if isinstance(identity, Key) else None
        self._limits = limits
        if self._key is not None:
            if 0 < limits.streams_per_key <= self._key.streams_count:
                raise throttled("max_sse_connections_per_key", limits.streams_per_key)
            self._key.streams_count += 1
        limits.streams_count += 1

    def free(self) -> None:
        """Make room for another."""
        self._limits.streams_count -= 1
        if self._key is not None:
            self._key.streams_count -= 1


@final
class WaitSlot(Slot):
    """One call that is not answered at once."""

    def __init__(self, key: Key) -> None:
        self._key = key
        key.waiting_count += 1

    def free(self) -> None:
        """Make room for another."""
        self._key.waiting_count -= 1


def hold_wait(door: TopicsDoor, call: Call) -> None:
    """Count a call that is about to wait; refuse one more than its key may have waiting."""
    key = call.identity
    if isinstance(key, Key):
        most = door.limits.waiting_per_key
        if 0 < most <= key.waiting_count:
            raise throttled("max_inflight_per_key", most)
        call.slot = WaitSlot(key)


def hold_stream(door: TopicsDoor, call: Call) -> None:
    """Count a call that is about to become a stream, or refuse it."""
    call.slot = StreamSlot(door, call)
