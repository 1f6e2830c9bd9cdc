"""What all callers of the topics API share."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.topic.router import Printer
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, Guard
from jobyard.protocols.topics.records.news import QueueNews
from jobyard.wire.payload import to_json

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.protocols.topics.api_keys import Key
    from jobyard.protocols.topics.follow.watch import Watch


@mypyc_attr(allow_interpreted_subclasses=True)
class Lots:
    """Draws what nobody can guess; one that counts replays."""

    def draw(self, size: i64) -> bytes:
        """Return so many random bytes."""
        raise NotImplementedError


@final
class Limits:
    """How much of each there may be, 0 for no limit; and how much of some there is."""

    def __init__(self) -> None:
        self.topics: i64 = 100_000
        self.routers: i64 = 10_000
        self.watches: i64 = 10_000
        self.streams: i64 = 10_000
        self.streams_per_key: i64 = 1000
        self.waiting_per_key: i64 = 1000
        self.total_bytes: i64 = 0
        # Of all bytes: the sum, and until when it is good.
        self.bytes_sum: i64 = 0
        self.sum_until_ms: i64 = 0
        self.streams_count: i64 = 0


@final
class JobPrinter(Printer):
    """Shows bodies of jobs as the API does."""

    def json_of(self, codec: i64, body: bytes) -> bytes:
        """Return a body that is no JSON as JSON."""
        return to_json(codec, body)


@final
class TopicsDoor:
    """The topics API of one yard."""

    def __init__(self, yard: Yard, now_ms: i64) -> None:
        self.yard = yard
        yard.routers.printer = JobPrinter()
        self.started_ms: i64 = now_ms
        self.guard = Guard(MEMORY_DEFAULT)
        # None: everybody may do everything.
        self.keys: list[Key] = []
        # Whoever asks whether the server is well must show a key too.
        self.guards_probes: bool = False
        self.lots = Lots()
        self.news = QueueNews(yard.bus)
        self.watches: dict[str, Watch] = {}
        self.limits = Limits()
        # Exports take turns: when the last page was made, and the first time nobody waits for.
        self.exported_ms: i64 = 0
        self.export_free_ms: i64 = 0

    def wall_ms(self, steady_ms: i64) -> i64:
        """Return a steady time as the clock on the wall shows it."""
        return steady_ms + self.yard.journal.wall_offset_ms
