"""Hostile input over real sockets: whatever one client sends, another is served on.

A smaller version of the in-process fuzzing, with what only a server has: the loop, the place where
errors are caught, and connections that are closed.
"""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jobyard.protocols.bunqueue.http.routes import ROWS
from tests.support.servers.processes import DOORS, start_doors
from tests.support.values.bunqueue_commands import TEMPLATES
from tests.support.values.hostile import WORDS, as_json, frame, places, put

WAIT_S: Final = 60.0
VALUES: Final[tuple[object, ...]] = (1 << 63, 1 << 64, -(1 << 64), 1e19, -1e308)
NUMBERS: Final = tuple(word for word in WORDS if word.lstrip("-").isdigit() and len(word) < 500)


class Doors:
    """A server with all doors open."""

    def __init__(self, folder: Path, *flags: str) -> None:
        given = ("--data", str(folder), "--log-level", "error", *flags)
        self.process, self.addresses = start_doors(DOORS, *given)

    def connect(self, door: str) -> socket.socket:
        """Open a connection."""
        sock = socket.create_connection(self.addresses[door], WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def fire(self, door: str, data: bytes) -> None:
        """Send bytes and nothing more; read until the server closes, or has answered."""
        with self.connect(door) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass


class Pinger:
    """Another client, which is served all the time."""

    def __init__(self, doors: Doors) -> None:
        self._socket = doors.connect("beanstalk")

    def ping(self) -> None:
        """Be served."""
        self._socket.sendall(b"list-tube-used\r\n")
        assert self._socket.recv(100) == b"USING default\r\n"

    def close(self) -> None:
        """Leave."""
        self._socket.close()


@pytest.fixture(params=["epoll", "asyncio"])
def doors(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Doors]:
    opened = Doors(tmp_path, "--loop", request.param)
    try:
        yield opened
    finally:
        opened.process.close()


def test_the_server_outlives_all_of_it(doors: Doors) -> None:
    pinger = Pinger(doors)
    pid = doors.process.pid
    for name, template in TEMPLATES.items():
        command = {"cmd": name, **template}
        frames = [
            frame(put(command, way, value)) for way in places(template) for value in VALUES[:2]
        ]
        doors.fire("bunqueue", b"".join(frames))
        pinger.ping()
    for row in ROWS:
        path = row.pattern.replace("{queue}", "q").replace("{", "").replace("}", "")
        template = TEMPLATES[row.command]
        for way in places(template):
            requests = b"".join(
                _request(row.method, path, as_json(put(template, way, value))) for value in VALUES
            )
            doors.fire("http", requests)
        for word in NUMBERS:
            query = "&".join(f"{name}={word}" for name in ("limit", "offset", "timeout", "count"))
            doors.fire("http", _request(row.method, f"{path}?{query}", b"{}"))
        pinger.ping()
    for word in NUMBERS:
        lines = [f"put {word} {word} {word} 1", f"reserve-with-timeout {word}", f"kick {word}"]
        doors.fire("beanstalk", "\r\nx\r\n".join([*lines, f"delete {word}", ""]).encode())
        sent = f"SET a 1 EX {word}\r\nXREAD COUNT {word} STREAMS a {word}\r\nHINCRBY a b {word}\r\n"
        doors.fire("glidemq", sent.encode())
        for path in ("diff", "claim", "ack"):
            body = json.dumps({"from_seq": "N", "limit": "N", "max": "N", "lease_ms": "N"})
            numbers = body.replace('"N"', word).encode()
            doors.fire("http", _request("POST", f"/v0/topics/t/{path}", numbers))
        pinger.ping()
    pinger.close()
    assert doors.process.pid == pid
    assert doors.process.child.poll() is None, doors.process.errors()
    assert "unexpected" not in doors.process.errors()


def _request(method: str, path: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def test_who_speaks_http_2_is_told_that_nobody_else_does(doors: Doors) -> None:
    # The preface, and the frame of settings that follows it at once.
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"
    with doors.connect("http") as sock:
        sock.sendall(preface)
        sock.sendall(b"\0\0\0\x04\x01\0\0\0\0")
        answer = b""
        while b"HTTP/1.0\n" not in answer:
            more = sock.recv(1 << 16)
            assert more, answer
            answer += more
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert b"\r\nContent-Type: text/plain" in answer
