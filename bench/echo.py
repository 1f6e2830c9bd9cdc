"""The echo: the yard's own loop and connections, with a session that answers fixed bytes.

It shows what a request costs before the yard handles it. The session answers each read with the
bytes beanstalk would send, so it serves only clients that keep one request on the wire. Built
together with the yard's compiled packages (`floors.py`), since it must be called like a real
session. The parts that all echo servers share are here too; `httpecho.py` has other answers.
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
    """A session without state that holds nothing back."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer, JOURNAL)

    def resume(self, now_ms: i64) -> None:
        """Do nothing: no input is ever held back."""

    def half_close(self, now_ms: i64) -> None:
        """Do nothing: no answer is pending."""

    def end_input(self, now_ms: i64) -> None:  # noqa: ARG002
        """Close the connection."""
        self.is_finished = True

    def closed(self, now_ms: i64) -> None:
        """Do nothing: no jobs are held."""

    def unread_size(self) -> i64:
        """Return 0: no input is buffered."""
        return 0


@final
class LineEcho(Echo):
    """Checks the first byte and answers."""

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
    """The entrance that gives every connection an echo session."""

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
