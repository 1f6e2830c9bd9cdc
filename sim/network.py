"""Client connections: bytes in transit to a session, answers in transit back.

`Line` is what the connections of most protocols share. With beanstalk, bytes arrive in pieces cut
anywhere; a `Connection` stores where each command ends in the stream, so that the model gets the
commands that have arrived, but not what they mean. Answers are compared when the session writes
them and again when they are delivered: nothing may be lost, changed or reordered between the two.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from jobyard.journal.reply_gate import Outbox, Sink
from jobyard.protocols.beanstalk.session import BeanstalkSession
from jobyard.protocols.session import Entrance, Peer
from sim.boot import Boot
from sim.state import Client, Violation
from sim.workload import Command

# What an answer depends on: the records or the batch it waits for.
Basis = TypeVar("Basis")


class Ear(Peer):
    """Notes that a session has something to send."""

    def __init__(self, wake: list[Peer]) -> None:
        self._woken = wake

    def wake(self) -> None:
        """Note the session; sessions are called from outside, never from within another."""
        if self not in self._woken:
            self._woken.append(self)


class Mouth(Sink):
    """Receives the answers that leave the server."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        self._say = say

    def deliver(self, data: bytes) -> None:
        """Pass answers on."""
        self._say(data)


class Line(Generic[Basis]):
    """A session, and checked answers in transit from it to the client."""

    def __init__(
        self, boot: Boot, entrance: Entrance, number: int, delivered: Callable[[Basis], None]
    ) -> None:
        self.number = number
        self.ear = Ear(boot.wake)
        self.session = entrance.enter(self.ear)
        self.outbox = Outbox(boot.gate, Mouth(self._deliver))
        self._delivered = delivered
        self._held = bytearray()
        self._received_size = 0
        self._said_size = 0
        # (size of all answers up to this one, what it depends on).
        self._bases: list[tuple[int, Basis]] = []

    def hand(self, data: bytes, basis: Basis) -> None:
        """Pass a checked answer to the gate."""
        self._held += data
        self._said_size += len(data)
        self._bases.append((self._said_size, basis))
        self._pass(data)

    def _pass(self, data: bytes) -> None:
        self.outbox.hand(data, self.session.awaits)

    def _deliver(self, data: bytes) -> None:
        if not self._held.startswith(data):
            raise Violation("answers in order", f"client {self.number}: {data[:80]!r}")
        del self._held[: len(data)]
        self._received_size += len(data)
        while self._bases and self._bases[0][0] <= self._received_size:
            self._delivered(self._bases.pop(0)[1])

    def close(self, now_ms: int) -> None:
        """Close the connection; undelivered answers are lost."""
        self.outbox.discard()
        self._held.clear()
        self.session.closed(now_ms)


class Connection:
    """A session, the client the model sees in it, and the bytes in between."""

    def __init__(
        self, boot: Boot, client: Client, delivered: Callable[["Connection"], None]
    ) -> None:
        self.client = client
        self.ear = Ear(boot.wake)
        self.session = BeanstalkSession(boot.door, self.ear)
        self._outbox = Outbox(boot.gate, Mouth(self._deliver))
        self._delivered = delivered
        self.unsent = bytearray()
        self._ends: deque[tuple[int, Command]] = deque()
        self._sent_size = 0
        self._written_size = 0
        # Answers checked but not passed to the gate; answers passed but not delivered.
        self._fresh = b""
        self._held = bytearray()
        self.received_size = 0
        self.is_closed = False

    # -- towards the server --------------------------------------------------------------------

    def write(self, data: bytes, commands: list[Command]) -> None:
        """Queue one command; the line of a put is a command of its own, `a` bytes long."""
        start = self._written_size
        self._written_size += len(data)
        self.unsent += data
        for command in commands[:-1]:
            self._ends.append((start + command.a, command))
        self._ends.append((self._written_size, commands[-1]))

    def send(self, size: int) -> bytes:
        """Take the next bytes off the line and pass the commands they complete to the model."""
        data = bytes(self.unsent[:size])
        del self.unsent[:size]
        self._sent_size += len(data)
        while self._ends and self._ends[0][0] <= self._sent_size:
            self.client.commands.append(self._ends.popleft()[1])
        return data

    # -- towards the client --------------------------------------------------------------------

    def collect(self) -> None:
        """Take what the session wrote, for checking."""
        data = self.session.take_output()
        self._fresh += data
        self.client.observed += data

    def hand(self) -> None:
        """Pass checked answers to the gate."""
        if self.client.observed:
            got = self.client.observed[:80]
            raise Violation("reply", f"client {self.client.number}: unexpected {got!r}")
        data = self._fresh
        if data:
            self._fresh = b""
            self._held += data
            self._outbox.hand(data, self.session.awaits)

    def _deliver(self, data: bytes) -> None:
        if not self._held.startswith(data):
            story = f"client {self.client.number} got {data[:80]!r}, not {bytes(self._held[:80])!r}"
            raise Violation("answers in order", story)
        del self._held[: len(data)]
        self.received_size += len(data)
        self._delivered(self)

    def is_done(self) -> bool:
        """Return whether the server should close: the session ended and all was delivered."""
        return self.session.is_finished and not self._held and not self._fresh

    def close(self, now_ms: int) -> None:
        """Close the connection; undelivered answers are lost."""
        self.is_closed = True
        self._outbox.discard()
        self._held.clear()
        self._fresh = b""
        self.session.closed(now_ms)
