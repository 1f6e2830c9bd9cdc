"""What a job of glide-mq has beyond any other: its options, its lane, whose child it is.

A plain job of that family has none of this. The part is remembered as one field of the job's
`Extra`, and every field a client set by itself as one more, so that setting one costs its own size.
Labels are what a client wrote; nothing here says what is done with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

if TYPE_CHECKING:
    from jobyard.model.throttle.ordering_group import Lane

# Flags of a part.
REVOKED: Final = 1
# It waits for a signal.
SUSPENDED: Final = 2
# It waits for children that are still to come.
EXPECTANT: Final = 4

# What a job costs of whom nothing was said, in thousandths of a token.
COST_DEFAULT: Final = 1000

# Limits beyond this are none; products with a second of milliseconds stay within 64 bits.
LIMIT_MAX: Final = 1 << 52

_NUMBERS: Final = 9
_TEXTS: Final = 7


@final
class LaneLimits:
    """How many jobs of a lane may run at once and how fast they may start; 0 for no limit."""

    def __init__(
        self, concurrency: i64, rate_most: i64, rate_ms: i64, capacity: i64, refill: i64
    ) -> None:
        self.concurrency: i64 = min(max(concurrency, 0), LIMIT_MAX)
        self.rate_most: i64 = min(max(rate_most, 0), LIMIT_MAX)
        self.rate_ms: i64 = min(max(rate_ms, 0), LIMIT_MAX)
        # Of the bucket, in thousandths of a token; what flows into it in a second.
        self.capacity: i64 = min(max(capacity, 0), LIMIT_MAX)
        self.refill: i64 = min(max(refill, 0), LIMIT_MAX)

    def equals(self, other: LaneLimits) -> bool:
        """Tell whether two say the same."""
        return (
            self.concurrency == other.concurrency
            and self.rate_most == other.rate_most
            and self.rate_ms == other.rate_ms
            and self.capacity == other.capacity
            and self.refill == other.refill
        )

    def is_sequential(self) -> bool:
        """Tell whether jobs run one by one, in the order they were put, and nothing else counts."""
        return self.concurrency <= 1 and self.rate_most == 0 and self.capacity == 0


NO_LIMITS: Final = LaneLimits(0, 0, 0, 0, 0)


@final
class GlidePart:
    """The rare parts of one job of glide-mq."""

    def __init__(self) -> None:
        # The options as given, where they are of this job alone; else its policy has them.
        self.opts: bytes = b""
        self.lane_key: str = ""
        self.limits: LaneLimits = NO_LIMITS
        # Its number among the jobs of its lane.
        self.order: i64 = 0
        # As given: 0 where nothing was said.
        self.cost: i64 = 0
        self.flags: i64 = 0
        # When a job that waits for a signal gives up; 0 for never.
        self.until_ms: i64 = 0
        self.parent_id: str = ""
        self.parent_queue: str = ""
        self.parent_ids: str = ""
        self.parent_queues: str = ""
        self.scheduler: str = ""
        # Fields a client set by itself; None until the first.
        self.overlay: dict[bytes, bytes] | None = None
        # Not remembered: its lane, and whether it stands on its shelf or behind others there.
        self.lane: Lane | None = None
        self.is_standing: bool = False

    def due_cost(self) -> i64:
        """Return what the job takes out of a bucket."""
        return self.cost if self.cost > 0 else COST_DEFAULT

    def encode(self) -> bytes:
        """Return all but the overlay."""
        out = BytesWriter()
        limits = self.limits
        for number in (
            self.order,
            self.cost,
            self.flags,
            self.until_ms,
            limits.concurrency,
            limits.rate_most,
            limits.rate_ms,
            limits.capacity,
            limits.refill,
        ):
            write_i64_le(out, i64(number))
        texts = (
            self.opts,
            self.lane_key.encode(),
            self.parent_id.encode(),
            self.parent_queue.encode(),
            self.parent_ids.encode(),
            self.parent_queues.encode(),
            self.scheduler.encode(),
        )
        for text in texts:
            write_i32_le(out, i32(len(text)))
        for text in texts:
            out.write(text)
        return out.getvalue()

    def copy(self) -> GlidePart:
        """Return another of the same, without its overlay."""
        part = GlidePart()
        part.fill(self.encode(), 0, 0)
        return part

    def fill(self, data: bytes, at: i64, offset_ms: i64) -> None:
        """Take on what `encode` wrote down at `at`; times in it are moved by `offset_ms`."""
        self.order = read_i64_le(data, at)
        self.cost = read_i64_le(data, at + 8)
        self.flags = read_i64_le(data, at + 16)
        self.until_ms = read_i64_le(data, at + 24)
        if self.until_ms != 0:
            self.until_ms += offset_ms
        limits = LaneLimits(
            read_i64_le(data, at + 32),
            read_i64_le(data, at + 40),
            read_i64_le(data, at + 48),
            read_i64_le(data, at + 56),
            read_i64_le(data, at + 64),
        )
        if not self.limits.equals(limits):
            self.limits = limits
        sizes: i64 = at + 8 * _NUMBERS
        start: i64 = sizes + 4 * _TEXTS
        texts: list[bytes] = []
        for i in range(_TEXTS):
            end: i64 = start + i64(read_i32_le(data, sizes + 4 * i))
            texts.append(data[start:end])
            start = end
        self.opts = texts[0]
        self.lane_key = texts[1].decode()
        self.parent_id = texts[2].decode()
        self.parent_queue = texts[3].decode()
        self.parent_ids = texts[4].decode()
        self.parent_queues = texts[5].decode()
        self.scheduler = texts[6].decode()

    def set_field(self, name: bytes, value: bytes | None) -> None:
        """Set a field of the overlay, or take it out."""
        overlay = self.overlay
        if overlay is None:
            if value is None:
                return
            overlay = {}
            self.overlay = overlay
        if value is not None:
            overlay[name] = value
            return
        overlay.pop(name, None)
        if not overlay:
            self.overlay = None
