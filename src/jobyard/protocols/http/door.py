"""State that all HTTP connections share: the yard, the routes, a stopwatch and limits."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.yard import Yard
from jobyard.protocols.http.origins import AllowedOrigins
from jobyard.protocols.http.proxies import Proxies
from jobyard.protocols.http.routes import Routes
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, SharedLimits
from jobyard.wire.http.response import http_date

BODY_MAX: Final = 64 << 20
# Browsers must not guess another type than the Content-Type.
_NO_SNIFFING: Final = b"X-Content-Type-Options: nosniff\r\n"


@mypyc_attr(allow_interpreted_subclasses=True)
class Stopwatch:
    """Measures how long answers take; this base class always returns 0, for replays."""

    def read_us(self) -> i64:
        """Return microseconds since an arbitrary start."""
        return 0

    def sync_us(self) -> i64:
        """Return the recent mean duration of a disk sync; 0 if nothing is synced."""
        return 0


@final
class HttpDoor:
    """The HTTP port of one yard."""

    def __init__(self, yard: Yard, routes: Routes, stopwatch: Stopwatch) -> None:
        self.yard = yard
        self.routes = routes
        self.stopwatch = stopwatch
        self.pages = AllowedOrigins()
        self.proxies = Proxies()
        self.shared_limits = SharedLimits(MEMORY_DEFAULT)
        self.body_max: i64 = BODY_MAX
        self.is_draining: bool = False
        self.sessions_count: i64 = 0
        self.requests_count: i64 = 0
        # How long a connection may be idle between requests; 0: no limit.
        self.idle_ms: i64 = 0
        # Header lines of every answer, valid until the next second begins.
        self.common: bytes = _NO_SNIFFING
        self.common_until_ms: i64 = 0

    def set_date(self, now_ms: i64) -> None:
        """Update the common header lines for the current second."""
        wall_ms = now_ms + self.yard.journal.wall_offset_ms
        self.common = b"Date: %s\r\n" % http_date(wall_ms).encode() + _NO_SNIFFING
        self.common_until_ms = now_ms + 1000 - wall_ms % 1000
