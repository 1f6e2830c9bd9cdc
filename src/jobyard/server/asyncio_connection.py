"""The same sessions on any asyncio loop, such as uvloop: the fallback for the hot loop.

Interchangeable with `connection`, which the tests ensure by running on both; so sessions cannot do
I/O of their own. A turn is ended by `call_soon`, so everything that arrived in one pass of the loop
shares a commit; a timer replaces the sleep of the hot loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast, final

from jobyard.journal.reply_gate import Gate, Outbox
from jobyard.model.limits import BACKLOG_MAX, READ_AHEAD_MAX
from jobyard.protocols.session import OUTPUT_MAX, Entrance
from jobyard.protocols.shared_limits import FREE_SIZE, INPUT, OUTPUT
from jobyard.server.addresses import end_text, host_of
from jobyard.server.connection import SEND_MAX
from jobyard.server.loop import LONGEST_SLEEP_S, Clock
from jobyard.server.turn import Turns, Wakeable, timeout_s

STUCK_S: Final = 10.0


@final
class StreamTurns:
    """Turns of an asyncio loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
        gate: Gate,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.loop = loop
        self.turns = turns
        self.gate = gate
        self.clock = clock
        self._on_failure = on_failure
        self._is_scheduled = False
        self.has_failed = False
        self._timer: asyncio.TimerHandle | None = None
        self.connections: set[StreamConnection] = set()
        self.on_empty: Callable[[], None] | None = None

    def forget(self, connection: "StreamConnection") -> None:
        """Drop a connection that is gone."""
        self.connections.discard(connection)
        if self.on_empty is not None and not self.connections:
            self.on_empty()

    def protocol_factory(self, entrance: Entrance) -> Callable[[], "StreamConnection"]:
        """Return the factory for connections of one door."""
        return lambda: StreamConnection(self, entrance)

    def schedule(self) -> None:
        """Schedule the end of the turn, after everything that is ready now."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self.end)

    def end(self) -> None:
        """End a turn and set the timer for the next."""
        self._is_scheduled = False
        self.run_guarded(self._end)

    def run_guarded(self, call: Callable[[], None]) -> None:
        """Run part of a turn. After a failure nothing more is run or sent."""
        if self.has_failed:
            return
        try:
            call()
        except BaseException as error:  # noqa: BLE001  asyncio would log it and continue
            self.has_failed = True
            self._on_failure(error)

    def collect(self, collect: Callable[[], None]) -> None:
        """Collect the finished tasks of the worker thread."""
        self.run_guarded(collect)
        self.schedule()

    def _end(self) -> None:
        now_ms = self.clock.now_ms()
        self.turns.begin(now_ms)
        next_ms = self.turns.end(now_ms)
        if self._timer is not None:
            self._timer.cancel()
        sleep_s = timeout_s(next_ms, now_ms, LONGEST_SLEEP_S)
        self._timer = self.loop.call_later(sleep_s, self.schedule)


@final
class StreamConnection(asyncio.Protocol):
    """A transport and its session."""

    def __init__(self, turns: StreamTurns, entrance: Entrance) -> None:
        self._turns = turns
        self._entrance = entrance
        self._peer_or_none: _StreamPeer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Create the session, unless the client's address has too many connections."""
        # uvloop's transports behave like asyncio's but are not derived from them.
        stream = cast("asyncio.Transport", transport)
        shared_limits = self._turns.turns.shared_limits
        address = host_of(stream.get_extra_info("peername"))
        if shared_limits.address_max > 0 and not shared_limits.arrive(address):
            stream.abort()
            return
        self._peer_or_none = _StreamPeer(self._turns, stream, self._entrance, address)
        self._turns.connections.add(self)

    def _of(self) -> "_StreamPeer":
        assert self._peer_or_none is not None
        return self._peer_or_none

    def data_received(self, data: bytes) -> None:
        """Pass input to the session."""
        ears = self._of()
        self._turns.run_guarded(lambda: ears.receive(data))

    def eof_received(self) -> bool:
        """Answer complete requests; the session closes the transport itself."""
        self._turns.run_guarded(self._of().end_input)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """Give back what the session holds."""
        if self._peer_or_none is None:
            # The connection was refused.
            return
        self._turns.run_guarded(self._peer_or_none.lost)
        self._turns.forget(self)

    def pause_writing(self) -> None:
        """Note that the peer does not read fast enough."""
        self._of().is_slow = True
        self._of().watch_slow()

    def resume_writing(self) -> None:
        """Note that the peer has caught up."""
        self._turns.run_guarded(self._of().caught_up)

    def wind_up(self) -> None:
        """Stop reading, answer what can be answered, then close."""
        self._turns.run_guarded(self._of().end_input)


@final
class _StreamPeer(Wakeable):
    """A stream connection as the session and the gate see it."""

    def __init__(
        self, turns: StreamTurns, transport: asyncio.Transport, entrance: Entrance, address: str
    ) -> None:
        self._turns = turns
        self._transport = transport
        self.address = address
        self._outbox = Outbox(turns.gate, self)
        self._is_woken = False
        self._may_resume = False
        self._is_lost = False
        self.is_slow = False
        self._is_watched = False
        # How many times the peer has caught up.
        self._catches = 0
        # Pieces not yet written to the transport.
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._is_paused = False
        self._charged = 0
        self._session = entrance.enter(self)

    def receive(self, data: bytes) -> None:
        now_ms = self._turns.clock.now_ms()
        self._turns.turns.begin(now_ms)
        if not self._is_lost:
            self._run(lambda: self._session.receive(data, now_ms))

    def end_input(self) -> None:
        if not self._is_lost:
            self._run(lambda: self._session.end_input(self._turns.clock.now_ms()))

    def _run(self, call: Callable[[], None]) -> None:
        """Run part of the session; an unexpected error closes at least the connection."""
        session = self._session
        session.changes_before = self._turns.turns.yard.changes()
        try:
            call()
            self._after_run()
        except Exception as error:
            if self._turns.turns.error_boundary.survives(
                error, session.changes_before, session.doing()
            ):
                self.lost()
                self._transport.abort()
                return
            raise

    def lost(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._session.closed(self._turns.clock.now_ms())
        self._waiting = []
        self._waiting_size = 0
        self._outbox.discard()
        shared_limits = self._turns.turns.shared_limits
        self._charged = shared_limits.charge(self._charged, 0)
        if shared_limits.address_max > 0:
            shared_limits.leave(self.address)
        self._turns.schedule()

    def wake(self) -> None:
        """Resume the session at the end of this turn."""
        self._may_resume = True
        self._come_back()

    def unsent_size(self) -> int:
        """Return how many bytes of the session's output are not sent yet."""
        return int(self._outbox.held_bytes) + self._given_size()

    def _given_size(self) -> int:
        """Return how many bytes that may be sent are not sent yet."""
        return self._waiting_size + self._transport.get_write_buffer_size()

    def _has_sent(self) -> bool:
        """Return whether the peer has read nearly all output."""
        return self._outbox.is_empty() and not self._waiting and not self.is_slow

    def host(self) -> str:
        """Return the key of the client for limits by address."""
        return self.address

    def addresses(self) -> tuple[str, str]:
        """Return the addresses of the client and of the listening side."""
        info = self._transport.get_extra_info
        return end_text(info("peername")), end_text(info("sockname"))

    def _come_back(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._turns.turns.woken.append(self)
            self._turns.schedule()

    def proceed(self, now_ms: int) -> None:
        """Resume the session if it may, and send its output."""
        self._is_woken = False
        if self._is_lost:
            return
        if self._session.is_stalled:
            self._may_resume = self._has_sent()
        self._run(lambda: self._resume(now_ms))

    def _resume(self, now_ms: int) -> None:
        if self._may_resume:
            self._may_resume = False
            self._session.resume(now_ms)

    def _after_run(self) -> None:
        session = self._session
        journal = self._turns.turns.yard.journal
        if journal.command_sync_batch > 0:
            session.await_synced(journal.take_command_sync_batch())
        if len(session.out) > 0:
            session.hand_output(self._outbox)
        self._turns.schedule()
        unsent = self.unsent_size()
        if self._charged > 0 or session.held_size() + unsent > FREE_SIZE:
            self._weigh(unsent)
        if session.is_finished:
            if self._outbox.is_empty() and not self._waiting:
                self._transport.close()
            return
        if session.is_stalled and self._has_sent():
            self._come_back()
        self._is_paused = (
            session.is_stalled or session.unread_size() > READ_AHEAD_MAX or unsent > OUTPUT_MAX
        )
        if self._is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _weigh(self, unsent: int) -> None:
        """Charge the held bytes; refuse input or close if all connections hold too much."""
        session = self._session
        shared_limits = self._turns.turns.shared_limits
        held = session.held_size()
        before = self._charged
        self._charged = shared_limits.charge(before, held + unsent)
        if session.is_finished:
            return
        excess = shared_limits.decide(before, self._charged, held, unsent)
        if excess == OUTPUT:
            self._transport.abort()
        elif excess == INPUT:
            session.refuse_input(self._turns.clock.now_ms())
            if len(session.out) > 0:
                session.hand_output(self._outbox)
            self._charged = shared_limits.charge(
                self._charged, session.held_size() + self.unsent_size()
            )

    def deliver(self, data: bytes) -> None:
        """Send bytes that the gate has released."""
        if self._is_lost or self._turns.has_failed:
            return
        if self._given_size() > BACKLOG_MAX:
            self._transport.abort()
            return
        if self._waiting:
            self._waiting.append(data)
            self._waiting_size += len(data)
            return
        self._transport.write(data)
        if self._session.is_finished or (self._is_paused and not self.is_slow):
            # The close or further input waited for these replies to be sent.
            self._come_back()

    def deliver_all(self, pieces: list[bytes]) -> None:
        """Send pieces that are too long to be joined; most of them later."""
        if self._is_lost or self._turns.has_failed:
            return
        if self._given_size() > BACKLOG_MAX:
            self._transport.abort()
            return
        was_waiting = bool(self._waiting)
        self._waiting += pieces
        self._waiting_size += sum(map(len, pieces))
        if not was_waiting:
            self.send_more()

    def send_more(self) -> None:
        """Write waiting pieces to the transport until its buffer is full."""
        if self._is_lost:
            return
        left = SEND_MAX
        while self._waiting and not self.is_slow and left > 0:
            piece = self._waiting.pop(0)
            self._waiting_size -= len(piece)
            left -= len(piece)
            self._transport.write(piece)
        if not self._waiting:
            self.wake()
        elif not self.is_slow:
            self._turns.loop.call_soon(self._turns.run_guarded, self.send_more)

    def caught_up(self) -> None:
        """Continue sending: the peer has read nearly all that was written to the transport."""
        self.is_slow = False
        self._catches += 1
        self.send_more()

    def watch_slow(self) -> None:
        """Close the connection if the peer is still not reading after a while."""
        if not self._is_watched:
            self._is_watched = True
            before = (self._catches, self._given_size())
            self._turns.loop.call_later(STUCK_S, self._check_slow, *before)

    def _check_slow(self, catches: int, before: int) -> None:
        self._is_watched = False
        if self._is_lost or not self.is_slow:
            return
        if self._catches == catches and self._given_size() >= before:
            self._transport.abort()
        else:
            self.watch_slow()
