"""What only a glide-mq job has: its options, its ordering key, its parents.

A plain job of that family has none of this. The part is stored as one field of the job's
`JobDetails`, and every field that a client set itself as one more, so that setting one costs only
its own size. Labels are kept as the client sent them; nothing here interprets them.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from jobyard.model.throttle.ordering_throttle import NO_LIMITS, OrderingLimits, OrderingThrottle


@final
class GlideFlag:
    """Flags of a glide-mq job."""

    REVOKED: Final = 1
    # It waits for a signal.
    SUSPENDED: Final = 2
    # It waits for children that are still to come.
    EXPECTANT: Final = 4


# The cost of a job without a given cost, in thousandths of a token.
COST_DEFAULT: Final = 1000

_NUMBERS: Final = 9
_TEXTS: Final = 7


@final
class GlidePart:
    """The rare fields of one glide-mq job."""

    def __init__(self) -> None:
        # The options as given, if only this job has them; otherwise its policy has them.
        self.opts: bytes = b""
        self.ordering_key: str = ""
        self.limits: OrderingLimits = NO_LIMITS
        # Its number among the jobs of its ordering group.
        self.order: i64 = 0
        # As given; 0 for not given.
        self.cost: i64 = 0
        self.flags: i64 = 0
        # When a job that waits for a signal stops waiting; 0 for never.
        self.until_ms: i64 = 0
        self.parent_id: str = ""
        self.parent_queue: str = ""
        self.parent_ids: str = ""
        self.parent_queues: str = ""
        self.scheduler: str = ""
        # Fields that a client set directly; None until the first.
        self.overlay: dict[bytes, bytes] | None = None
        # Not stored: its ordering group, and whether it is in its ready list or waits in the group.
        self.ordering: OrderingThrottle | None = None
        self.is_standing: bool = False

    def due_cost(self) -> i64:
        """Return the number of thousandths of a token that the job costs."""
        return self.cost if self.cost > 0 else COST_DEFAULT

    def encode(self) -> bytes:
        """Return all fields except the overlay."""
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
            self.ordering_key.encode(),
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
        """Return a copy without the overlay."""
        part = GlidePart()
        part.fill(self.encode(), 0, 0)
        return part

    def fill(self, data: bytes, at: i64, offset_ms: i64) -> None:
        """Decode what `encode` wrote at `at`; times in it are moved by `offset_ms`."""
        self.order = read_i64_le(data, at)
        self.cost = read_i64_le(data, at + 8)
        self.flags = read_i64_le(data, at + 16)
        self.until_ms = read_i64_le(data, at + 24)
        if self.until_ms != 0:
            self.until_ms += offset_ms
        limits = OrderingLimits(
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
        self.ordering_key = texts[1].decode()
        self.parent_id = texts[2].decode()
        self.parent_queue = texts[3].decode()
        self.parent_ids = texts[4].decode()
        self.parent_queues = texts[5].decode()
        self.scheduler = texts[6].decode()

    def set_field(self, name: bytes, value: bytes | None) -> None:
        """Set a field of the overlay, or remove it."""
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
