"""The topics API without a socket: a yard, its HTTP door, and any number of connections.

A `Line` is one connection. Its input is served at once; its output is parsed: whole answers,
or the events of a stream.
"""

import json
from typing import Any, NamedTuple

from jobyard.engine.jobs.tick import tick
from jobyard.journal.storage import Storage
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.http.routes import Routes
from jobyard.protocols.session import Peer
from jobyard.protocols.topics.api import TopicsArea
from jobyard.protocols.topics.api_keys import read_keys
from jobyard.protocols.topics.door import RandomSource, TopicsDoor
from jobyard.protocols.topics.routes import install
from tests.support.http_text import dechunked
from tests.support.yards import OpenYard


class CountedRandomSource(RandomSource):
    """A predictable random source."""

    def __init__(self) -> None:
        self.drawn = 0

    def draw(self, size: int) -> bytes:
        self.drawn += 1
        return int(self.drawn).to_bytes(size, "big")


class Ear(Peer):
    """The far end of a connection, which may read slowly."""

    def __init__(self) -> None:
        self.stirs = 0
        self.unsent = 0

    def wake(self) -> None:
        self.stirs += 1

    def unsent_size(self) -> int:
        return self.unsent


class Event(NamedTuple):
    """One event of a stream."""

    id: str
    name: str
    data: Any


class Site:
    """A yard with its HTTP door."""

    def __init__(
        self,
        keys: str = "",
        storage: Storage | None = None,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        self.open = OpenYard(storage, window=window)
        self.yard = self.open.yard
        self.door = TopicsDoor(self.yard, self.open.now_ms)
        self.door.random_source = CountedRandomSource()
        self.door.keys = read_keys(keys)
        routes = Routes(TopicsArea(self.door))
        install(routes, self.door)
        self.http = HttpDoor(self.yard, routes, Stopwatch())

    @property
    def now_ms(self) -> int:
        return self.open.now_ms

    def connect(self, key: str = "") -> "Line":
        return Line(self, key)

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> tuple[int, Any]:
        """Send one request on a new connection."""
        return self.connect(key).ask(method, path, body)

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
        self.open.commit()
        self.yard.watchers.look(self.yard.journal.history.next_durable)

    def pass_ms(self, ms: int) -> None:
        """Let time pass, and fire the timers that are due."""
        self.open.now_ms += ms
        tick(self.yard, self.open.now_ms)


class Line:
    """One connection."""

    def __init__(self, site: Site, key: str = "") -> None:
        self._site = site
        self._key = key
        self.ear = Ear()
        self.session = HttpEntrance(site.http).enter(self.ear)
        self._heard = b""

    def send(self, method: str, path: str, body: object = None, **headers: str) -> None:
        """Send one request."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x"]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.session.receive("\r\n".join([*lines, "", ""]).encode() + data, self._site.now_ms)

    def hear(self) -> bytes:
        """End the turn, and return the bytes received."""
        if self.ear.stirs and not self.session.is_finished:
            self.ear.stirs = 0
            if not self.session.is_stalled or self.ear.unsent == 0:
                self.session.resume(self._site.now_ms)
        return self.session.take_output()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Send one request; return status and answer."""
        self.send(method, path, body, **headers)
        # Run long work to its end.
        while self._site.yard.tasks.proceed(self._site.now_ms):
            pass
        head, _, content = self.hear().partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        return status, json.loads(content) if b"application/json" in head else content

    def open_stream(self, path: str, **headers: str) -> list[Event]:
        """Begin a stream; return the events it begins with."""
        self.send("GET", path, **headers)
        head, _, rest = self.hear().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head + rest
        assert b"text/event-stream" in head
        self._heard = rest
        return self._events()

    def events(self) -> list[Event]:
        """Return the events received since the last call."""
        self._heard += self.hear()
        return self._events()

    def _events(self) -> list[Event]:
        text, _is_over = dechunked(self._heard)
        self._heard = b""
        return [_event(block) for block in text.decode().split("\n\n") if block]

    def close(self) -> None:
        """Break the connection."""
        self.session.closed(self._site.now_ms)


def _event(block: str) -> Event:
    if block.startswith(":"):
        return Event("", "", block[2:])
    fields = {"id": "", "event": "", "data": "null"}
    for line in block.split("\n"):
        name, _, value = line.partition(": ")
        if name == "retry":
            return Event("", "retry", int(value))
        fields[name] = value
    return Event(fields["id"], fields["event"], json.loads(fields["data"]))
