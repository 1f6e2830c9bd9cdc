"""The bare floor: an epoll loop that answers each read with fixed bytes, and does nothing else.

It shows what loopback TCP costs in this language on this machine: one receive, one send and a share
of one poll per request. It answers like beanstalk, one answer per read, so it serves only clients
that keep one request on the wire. It knows nothing of the yard; `echo.py` does the same on the
yard's own loop, and the difference between the two is the cost of that loop.
"""

import select
import socket
from typing import Any, Final, final

RECEIVE_SIZE: Final = 65536
EVENTS_MAX: Final = 1024
BODY: Final = b"x" * 100
INSERTED: Final = b"INSERTED 1234567\r\n"
RESERVED: Final = b"RESERVED 1234567 100\r\n" + BODY + b"\r\n"
DELETED: Final = b"DELETED\r\n"


@final
class Peer:
    """One connection, its calls looked up once."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.recv: Any = sock.recv
        self.send: Any = sock.send


@final
class Floor:
    """The loop and its connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setblocking(False)  # noqa: FBT003 - the standard library's name for it
        self.poll = select.epoll()
        self.poll.register(self.listener.fileno(), select.EPOLLIN)
        self.peers: dict[int, Peer] = {}

    def accept(self) -> None:
        """Accept one new connection."""
        sock, _ = self.listener.accept()
        sock.setblocking(False)  # noqa: FBT003
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peers[sock.fileno()] = Peer(sock)
        self.poll.register(sock.fileno(), select.EPOLLIN)

    def drop(self, fd: int) -> None:
        """Remove a connection that has ended."""
        self.poll.unregister(fd)
        self.peers.pop(fd).sock.close()

    def turn(self) -> None:
        """Answer every connection that has sent a request."""
        events: list[tuple[int, int]] = self.poll.poll(-1, EVENTS_MAX)
        for fd, _ in events:
            peer = self.peers.get(fd)
            if peer is None:
                self.accept()
                continue
            try:
                asked: bytes = peer.recv(RECEIVE_SIZE)
            except OSError:
                asked = b""
            if not asked:
                self.drop(fd)
                continue
            first = asked[0]
            if first == 112:  # p of put
                peer.send(INSERTED)
            elif first == 114:  # r of reserve
                peer.send(RESERVED)
            else:
                peer.send(DELETED)


def main() -> None:
    """Serve until killed."""
    floor = Floor()
    print(f"ready beanstalk=127.0.0.1:{floor.listener.getsockname()[1]} data=none", flush=True)
    while True:
        floor.turn()
