"""The epoll loop that serves the hot doors, and acts as the selector of asyncio.

One epoll set, one thread. A turn polls, serves every hot socket directly, ends the turn (commit
included) and polls again; it returns to asyncio only when a descriptor of asyncio is ready or
asyncio's timeout is over. Measured against uvloop: about a tenth less processor time per request,
because there is no callback, handle or transport between the poll and the session.
"""

import os
import select
import time
from collections.abc import Callable
from socket import socket
from typing import Final, final

from mypy_extensions import i64

from jobyard.journal.reply_gate import Gate
from jobyard.protocols.session import Entrance
from jobyard.server.addresses import host_of
from jobyard.server.connection import Connection
from jobyard.server.turn import Turns, timeout_s

EVENTS_PER_POLL: Final = 1024
ACCEPTS_PER_TURN: Final = 64
# When descriptors run out, a listener pauses this long instead of spinning.
ACCEPT_REST_MS: Final = 100
LONGEST_SLEEP_S: Final = 1.0


@final
class Clock:
    """Steady milliseconds: the wall clock at the start plus monotonic time since."""

    def __init__(self) -> None:
        self._monotonic = time.monotonic
        self._start_s: float = time.time() - time.monotonic()

    def now_ms(self) -> i64:
        """Return the steady time."""
        return i64(int((self._monotonic() + self._start_s) * 1000.0))


@final
class Listening:
    """A listening socket and its entrance."""

    def __init__(self, sock: socket, entrance: Entrance) -> None:
        self.sock = sock
        self.entrance = entrance
        self.rests_until_ms: i64 = 0


@final
class HotLoop:
    """All hot connections, and the descriptors watched for asyncio."""

    def __init__(self, turns: Turns, gate: Gate, clock: Clock, connections_max: int) -> None:
        self.turns = turns
        self.gate = gate
        self._clock = clock
        self.now_ms: i64 = clock.now_ms()
        self._epoll = select.epoll()
        self._poll: Callable[[float, int], list[tuple[int, int]]] = self._epoll.poll
        self._connections: dict[int, Connection] = {}
        self._listening: dict[int, Listening] = {}
        self._connections_max = connections_max
        self._wake_fd: int = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._on_wake: list[Callable[[], None]] = []
        self._cold: list[tuple[int, int]] = []
        self._abandoned: list[Connection] = []
        self._second_ms: i64 = 0
        self.stuck_count: i64 = 0
        self.refused_count: i64 = 0
        self.on_empty: Callable[[], None] | None = None
        # Called with "accept" or "close" and the descriptor of each connection.
        self.on_connection: Callable[[str, int], None] | None = None
        self._is_called_back: bool = False

    # -- watching ------------------------------------------------------------------------------

    def listen(self, sock: socket, entrance: Entrance) -> None:
        """Accept connections of one protocol."""
        sock.settimeout(0.0)
        self._listening[sock.fileno()] = Listening(sock, entrance)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def stop_listening(self) -> None:
        """Stop accepting connections."""
        for fd in self._listening:
            self._epoll.unregister(fd)
        self._listening.clear()

    def watch(self, fd: int, events: int) -> None:
        """Change the events to watch for on a connection."""
        self._epoll.modify(fd, events)

    def watch_cold(self, fd: int, events: int) -> None:
        """Watch a descriptor for asyncio."""
        self._epoll.register(fd, events)

    def change_cold(self, fd: int, events: int) -> None:
        """Change the events to watch for on a descriptor of asyncio."""
        self._epoll.modify(fd, events)

    def unwatch_cold(self, fd: int) -> None:
        """Stop watching a descriptor of asyncio."""
        self._epoll.unregister(fd)

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is being closed."""
        self._connections.pop(connection.fd, None)
        if self.turns.shared_limits.address_max > 0:
            self.turns.shared_limits.leave(connection.address)
        self._epoll.unregister(connection.fd)
        if self.on_connection is not None:
            self.on_connection("close", connection.fd)
        if self.on_empty is not None and not self._connections:
            self.on_empty()
            self.call_back()

    def abandon(self, connection: Connection) -> None:
        """Close a connection at the end of the turn, because its socket failed during the turn."""
        self._abandoned.append(connection)

    def wake(self) -> None:
        """Interrupt the current poll; may be called from another thread."""
        os.eventfd_write(self._wake_fd, 1)

    def on_wake(self, call: Callable[[], None]) -> None:
        """Run `call` in the loop after each wake."""
        self._on_wake.append(call)

    def call_back(self) -> None:
        """Return to asyncio at the end of this turn."""
        self._is_called_back = True

    def connections(self) -> list[Connection]:
        """Return all open connections."""
        return list(self._connections.values())

    # -- turns ---------------------------------------------------------------------------------

    def select(self, timeout: float) -> list[tuple[int, int]]:
        """Serve the hot doors until asyncio has something to do; return its ready descriptors."""
        left = timeout
        until = time.monotonic() + timeout
        sleep_s = 0.0
        while True:
            sleep_s = self.turn(min(left, sleep_s))
            if self._cold or self._is_called_back:
                break
            left = until - time.monotonic()
            if left <= 0:
                break
        self._is_called_back = False
        cold = self._cold
        if cold:
            self._cold = []
        return cold

    def turn(self, sleep_s: float) -> float:
        """Poll once, serve everything, commit; return how long the next poll may sleep."""
        events = self._poll(sleep_s, EVENTS_PER_POLL)
        now_ms = self._clock.now_ms()
        self.now_ms = now_ms
        turns = self.turns
        turns.begin(now_ms)
        connections = self._connections
        for fd, event in events:
            connection = connections.get(fd)
            if connection is not None:
                connection.on_event(event, now_ms)
            else:
                self._other(fd, event, now_ms)
        next_ms = turns.end(now_ms)
        if self._abandoned:
            abandoned = self._abandoned
            self._abandoned = []
            for connection in abandoned:
                connection.close(now_ms)
        if now_ms >= self._second_ms:
            self._every_second(now_ms)
        # Closing gives jobs back, which may have woken waiting sessions.
        next_ms = now_ms if turns.woken else min(next_ms, self._second_ms)
        return timeout_s(next_ms, now_ms, LONGEST_SLEEP_S)

    def _other(self, fd: int, event: int, now_ms: i64) -> None:
        listening = self._listening.get(fd)
        if listening is not None:
            self._accept(fd, listening, now_ms)
        elif fd == self._wake_fd:
            os.eventfd_read(fd)
            for call in self._on_wake:
                call()
        else:
            self._cold.append((fd, event))

    def _accept(self, fd: int, listening: Listening, now_ms: i64) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, peer = listening.sock.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except OSError:
                # Out of descriptors or memory: accepting again at once would only spin.
                self.refused_count += 1
                self._epoll.modify(fd, 0)
                listening.rests_until_ms = now_ms + ACCEPT_REST_MS
                self._second_ms = min(self._second_ms, listening.rests_until_ms)
                return
            if len(self._connections) >= self._connections_max:
                # The remaining descriptors are reserved for the journal.
                self.refused_count += 1
                sock.close()
                continue
            address = host_of(peer)
            shared_limits = self.turns.shared_limits
            if shared_limits.address_max > 0 and not shared_limits.arrive(address):
                sock.close()
                continue
            sock.settimeout(0.0)
            connection = Connection(self, sock, listening.entrance, address)
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, select.EPOLLIN | select.EPOLLRDHUP)
            if self.on_connection is not None:
                self.on_connection("accept", connection.fd)

    def _every_second(self, now_ms: i64) -> None:
        self._second_ms = now_ms + 1000
        for fd, listening in self._listening.items():
            if listening.rests_until_ms > now_ms:
                self._second_ms = min(self._second_ms, listening.rests_until_ms)
            elif listening.rests_until_ms > 0:
                listening.rests_until_ms = 0
                self._epoll.modify(fd, select.EPOLLIN)
        if self.stuck_count > 0:
            for connection in self.connections():
                if connection.is_stuck(now_ms):
                    connection.close(now_ms)

    def abort(self) -> None:
        """Close every connection without sending another byte.

        Ignores wake-ups of the worker, which would only report the same failure again.
        """
        self._on_wake.clear()
        for connection in self.connections():
            connection.abort()

    def close(self, now_ms: i64) -> None:
        """Close every connection and the loop's own descriptors."""
        for connection in self.connections():
            connection.close(now_ms)
        os.close(self._wake_fd)
        self._epoll.close()


def connections_limit(descriptors: int) -> int:
    """Return how many connections leave enough descriptors for the journal and the rest."""
    return max(16, descriptors - 128)
