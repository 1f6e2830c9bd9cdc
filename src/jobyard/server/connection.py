"""One client on the epoll loop: a socket, a session, and its unsent replies.

Reading stops while the session has enough to do (it waits and has input left, or the peer has not
read its output); a peer that reads nothing for STUCK_MS is closed. Held input and output count
against the limit that all connections share. Closing gives back everything the session holds.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.journal.reply_gate import Outbox
from jobyard.model.limits import BACKLOG_MAX, READ_AHEAD_MAX
from jobyard.protocols.session import OUTPUT_MAX, UNKNOWN_ADDRESS, Entrance
from jobyard.protocols.shared_limits import FREE_SIZE, INPUT, OUTPUT
from jobyard.server.addresses import end_text
from jobyard.server.turn import Wakeable

if TYPE_CHECKING:
    from socket import socket

    from jobyard.server.loop import HotLoop

RECEIVE_SIZE: Final = 65536
# A peer that leaves its replies unread this long is assumed dead.
STUCK_MS: Final = 10_000
# Maximum size of one send, so that one peer does not delay the others.
SEND_MAX: Final = 1 << 20
# Shorter replies in the backlog are joined into one send.
JOINED_SEND_MAX: Final = 64 << 10

READABLE: Final = select.EPOLLIN
# The peer has closed its sending side. Only needed while the socket is not read.
LAST_SENT: Final = select.EPOLLRDHUP
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR


@final
class Connection(Wakeable):
    """A socket and its session."""

    def __init__(self, loop: HotLoop, sock: socket, entrance: Entrance, address: str) -> None:
        self._loop = loop
        self.address = address
        self._sock = sock
        self.fd: int = sock.fileno()
        # Bound once: a method lookup costs as much as parsing a small command.
        self._recv: Callable[[int], bytes] = sock.recv
        self._send: Callable[[bytes | memoryview], int] = sock.send
        self._outbox = Outbox(loop.gate, self)
        self._yard = loop.turns.yard
        self._journal = loop.turns.yard.journal
        # Unsent replies, how many bytes of the first were sent, and how many remain in total.
        self._backlog: list[bytes] = []
        self._taken: i64 = 0
        self._backlog_size: i64 = 0
        self._backlog_since_ms: i64 = 0
        self._shared_limits = loop.turns.shared_limits
        self._charged: i64 = 0
        self._events: int = READABLE | LAST_SENT
        self._is_woken: bool = False
        self._may_resume: bool = False
        self.is_closed: bool = False
        self._session = entrance.enter(self)

    def host(self) -> str:
        """Return the key of the client for limits by address."""
        return self.address

    def addresses(self) -> tuple[str, str]:
        """Return the addresses of the client and of the listening side."""
        try:
            return end_text(self._sock.getpeername()), end_text(self._sock.getsockname())
        except OSError:
            # The client has just disconnected.
            return UNKNOWN_ADDRESS, UNKNOWN_ADDRESS

    # -- events --------------------------------------------------------------------------------

    def on_event(self, events: int, now_ms: i64) -> None:
        """Handle epoll events of the socket."""
        self._session.changes_before = self._yard.changes()
        try:
            self._serve(events, now_ms)
        except Exception as error:
            if self._survives(error, now_ms):
                return
            raise

    def _survives(self, error: Exception, now_ms: i64) -> bool:
        """Close the connection of a failed session; return False if the process must end."""
        session = self._session
        if self.is_closed:
            # The session failed while giving back what it held; nothing else can do that.
            return False
        if not self._loop.turns.error_boundary.survives(
            error, session.changes_before, session.doing()
        ):
            return False
        self.close(now_ms)
        return True

    def _serve(self, events: int, now_ms: i64) -> None:
        if self._backlog and events & WRITABLE:
            self._push(now_ms)
        if events & READABLE and not self.is_closed:
            self._read(now_ms)
        elif events & BROKEN:
            self.close(now_ms)
        elif events & LAST_SENT and not self.is_closed:
            self._watch(self._events & ~LAST_SENT)
            self._session.half_close(now_ms)
            self._after_run(now_ms)

    def _read(self, now_ms: i64) -> None:
        if not self._events & READABLE:
            return
        try:
            data = self._recv(RECEIVE_SIZE)
        except BlockingIOError:
            return
        except OSError:
            self.close(now_ms)
            return
        session = self._session
        if data:
            session.receive(data, now_ms)
        else:
            self._watch(self._events & ~(READABLE | LAST_SENT))
            session.end_input(now_ms)
        self._after_run(now_ms)

    def wake(self) -> None:
        """Resume the session at the end of this turn."""
        self._may_resume = True
        self._come_back()

    def unsent_size(self) -> i64:
        """Return how many bytes of the session's output are not sent yet."""
        return self._outbox.held_bytes + self._backlog_size

    def _come_back(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.turns.woken.append(self)

    def proceed(self, now_ms: i64) -> None:
        """Resume the session if it may, and send its output."""
        self._is_woken = False
        if self.is_closed:
            return
        self._session.changes_before = self._yard.changes()
        try:
            self._resume(now_ms)
        except Exception as error:
            if self._survives(error, now_ms):
                return
            raise

    def _resume(self, now_ms: i64) -> None:
        if self._session.is_stalled:
            self._may_resume = self._outbox.is_empty() and not self._backlog
        if self._may_resume:
            self._may_resume = False
            self._session.resume(now_ms)
        self._after_run(now_ms)

    def _after_run(self, now_ms: i64) -> None:
        """Hand over the session's output, and decide whether to read more input."""
        session = self._session
        if self._journal.command_sync_batch > 0:
            session.await_synced(self._journal.take_command_sync_batch())
        if len(session.out) > 0:
            session.hand_output(self._outbox)
        if self.is_closed:
            return
        unsent: i64 = self._outbox.held_bytes + self._backlog_size
        if self._charged > 0 or session.held_size() + unsent > FREE_SIZE:
            self._weigh(unsent, now_ms)
        if session.is_finished:
            if self._outbox.is_empty() and not self._backlog:
                self.close(now_ms)
            elif self._events & READABLE:
                self._watch(self._events & ~READABLE)
            return
        if session.is_stalled and self._outbox.is_empty() and not self._backlog:
            self._come_back()
        has_enough = (
            session.is_stalled or session.unread_size() > READ_AHEAD_MAX or unsent > OUTPUT_MAX
        )
        if has_enough == bool(self._events & READABLE):
            self._watch(self._events ^ READABLE)

    def _weigh(self, unsent: i64, now_ms: i64) -> None:
        """Charge the held bytes; refuse input or close if all connections hold too much."""
        session = self._session
        shared_limits = self._shared_limits
        held: i64 = session.held_size()
        before = self._charged
        self._charged = shared_limits.charge(before, held + unsent)
        if session.is_finished:
            return
        excess = shared_limits.decide(before, self._charged, held, unsent)
        if excess == OUTPUT:
            self._loop.abandon(self)
        elif excess == INPUT:
            session.refuse_input(now_ms)
            if len(session.out) > 0:
                session.hand_output(self._outbox)
            self._settle()

    def _settle(self) -> None:
        """Lower the charge after bytes were sent. Growth is left to `_weigh`."""
        if self.is_closed:
            return
        size: i64 = self._session.held_size() + self.unsent_size()
        if size < self._charged + FREE_SIZE:
            self._charged = self._shared_limits.charge(self._charged, size)

    # -- sending -------------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """Send bytes that the gate has released."""
        if self.is_closed:
            return
        if self._backlog:
            if self._backlog_size > BACKLOG_MAX:
                self._loop.abandon(self)
                return
            self._backlog.append(data)
            self._backlog_size += len(data)
            return
        size: i64 = len(data)
        try:
            sent: i64 = self._send(data if size <= SEND_MAX else memoryview(data)[:SEND_MAX])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._loop.abandon(self)
            return
        if sent < size:
            self._backlog.append(data)
            self._taken = sent
            self._backlog_size = size - sent
            self._backlog_since_ms = self._loop.now_ms
            self._loop.stuck_count += 1
            self._watch(self._events | WRITABLE)
        elif self._session.is_finished or not self._events & READABLE:
            # The close or further input waited for these replies to be sent.
            self._come_back()
        if self._charged > 0:
            self._settle()

    def deliver_all(self, pieces: list[bytes]) -> None:
        """Send pieces that are too long to be joined; most of them in later turns."""
        if self.is_closed:
            return
        if self._backlog_size > BACKLOG_MAX:
            self._loop.abandon(self)
            return
        was_sending = len(self._backlog) > 0
        self._backlog += pieces
        for piece in pieces:
            self._backlog_size += len(piece)
        if was_sending:
            return
        self._backlog_since_ms = self._loop.now_ms
        self._loop.stuck_count += 1
        try:
            self._send_some()
        except OSError:
            self._loop.abandon(self)
            return
        if self._backlog:
            self._watch(self._events | WRITABLE)
        else:
            self._loop.stuck_count -= 1
            if self._session.is_finished or not self._events & READABLE:
                self._come_back()
        if self._charged > 0:
            self._settle()

    def _push(self, now_ms: i64) -> None:
        """Send more of the backlog."""
        before = self._backlog_size
        try:
            self._send_some()
        except OSError:
            self.close(now_ms)
            return
        if self._backlog_size == before:
            return
        self._backlog_since_ms = now_ms
        if self._charged > 0:
            self._settle()
        if not self._backlog:
            self._loop.stuck_count -= 1
            self._watch(self._events & ~WRITABLE)
            self._after_run(now_ms)

    def _send_some(self) -> None:
        """Send as much of the backlog as the socket takes, at most SEND_MAX."""
        backlog = self._backlog
        left: i64 = SEND_MAX
        while left > 0 and backlog:
            piece = self._next_piece(left)
            size: i64 = len(piece)
            try:
                sent: i64 = self._send(piece)
            except BlockingIOError:
                return
            left -= sent
            self._backlog_size -= sent
            self._taken += sent
            if self._taken == len(backlog[0]):
                backlog.pop(0)
                self._taken = 0
            if sent < size:
                return

    def _next_piece(self, most: i64) -> memoryview:
        """Return the next bytes to send: short replies joined, long ones without a copy."""
        backlog = self._backlog
        if len(backlog) > 1 and len(backlog[0]) - self._taken < JOINED_SEND_MAX:
            count = 1
            size: i64 = len(backlog[0]) - self._taken
            while (
                count < len(backlog) and len(backlog[count]) < JOINED_SEND_MAX and size < SEND_MAX
            ):
                size += len(backlog[count])
                count += 1
            if count > 1:
                backlog[0] = backlog[0][self._taken :]
                backlog[:count] = [b"".join(backlog[:count])]
                self._taken = 0
        return memoryview(backlog[0])[self._taken : self._taken + most]

    def is_stuck(self, now_ms: i64) -> bool:
        """Return whether the peer has not read for too long."""
        return bool(self._backlog) and now_ms - self._backlog_since_ms > STUCK_MS

    # -- closing -------------------------------------------------------------------------------

    def wind_up(self, now_ms: i64) -> None:
        """Stop reading, answer what can be answered, then close."""
        if self.is_closed:
            return
        self._session.changes_before = self._yard.changes()
        try:
            self._session.end_input(now_ms)
            self._after_run(now_ms)
        except Exception as error:
            if self._survives(error, now_ms):
                return
            raise

    def abort(self) -> None:
        """Close only the socket; what the session holds no longer matters."""
        if not self.is_closed:
            self.is_closed = True
            self._loop.forget(self)
            self._sock.close()

    def close(self, now_ms: i64) -> None:
        """Close the socket and give back what the session holds."""
        if self.is_closed:
            return
        self.is_closed = True
        # First, because the session may check whether all of its output was sent.
        self._session.closed(now_ms)
        if self._backlog:
            self._loop.stuck_count -= 1
            self._backlog = []
            self._backlog_size = 0
        self._outbox.discard()
        self._charged = self._shared_limits.charge(self._charged, 0)
        self._loop.forget(self)
        self._sock.close()

    def _watch(self, events: int) -> None:
        if events != self._events and not self.is_closed:
            self._events = events
            self._loop.watch(self.fd, events)
