"""What all HTTP connections share: the yard, the routes, a stopwatch and limits."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.yard import Yard
from jobyard.sessions.guard import MEMORY_DEFAULT, Guard
from jobyard.sessions.http.pages import Pages
from jobyard.sessions.http.routes import Routes

BODY_MAX: Final = 64 << 20
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
        self.guard = Guard(MEMORY_DEFAULT)
        self.body_max: i64 = BODY_MAX
        self.is_draining: bool = False
        self.sessions_count: i64 = 0
        self.requests_count: i64 = 0
