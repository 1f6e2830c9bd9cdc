"""Bytes no client sends; the server answers in one line, closes, and serves the others."""

import shutil
import socket
import subprocess

import pytest
import redis

from tests.support.servers.glidemq import Yard
from tests.support.servers.processes import rss_bytes


def said_to(yard: Yard, data: bytes) -> bytes:
    with socket.create_connection(yard.address, timeout=20) as sock:
        sock.sendall(data)
        said = b""
        while piece := sock.recv(65536):
            said += piece
        return said


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"*2147483647\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$9223372036854775807\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$-7\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n+PING\r\n", b"-ERR Protocol error: expected '$', got '+'\r\n"),
        (b"x" * 70_000, b"-ERR Protocol error: too big inline request\r\n"),
        (b"GET /v0/topics HTTP/1.1\r\nHost: x\r\n\r\n", None),
    ],
)
def test_what_is_no_request_is_told_and_closed(
    shared: Yard, data: bytes, answer: bytes | None
) -> None:
    said = said_to(shared, data)
    if answer is not None:
        assert said == answer
    with shared.client() as client:
        assert client.ping() is True


def test_lengths_alone_take_no_memory(shared: Yard) -> None:
    before = rss_bytes(shared.process.pid)
    socks = []
    for _ in range(50):
        sock = socket.create_connection(shared.address, timeout=20)
        sock.sendall(b"*100000\r\n$67108864\r\n")
        socks.append(sock)
    with shared.client() as client:
        assert client.ping() is True
    assert rss_bytes(shared.process.pid) - before < 8 << 20
    for sock in socks:
        sock.close()


def test_commands_that_take_several_turns_are_answered_though_no_more_comes(shared: Yard) -> None:
    with socket.create_connection(shared.address, timeout=20) as sock:
        sock.sendall(b"INFO\r\n" * 1000 + b"MULTI\r\n" + b"PING\r\n" * 300 + b"EXEC\r\n")
        sock.shutdown(socket.SHUT_WR)
        said = b""
        while piece := sock.recv(1 << 20):
            said += piece
    assert said.count(b"redis_version:") == 1000
    assert said.endswith(b"*300\r\n" + b"+PONG\r\n" * 300)


def test_many_commands_in_one_piece(shared: Yard) -> None:
    with socket.create_connection(shared.address, timeout=20) as sock:
        sock.sendall(b"PING\r\n" * 20_000 + b"QUIT\r\n")
        said = b""
        while piece := sock.recv(1 << 20):
            said += piece
    assert said == b"+PONG\r\n" * 20_000 + b"+OK\r\n"


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
def test_redis_cli(shared: Yard) -> None:
    host, port = shared.address
    lines = b'PING\nSET glide:{cli}:tpm:1 "a b"\nGET glide:{cli}:tpm:1\nHELLO 3\nINFO server\n'
    done = subprocess.run(
        ["redis-cli", "-h", host, "-p", str(port)],
        input=lines,
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.startswith(b"PONG\nOK\na b\n")
    assert b"redis_mode:standalone" in done.stdout


def test_a_client_that_asks_much_and_reads_nothing_is_not_answered_for_ever(shared: Yard) -> None:
    with shared.client() as client:
        client.hset("glide:{abuse}:schedulers", "big", b"x" * (1 << 20))
    with socket.create_connection(shared.address, timeout=1) as sock:
        command = b"*3\r\n$4\r\nHGET\r\n$24\r\nglide:{abuse}:schedulers\r\n$3\r\nbig\r\n"
        before = rss_bytes(shared.process.pid)
        try:
            for _ in range(200):
                sock.sendall(command * 10)
        except TimeoutError:
            pass
        with shared.client() as client:
            assert client.ping() is True
        assert rss_bytes(shared.process.pid) - before < 64 << 20
    with pytest.raises(redis.ResponseError):
        shared.client().execute_command("NONSENSE")
