"""A client of the topics API without a socket."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.clients.http import NOTHING, HttpClient, Reply


class Event(NamedTuple):
    """One event of a stream; a comment has only its text."""

    name: str
    id: str
    data: str

    @property
    def json(self) -> Any:
        """Return the data as a value."""
        return json.loads(self.data)


class TopicsClient(HttpClient):
    """One connection to the HTTP port."""

    # -- requests ------------------------------------------------------------------------------

    def hear(self, *, is_head: bool = False) -> Reply | None:
        """Return the next answer, if one has come; it must be complete."""
        has_come = bool(self.unread)
        reply = super().hear(is_head=is_head)
        assert not has_come or reply is not None, f"incomplete: {self.unread!r}"
        return reply

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = NOTHING,
        /,
        **more: str,
    ) -> Reply:
        """Send a request that is answered at once, and by nothing else; return the answer."""
        reply = super().ask(method, path, body, headers, **more)
        assert not self.unread, f"more than an answer: {self.unread!r}"
        return reply

    def post(self, path: str, body: object, headers: Mapping[str, str] = NOTHING) -> Reply:
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

    # -- streams -------------------------------------------------------------------------------

    def listen(self, path: str, headers: Mapping[str, str] = NOTHING) -> dict[str, str]:
        """Open a stream, which must succeed; return the head of the answer."""
        self.send("GET", path, None, headers)
        status, found = self.take_head()
        assert status == 200, self.unread
        assert found["transfer-encoding"] == "chunked"
        return found

    def events(self) -> list[Event]:
        """Return the events received since the last call; the end is an empty event."""
        blocks, ended = self.take_blocks()
        found = [_event(one) for one in blocks if one]
        return [*found, Event("", "", "")] if ended else found

    def jobs(self) -> list[Any]:
        """Return the jobs pushed since the last call; nothing else may have been sent."""
        events = self.events()
        assert all(event.name == "job" for event in events), events
        return [event.json for event in events]


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


def said(answer: Reply, status: int = 200) -> Any:
    """Return the answer to a successful call, without its duration."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    found = answer.json
    taken = found.pop("performance")
    assert {"server_total_ms"} <= set(taken) <= {"server_total_ms", "fsync_ms", "throttle_wait_ms"}
    return found
