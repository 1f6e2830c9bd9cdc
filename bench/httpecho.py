"""The HTTP echo: the yard's own loop, httptools, and a session with one fixed answer.

It shows what an HTTP request costs before the yard handles it: httptools parses the head
and passes on every header, nothing is checked, and the answer is as long as that to a write of one
record. Built together with the yard's compiled packages (`floors.py`), like `echo.py`.
"""

from typing import Final, final

from httptools import HttpRequestParser
from mypy_extensions import i64

from bench.echo import Echo, serve
from jobyard.protocols.session import Entrance, Peer, Session

BODY: Final = (
    b'{"topic":"bench","first_seq":1234567,"last_seq":1234567,"seqs":[1234567],"head_seq":1234567,'
    b'"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":0.031}}'
)
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    % (len(BODY), BODY)
)


@final
class Heard:
    """Callbacks of httptools: keeps the headers, as every server must, and counts requests."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.whole_count: i64 = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers[name] = value

    def on_message_complete(self) -> None:
        """Count a complete request."""
        self.whole_count += 1
        self.headers = {}


@final
class HttpEcho(Echo):
    """Parses requests and answers each."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self._heard = Heard()
        self._parser = HttpRequestParser(self._heard)

    def receive(self, data: bytes, now_ms: i64) -> None:  # noqa: ARG002 - nothing takes time
        """Answer every request that is complete."""
        heard = self._heard
        self._parser.feed_data(data)
        while heard.whole_count > 0:
            heard.whole_count -= 1
            self.out.write(ANSWER)


@final
class HttpEntrance(Entrance):
    """The entrance that gives every connection an echo session."""

    def enter(self, peer: Peer) -> Session:
        """Return the session of a new connection."""
        return HttpEcho(peer)


def main() -> None:
    """Serve until killed."""
    serve("http", HttpEntrance())
