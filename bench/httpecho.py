"""The HTTP echo: the yard's own loop, httptools, and a session that answers every request alike.

What a request over HTTP costs before the yard has looked at it: the head is parsed by httptools
and every header handed over, nothing is judged, and the answer is as long as that to a write of one
record. Built together with the yard's compiled rooms (`floors.py`), like `echo.py`.
"""

import socket
from typing import Final, final

from httptools import HttpRequestParser
from mypy_extensions import i64

from jobyard.engine.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.gate import Gate
from jobyard.journal.journal import Journal
from jobyard.server.loop import Clock, HotLoop
from jobyard.server.turn import Turns
from jobyard.sessions.session import Entrance, Peer, Session

CONNECTIONS_MAX: Final = 1000
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
    """What httptools calls back: keeps the headers, as every server must, and counts requests."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.whole_count: i64 = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        self.headers[name] = value

    def on_message_complete(self) -> None:
        """Note that a request is all there."""
        self.whole_count += 1
        self.headers = {}


@final
class HttpEchoSession(Session):
    """Parses requests and answers each."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self._heard = Heard()
        self._parser = HttpRequestParser(self._heard)

    def receive(self, data: bytes, now_ms: i64) -> None:  # noqa: ARG002 - nothing takes time
        """Answer every request that is complete by now."""
        heard = self._heard
        self._parser.feed_data(data)
        while heard.whole_count > 0:
            heard.whole_count -= 1
            self.out.write(ANSWER)

    def resume(self, now_ms: i64) -> None:
        """Nothing is ever held back."""

    def half_close(self, now_ms: i64) -> None:
        """Nothing is waited for."""

    def end_input(self, now_ms: i64) -> None:  # noqa: ARG002
        """Let the connection be closed."""
        self.is_finished = True

    def closed(self, now_ms: i64) -> None:
        """Nothing is held."""

    def unread_size(self) -> i64:
        """Nothing is kept."""
        return 0


@final
class HttpEchoEntrance(Entrance):
    """Where everybody gets an echo."""

    def enter(self, peer: Peer) -> Session:
        """Return the session of a new connection."""
        return HttpEchoSession(peer)


def main() -> None:
    """Serve until killed."""
    journal = Journal(None, 1 << 20, ids_ahead=False)
    yard = Yard(journal, Bodies(journal, 1 << 20))
    loop = HotLoop(Turns(yard, None, None), Gate(), Clock(), CONNECTIONS_MAX)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    loop.listen(listener, HttpEchoEntrance())
    print(f"ready http=127.0.0.1:{listener.getsockname()[1]} data=none", flush=True)
    sleep_s = 0.0
    while True:
        sleep_s = loop.turn(sleep_s)
