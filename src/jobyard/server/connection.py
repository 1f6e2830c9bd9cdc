"""One client on the epoll loop: a socket, a session, and the answers on their way.

Reading stops while the session has enough to do (it waits with input sent ahead, or its output has
not been read); a peer that reads nothing for STUCK_MS is closed. What is held of input and output
is charged to the account of all connections. Closing gives back everything the session holds.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.journal.reply_gate import Outbox
from jobyard.model.limits import BACKLOG_MAX, READ_AHEAD_MAX
from jobyard.protocols.session import NOWHERE, OUTPUT_MAX, Entrance
from jobyard.protocols.shared_limits import FREE_SIZE, INPUT, OUTPUT
from jobyard.server.addresses import end_text
from jobyard.server.turn import Stirrable

if TYPE_CHECKING:
    from socket import socket

    from jobyard.server.loop import HotLoop

RECEIVE_SIZE: Final = 65536
# A peer that leaves its answers unread this long is not coming back for them.
STUCK_MS: Final = 10_000
# One send of this size at most, so that one peer does not keep the loop from the others.
SEND_MAX: Final = 1 << 20
# Shorter answers that wait behind others are put together: one send for all of them.
JOIN_MAX: Final = 64 << 10

READABLE: Final = select.EPOLLIN
# The peer has sent its last. Only of interest while nothing is read.
LAST_SENT: Final = select.EPOLLRDHUP
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR


@final
class Connection(Stirrable):
    """A socket and its session."""

    def __init__(self, loop: HotLoop, sock: socket, entrance: Entrance, address: str) -> None:
        self._loop = loop
        self.address = address
        self._sock = sock
        self.fd: int = sock.fileno()
        # Bound once: a method look-up costs as much as the parsing of a small command.
        self._recv: Callable[[int], bytes] = sock.recv
        self._send: Callable[[bytes | memoryview], int] = sock.send
        self._outbox = Outbox(loop.gate, self)
        self._yard = loop.turns.yard
        self._journal = loop.turns.yard.journal
        # Answers the peer did not take yet, how much of the first it did, and what is left of all.
        self._backlog: list[bytes] = []
        self._taken: i64 = 0
        self._backlog_size: i64 = 0
        self._backlog_since_ms: i64 = 0
        self._guard = loop.turns.guard
        self._charged: i64 = 0
        self._events: int = READABLE | LAST_SENT
        self._is_stirred: bool = False
        self._may_resume: bool = False
        self.is_closed: bool = False
        self._session = entrance.enter(self)

    def host(self) -> str:
        """Return who the client is to limits by address."""
        return self.address

    def addresses(self) -> tuple[str, str]:
        """Return where the client is, and where it came in."""
        try:
            return end_text(self._sock.getpeername()), end_text(self._sock.getsockname())
        except OSError:
            # It has just gone.
            return NOWHERE, NOWHERE

    # -- events --------------------------------------------------------------------------------

    def on_event(self, events: int, now_ms: i64) -> None:
        """Serve what the loop saw on the socket."""
        self._session.changes_before = self._yard.changes()
        try:
            self._serve(events, now_ms)
        except Exception as error:
            if self._survives(error, now_ms):
                return
            raise

    def _survives(self, error: Exception, now_ms: i64) -> bool:
        """Close the connection of a session that failed, unless more has to end."""
        session = self._session
        if self.is_closed:
            # It failed to give back what it held, and nobody else will.
            return False
        if not self._loop.turns.edge.survives(error, session.changes_before, session.doing()):
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

    def stirred(self) -> None:
        """Let the session go on at the end of this turn."""
        self._may_resume = True
        self._come_back()

    def unsent_size(self) -> i64:
        """Return how much of what the session wrote has not left yet."""
        return self._outbox.held_bytes + self._backlog_size

    def _come_back(self) -> None:
        if not self._is_stirred:
            self._is_stirred = True
            self._loop.turns.stirred.append(self)

    def go_on(self, now_ms: i64) -> None:
        """Run what was held back."""
        self._is_stirred = False
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
        """Send what the session wrote, and decide whether it may read on."""
        session = self._session
        if self._journal.raised > 0:
            session.await_synced(self._journal.take_raised())
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
        """Charge what is held here; have it given up if all hold too much together."""
        session = self._session
        guard = self._guard
        held: i64 = session.held_size()
        before = self._charged
        self._charged = guard.charge(before, held + unsent)
        if session.is_finished:
            return
        excess = guard.decide(before, self._charged, held, unsent)
        if excess == OUTPUT:
            self._loop.abandon(self)
        elif excess == INPUT:
            session.refuse_input(now_ms)
            if len(session.out) > 0:
                session.hand_output(self._outbox)
            self._settle()

    def _settle(self) -> None:
        """Charge no more than is held: some of it has just gone. What has grown is for `_weigh`."""
        if self.is_closed:
            return
        size: i64 = self._session.held_size() + self.unsent_size()
        if size < self._charged + FREE_SIZE:
            self._charged = self._guard.charge(self._charged, size)

    # -- sending -------------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """Send bytes that are safe to send."""
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
            # Something waited for these answers to go: the end, or more input.
            self._come_back()
        if self._charged > 0:
            self._settle()

    def deliver_all(self, pieces: list[bytes]) -> None:
        """Send pieces that are too long together to be joined; most of them in later turns."""
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
        """Send more of what the peer did not take at once."""
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
        """Send of the backlog what the socket takes, and no more than SEND_MAX."""
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
        """Return what is to be sent next: short answers together, long ones without a copy."""
        backlog = self._backlog
        if len(backlog) > 1 and len(backlog[0]) - self._taken < JOIN_MAX:
            count = 1
            size: i64 = len(backlog[0]) - self._taken
            while count < len(backlog) and len(backlog[count]) < JOIN_MAX and size < SEND_MAX:
                size += len(backlog[count])
                count += 1
            if count > 1:
                backlog[0] = backlog[0][self._taken :]
                backlog[:count] = [b"".join(backlog[:count])]
                self._taken = 0
        return memoryview(backlog[0])[self._taken : self._taken + most]

    def is_stuck(self, now_ms: i64) -> bool:
        """Tell whether the peer has long stopped reading."""
        return bool(self._backlog) and now_ms - self._backlog_since_ms > STUCK_MS

    # -- the end -------------------------------------------------------------------------------

    def wind_up(self, now_ms: i64) -> None:
        """Read no more, answer what can be answered, then close."""
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
        """Close the socket and nothing else: what the session holds no longer matters."""
        if not self.is_closed:
            self.is_closed = True
            self._loop.forget(self)
            self._sock.close()

    def close(self, now_ms: i64) -> None:
        """Close the socket and give back what the session holds."""
        if self.is_closed:
            return
        self.is_closed = True
        # It may want to know whether all it wrote has left.
        self._session.closed(now_ms)
        if self._backlog:
            self._loop.stuck_count -= 1
            self._backlog = []
            self._backlog_size = 0
        self._outbox.discard()
        self._charged = self._guard.charge(self._charged, 0)
        self._loop.forget(self)
        self._sock.close()

    def _watch(self, events: int) -> None:
        if events != self._events and not self.is_closed:
            self._events = events
            self._loop.watch(self.fd, events)
