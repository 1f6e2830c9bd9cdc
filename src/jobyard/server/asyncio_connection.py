"""The same sessions on any asyncio loop, uvloop for one: the fallback for the hot loop.

Interchangeable with `connection`, and kept so by running the suite on both: it keeps the sessions
honest about doing no I/O. A turn ends by `call_soon`, so everything that arrived in one pass of the
loop shares a commit; a timer stands in for the sleep of the hot loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast, final

from jobyard.journal.reply_gate import Gate, Outbox
from jobyard.model.limits import BACKLOG_MAX, READ_AHEAD_MAX
from jobyard.protocols.session import OUTPUT_MAX, Entrance
from jobyard.protocols.shared_limits import FREE_SIZE, INPUT, OUTPUT
from jobyard.server.addresses import end_text, host_of
from jobyard.server.loop import Clock
from jobyard.server.turn import Stirrable, Turns, timeout_s

LONGEST_SLEEP_S: Final = 1.0
STUCK_S: Final = 10.0
# Given to the transport at once, which may copy what it cannot send.
SEND_MAX: Final = 1 << 20


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
        """Return what makes the connections of one door."""
        return lambda: StreamConnection(self, entrance)

    def schedule(self) -> None:
        """See that the turn ends after what is ready now has been served."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self.end)

    def end(self) -> None:
        """End a turn and set the timer for the next."""
        self._is_scheduled = False
        self.guard(self._end)

    def guard(self, call: Callable[[], None]) -> None:
        """Run a piece of a turn. After a failure nothing runs and nothing is sent any more."""
        if self.has_failed:
            return
        try:
            call()
        except BaseException as error:  # noqa: BLE001  asyncio would log it and go on answering
            self.has_failed = True
            self._on_failure(error)

    def collect(self, collect: Callable[[], None]) -> None:
        """Take in what the worker thread has done."""
        self.guard(collect)
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
        self._ears: _Ears | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let a client in."""
        # uvloop's transports do not derive from asyncio's, only behave like them.
        stream = cast("asyncio.Transport", transport)
        guard = self._turns.turns.guard
        address = host_of(stream.get_extra_info("peername"))
        if guard.address_max > 0 and not guard.arrive(address):
            stream.abort()
            return
        self._ears = _Ears(self._turns, stream, self._entrance, address)
        self._turns.connections.add(self)

    def _of(self) -> "_Ears":
        assert self._ears is not None
        return self._ears

    def data_received(self, data: bytes) -> None:
        """Run what has arrived."""
        ears = self._of()
        self._turns.guard(lambda: ears.receive(data))

    def eof_received(self) -> bool:
        """Answer what is complete; the session closes the transport itself."""
        self._turns.guard(self._of().end_input)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """Give back what the session holds."""
        if self._ears is None:
            # It was never let in.
            return
        self._turns.guard(self._ears.lost)
        self._turns.forget(self)

    def pause_writing(self) -> None:
        """Note that the peer reads slowly."""
        self._of().is_slow = True
        self._of().watch_slow()

    def resume_writing(self) -> None:
        """Note that the peer has caught up."""
        self._turns.guard(self._of().caught_up)

    def wind_up(self) -> None:
        """Read no more, answer what can be answered, then close."""
        self._turns.guard(self._of().end_input)


@final
class _Ears(Stirrable):
    """What the session and the gate see of a stream connection."""

    def __init__(
        self, turns: StreamTurns, transport: asyncio.Transport, entrance: Entrance, address: str
    ) -> None:
        self._turns = turns
        self._transport = transport
        self.address = address
        self._outbox = Outbox(turns.gate, self)
        self._is_stirred = False
        self._may_resume = False
        self._is_lost = False
        self.is_slow = False
        self._is_watched = False
        # How often the peer has caught up.
        self._catches = 0
        # Pieces that the transport was not given yet.
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
        """Run a part of the session; an error of its own costs the connection if nothing more."""
        session = self._session
        session.changes_before = self._turns.turns.yard.changes()
        try:
            call()
            self._after_run()
        except Exception as error:
            if self._turns.turns.edge.survives(error, session.changes_before, session.doing()):
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
        guard = self._turns.turns.guard
        self._charged = guard.charge(self._charged, 0)
        if guard.address_max > 0:
            guard.leave(self.address)
        self._turns.schedule()

    def stirred(self) -> None:
        """Let the session go on at the end of this turn."""
        self._may_resume = True
        self._come_back()

    def unsent_size(self) -> int:
        """Return how much of what the session wrote has not left yet."""
        return int(self._outbox.held_bytes) + self._given_size()

    def _given_size(self) -> int:
        """Return how much of what may leave has not left yet."""
        return self._waiting_size + self._transport.get_write_buffer_size()

    def _has_sent(self) -> bool:
        """Tell whether the peer has nearly all that was written."""
        return self._outbox.is_empty() and not self._waiting and not self.is_slow

    def host(self) -> str:
        """Return who the client is to limits by address."""
        return self.address

    def addresses(self) -> tuple[str, str]:
        """Return where the client is, and where it came in."""
        info = self._transport.get_extra_info
        return end_text(info("peername")), end_text(info("sockname"))

    def _come_back(self) -> None:
        if not self._is_stirred:
            self._is_stirred = True
            self._turns.turns.stirred.append(self)
            self._turns.schedule()

    def go_on(self, now_ms: int) -> None:
        """Run what was held back."""
        self._is_stirred = False
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
        if journal.raised > 0:
            session.await_synced(journal.take_raised())
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
        """Charge what is held here; have it given up if all hold too much together."""
        session = self._session
        guard = self._turns.turns.guard
        held = session.held_size()
        before = self._charged
        self._charged = guard.charge(before, held + unsent)
        if session.is_finished:
            return
        excess = guard.decide(before, self._charged, held, unsent)
        if excess == OUTPUT:
            self._transport.abort()
        elif excess == INPUT:
            session.refuse_input(self._turns.clock.now_ms())
            if len(session.out) > 0:
                session.hand_output(self._outbox)
            self._charged = guard.charge(self._charged, session.held_size() + self.unsent_size())

    def deliver(self, data: bytes) -> None:
        """Send bytes that are safe to send."""
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
            # Something waited for these answers to go: the end, or more input.
            self._come_back()

    def deliver_all(self, pieces: list[bytes]) -> None:
        """Send pieces that are too long together to be joined; most of them later."""
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
        """Give the transport some of the pieces that wait, until it has enough of them."""
        if self._is_lost:
            return
        left = SEND_MAX
        while self._waiting and not self.is_slow and left > 0:
            piece = self._waiting.pop(0)
            self._waiting_size -= len(piece)
            left -= len(piece)
            self._transport.write(piece)
        if not self._waiting:
            self.stirred()
        elif not self.is_slow:
            self._turns.loop.call_soon(self._turns.guard, self.send_more)

    def caught_up(self) -> None:
        """Go on: the peer has read nearly all that was given to the transport."""
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
