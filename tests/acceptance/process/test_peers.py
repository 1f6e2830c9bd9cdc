"""Peers that never read, disconnect, come in crowds or send nonsense do not disturb others."""

import contextlib
import ctypes
import os
import random
import resource
import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put, put_id, times
from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import rss_bytes
from tests.support.servers.sockets import SILENCE_S, SocketPeer, await_stat

MIB = 1 << 20
LOOPS = ["epoll", "uvloop", "asyncio"]

FEW_DESCRIPTORS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.argv[2], sys.argv[2:])
"""


@contextlib.contextmanager
def running(folder: Path, *flags: str, before: tuple[str, ...] = ()) -> Iterator[Yard]:
    yard = Yard(folder, *flags, before=before)
    with contextlib.closing(yard):
        yard.start()
        yield yard


# -- slow readers ------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_one_who_never_reads_costs_little(tmp_path: Path, loop: str) -> None:
    with running(tmp_path / "data", "--loop", loop) as yard:
        quick = yard.connect()
        put_id(quick, b"x" * 60_000)
        before = rss_bytes(yard.process.pid)
        slow = socket.create_connection(yard.address)
        slow.sendall(b"peek-ready\r\n" * 1500)
        for _ in range(200):
            assert quick.ask(b"list-tube-used") == b"USING default\r\n"
            assert rss_bytes(yard.process.pid) - before < 24 * MIB
        assert put(quick, b"another").startswith(b"INSERTED")
        slow.close()
        await_stat(quick, "current-connections", "1")
        quick.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_one_who_reads_late_gets_everything(tmp_path: Path, loop: str) -> None:
    with running(tmp_path / "data", "--loop", loop) as yard:
        late = yard.connect()
        job_id = put_id(late, b"x" * 60_000)
        late.send(b"peek-ready\r\n" * 400 + b"list-tube-used\r\n")
        late.shut_down()
        answer = b"FOUND %d 60000\r\n" % job_id + b"x" * 60_000 + b"\r\n"
        assert late.await_end() == answer * 400 + b"USING default\r\n"
        late.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_one_whose_many_answers_waited_for_the_disk_is_read_on(tmp_path: Path, loop: str) -> None:
    """Reading stops while more than a megabyte waits for a sync; it must begin again after it."""
    with running(tmp_path / "data", "--loop", loop) as yard:
        peer = yard.connect()
        job_id = put_id(peer, b"x" * 60_000)
        peer.send(b"put 5 0 60 1\r\ny\r\n" + b"peek %d\r\n" % job_id * 18)
        assert peer.read_line().startswith(b"INSERTED")
        for _ in range(18):
            peer.read(len(b"FOUND %d 60000\r\n" % job_id) + 60_002)
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"


def test_a_great_body_is_sent_without_copying_it_over_and_over(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--max-job-size", "64MiB") as yard:
        peer = yard.connect()
        size = 40 * MIB
        job_id = put_id(peer, b"x" * size)
        before_s = yard.cpu_s()
        # A small window makes many small sends.
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        narrow.connect(yard.address)
        narrow.settimeout(PATIENCE_S)
        narrow.sendall(b"peek %d\r\n" % job_id)
        left = len(b"FOUND %d %d\r\n" % (job_id, size)) + size + 2
        while left > 0:
            data = narrow.recv(1 << 16)
            assert data, "the connection ended"
            left -= len(data)
        assert yard.cpu_s() - before_s < 1.0
        narrow.close()
        peer.close()


# -- crowds ------------------------------------------------------------------------------------


def test_a_thousand_idle_connections_cost_little(yard: Yard) -> None:
    active = yard.connect()
    put_id(active, b"x")
    before = rss_bytes(yard.process.pid)
    crowd = [yard.connect() for _ in range(1000)]
    await_stat(active, "current-connections", "1001")
    for peer in crowd[::100]:
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"
    assert rss_bytes(yard.process.pid) - before < 1000 * 16 * 1024
    before_s = yard.cpu_s()
    assert active.ask(b"watch empty") == b"WATCHING 2\r\n"
    assert active.ask(b"ignore default") == b"WATCHING 1\r\n"
    assert active.ask(b"reserve-with-timeout 1") == b"TIMED_OUT\r\n"
    assert yard.cpu_s() - before_s < 0.1, "idle connections keep the server busy"
    for peer in crowd:
        peer.close()
    await_stat(active, "current-connections", "1")
    active.close()


def is_turned_away(peer: SocketPeer) -> bool:
    """Return whether the server closes a new connection instead of serving it."""
    try:
        peer.send(b"list-tube-used\r\n")
        return peer.await_end() == b""
    except ConnectionError:
        return True


def test_descriptors_are_kept_back_for_the_journal(tmp_path: Path) -> None:
    """However many connect, the journal can open its next file."""
    before = (sys.executable, "-c", FEW_DESCRIPTORS, "200")
    with running(tmp_path / "data", *SMALL_SEGMENTS, before=before) as yard:
        first = yard.connect()
        put_id(first, b"x")
        crowd = [yard.connect() for _ in range(150)]
        assert is_turned_away(crowd[-1])
        last = yard.segment_numbers()[-1]
        await_true(
            lambda: put(first, b"y" * 4000) != b"" and yard.segment_numbers()[-1] > last + 6,
            "the journal goes on in new files",
        )
        before_s = yard.cpu_s()
        assert first.ask(b"watch empty") == b"WATCHING 2\r\n"
        assert first.ask(b"ignore default") == b"WATCHING 1\r\n"
        assert first.ask(b"reserve-with-timeout 1") == b"TIMED_OUT\r\n"
        assert yard.cpu_s() - before_s < 0.1
        assert "refused connections" in yard.errors()
        for peer in crowd:
            peer.close()
        await_stat(first, "current-connections", "1")
        late = yard.connect()
        assert late.ask(b"list-tube-used") == b"USING default\r\n"
        late.close()
        first.close()


def descriptors(pid: int) -> set[int]:
    return {int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()}


def test_without_descriptors_the_server_rests_and_recovers(tmp_path: Path) -> None:
    with running(tmp_path / "data", *SMALL_SEGMENTS) as yard:
        first = yard.connect()
        put_id(first, b"x")
        pid = yard.process.pid
        await_true(lambda: len(list(yard.folder.glob("*.spare"))) == 3, "the spare files are there")
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        limit = max(descriptors(pid)) + 3
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, usual[1]))
        # More than there are descriptors, so that one freed by a file is used by one of these.
        crowd = [yard.connect() for _ in range(limit)]
        await_true(lambda: len(descriptors(pid)) == limit, "no descriptor is left")
        waiting = yard.connect()
        waiting.send(b"list-tube-used\r\n")
        before_s = yard.cpu_s()
        assert first.ask(b"reserve").startswith(b"RESERVED")
        assert first.ask(b"watch empty") == b"WATCHING 2\r\n"
        assert first.ask(b"reserve-with-timeout 1") == b"TIMED_OUT\r\n"
        assert yard.cpu_s() - before_s < 0.2, "the server spins at the limit"
        assert not waiting.receive_more(0)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        assert waiting.read_line() == b"USING default\r\n"
        for peer in (waiting, first, *crowd):
            peer.close()


# -- peers that disconnect ---------------------------------------------------------------------


def accepted_socket(yard: Yard, peer: SocketPeer) -> socket.socket:
    """Return a copy of the server's own end of a connection."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(yard.process.pid)
    wanted = peer._sock.getsockname()
    try:
        for entry in Path(f"/proc/{yard.process.pid}/fd").iterdir():
            # pidfd_getfd has this number on every machine.
            fd = libc.syscall(438, pidfd, int(entry.name), 0)
            if fd < 0:
                continue
            try:
                found = socket.socket(fileno=fd)
            except OSError:
                os.close(fd)
                continue
            with contextlib.suppress(OSError):
                if found.getpeername() == wanted:
                    return found
            found.close()
    finally:
        os.close(pidfd)
    pytest.skip("the descriptors of another process cannot be had here")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_dead_peer_is_found_within_a_minute(tmp_path: Path, loop: str) -> None:
    with running(tmp_path / "data", "--loop", loop) as yard:
        peer = yard.connect()
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"
        with contextlib.closing(accepted_socket(yard, peer)) as sock:
            tcp = socket.IPPROTO_TCP
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(tcp, socket.TCP_NODELAY) == 1
            idle_s = sock.getsockopt(tcp, socket.TCP_KEEPIDLE)
            between_s = sock.getsockopt(tcp, socket.TCP_KEEPINTVL)
            probes = sock.getsockopt(tcp, socket.TCP_KEEPCNT)
            assert idle_s + between_s * probes <= 60, "a silent peer is found too late"
            assert 0 < sock.getsockopt(tcp, socket.TCP_USER_TIMEOUT) <= 60_000
        peer.close()


def test_waiters_who_vanish_swallow_no_job(yard: Yard) -> None:
    boss = yard.connect()
    for n in range(30):
        waiter = yard.connect()
        waiter.send(b"reserve\r\n")
        if n % 3 == 0:
            waiter.reset()
        elif n % 3 == 1:
            waiter.close()
        else:
            waiter.shut_down()
            assert waiter.await_end() == b"TIMED_OUT\r\n"
            waiter.close()
        job_id = put_id(boss, b"%d" % n)
        await_stat(boss, "current-connections", "1")
        assert boss.ask(b"reserve-with-timeout 0").startswith(b"RESERVED %d " % job_id)
        assert boss.ask(b"delete %d" % job_id) == b"DELETED\r\n"
    boss.close()


def test_jobs_of_those_who_vanish_come_back(yard: Yard) -> None:
    boss = yard.connect()
    ids = [put_id(boss, b"%d" % n) for n in range(30)]
    crowd = [yard.connect() for _ in range(30)]
    for peer in crowd:
        assert peer.ask(b"reserve").startswith(b"RESERVED")
    for n, peer in enumerate(crowd):
        if n % 2:
            peer.reset()
        else:
            peer.close()
    await_stat(boss, "current-jobs-ready", "30")
    assert [int(boss.ask(b"reserve").split()[1]) for _ in ids] == ids
    boss.close()


# -- nonsense ----------------------------------------------------------------------------------

NONSENSE = [
    b"\0" * 100_000,
    b"\xff" * 100_000,
    b"\r" * 100_000,
    b"\n" * 100_000,
    b"\r\n" * 20_000,
    b"put " * 50_000,
    b"x" * MIB,
    b"put 0 0 0 4294967295\r\n" + b"y" * 100_000,
    b"put 0 0 0 99999999999999999999999999\r\n",
    b"put 0 0 0 -1\r\nput 0 0 0 1.5\r\nput 0 0 0\r\n",
    b"put 4294967296 0 0 1\r\nx\r\n",
    b"reserve-with-timeout 99999999999999999999\r\n",
    b"delete 18446744073709551616\r\ndelete -1\r\n",
    b"kick " + b"9" * 200 + b"\r\n",
    b"use " + b"n" * 200 + b"\r\nuse " + b"n" * 201 + b"\r\n",
    b"watch \0\r\nwatch \xc3\xa4\r\n",
    b"put 0 0 1 5\r\nabcdeXY" + b"stats\r\n" * 100,
    b"put 0 0 1 5\r\nab\0cd\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x55" * 500,
]


def say_and_leave(yard: Yard, data: bytes) -> None:
    """Send something, listen for a moment, and leave in the middle of whatever it was."""
    sock = socket.create_connection(yard.address)
    sock.settimeout(0)
    with contextlib.closing(sock), contextlib.suppress(ConnectionError):
        at = 0
        while at < len(data):
            readable, writable, _ = select.select([sock], [sock], [], SILENCE_S)
            if readable:
                sock.recv(1 << 16)
            if writable:
                at += sock.send(data[at : at + 65536])
            if not readable and not writable:
                return
        select.select([sock], [], [], 0)


@pytest.mark.parametrize("loop", LOOPS)
def test_nonsense_leaves_no_trace(tmp_path: Path, loop: str) -> None:
    rng = random.Random(7)
    with running(tmp_path / "data", "--loop", loop, "--max-job-size", "1GiB") as yard:
        good = yard.connect()
        kept = put_id(good, b"kept", b"put 0 1000 60")
        say_and_leave(yard, NONSENSE[0])
        before = rss_bytes(yard.process.pid)
        for _ in range(times(3)):
            for data in NONSENSE:
                say_and_leave(yard, data)
            words = b" ".join(rng.choice(NONSENSE)[:20] for _ in range(30))
            for _ in range(20):
                say_and_leave(yard, rng.randbytes(rng.randrange(1, 3000)))
                say_and_leave(yard, bytes(rng.choice(words) for _ in range(300)) + b"\r\n")
        assert good.ask(b"peek %d" % kept) == b"FOUND %d 4\r\nkept\r\n" % kept
        await_stat(good, "current-connections", "1")
        assert rss_bytes(yard.process.pid) - before < 16 * MIB
        assert "Traceback" not in yard.errors()
        good.close()
        yard.stop()


def test_promised_bodies_cost_nothing_until_they_come(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--max-job-size", "1GiB") as yard:
        boss = yard.connect()
        assert boss.ask(b"list-tube-used") == b"USING default\r\n"
        before = rss_bytes(yard.process.pid)
        crowd = [yard.connect() for _ in range(50)]
        for peer in crowd:
            peer.send(b"put 0 0 60 1073741824\r\nbegun")
        await_stat(boss, "cmd-put", "50")
        assert rss_bytes(yard.process.pid) - before < 8 * MIB
        for peer in crowd:
            peer.close()
        await_stat(boss, "current-connections", "1")
        boss.close()
