"""What is remembered of a queue beyond its jobs, because it is used as a topic.

Nothing here says what becomes of a job. Floors only rise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.model.index.recent_keys import RecentKeys

if TYPE_CHECKING:
    from jobyard.model.index.item import Item
    from jobyard.model.topic.log import Onward


@final
class Write:
    """What a write with a key came to, so that the same write again is answered alike."""

    def __init__(self, first_seq: i64, count: i64, until_ms: i64, batch: i64) -> None:
        self.first_seq: i64 = first_seq
        self.count: i64 = count
        # By what was configured when it was made.
        self.until_ms: i64 = until_ms
        # The batch an answer about it waits for; 0 for one of an earlier boot.
        self.batch: i64 = batch


@final
class Stock:
    """The topic side of one queue."""

    def __init__(self) -> None:
        # Writes by their key, oldest first.
        self.writes: RecentKeys[Write] = RecentKeys()
        # Below these, jobs were lost that nobody asked to go: for want of room, or by their age.
        self.cap_floor: i64 = 1
        self.ttl_floor: i64 = 1
        # Jobs that became letters, since there is the queue.
        self.dead_lettered: i64 = 0
        # When it was last written to or looked into as a topic, since the server runs.
        self.last_write_ms: i64 = 0
        self.last_read_ms: i64 = 0
        # Rings when the oldest job has outlived its time.
        self.alarm: Item | None = None
        # The claims that wait to be served together.
        self.cohort: Item | None = None
        # The routers that lead away from it; None where none does.
        self.onward: Onward | None = None

    def encode_floors(self) -> bytes:
        """Return both floors, and how many letters there were, as they are remembered."""
        out = BytesWriter()
        write_i64_le(out, self.cap_floor)
        write_i64_le(out, self.ttl_floor)
        write_i64_le(out, self.dead_lettered)
        return out.getvalue()

    def fill_floors(self, data: bytes) -> None:
        """Take on what `encode_floors` wrote down."""
        self.cap_floor = read_i64_le(data, 0)
        self.ttl_floor = read_i64_le(data, 8)
        self.dead_lettered = read_i64_le(data, 16)
