"""The HTTP port without a socket: sessions over a yard with all routes, on a clock tests move.

`BareTopics` is the port of one boot; its callers send whole requests and read whole answers, or the
events of a stream. The doors of beanstalk and bunqueue are open too, so that jobs can cross over.
"""

from jobyard.journal.storage import Storage
from jobyard.protocols.http.door import Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.topics.api_keys import read_keys
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.server.http import open_http
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.topics import TopicsClient
from tests.support.doors.bunqueue import SEGMENT_SIZE, BunqueueStand
from tests.support.site.site import BUDGET, NOW_MS, Site


class BareTopics(Site):
    """Yard and HTTP port of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        keys: str = "",
        budget: int = BUDGET,
        ids_ahead: bool = False,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(
            storage,
            now_ms,
            segment_size=SEGMENT_SIZE,
            budget=budget,
            ids_ahead=ids_ahead,
            window=window,
        )
        self.others = BunqueueStand(self)
        self.topics = TopicsDoor(self.yard, now_ms)
        self.topics.keys = read_keys(keys)
        self.door = open_http(self.yard, self.others.door, self.topics, Stopwatch())
        self.entrance = HttpEntrance(self.door)
        self._caller: TopicsClient | None = None

    @property
    def api(self) -> TopicsClient:
        """Return the shared connection."""
        if self._caller is None or not self._caller.is_open:
            self._caller = self.connect()
        return self._caller

    def connect(self, key: str = "") -> TopicsClient:
        """Open a connection."""
        return TopicsClient(self, self.entrance, key)

    def bunqueue(self) -> BunqueueClient:
        """Open a connection to the bunqueue door."""
        return self.others.connect()

    def timers(self) -> int:
        """Return how many timers are set."""
        return len(self.yard.timers.items)
