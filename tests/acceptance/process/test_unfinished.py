"""Unfinished input: its memory is freed when the connection closes."""

import array
import contextlib
import fcntl
import socket
import termios
from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.process.yards import await_true, times
from tests.support.clients.http_text import handshake
from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import JOBYARD, Process, parse_address, parse_ready, rss_bytes

MIB = 1 << 20
SIZE = 60 * MIB
# What may stay: the noise of an allocator.
ROOM = 10 * MIB

UPGRADE = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in handshake().items())
# By door: what is sent first, and how much then comes of something longer.
BEGUN = {
    "beanstalk": (b"put 0 0 60 %d\r\n" % (64 * MIB), SIZE),
    "bunqueue": ((64 * MIB).to_bytes(4, "big"), SIZE),
    "glidemq": (b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (64 * MIB), SIZE),
    "http": (
        b"POST /v0/topics/t HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (64 * MIB),
        SIZE,
    ),
    "http, in chunks": (
        b"POST /v0/topics/t HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n"
        % (64 * MIB),
        SIZE,
    ),
    "http, a socket": (
        f"GET /v0/ws HTTP/1.1\r\nHost: 127.0.0.1\r\n{UPGRADE}\r\n".encode()
        + b"\x81\xff" + (8 * MIB).to_bytes(8, "big") + b"mask",
        7 * MIB,
    ),
}  # fmt: skip


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[tuple[Process, dict[str, tuple[str, int]]]]:
    """Run a server with all doors open."""
    doors = ("beanstalk", "bunqueue", "glidemq", "http")
    at = [word for door in doors for word in (f"--{door}", "127.0.0.1:0")]
    process = Process([*JOBYARD, "serve", *at, "--memory", "--max-job-size", "64MiB", *flags])
    with contextlib.closing(process):
        ready = parse_ready(process.read_line())
        addresses = {}
        for door in doors:
            address = parse_address(ready[door])
            assert isinstance(address, tuple)
            addresses[door] = address
        yield process, addresses


def unsent(sock: socket.socket) -> int:
    """Return how many bytes the peer's kernel has not received."""
    size = array.array("i", [0])
    fcntl.ioctl(sock, termios.TIOCOUTQ, size)
    return size[0]


def say(process: Process, address: tuple[str, int], head: bytes, size: int) -> int:
    """Send so much of something longer and leave; return how large the server was meanwhile."""
    piece = b"x" * MIB
    with socket.create_connection(address, timeout=PATIENCE_S) as sock:
        sock.sendall(head)
        for _ in range(size // MIB):
            sock.sendall(piece)
        await_true(lambda: unsent(sock) == 0, "the server reads", 30)
        return rss_bytes(process.pid)


def await_shrunk(process: Process, most: int, name: str) -> None:
    """Wait until the process has given memory back."""
    await_true(lambda: rss_bytes(process.pid) < most, f"{name}: less than {most >> 20} MiB", 30)


@pytest.mark.parametrize(("loop", "count"), [("epoll", 10), ("uvloop", 3)])
def test_unfinished_input_goes_with_its_connection(loop: str, count: int) -> None:
    with serving("--loop", loop) as (process, addresses):
        for name, (head, size) in BEGUN.items():
            address = addresses[name.partition(",")[0]]
            # The first may load what it takes to serve at all.
            say(process, address, head, MIB)
            before = rss_bytes(process.pid)
            highest = before
            for _ in range(times(count)):
                highest = max(highest, say(process, address, head, size))
            assert highest > before + size // 2, f"{name}: nothing was held"
            await_shrunk(process, before + ROOM, name)


def echo(address: tuple[str, int]) -> socket.socket:
    """Echo a long word over RESP."""
    sock = socket.create_connection(address, timeout=PATIENCE_S)
    size = 16 * MIB
    sock.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % size + b"x" * size + b"\r\n")
    with sock.makefile("rb") as answer:
        assert answer.readline() == b"$%d\r\n" % size
        assert len(answer.read(size + 2)) == size + 2
    return sock


def post(address: tuple[str, int]) -> socket.socket:
    """Send a long body that is refused, and keep the connection."""
    sock = socket.create_connection(address, timeout=PATIENCE_S)
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sock.sendall(head + b"Content-Length: %d\r\n\r\n" % (16 * MIB) + b" " * (16 * MIB))
    with sock.makefile("rb") as answer:
        assert answer.readline().startswith(b"HTTP/1.1 400")
    return sock


@pytest.mark.parametrize(("door", "talk"), [("glidemq", echo), ("http", post)])
def test_a_connection_that_stays_keeps_nothing_of_what_is_over(
    door: str, talk: Callable[[tuple[str, int]], socket.socket]
) -> None:
    with serving() as (process, addresses), contextlib.ExitStack() as peers:
        peers.enter_context(talk(addresses[door]))
        before = rss_bytes(process.pid)
        for _ in range(4):
            peers.enter_context(talk(addresses[door]))
        await_shrunk(process, before + ROOM, door)
