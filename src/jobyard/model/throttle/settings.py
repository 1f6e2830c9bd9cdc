"""Limits on taking the jobs of a queue: the pause flag, concurrency and rate limits, groups.

A queue has `Rules` only once one was set. Settings are stored as a whole; the level of a bucket is
not: after a restart it starts empty, so that a restart never lets more jobs through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.model.index.heap import Heap
from jobyard.model.limits import NEVER_MS

if TYPE_CHECKING:
    from jobyard.model.throttle.ready_lists import ReadyLists

NO_LIMIT: Final = -1

DAY_MS: Final = 86_400_000


@final
class Bucket:
    """A token bucket: `most` jobs in `per_ms`, refilled continuously.

    Its level is counted in job-milliseconds (a job costs `per_ms` of them), so no fraction is lost.
    """

    def __init__(self, most: i64, per_ms: i64) -> None:
        self.most: i64 = most
        self.per_ms: i64 = per_ms
        self._level: i64 = 0
        self._since_ms: i64 = 0

    def fill(self, now_ms: i64) -> None:
        """Start full."""
        self._level = self.most * self.per_ms
        self._since_ms = now_ms

    def begin(self, now_ms: i64) -> None:
        """Start empty."""
        self._level = 0
        self._since_ms = now_ms

    def has_one(self, now_ms: i64) -> bool:
        """Return whether one job may pass now."""
        self._refill(now_ms)
        return self._level >= self.per_ms and self.most > 0

    def take_one(self) -> None:
        """Let one job pass."""
        self._level -= self.per_ms

    def next_ms(self, now_ms: i64) -> i64:
        """Return when the next job may pass."""
        if self.most <= 0:
            return NEVER_MS
        self._refill(now_ms)
        missing = self.per_ms - self._level
        return now_ms if missing <= 0 else now_ms + (missing + self.most - 1) // self.most

    def _refill(self, now_ms: i64) -> None:
        if now_ms > self._since_ms and self.most > 0:
            # More time than fills the bucket does not count; so the product stays within 64 bits.
            passed = min(now_ms - self._since_ms, self.per_ms)
            self._level = min(self.most * self.per_ms, self._level + passed * self.most)
            self._since_ms = now_ms


@final
class Group:
    """Ready jobs of one group, served in turn with the other groups of the queue."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.ready = Heap()
        self.leased_count: i64 = 0
        # Jobs of the group that have not ended.
        self.jobs_count: i64 = 0
        # Set by name, and stored.
        self.concurrency: i64 = NO_LIMIT
        self.rate_most: i64 = NO_LIMIT
        self.rate_ms: i64 = 0
        self.is_paused: bool = False
        # Not stored.
        self.closed_until_ms: i64 = 0
        self.bucket: Bucket | None = None
        # Defaults sent by a puller; values set by name take precedence.
        self.default_concurrency: i64 = NO_LIMIT
        self.default_bucket: Bucket | None = None

    def is_plain(self) -> bool:
        """Return whether nothing was set for it."""
        return self.concurrency < 0 and self.rate_most < 0 and not self.is_paused

    def limit(self) -> i64:
        """Return how many of its jobs may run at once."""
        return self.concurrency if self.concurrency >= 0 else self.default_concurrency

    def rate(self) -> Bucket | None:
        """Return its rate limit."""
        return self.bucket if self.bucket is not None else self.default_bucket

    def encode(self) -> bytes:
        """Return what was set by name."""
        return encode_numbers(
            (self.concurrency, self.rate_most, self.rate_ms, 1 if self.is_paused else 0)
        )

    def fill(self, data: bytes, now_ms: i64) -> None:
        """Decode what `encode` wrote."""
        self.concurrency = read_i64_le(data, 0)
        self.set_rate(read_i64_le(data, 8), read_i64_le(data, 16))
        self.is_paused = read_i64_le(data, 24) != 0
        if self.bucket is not None:
            self.bucket.begin(now_ms)

    def set_rate(self, most: i64, per_ms: i64) -> None:
        """Set its rate limit; a negative number removes it."""
        self.rate_most = most
        self.rate_ms = per_ms
        self.bucket = Bucket(most, per_ms) if most >= 0 else None


@final
class Settings:
    """What clients set for a queue, field by field."""

    def __init__(self) -> None:
        self.is_paused: bool = False
        self.concurrency: i64 = NO_LIMIT
        self.rate_most: i64 = NO_LIMIT
        self.rate_ms: i64 = 0
        # Wall time after which the rate limit ends; 0: never.
        self.rate_until_ms: i64 = 0
        self.stalls_on: bool = True
        self.stall_ms: i64 = 30_000
        self.stalls_max: i64 = 3
        self.stall_grace_ms: i64 = 5_000
        self.dead_auto_retry: bool = False
        self.dead_retry_ms: i64 = 3_600_000
        self.dead_retries_max: i64 = 3
        # -1: forever.
        self.dead_age_ms: i64 = 7 * DAY_MS
        self.dead_max: i64 = 10_000

    def encode(self) -> bytes:
        """Return all fields, equal bytes for equal settings."""
        return encode_numbers(
            (
                1 if self.is_paused else 0,
                self.concurrency,
                self.rate_most,
                self.rate_ms,
                self.rate_until_ms,
                1 if self.stalls_on else 0,
                self.stall_ms,
                self.stalls_max,
                self.stall_grace_ms,
                1 if self.dead_auto_retry else 0,
                self.dead_retry_ms,
                self.dead_retries_max,
                self.dead_age_ms,
                self.dead_max,
            )
        )

    def fill(self, data: bytes) -> None:
        """Decode what `encode` wrote."""
        self.is_paused = read_i64_le(data, 0) != 0
        self.concurrency = read_i64_le(data, 8)
        self.rate_most = read_i64_le(data, 16)
        self.rate_ms = read_i64_le(data, 24)
        self.rate_until_ms = read_i64_le(data, 32)
        self.stalls_on = read_i64_le(data, 40) != 0
        self.stall_ms = read_i64_le(data, 48)
        self.stalls_max = read_i64_le(data, 56)
        self.stall_grace_ms = read_i64_le(data, 64)
        self.dead_auto_retry = read_i64_le(data, 72) != 0
        self.dead_retry_ms = read_i64_le(data, 80)
        self.dead_retries_max = read_i64_le(data, 88)
        self.dead_age_ms = read_i64_le(data, 96)
        self.dead_max = read_i64_le(data, 104)


DEFAULTS: Final = Settings()


def encode_numbers(numbers: tuple[i64, ...]) -> bytes:
    """Return the numbers one after the other."""
    out = BytesWriter()
    for number in numbers:
        write_i64_le(out, number)
    return out.getvalue()


@final
class Rules:
    """The limits on taking the jobs of one queue."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.bucket: Bucket | None = None
        self.groups: dict[str, Group] = {}
        # Groups with ready jobs, next to be served first.
        self.ring: list[Group] = []
        # Made by the first glide-mq job in a ready list other than the stream.
        self.ready_lists: ReadyLists | None = None

    def group(self, name: str) -> Group:
        """Return a group, making it on first use."""
        group = self.groups.get(name)
        if group is None:
            group = Group(name)
            self.groups[name] = group
        return group

    def forget_idle(self, group: Group) -> None:
        """Drop a group that has no jobs, no settings, and is not paused."""
        if (
            group.jobs_count == 0
            and group.leased_count == 0
            and group.is_plain()
            and group.closed_until_ms == 0
        ):
            self.groups.pop(group.name, None)
