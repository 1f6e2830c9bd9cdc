"""An HTTP client whose turns the test ends: it may read slowly, and sees streams piece by piece."""

import json
from typing import Any, NamedTuple

from tests.support.clients.http import HttpClient, fields_of


class StreamEvent(NamedTuple):
    """One event of a stream, with its data as a value; a comment has only its text."""

    id: str
    name: str
    data: Any


class Line(HttpClient):
    """One connection, whose input is served at once, and whose output waits for the turn's end."""

    host = "x"
    sized = ()

    def feed(self, data: bytes) -> None:
        self.session.receive(data, self.site.now_ms)

    def collect(self) -> None:
        """Leave the output where it is until the turn ends."""

    def end_turn(self) -> bytes:
        """End the turn, and return the bytes received."""
        if self.ears.wakes and not self.session.is_finished:
            self.ears.wakes = 0
            if not self.session.is_stalled or self.ears.unsent == 0:
                self.session.resume(self.site.now_ms)
        return self.session.take_output()

    def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Send one request, run long work to its end, and return status and answer."""
        self.send(method, path, body, **headers)
        while self.site.yard.tasks.proceed(self.site.now_ms):
            pass
        head, _, content = self.end_turn().partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        return status, json.loads(content) if b"application/json" in head else content

    def open_stream(self, path: str, **headers: str) -> list[StreamEvent]:
        """Begin a stream; return the events it begins with."""
        self.send("GET", path, **headers)
        self.unread = self.end_turn()
        status, found = self.take_head()
        assert status == 200, self.unread
        assert "text/event-stream" in found["content-type"]
        return self._events()

    def events(self) -> list[StreamEvent]:
        """Return the events received since the last call."""
        self.unread += self.end_turn()
        return self._events()

    def _events(self) -> list[StreamEvent]:
        blocks, _is_over = self.take_blocks()
        return [_event(block) for block in blocks if block]


def _event(block: str) -> StreamEvent:
    if block.startswith(":"):
        return StreamEvent("", "", block[2:])
    fields = fields_of(block)
    if "retry" in fields:
        return StreamEvent("", "retry", int(fields["retry"]))
    data = json.loads(fields.get("data", "null"))
    return StreamEvent(fields.get("id", ""), fields.get("event", ""), data)
