"""Sockets with a timeout on every wait, and the stage of a real server.

`REPLY_S` limits how long an answer may take, `SILENCE_S` how long a test waits for silence.
A peer counts as silent after `SILENCE_S`: too short a wait can only hide a failure, never
cause one.
"""

import select
import socket
import struct
import time
from typing import Final

from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import Server
from tests.support.transcripts.play import Mismatch

REPLY_S: Final = PATIENCE_S
SILENCE_S: Final = 0.04


class SocketPeer:
    """A client's end of a connection to a running server."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._unread = bytearray()
        self._has_ended = False
        sock.settimeout(REPLY_S)

    def send(self, data: bytes) -> None:
        """Send bytes; the peer may be slow, within limits."""
        self._sock.sendall(data)

    def receive_more(self, timeout_s: float) -> bool:
        """Wait for bytes or the end of the connection; return whether anything came in time."""
        if self._has_ended:
            return False
        readable, _, _ = select.select([self._sock], [], [], timeout_s)
        if not readable:
            return False
        try:
            data = self._sock.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self._has_ended = True
        self._unread += data
        return True

    def _await(self, is_enough: int | bytes) -> None:
        """Read until this many bytes, or these bytes, are there."""
        deadline = time.monotonic() + REPLY_S
        while not (
            len(self._unread) >= is_enough
            if isinstance(is_enough, int)
            else is_enough in self._unread
        ):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self.receive_more(left_s) or self._has_ended:
                why = "the connection ended" if self._has_ended else f"{REPLY_S} s passed"
                raise Mismatch(f"no answer: {why}; unread: {bytes(self._unread[:500])!r}")

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def read_line(self) -> bytes:
        """Take bytes up to and including the next CRLF."""
        self._await(b"\r\n")
        return self._take(self._unread.index(b"\r\n") + 2)

    def read(self, size: int) -> bytes:
        """Take exactly `size` bytes."""
        self._await(size)
        return self._take(size)

    def take_unread(self) -> bytes:
        """Take whatever is there or arrives within `SILENCE_S`."""
        self.receive_more(SILENCE_S)
        return self._take(len(self._unread))

    def await_end(self) -> bytes:
        """Read until the server has closed; return everything read."""
        deadline = time.monotonic() + REPLY_S
        while not self._has_ended:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self.receive_more(left_s):
                raise Mismatch(f"still open after {REPLY_S} s; unread: {bytes(self._unread)!r}")
        return self._take(len(self._unread))

    def shut_down(self) -> None:
        """Close the sending side only."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both sides."""
        self._sock.close()

    def reset(self) -> None:
        """Close with a reset instead of a FIN."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def ask(self, line: bytes) -> bytes:
        """Send one command line and return its answer: the line, or the body after `OK`/`FOUND`."""
        self.send(line + b"\r\n")
        head = self.read_line()
        if head.startswith((b"OK ", b"FOUND ", b"RESERVED ")):
            return head + self.read(int(head.split()[-1]) + 2)
        return head


def connect(address: tuple[str, int] | str) -> SocketPeer:
    """Open a connection to a host and port, or to the path of a unix socket."""
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(REPLY_S)
        try:
            sock.connect(address)
        except OSError:
            sock.close()
            raise
    else:
        sock = socket.create_connection(address, timeout=REPLY_S)
        # A step is one send: Nagle would join it with the next one.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketPeer(sock)


def stat(answer: bytes, key: str) -> str:
    """Return one value of a statistics answer, without quotes."""
    for line in answer.split(b"\n"):
        name, _, value = line.partition(b": ")
        if name == key.encode("ascii"):
            return value.decode("ascii").strip('"')
    raise Mismatch(f"no {key} in {answer!r}")


def await_stat(peer: SocketPeer, key: str, wanted: str) -> None:
    """Request `stats` until a value is as wanted: for facts a server learns from its kernel.

    A closed socket or a signal reaches the server some loop turns later.
    """
    deadline = time.monotonic() + REPLY_S
    while (found := stat(peer.ask(b"stats"), key)) != wanted:
        if time.monotonic() > deadline:
            raise Mismatch(f"{key} is still {found}, not {wanted}, after {REPLY_S} s")


class SocketStage:
    """A running server as the stage of one case after another."""

    def __init__(self, server: Server, *, is_quoting: bool) -> None:
        self.server = server
        self.is_quoting = is_quoting
        self._peers: list[SocketPeer] = []

    def connect(self) -> SocketPeer:
        """Open a connection."""
        peer = connect(self.server.address)
        self._peers.append(peer)
        return peer

    def tick(self, ms: int) -> None:
        """Wait in real time: a server's clock cannot be moved from outside."""
        select.select([], [], [], ms / 1000)

    def drain(self) -> None:
        """Send the signal and wait until the server reports that it drains."""
        probe = connect(self.server.address)
        probe.ask(b"list-tube-used")  # before its first answer a server may not catch signals yet
        self.server.signal_drain()
        await_stat(probe, "draining", "true")
        probe.close()

    def sweep(self) -> None:
        """Reset the server to no jobs and no tubes; cumulative counters stay."""
        broom = connect(self.server.address)
        await_stat(broom, "current-connections", "1")
        broom.ask(b"pause-tube default 0")
        for entry in broom.ask(b"list-tubes").split(b"\n"):
            if not entry.startswith(b"- "):
                continue
            broom.ask(b"use " + entry[2:].strip())
            for peek in (b"peek-ready", b"peek-delayed", b"peek-buried"):
                while (found := broom.ask(peek)).startswith(b"FOUND"):
                    broom.ask(b"delete " + found.split()[1])
        broom.ask(b"use default")
        await_stat(broom, "current-tubes", "1")
        broom.close()
