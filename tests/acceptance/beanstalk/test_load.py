"""Peers that behave badly: slow readers, endless lines, too many connections."""

import contextlib
import select
import socket
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.servers.processes import (
    JOBYARD,
    Process,
    Server,
    parse_address,
    parse_ready,
    rss_bytes,
)
from tests.support.servers.sockets import SILENCE_S, SocketPeer, SocketStage, await_stat, connect
from tests.support.transcripts.theatre import DATA, MEMORY

MIB: Final = 1 << 20

# Starts what follows with few descriptors; limits cannot be set from outside before the start.
FEW_DESCRIPTORS: Final = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture(params=[MEMORY, DATA])
def player(request: pytest.FixtureRequest) -> str:
    """Jobyard only: the original is known to be worse at some of this."""
    return str(request.param)


def test_an_endless_line_costs_no_memory(stage: SocketStage) -> None:
    peer = stage.connect()
    assert peer.ask(b"list-tube-used") == b"USING default\r\n"
    before = rss_bytes(stage.server.process.pid)
    piece = b"x" * MIB
    for _ in range(64):
        peer.send(piece)
    peer.send(b"\r\n")
    assert peer.read_line() == b"BAD_FORMAT\r\n"
    assert rss_bytes(stage.server.process.pid) - before < 16 * MIB
    peer.close()


def test_a_body_too_big_costs_no_memory(stage: SocketStage) -> None:
    peer = stage.connect()
    assert peer.ask(b"list-tube-used") == b"USING default\r\n"
    before = rss_bytes(stage.server.process.pid)
    peer.send(b"put 0 0 60 %d\r\n" % (64 * MIB))
    piece = b"x" * MIB
    for _ in range(64):
        peer.send(piece)
    peer.send(b"\r\n")
    assert peer.read_line() == b"JOB_TOO_BIG\r\n"
    assert rss_bytes(stage.server.process.pid) - before < 16 * MIB
    peer.close()


def test_commands_behind_a_waiting_reserve_do_not_pile_up(
    stage: SocketStage, host_and_port: tuple[str, int]
) -> None:
    """TCP flow control stops a peer that waits and keeps sending, not our memory."""
    sock = socket.create_connection(host_and_port)
    sock.sendall(b"reserve\r\n")
    before = rss_bytes(stage.server.process.pid)
    sock.settimeout(0)
    piece = b"list-tube-used\r\n" * 4096
    sent = 0
    while sent < 64 * MIB and select.select([], [sock], [], 10 * SILENCE_S)[1]:
        sent += sock.send(piece)
    assert sent < 64 * MIB, "the server took everything"
    assert rss_bytes(stage.server.process.pid) - before < 16 * MIB
    other = stage.connect()
    assert other.ask(b"list-tube-used") == b"USING default\r\n"
    # Its FIN would wait behind unread data; a reset does not.
    SocketPeer(sock).reset()
    await_stat(other, "current-connections", "1")
    other.close()


def test_a_slow_reader_hinders_only_itself(
    stage: SocketStage, host_and_port: tuple[str, int]
) -> None:
    quick = stage.connect()
    quick.send(b"put 0 0 60 60000\r\n" + b"x" * 60000 + b"\r\n")
    assert quick.read_line().startswith(b"INSERTED")
    before = rss_bytes(stage.server.process.pid)
    slow = socket.create_connection(host_and_port)
    slow.settimeout(0)
    asked = 0
    # Ask for far more than socket buffers hold and read nothing.
    while asked < 2000 and select.select([], [slow], [], 10 * SILENCE_S)[1]:
        asked += slow.send(b"peek-ready\r\n" * 100) // 12
    for _ in range(50):
        assert quick.ask(b"list-tube-used") == b"USING default\r\n"
    assert rss_bytes(stage.server.process.pid) - before < 32 * MIB
    quick.close()
    slow.close()


def test_a_slow_reader_gets_everything_in_the_end(stage: SocketStage) -> None:
    peer = stage.connect()
    peer.send(b"put 0 0 60 60000\r\n" + b"x" * 60000 + b"\r\n")
    job_id = int(peer.read_line().split()[1])
    peer.send(b"peek-ready\r\n" * 300 + b"list-tube-used\r\n")
    answer = b"FOUND %d 60000\r\n" % job_id + b"x" * 60000 + b"\r\n"
    for _ in range(300):
        assert peer.read(len(answer)) == answer
    assert peer.read_line() == b"USING default\r\n"
    peer.close()


@contextlib.contextmanager
def started_with_few_descriptors(most: int) -> Iterator[Server]:
    command = [*JOBYARD, "serve", "--memory", "--beanstalk", "127.0.0.1:0"]
    process = Process([sys.executable, "-c", FEW_DESCRIPTORS, str(most), *command])
    try:
        yield Server(process, parse_address(parse_ready(process.read_line())["beanstalk"]))
    finally:
        process.close()


def test_at_the_descriptor_limit_new_peers_are_turned_away() -> None:
    with started_with_few_descriptors(64) as server:
        first = connect(server.address)
        assert first.ask(b"list-tube-used") == b"USING default\r\n"
        crowd = [connect(server.address) for _ in range(100)]
        assert crowd[-1].await_end() == b""
        assert first.ask(b"list-tube-used") == b"USING default\r\n"
        for peer in crowd:
            peer.close()
        await_stat(first, "current-connections", "1")
        late = connect(server.address)
        assert late.ask(b"list-tube-used") == b"USING default\r\n"
        late.close()
        first.close()


def test_a_thousand_tubes_and_connections(stage: SocketStage) -> None:
    peers = [stage.connect() for _ in range(200)]
    for number, peer in enumerate(peers):
        for part in range(5):
            assert peer.ask(b"watch t%d.%d" % (number, part)) == b"WATCHING %d\r\n" % (part + 2)
        peer.send(b"reserve\r\n")
    boss = stage.connect()
    await_stat(boss, "current-tubes", "1001")
    await_stat(boss, "current-waiting", "200")
    for number, peer in enumerate(peers):
        boss.ask(b"use t%d.3" % number)
        boss.send(b"put 0 0 60 %d\r\n%d\r\n" % (len(str(number)), number))
        job_id = int(boss.read_line().split()[1])
        assert peer.read_line() == b"RESERVED %d %d\r\n" % (job_id, len(str(number)))
        assert peer.read_line() == b"%d\r\n" % number
        peer.close()
    boss.close()
