"""The stage without a socket: sessions over a yard in memory, on a clock that only `tick` moves.

Sessions are called exactly as a connection would call them: bytes as they arrive, `resume` after a
peer was woken, `closed` once the session is finished and its output taken. Time moves from one
due timer to the next, so that each timer fires at its exact time.
"""

from collections import deque
from typing import Final

from jobyard.engine.jobs.tick import tick
from jobyard.engine.state.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.model.limits import JOB_SIZE_DEFAULT
from jobyard.protocols.beanstalk.door import BeanstalkDoor, BeanstalkFacts
from jobyard.protocols.beanstalk.session import BeanstalkSession
from jobyard.protocols.session import Peer
from tests.support.play import Mismatch

START_MS: Final = 1_700_000_000_000
BODY_BUDGET: Final = 1 << 30
SEGMENT_SIZE: Final = 1 << 20

# Larger sends are cut into pieces of this size: byte by byte they would take too long.
PIECE_SIZE: Final = 997
BYTEWISE_SIZE_MAX: Final = 4096


class FixedFacts(BeanstalkFacts):
    """A machine that never changes."""

    def pid(self) -> int:
        """Return a process id."""
        return 4711

    def cpu_times(self) -> tuple[float, float]:
        """Return seconds of processor time."""
        return 1.25, 0.5

    def machine(self) -> tuple[str, str, str]:
        """Return host name, operating system and platform."""
        return "yard", "#1 SMP", "x86_64"

    def instance_id(self) -> str:
        """Return an id."""
        return "0123456789abcdef"


class Stirring(Peer):
    """Notes that its session has output or can continue."""

    def __init__(self, wake: deque["BarePeer"], owner: "BarePeer") -> None:
        self._stirred = wake
        self._owner = owner

    def wake(self) -> None:
        """Queue the session for a later call; it is never called from within."""
        self._stirred.append(self._owner)


class BarePeer:
    """A client's end of a session."""

    def __init__(self, stage: "BareStage") -> None:
        self._stage = stage
        self._session = BeanstalkSession(stage.door, Stirring(stage.woken, self))
        self._unread = bytearray()
        self._is_open = True

    def send(self, data: bytes) -> None:
        """Pass bytes to the session, whole or in pieces."""
        for piece in self._stage.cut(data):
            if self._is_open and not self._session.is_finished:
                self._session.receive(piece, self._stage.now_ms)
                self.collect()
                self._stage.settle()

    def collect(self) -> None:
        """Take the session's output; close the session if it is finished."""
        self._unread += self._session.take_output()
        while self._session.is_stalled:
            self._session.resume(self._stage.now_ms)
            self._unread += self._session.take_output()
        if self._session.is_finished and self._is_open:
            self._is_open = False
            self._session.closed(self._stage.now_ms)

    def resume(self) -> None:
        """Resume the session with the input it held back."""
        if self._is_open:
            self._session.resume(self._stage.now_ms)
            self.collect()

    def read_line(self) -> bytes:
        """Take bytes up to and including the next CRLF."""
        end = self._unread.find(b"\r\n")
        if end < 0:
            raise Mismatch(f"no answer; unread: {bytes(self._unread[:500])!r}")
        return self._take(end + 2)

    def read(self, size: int) -> bytes:
        """Take exactly `size` bytes."""
        if len(self._unread) < size:
            raise Mismatch(f"no answer; unread: {bytes(self._unread[:500])!r}")
        return self._take(size)

    def take_unread(self) -> bytes:
        """Take all output so far."""
        return self._take(len(self._unread))

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def await_end(self) -> bytes:
        """Check that the session is finished; return its last output."""
        if self._is_open:
            raise Mismatch(f"still open; unread: {bytes(self._unread)!r}")
        return self.take_unread()

    def shut_down(self) -> None:
        """End the input of the session."""
        if self._is_open:
            self._session.end_input(self._stage.now_ms)
            self.collect()
            self._stage.settle()

    def close(self) -> None:
        """Close the connection."""
        if self._is_open:
            self._is_open = False
            self._session.closed(self._stage.now_ms)
            self._stage.settle()

    def reset(self) -> None:
        """Close the connection; a session does not see a reset."""
        self.close()


class BareStage:
    """One yard in memory and its beanstalk door."""

    is_quoting = True

    def __init__(self, settings: dict[str, str], *, is_bytewise: bool) -> None:
        self.now_ms = START_MS
        self.woken: deque[BarePeer] = deque()
        self._is_bytewise = is_bytewise
        journal = Journal(None, SEGMENT_SIZE, ids_ahead=False)
        self._yard = Yard(journal, Bodies(journal, BODY_BUDGET))
        size_max = int(settings.get("max-job-size", JOB_SIZE_DEFAULT))
        self.door = BeanstalkDoor(self._yard, FixedFacts(), size_max, START_MS)

    def cut(self, data: bytes) -> list[bytes]:
        """Return the pieces in which a send arrives."""
        if not self._is_bytewise:
            return [data]
        size = 1 if len(data) <= BYTEWISE_SIZE_MAX else PIECE_SIZE
        return [data[at : at + size] for at in range(0, len(data), size)]

    def connect(self) -> BarePeer:
        """Open a session."""
        return BarePeer(self)

    def settle(self) -> None:
        """Resume woken sessions until none is left."""
        while self.woken:
            self.woken.popleft().resume()

    def tick(self, ms: int) -> None:
        """Move the clock from timer to timer up to `ms` later."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            due_ms = tick(self._yard, self.now_ms)
            self.settle()
            # A timer already due is work the tick left for its next turn.
            self.now_ms = max(self.now_ms, min(due_ms, until_ms))
        while tick(self._yard, until_ms) <= until_ms:
            self.settle()
        self.settle()

    def drain(self) -> None:
        """Put the server into drain mode."""
        self.door.is_draining = True
