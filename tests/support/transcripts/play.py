"""Performing a case on a stage: the same steps against a bare session or a real server.

Knows the steps and when they are fulfilled; a `Stage` knows how bytes travel and time passes.
Every mismatch names the file, the line, what was expected and what came. At the end of a case
no connection may have unread bytes.
"""

from typing import Protocol

from tests.support.transcripts.text import Pattern, TranscriptError, Values, to_send
from tests.support.transcripts.transcript import Case, Step


class Mismatch(AssertionError):
    """The server answered something else, too much, or nothing."""


class Peer(Protocol):
    """One connection as its client sees it. Reads raise `Mismatch` if nothing comes in time."""

    def send(self, data: bytes) -> None:
        """Send bytes to the server."""

    def read_line(self) -> bytes:
        """Take bytes up to and including the next CRLF."""

    def read(self, size: int) -> bytes:
        """Take exactly `size` bytes."""

    def take_unread(self) -> bytes:
        """Take whatever is there or arrives at once."""

    def await_end(self) -> bytes:
        """Wait until the server closes the connection; return its last output."""

    def shut_down(self) -> None:
        """Close the client's sending side only."""

    def close(self) -> None:
        """Close the connection."""

    def reset(self) -> None:
        """Close abruptly: the server sees a reset."""


class Stage(Protocol):
    """A server and the connections of one case."""

    is_quoting: bool

    def connect(self) -> Peer:
        """Open a connection."""

    def tick(self, ms: int) -> None:
        """Let time pass."""

    def drain(self) -> None:
        """Put the server into drain mode; return when it is."""


class Performance:
    """One case on one stage."""

    def __init__(self, case: Case, stage: Stage) -> None:
        self._case = case
        self._stage = stage
        self._values = Values(is_quoting=stage.is_quoting)
        self._peers: dict[str, Peer] = {}

    def run(self) -> None:
        """Perform every step, then check that nothing is unread; close all connections."""
        try:
            for step in self._case.steps:
                try:
                    self._perform(step)
                except (Mismatch, TranscriptError) as error:
                    raise type(error)(f"{self._case.path.name}:{step.line}: {error}") from error
            for name, peer in self._peers.items():
                unread = peer.take_unread()
                if unread:
                    raise Mismatch(f"{self._case.path.name}: {name} was also sent {unread!r}")
        finally:
            for peer in self._peers.values():
                peer.close()

    def _perform(self, step: Step) -> None:
        if step.kind == "tick":
            self._stage.tick(step.ms)
        elif step.kind == "drain":
            self._stage.drain()
        elif step.kind == "deed":
            self._do(step)
        else:
            peer = self._peer(step.who)
            if step.kind == "send":
                data = to_send(step.text, self._values)
                peer.send(data if step.is_raw else data + b"\r\n")
            elif step.kind == "receive":
                self._receive(peer, step)
            elif step.kind == "ok":
                self._receive_ok(peer, step)
            else:
                self._check_state(peer, step.text)

    def _peer(self, name: str) -> Peer:
        if name not in self._peers:
            self._peers[name] = self._stage.connect()
        return self._peers[name]

    def _do(self, step: Step) -> None:
        peer = self._peer(step.who)
        if step.text == "closes":
            peer.close()
            del self._peers[step.who]
        elif step.text == "resets":
            peer.reset()
            del self._peers[step.who]
        elif step.text == "shuts down":
            peer.shut_down()

    def _receive(self, peer: Peer, step: Step) -> None:
        if step.is_raw:
            wanted = to_send(step.text, self._values)
            came = peer.read(len(wanted))
            if came != wanted:
                raise Mismatch(f"expected {wanted!r}, {step.who} was sent {came!r}")
            return
        line = peer.read_line()
        if not Pattern(step.text + "\\r\\n", self._values).matches(line):
            raise Mismatch(f"expected {step.text!r}, {step.who} was sent {line!r}")

    def _receive_ok(self, peer: Peer, step: Step) -> None:
        head = peer.read_line()
        word, _, size = head.rstrip(b"\r\n").partition(b" ")
        if word != b"OK" or not size.isdigit():
            raise Mismatch(f"expected OK and a size, {step.who} was sent {head!r}")
        data = peer.read(int(size) + 2)
        if not data.startswith(b"---\n") or not data.endswith(b"\n\r\n"):
            raise Mismatch(f"not a YAML document of {int(size)} bytes: {data!r}")
        lines = data[4:-3].split(b"\n")
        if step.text == "exactly" and len(lines) != len(step.lines):
            raise Mismatch(f"expected {len(step.lines)} lines, {step.who} was sent {data!r}")
        rest = iter(lines)
        for wanted in step.lines:
            pattern = Pattern(wanted, self._values)
            candidates = [next(rest)] if step.text == "exactly" else rest
            if not any(pattern.matches(line) for line in candidates):
                raise Mismatch(f"expected {wanted!r} (in its place), {step.who} was sent {data!r}")

    def _check_state(self, peer: Peer, state: str) -> None:
        if state == "closed":
            farewell = peer.await_end()
            if farewell:
                raise Mismatch(f"expected the end of the connection, got {farewell!r}")
            return
        said = peer.take_unread()
        if said:
            raise Mismatch(f"expected silence, got {said!r}")


def play(case: Case, stage: Stage) -> None:
    """Perform a case on a stage."""
    Performance(case, stage).run()
