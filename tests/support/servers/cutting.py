"""A TCP proxy between an HTTP client and a server that spoils calls, at places drawn from a seed.

Each request is read as a whole, so that a fault has a place: before the request, inside it, behind
it, or inside its answer. What was sent to the server was sent; a client cannot know. A request may
also reach the server twice, the second time long after its answer, as a call of a dead client does.
"""

import contextlib
import random
import select
import socket
import threading
from collections import Counter
from typing import Final, Protocol

from tests.support.servers.patience import PATIENCE_S

PASS: Final = "pass"
CUT_BEFORE: Final = "cut before"
CUT_INSIDE: Final = "cut inside"
CUT_ANSWER: Final = "cut answer"
WITHHOLD: Final = "withhold"
DELAY: Final = "delay"
REPEAT: Final = "repeat"
LATE: Final = "late"
FAULTS: Final = (CUT_BEFORE, CUT_INSIDE, CUT_ANSWER, WITHHOLD, DELAY, REPEAT, LATE)

_HEAD_MAX: Final = 64 << 10
_PIECE: Final = 64 << 10
_DELAY_S: Final = 0.02


class _Reads(Protocol):
    def readline(self, size: int = ..., /) -> bytes: ...

    def read(self, size: int, /) -> bytes: ...


class CuttingProxy:
    """Stands before a server; spoils this share of the requests."""

    def __init__(
        self,
        target: tuple[str, int],
        seed: int,
        *,
        share: float = 0.3,
        faults: tuple[str, ...] = FAULTS,
        patience_s: float | None = None,
    ) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._share = share
        self._faults = faults
        # A client that takes nothing for so long is left, as a server does after ten seconds.
        self._patience_s = patience_s
        self.lost_patience = threading.Event()
        # What happened so far, for a test that wants to know that something did.
        self.seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._late: list[bytes] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return the base url."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Send what is late, and end all connections."""
        self.send_late()
        self._is_closed.set()
        with socket.socket() as last:
            last.settimeout(PATIENCE_S)
            last.connect(self._listener.getsockname())
        self._thread.join(PATIENCE_S)
        self._listener.close()
        with self._lock:
            for each in self._open:
                # Wakes the thread that waits for it.
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Let every further request pass."""
        self._share = 0.0

    def send_late(self) -> None:
        """Send again what was kept for later; its answers are dropped."""
        with self._lock:
            late, self._late = self._late, []
        for request in late:
            self._ask_server(request)

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._is_closed.is_set():
                connection.close()
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        try:
            with client, client.makefile("rb") as file:
                self._pass_requests(client, file)
        except OSError:
            # An end that failed is an end; the other side learns it by that.
            pass
        finally:
            with self._lock:
                self._open.discard(client)

    def _pass_requests(self, client: socket.socket, file: _Reads) -> None:
        with socket.create_connection(self._target, PATIENCE_S) as server:
            while (request := _request(file)) is not None:
                with self._lock:
                    fault = self._draw()
                    place = self._random.random()
                if not self._pass_one(client, server, request, fault, place):
                    return

    def _draw(self) -> str:
        is_fault = self._random.random() < self._share
        fault = self._random.choice(self._faults) if is_fault else PASS
        self.seen[fault] += 1
        return fault

    def _pass_one(
        self,
        client: socket.socket,
        server: socket.socket,
        request: bytes,
        fault: str,
        place: float,
    ) -> bool:
        """Pass a request and its answer; return whether the connection goes on."""
        if fault == CUT_BEFORE:
            return False
        if fault == CUT_INSIDE:
            server.sendall(request[: int(len(request) * place)])
            return False
        if fault == REPEAT:
            self._ask_server(request)
        if fault == DELAY:
            self._is_closed.wait(_DELAY_S * place)
        server.sendall(request)
        if fault == WITHHOLD:
            # The server has answered, and the client waits until its patience ends.
            _readable(server)
            _readable(client)
            return False
        # Most answers are short; an export is cut anywhere in its first 200 kB.
        room = int(10 ** (place * 5.3)) if fault == CUT_ANSWER else None
        is_whole = self._pump(server, client, room)
        if fault == LATE:
            with self._lock:
                self._late.append(request)
        elif is_whole:
            self.send_late()
        return is_whole

    def _pump(self, server: socket.socket, client: socket.socket, room: int | None) -> bool:
        """Pass an answer until the client says something new; False if the connection ended."""
        while True:
            ready, _, _ = select.select([server, client], [], [], PATIENCE_S)
            if server in ready:
                data = server.recv(_PIECE if room is None else min(room, _PIECE))
                if not data:
                    return False
                self._give(client, data)
                if room is not None:
                    room -= len(data)
                    if room <= 0:
                        return False
            elif client in ready:
                # The next request, so the answer is complete; or the client has left.
                return bool(client.recv(1, socket.MSG_PEEK))
            else:
                return False

    def _give(self, client: socket.socket, data: bytes) -> None:
        client.settimeout(self._patience_s)
        try:
            client.sendall(data)
        except TimeoutError:
            self.lost_patience.set()
            raise
        client.settimeout(None)

    def _ask_server(self, request: bytes) -> None:
        """Send a request by itself and wait until it is answered."""
        head, _, body = request.partition(b"\r\n\r\n")
        with socket.create_connection(self._target, PATIENCE_S) as server:
            server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            while server.recv(_PIECE):
                pass


def _readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], PATIENCE_S)[0])


def _request(file: _Reads) -> bytes | None:
    """Return the next request; None at the end."""
    head = b""
    size = 0
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline(_HEAD_MAX)
        if not line.endswith(b"\n"):
            return None
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
        head += line
    body = file.read(size)
    return head + body if len(body) == size else None
