"""A server on a data directory that tests end in every possible way, and start again."""

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import JOBYARD, Process, Server, await_ready, parse_address
from tests.support.servers.sockets import SocketPeer, connect

# Segments so small that a second of load rolls and compacts many; history would keep them.
SMALL_SEGMENTS: Final = ("--segment-size", "64KiB", "--events-bytes", "0")


def times(count: int) -> int:
    """Return how often to repeat; YARD_TEST_LENGTH=20 makes every loop 20 times longer."""
    return count * int(os.environ.get("YARD_TEST_LENGTH", "1"))


def await_true(is_so: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> float:
    """Wait until something is so; return how long it took."""
    started = time.monotonic()
    while not is_so():
        waited_s = time.monotonic() - started
        if waited_s > within_s:
            raise AssertionError(f"not within {within_s} s: {what}")
        # A poll has no event to wait for; the pause only keeps it from taking a whole core.
        select.select([], [], [], 0.002)
    return time.monotonic() - started


class Yard:
    """One data directory, and the server that runs on it now, if one does."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        env: dict[str, str] | None = None,
        before: tuple[str, ...] = (),
    ) -> None:
        """`before` is a command that runs the server, such as strace and its flags."""
        self.folder = folder
        self.flags = ("--data", str(folder), *flags)
        self.env = env
        self._before = before
        self._server: Server | None = None
        self._peers: list[SocketPeer] = []

    @property
    def process(self) -> Process:
        """The process of the running server."""
        assert self._server is not None, "no server runs"
        return self._server.process

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._server is not None
        assert isinstance(self._server.address, tuple)
        return self._server.address

    def launch(self) -> Process:
        """Start a process and do not wait for it."""
        command = [*self._before, *JOBYARD, "serve", "--beanstalk", "127.0.0.1:0", *self.flags]
        return Process(command, env=self.env)

    def start(self) -> None:
        """Start a server and wait until it is ready."""
        process = self.launch()
        self._server = Server(process, parse_address(await_ready(process)["beanstalk"]))

    def kill(self) -> None:
        """Send SIGKILL; everything the kernel has stays."""
        self.process.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and see that it is obeyed."""
        self.process.signal(signal.SIGTERM)
        code = self.process.wait()
        assert code == 0, f"exit code {code}: {self.errors()}"

    def close(self) -> None:
        """End whatever runs, and every connection to it."""
        for peer in self._peers:
            peer.close()
        self._peers = []
        if self._server is not None:
            self._server.close()
            self._server = None

    def restart(self) -> None:
        """Start again after an end."""
        self.close()
        self.start()

    def connect(self) -> SocketPeer:
        """Open a connection, which is closed with the server at the latest."""
        peer = connect(self.address)
        self._peers.append(peer)
        return peer

    def errors(self) -> str:
        """What the server has logged."""
        return self.process.errors()

    def cpu_s(self) -> float:
        """Return the processor time the server has used."""
        line = Path(f"/proc/{self.process.pid}/stat").read_text("ascii")
        fields = line.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def segment_numbers(self) -> list[int]:
        """Return the numbers of the journal's files."""
        return sorted(int(path.stem) for path in self.folder.glob("*.journal"))


def put(peer: SocketPeer, body: bytes, head: bytes = b"put 0 0 600") -> bytes:
    """Put a job and return the answer."""
    peer.send(head + b" %d\r\n" % len(body) + body + b"\r\n")
    return peer.read_line()


def put_id(peer: SocketPeer, body: bytes, head: bytes = b"put 0 0 600") -> int:
    """Put a job and return its id."""
    word, number = put(peer, body, head).split()
    assert word == b"INSERTED"
    return int(number)
