"""The topics API alone, without a socket, on connections whose turns the test ends."""

from typing import Any

from jobyard.journal.storage import Storage
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.http.routes import Routes
from jobyard.protocols.topics.api import TopicsArea
from jobyard.protocols.topics.api_keys import read_keys
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.routes import install
from tests.support.clients.streams import Line
from tests.support.site.facts import CountedRandomSource
from tests.support.site.site import Site


class StreamsSite(Site):
    """A yard with its HTTP door."""

    def __init__(
        self,
        keys: str = "",
        storage: Storage | None = None,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(storage, window=window)
        self.door = TopicsDoor(self.yard, self.now_ms)
        self.door.random_source = CountedRandomSource()
        self.door.keys = read_keys(keys)
        routes = Routes(TopicsArea(self.door))
        install(routes, self.door)
        self.http = HttpDoor(self.yard, routes, Stopwatch())

    def connect(self, key: str = "") -> Line:
        """Open a connection."""
        return Line(self, HttpEntrance(self.http), key)

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> tuple[int, Any]:
        """Send one request on a new connection."""
        return self.connect(key).call(method, path, body)

    def write(self, topic: str, *data: object, **more: object) -> Any:
        """Write records, and return the answer."""
        records = [{"data": one, **more} for one in data]
        status, answer = self.ask("POST", f"/v0/topics/{topic}", {"records": records})
        assert status in (200, 201), answer
        return answer

    def read(self, topic: str) -> list[dict[str, Any]]:
        """Return all records of a topic."""
        asked = {"limit": 1000, "include_tags": True}
        status, answer = self.ask("POST", f"/v0/topics/{topic}/diff", asked)
        assert status == 200, answer
        found: list[dict[str, Any]] = answer["records"]
        return found

    def commit(self) -> None:
        """Sync everything, and notify the readers that wait for it."""
        super().commit()
        self.yard.watchers.look(self.yard.journal.history.next_durable)
