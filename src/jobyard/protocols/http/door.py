"""What all HTTP connections share: the yard, the routes, a stopwatch and limits."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.yard import Yard
from jobyard.protocols.http.origins import Pages
from jobyard.protocols.http.proxies import Proxies
from jobyard.protocols.http.routes import Routes
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, Guard
from jobyard.wire.http.response import http_date

BODY_MAX: Final = 64 << 20
# What an answer says it is, it is.
_NO_SNIFFING: Final = b"X-Content-Type-Options: nosniff\r\n"
HEAD_MS_MAX: Final = 10_000
BODY_GRACE_MS: Final = 10_000
# Slower than this, and nobody is sending a body but somebody is holding a connection.
BODY_BYTES_PER_S: Final = 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Stopwatch:
    """Measures how long answers take; one that stands still replays."""

    def read_us(self) -> i64:
        """Return microseconds since some moment."""
        return 0

    def sync_us(self) -> i64:
        """Return how long a sync of the disk takes these days; 0 where nothing is synced."""
        return 0


@final
class HttpDoor:
    """The HTTP port of one yard."""

    def __init__(self, yard: Yard, routes: Routes, stopwatch: Stopwatch) -> None:
        self.yard = yard
        self.routes = routes
        self.stopwatch = stopwatch
        self.pages = Pages()
        self.proxies = Proxies()
        self.guard = Guard(MEMORY_DEFAULT)
        self.body_max: i64 = BODY_MAX
        self.is_draining: bool = False
        self.sessions_count: i64 = 0
        self.requests_count: i64 = 0
        # How long a connection may be idle between requests; 0 for ever.
        self.idle_ms: i64 = 0
        # What stands in the head of every answer, until the next second begins.
        self.common: bytes = _NO_SNIFFING
        self.common_until_ms: i64 = 0

    def set_date(self, now_ms: i64) -> None:
        """Make the lines of every answer for the second that has begun."""
        wall_ms = now_ms + self.yard.journal.wall_offset_ms
        self.common = b"Date: %s\r\n" % http_date(wall_ms).encode() + _NO_SNIFFING
        self.common_until_ms = now_ms + 1000 - wall_ms % 1000
