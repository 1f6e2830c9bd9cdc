"""Resource limits of the topics API, and the refusals of calls that exceed them.

Streams and waiting calls hold a slot and always free it when they end. Limits per key apply only
if API keys are configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.model.queue import is_topic
from jobyard.protocols.http.call import HttpCall, HttpRefused, Slot
from jobyard.protocols.topics.api_keys import ApiKey

if TYPE_CHECKING:
    from jobyard.protocols.topics.door import TopicsDoor

_RETRY: Final = b"Retry-After: 1\r\n"
# How long the sum of all bytes is used before it is computed again; writes are added meanwhile.
SUM_MS: Final = 1000
# Cursors of one topic.
CURSORS_OF_TOPIC_MAX: Final = 1000


def throttled(limit: str, most: i64) -> HttpRefused:
    """Return the refusal of a call that exceeds a limit."""
    detail: dict[str, object] = {"limit": limit, "max": int(most)}
    return HttpRefused(429, "throttled", f"the limit {limit} of {most} is reached", detail, _RETRY)


def check_topics(door: TopicsDoor, more: i64 = 1) -> None:
    """Refuse to create `more` topics beyond the limit."""
    yard = door.yard
    most = door.limits.topics
    if most == 0 or len(yard.logs) + len(yard.queues) + more <= most:
        return
    # Queues that other doors opened and never put a job into do not count.
    if len(yard.logs) + sum(is_topic(queue) for queue in yard.queues.values()) + more > most:
        raise throttled("max_topics", most)


def check_routers(door: TopicsDoor) -> None:
    """Refuse to create a router beyond the limit."""
    most = door.limits.routers
    if 0 < most <= len(door.yard.routers.by_name):
        raise throttled("max_routers", most)


def check_cursors(door: TopicsDoor, topic: str, of_topic: i64 = 1, in_all: i64 = 1) -> None:
    """Refuse to create cursors beyond the limits: some of a topic, and in all."""
    cursors = door.yard.cursors
    if cursors.count_of(topic) + of_topic > CURSORS_OF_TOPIC_MAX:
        raise throttled("cursors_of_topic", CURSORS_OF_TOPIC_MAX)
    most = door.limits.cursors
    if most > 0 and cursors.count + in_all > most:
        raise throttled("max_cursors", most)


def check_watches(door: TopicsDoor) -> None:
    """Refuse to create a watch beyond the limit."""
    most = door.limits.watches
    if 0 < most <= len(door.watches):
        raise throttled("max_watch_sessions", most)


def check_bytes(door: TopicsDoor, size: i64, now_ms: i64) -> None:
    """Refuse a write that exceeds the limit on the bytes of all topics together."""
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
        # A queue without jobs by seq was never used as a topic; long queues always have them.
        if queue.jobs_by_seq is not None and is_topic(queue):
            found += queue.jobs_by_seq.bytes
    # What a commit writes stops being staged at the same moment.
    return found + door.yard.txns.staged_bytes


@final
class StreamSlot(Slot):
    """Slot of an event stream, an export or a socket."""

    def __init__(self, door: TopicsDoor, call: HttpCall) -> None:
        limits = door.limits
        if 0 < limits.streams <= limits.streams_count:
            raise throttled("max_sse_connections", limits.streams)
        identity = call.identity
        self._key = identity if isinstance(identity, ApiKey) else None
        self._limits = limits
        if self._key is not None:
            if 0 < limits.streams_per_key <= self._key.streams_count:
                raise throttled("max_sse_connections_per_key", limits.streams_per_key)
            self._key.streams_count += 1
        limits.streams_count += 1

    def free(self) -> None:
        """Free the slot."""
        self._limits.streams_count -= 1
        if self._key is not None:
            self._key.streams_count -= 1


@final
class WaitSlot(Slot):
    """Slot of a call that waits for its answer."""

    def __init__(self, key: ApiKey) -> None:
        self._key = key
        key.waiting_count += 1

    def free(self) -> None:
        """Free the slot."""
        self._key.waiting_count -= 1


def hold_wait(door: TopicsDoor, call: HttpCall) -> None:
    """Count a call that is about to wait; refuse it if its key has too many waiting calls."""
    key = call.identity
    if isinstance(key, ApiKey):
        most = door.limits.waiting_per_key
        if 0 < most <= key.waiting_count:
            raise throttled("max_inflight_per_key", most)
        call.slot = WaitSlot(key)


def hold_stream(door: TopicsDoor, call: HttpCall) -> None:
    """Count a call that is about to become a stream; refuse it if there are too many."""
    call.slot = StreamSlot(door, call)
