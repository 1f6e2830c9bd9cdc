"""The HTTP port without a socket: sessions over a yard with all routes, on a clock tests move.

`BareTopics` is the port of one boot; its callers send whole requests and read whole answers, or the
events of a stream. The other doors of the same yard are open too, so that jobs can cross over.
Time moves from one due timer to the next, for all doors at once.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from jobyard.engine.jobs.tick import tick
from jobyard.journal.storage import Storage
from jobyard.protocols.http.door import Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.topics.api_keys import read_keys
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.server.http import open_http
from tests.support.bare_bunqueue import BareBunqueue, BareClient, Ears
from tests.support.http_text import dechunked, head_of
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import NOW_MS, Client, recount

JSON_BODY: Final = {"Content-Type": "application/json"}
NOTHING: Final[dict[str, str]] = {}


class Answer(NamedTuple):
    """One parsed answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as a value."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Return the code of a refusal, which must have the form of the API."""
        said = self.json
        assert set(said) == {"error"}, said
        assert {"code", "message"} <= set(said["error"]) <= {"code", "message", "detail"}
        assert said["error"]["message"]
        return str(said["error"]["code"])

    @property
    def refusal(self) -> tuple[int, str]:
        """Return status and code of a refusal."""
        return self.status, self.code


class Event(NamedTuple):
    """One event of a stream; a comment has only its text."""

    name: str
    id: str
    data: str

    @property
    def json(self) -> Any:
        """Return the data as a value."""
        return json.loads(self.data)


class Caller:
    """One connection to the HTTP port."""

    def __init__(self, site: "BareTopics", key: str = "") -> None:
        self._site = site
        self._key = key
        self.session = site.entrance.enter(Ears(site.woken, self))
        self.is_open = True
        self.unread = b""

    # -- requests ------------------------------------------------------------------------------

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = NOTHING
    ) -> None:
        """Send a request; a body other than bytes is sent as JSON."""
        lines = {"Host": "yard", **headers}
        if self._key:
            lines.setdefault("Authorization", f"Bearer {self._key}")
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            lines.setdefault("Content-Type", "application/json")
        if data or method in {"POST", "PUT"}:
            lines["Content-Length"] = str(len(data))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        self.say(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data)

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self.session.receive(data, self._site.now_ms)
        self.collect()
        self._site.settle()

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = NOTHING
    ) -> Answer:
        """Send a request that is answered at once; return the answer."""
        self.send(method, path, body, headers)
        answer = self.hear(is_head=method == "HEAD")
        assert answer is not None, f"no answer to {method} {path}"
        assert not self.unread, f"more than an answer: {self.unread!r}"
        return answer

    def post(self, path: str, body: object, headers: Mapping[str, str] = NOTHING) -> Answer:
        """Post to a topic, or to something below it."""
        return self.ask("POST", f"/v0/topics/{path}", body, headers)

    def ok(self, path: str, body: object, status: int = 200) -> Any:
        """Post a request that must succeed; return the answer without its duration."""
        return said(self.post(path, body), status)

    def put(self, name: str, **config: object) -> Any:
        """Create or configure a topic; return the answer."""
        answer = self.ask("PUT", f"/v0/topics/{name}", config)
        assert answer.status in {200, 201}, answer
        return said(answer, answer.status)

    def write(self, name: str, *data: object, **fields: object) -> Any:
        """Write records to a topic."""
        answer = self.post(name, {"records": [{"data": one} for one in data], **fields})
        assert answer.status in {200, 201}, answer
        return said(answer, answer.status)

    def diff(self, name: str, **query: object) -> Any:
        """Read a topic."""
        return self.ok(f"{name}/diff", query)

    def state(self, name: str) -> Any:
        """Show a topic."""
        return said(self.ask("GET", f"/v0/topics/{name}"))

    def claim(self, name: str, **query: object) -> Any:
        """Claim jobs."""
        return self.ok(f"{name}/claim", {"node": "w", **query})

    # -- answers -------------------------------------------------------------------------------

    def collect(self) -> None:
        """Take the session's output; close the session if it is finished."""
        self.unread += self.session.take_output()
        while self.session.is_stalled:
            self.session.resume(self._site.now_ms)
            self.unread += self.session.take_output()
        if self.session.is_finished and self.is_open:
            self.close()

    def resume(self) -> None:
        """Resume the session, as a connection does once it was woken."""
        if self.is_open:
            self.session.resume(self._site.now_ms)
            self.collect()

    def hear(self, *, is_head: bool = False) -> Answer | None:
        """Return the next answer if it has come."""
        if not self.unread:
            return None
        status, headers = self._read_head()
        size = 0 if is_head else int(headers.get("content-length", "0"))
        assert len(self.unread) >= size
        body = self.unread[:size]
        self.unread = self.unread[size:]
        return Answer(status, headers, body)

    def _read_head(self) -> tuple[int, dict[str, str]]:
        head, end, self.unread = self.unread.partition(b"\r\n\r\n")
        assert end, f"no head: {head!r}"
        return head_of(head)

    def listen(self, path: str, headers: Mapping[str, str] = NOTHING) -> dict[str, str]:
        """Open a stream, which must succeed; return the head of the answer."""
        self.send("GET", path, headers=headers)
        status, found = self._read_head()
        assert status == 200, self.unread
        assert found["transfer-encoding"] == "chunked"
        return found

    def events(self) -> list[Event]:
        """Return the events received since the last call; the end is an empty event."""
        text, ended = dechunked(self.unread)
        self.unread = b""
        found = [_event(one) for one in text.decode().split("\n\n") if one]
        return [*found, Event("", "", "")] if ended else found

    def jobs(self) -> list[Any]:
        """Return the jobs pushed since the last call; nothing else may have been sent."""
        events = self.events()
        assert all(event.name == "job" for event in events), events
        return [event.json for event in events]

    # -- closing -------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """End the input."""
        self.session.end_input(self._site.now_ms)
        self.collect()
        self._site.settle()

    def close(self) -> None:
        """Close the connection."""
        if self.is_open:
            self.is_open = False
            self.session.closed(self._site.now_ms)
            self._site.settle()


def _event(text: str) -> Event:
    fields: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        fields.setdefault(name, []).append(value)
    if set(fields) <= {"", "retry"}:
        (name,) = fields
        return Event(f"{name}:", "", fields[name][0])
    id_, event = fields.get("id", [""]), fields.get("event", [""])
    assert set(fields) <= {"id", "event", "data"}
    return Event(event[0], id_[0], "\n".join(fields["data"]))


def said(answer: Answer, status: int = 200) -> Any:
    """Return the answer to a successful call, without its duration."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    found = answer.json
    taken = found.pop("performance")
    assert {"server_total_ms"} <= set(taken) <= {"server_total_ms", "fsync_ms", "throttle_wait_ms"}
    return found


class BareTopics:
    """Yard and HTTP port of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        keys: str = "",
        ids_ahead: bool = False,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        self.storage = storage
        self.others = BareBunqueue(storage, now_ms, window, ids_ahead=ids_ahead)
        self.yard = self.others.yard
        self.journal = self.yard.journal
        self.topics = TopicsDoor(self.yard, now_ms)
        self.topics.keys = read_keys(keys)
        self.door = open_http(self.yard, self.others.door, self.topics, Stopwatch())
        self.entrance = HttpEntrance(self.door)
        self.woken = self.others.woken
        self._caller: Caller | None = None

    @property
    def now_ms(self) -> int:
        """Return the time at all doors."""
        return self.others.now_ms

    @property
    def api(self) -> Caller:
        """Return the shared connection."""
        if self._caller is None or not self._caller.is_open:
            self._caller = self.connect()
        return self._caller

    def connect(self, key: str = "") -> Caller:
        """Open a connection."""
        return Caller(self, key)

    def bunqueue(self) -> BareClient:
        """Open a connection to the bunqueue door."""
        return self.others.connect()

    def beanstalk(self) -> Client:
        """Open a connection to the beanstalk door."""
        self.others.site.now_ms = self.now_ms
        return self.others.site.connect()

    def settle(self) -> None:
        """Resume woken sessions until none is left."""
        self.others.settle()

    def tick(self, ms: int) -> None:
        """Move the clock from timer to timer up to `ms` later."""
        until_ms = self.now_ms + ms
        while True:
            due_ms = int(tick(self.yard, self.now_ms))
            self.settle()
            if self.now_ms >= until_ms and due_ms > until_ms:
                break
            self.others.now_ms = max(self.now_ms, min(due_ms, until_ms))
        self.others.site.now_ms = self.now_ms

    def timers(self) -> int:
        """Return how many timers are set."""
        return len(self.yard.timers.items)

    def check(self) -> None:
        """Check every index and counter against the jobs."""
        recount(self.yard)

    def again(self, ms: int = 0) -> "BareTopics":
        """Cut the power, and start again on what the disk holds."""
        self.check()
        self.others.site.commit()
        assert isinstance(self.storage, MemoryStorage)
        after = BareTopics(self.storage.cut_off(), self.now_ms + ms)
        after.check()
        return after
