"""One client on the epoll loop: a socket, a session, and the answers on their way.

Reading stops while the session has enough to do (it waits with input sent ahead, or its output has
not been read); a peer that reads nothing for STUCK_MS is closed. Closing gives back everything the
session holds.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.journal.gate import Outbox
from jobyard.model.limits import BACKLOG_MAX, READ_AHEAD_MAX
from jobyard.server.addresses import end_text
from jobyard.server.turn import Stirrable
from jobyard.sessions.session import NOWHERE, OUTPUT_MAX, Entrance

if TYPE_CHECKING:
    from socket import socket

    from jobyard.server.loop import HotLoop

RECEIVE_SIZE: Final = 65536
# A peer that leaves its answers unread this long is not coming back for them.
STUCK_MS: Final = 10_000
# One send of this size at most: a slice of a great answer is copied for every send.
SEND_MAX: Final = 1 << 20

READABLE: Final = select.EPOLLIN
# The peer has sent its last. Only of interest while nothing is read.
LAST_SENT: Final = select.EPOLLRDHUP
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR


@final
class Connection(Stirrable):
    """A socket and its session."""

    def __init__(self, loop: HotLoop, sock: socket, entrance: Entrance) -> None:
        self._loop = loop
        self._sock = sock
        self.fd: int = sock.fileno()
        # Bound once: a method look-up costs as much as the parsing of a small command.
        self._recv: Callable[[int], bytes] = sock.recv
        self._send: Callable[[bytes], int] = sock.send
        self._outbox = Outbox(loop.gate, self)
        self._yard = loop.turns.yard
        self._journal = loop.turns.yard.journal
        self._backlog: bytes = b""
        self._backlog_since_ms: i64 = 0
        self._events: int = READABLE | LAST_SENT
        self._is_stirred: bool = False
        self._may_resume: bool = False
        self.is_closed: bool = False
        self._session = entrance.enter(self)

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
            if self._bears(error, now_ms):
                return
            raise

    def _bears(self, error: Exception, now_ms: i64) -> bool:
        """Close the connection of a session that failed, unless more has to end."""
        session = self._session
        if not self._loop.turns.edge.bears(error, session.changes_before, session.doing()):
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
        return self._outbox.held_bytes + len(self._backlog)

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
            if self._bears(error, now_ms):
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
        if session.is_finished:
            if self._outbox.is_empty() and not self._backlog:
                self.close(now_ms)
            elif self._events & READABLE:
                self._watch(self._events & ~READABLE)
            return
        if session.is_stalled and self._outbox.is_empty() and not self._backlog:
            self._come_back()
        unsent: i64 = self._outbox.held_bytes + len(self._backlog)
        has_enough = (
            session.is_stalled or session.unread_size() > READ_AHEAD_MAX or unsent > OUTPUT_MAX
        )
        if has_enough == bool(self._events & READABLE):
            self._watch(self._events ^ READABLE)

    # -- sending -------------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """Send bytes that are safe to send."""
        if self.is_closed:
            return
        if self._backlog:
            if len(self._backlog) > BACKLOG_MAX:
                self._loop.abandon(self)
                return
            self._backlog += data
            return
        try:
            sent: i64 = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._loop.abandon(self)
            return
        if sent < len(data):
            self._backlog = data[sent:]
            self._backlog_since_ms = self._loop.now_ms
            self._loop.stuck_count += 1
            self._watch(self._events | WRITABLE)
        elif self._session.is_finished or not self._events & READABLE:
            # Something waited for these answers to go: the end, or more input.
            self._come_back()

    def _push(self, now_ms: i64) -> None:
        """Send more of what the peer did not take at once."""
        try:
            sent: i64 = self._send(self._backlog[:SEND_MAX])
        except BlockingIOError:
            return
        except OSError:
            self.close(now_ms)
            return
        self._backlog = self._backlog[sent:]
        self._backlog_since_ms = now_ms
        if not self._backlog:
            self._loop.stuck_count -= 1
            self._watch(self._events & ~WRITABLE)
            self._after_run(now_ms)

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
            if self._bears(error, now_ms):
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
            self._backlog = b""
        self._outbox.discard()
        self._loop.forget(self)
        self._sock.close()

    def _watch(self, events: int) -> None:
        if events != self._events and not self.is_closed:
            self._events = events
            self._loop.watch(self.fd, events)
