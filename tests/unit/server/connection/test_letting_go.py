"""A closed connection frees everything: nothing of it waits for a garbage collection."""

import contextlib
import gc
import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from jobyard.config import Config
from jobyard.journal.reply_gate import Gate, Outbox
from jobyard.protocols.http.call import HttpCall
from jobyard.protocols.session import Session
from jobyard.server.connection import Connection
from jobyard.server.log import Log
from jobyard.server.loop import Clock, HotLoop
from jobyard.server.server import Server
from tests.support.clients.http_text import handshake, ws_frame
from tests.support.servers.bunqueue import frame, pack
from tests.support.servers.patience import PATIENCE_S

KINDS = (Connection, Session, Outbox, HttpCall)


def http(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def upgraded(path: str) -> bytes:
    return http("GET", path, b"", **handshake())


# What a connection was in the middle of when it went, by door.
HABITS: list[tuple[str, str, bytes]] = [
    ("beanstalk", "idle", b"list-tube-used\r\n"),
    ("beanstalk", "in a line", b"put 0 0 "),
    ("beanstalk", "in a body", b"put 0 0 60 60000\r\n" + b"x" * 50_000),
    ("beanstalk", "waiting", b"reserve\r\n"),
    ("beanstalk", "sent ahead", b"reserve\r\nlist-tube-used\r\n"),
    ("bunqueue", "idle", frame(pack({"cmd": "Ping"}))),
    ("bunqueue", "in a frame", b"\x00\x10\x00\x00" + b"x" * 50_000),
    ("bunqueue", "waiting", frame(pack({"cmd": "PULL", "queue": "q", "timeout": 30_000}))),
    ("glidemq", "idle", b"PING\r\n"),
    ("glidemq", "in a command", b"*2\r\n$4\r\nECHO\r\n$60000\r\n" + b"x" * 50_000),
    ("glidemq", "in arguments", b"*900\r\n" + b"$100\r\n" + b"x" * 100 + b"\r\n"),
    ("glidemq", "in a transaction", b"MULTI\r\nPING\r\n"),
    (
        "glidemq",
        "waiting",
        b"XREADGROUP GROUP workers w BLOCK 30000 STREAMS glide:{q}:stream >\r\n",
    ),
    ("http", "idle", http("GET", "/health")),
    ("http", "in a head", b"GET /health HTTP/1.1\r\nHost:"),
    ("http", "in a body", http("POST", "/queues/q/jobs")[:-24] + b"60000\r\n\r\n" + b"x" * 50_000),
    ("http", "in chunks", http("POST", "/v0/t").partition(b"Content")[0] + b"Transfer-Encoding: "),
    ("http", "refused", b"no HTTP\r\n\r\n"),
    ("http", "waiting", http("GET", "/queues/q/jobs?timeout=30000")),
    ("http", "sent ahead", http("GET", "/queues/q/jobs?timeout=30000") * 3),
    ("http", "events", http("GET", "/events")),
    (
        "http",
        "claiming",
        http("PUT", "/v0/topics/jobs", b'{"type":"queue"}')
        + http("POST", "/v0/topics/jobs/claim", b'{"node":"n","wait_ms":20000}'),
    ),
    (
        "http",
        "working",
        http("PUT", "/v0/topics/jobs", b'{"type":"queue"}')
        + http("GET", "/v0/topics/jobs/work?node=n"),
    ),
    ("http", "socket", upgraded("/ws")),
    ("http", "socket in a message", upgraded("/ws") + ws_frame(1, b"x" * 70_000)[:50_000]),
    ("http", "socket of topics", upgraded("/v0/ws") + ws_frame(1, b"x" * 70_000)[:50_000]),
]


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))


@pytest.fixture(scope="module", autouse=True)
def only_new_objects() -> Iterator[None]:
    """What a run has in memory by now takes seconds to look through, and is nothing of ours."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    thresholds = gc.get_threshold()
    config = Config(memory=True, beanstalk="off", bunqueue="off", http="off", glidemq="off")
    made = Server(config, Log("error", "text"), {})
    gc.set_threshold(*thresholds)
    yield made
    made._doors["bunqueue"].close(made._clock.now_ms())


def come_and_go(hot: HotLoop, listener: socket.socket, said: bytes) -> None:
    """Connect, send something, and disconnect once it was received."""
    deadline = time.monotonic() + PATIENCE_S
    client = socket.create_connection(listener.getsockname())
    client.sendall(said)
    while not hot.connections():
        hot.turn(0.01)
        assert time.monotonic() < deadline
    # Of what the loop has read nothing more comes; one turn reads 64 KiB.
    for _ in range(5):
        hot.turn(0.0)
    client.close()
    while hot.connections():
        hot.turn(0.01)
        assert time.monotonic() < deadline
    hot.turn(0.0)


@pytest.mark.parametrize(
    ("door", "said"),
    [pytest.param(door, said, id=f"{door}, {habit}") for door, habit, said in HABITS],
)
def test_nothing_of_a_closed_connection_stays(server: Server, door: str, said: bytes) -> None:
    clock = Clock()
    hot = HotLoop(server._turns, Gate(), clock, 100)
    with socket.create_server(("127.0.0.1", 0)) as listener, no_collections():
        hot.listen(listener, server._doors[door].entrance)
        come_and_go(hot, listener, said)
        # What the first one opened may be kept for later ones.
        before = alive()
        for _ in range(5):
            come_and_go(hot, listener, said)
        assert alive() - before == Counter()
        hot.close(clock.now_ms())
