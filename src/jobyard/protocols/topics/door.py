"""State that all calls of the topics API share."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.topic.router import Printer
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, SharedLimits
from jobyard.protocols.topics.records.news import QueueReaders
from jobyard.wire.payload import to_json

if TYPE_CHECKING:
    from jobyard.engine.state.timers import Alarm
    from jobyard.engine.state.yard import Yard
    from jobyard.protocols.topics.api_keys import ApiKey
    from jobyard.protocols.topics.export.packing import PagePacker


@mypyc_attr(allow_interpreted_subclasses=True)
class RandomSource:
    """Source of unpredictable bytes; the simulator uses a counter, so that runs can be replayed."""

    def draw(self, size: i64) -> bytes:
        """Return `size` random bytes."""
        raise NotImplementedError


@final
class TopicsLimits:
    """Limits, where 0 means no limit, and some of the current counts."""

    def __init__(self) -> None:
        self.topics: i64 = 100_000
        self.routers: i64 = 10_000
        self.watches: i64 = 10_000
        self.cursors: i64 = 10_000
        self.streams: i64 = 10_000
        self.streams_per_key: i64 = 1000
        self.waiting_per_key: i64 = 1000
        self.total_bytes: i64 = 0
        # The sum of all bytes, and until when it is used.
        self.bytes_sum: i64 = 0
        self.sum_until_ms: i64 = 0
        self.streams_count: i64 = 0


@final
class JobPrinter(Printer):
    """Converts job bodies to JSON, as the API shows them."""

    def json_of(self, codec: i64, body: bytes) -> bytes:
        """Return a body of another codec as JSON."""
        return to_json(codec, body)


@final
class TopicsDoor:
    """The topics API of one yard."""

    def __init__(self, yard: Yard, now_ms: i64) -> None:
        self.yard = yard
        yard.routers.printer = JobPrinter()
        self.started_ms: i64 = now_ms
        self.shared_limits = SharedLimits(MEMORY_DEFAULT)
        # Empty: no key is required.
        self.keys: list[ApiKey] = []
        # Require a key on the health endpoints too.
        self.guards_probes: bool = False
        self.random_source = RandomSource()
        self.queue_readers = QueueReaders(yard.bus)
        self.watches: dict[str, Alarm] = {}
        self.limits = TopicsLimits()
        # What compresses exports, by the name of the codec; empty if nothing is installed.
        self.packers: dict[str, PagePacker] = {}
        # Exports take turns: when the last page was made, and the first time not yet reserved.
        self.exported_ms: i64 = 0
        self.export_free_ms: i64 = 0

    def wall_ms(self, steady_ms: i64) -> i64:
        """Convert a steady time to wall-clock time."""
        return steady_ms + self.yard.journal.wall_offset_ms
