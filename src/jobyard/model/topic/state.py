"""The state of a queue beyond its jobs, because it is used as a topic.

Nothing here decides what happens to a job. Floors only rise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.model.index.recent_keys import RecentKeys

if TYPE_CHECKING:
    from jobyard.model.index.item import Item
    from jobyard.model.topic.key_table import KeyTable
    from jobyard.model.topic.log import RecordForwarder


@final
class KeyedWrite:
    """The outcome of a write with a key, so that a repeated write gets the same answer."""

    def __init__(self, first_seq: i64, count: i64, until_ms: i64, batch: i64) -> None:
        self.first_seq: i64 = first_seq
        self.count: i64 = count
        # By the configuration at the time of the write.
        self.until_ms: i64 = until_ms
        # The batch that an answer about it waits for; 0 for one of an earlier boot.
        self.batch: i64 = batch


@final
class TopicState:
    """The topic state of one queue."""

    def __init__(self) -> None:
        # Writes by their key, oldest first.
        self.writes: RecentKeys[KeyedWrite] = RecentKeys()
        # The keys of records; None if none ever had one.
        self.record_keys: KeyTable | None = None
        # Below these, jobs were lost that no client deleted: by cap, or by age.
        self.cap_floor: i64 = 1
        self.ttl_floor: i64 = 1
        # Jobs that became dead letters since the queue was made.
        self.dead_lettered: i64 = 0
        # When it was last written or read as a topic, since the server started.
        self.last_write_ms: i64 = 0
        self.last_read_ms: i64 = 0
        # Fires when the oldest job expires.
        self.alarm: Item | None = None
        # The claims that wait to be served together.
        self.claim_window: Item | None = None
        # The routers that lead away from it; None for none.
        self.onward: RecordForwarder | None = None

    def encode_floors(self) -> bytes:
        """Return both floors and the dead-letter count in their stored form."""
        out = BytesWriter()
        write_i64_le(out, self.cap_floor)
        write_i64_le(out, self.ttl_floor)
        write_i64_le(out, self.dead_lettered)
        return out.getvalue()

    def fill_floors(self, data: bytes) -> None:
        """Decode what `encode_floors` wrote."""
        self.cap_floor = read_i64_le(data, 0)
        self.ttl_floor = read_i64_le(data, 8)
        self.dead_lettered = read_i64_le(data, 16)
