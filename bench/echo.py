"""The echo: the yard's own loop and connections, with a session that answers fixed bytes.

What a request costs before the yard has looked at it. The session answers each read with the bytes
beanstalk would send, so it serves only clients that keep one request on the wire. Built together
with the yard's compiled rooms (`floors.py`), since it must be called the way a real session is.
What every echo is but its answers is here too: `httpecho.py` has others.
"""

import socket
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.reply_gate import Gate
from jobyard.protocols.session import Entrance, Peer, Session
from jobyard.server.loop import Clock, HotLoop
from jobyard.server.turn import Turns

CONNECTIONS_MAX: Final = 1000
INSERTED: Final = b"INSERTED 1234567\r\n"
RESERVED: Final = b"RESERVED 1234567 100\r\n" + b"x" * 100 + b"\r\n"
DELETED: Final = b"DELETED\r\n"
# Nothing is ever appended to it.
JOURNAL: Final = Journal(None, 1 << 20, ids_ahead=False)


class Echo(Session):
    """A session that holds nothing back and keeps nothing."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer, JOURNAL)

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
class LineEcho(Echo):
    """Looks at the first byte and answers."""

    def receive(self, data: bytes, now_ms: i64) -> None:  # noqa: ARG002 - nothing takes time
        """Answer the one request in `data`."""
        first = data[0]
        if first == 112:  # p of put
            self.out.write(INSERTED)
        elif first == 114:  # r of reserve
            self.out.write(RESERVED)
        else:
            self.out.write(DELETED)


@final
class LineEntrance(Entrance):
    """Where everybody gets an echo."""

    def enter(self, peer: Peer) -> Session:
        """Return the session of a new connection."""
        return LineEcho(peer)


def serve(door: str, entrance: Entrance) -> None:
    """Serve on the yard's loop until killed."""
    yard = Yard(JOURNAL, Bodies(JOURNAL, 1 << 20))
    loop = HotLoop(Turns(yard, None, None), Gate(), Clock(), CONNECTIONS_MAX)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    loop.listen(listener, entrance)
    print(f"ready {door}=127.0.0.1:{listener.getsockname()[1]} data=none", flush=True)
    sleep_s = 0.0
    while True:
        sleep_s = loop.turn(sleep_s)


def main() -> None:
    """Serve until killed."""
    serve("beanstalk", LineEntrance())
