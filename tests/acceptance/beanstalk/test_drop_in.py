"""`jobyard beanstalkd` in place of the original's program: flags, exit codes, what a service sees.

Every test runs against both; where Jobyard differs on purpose the test says so.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.processes import (
    END_S,
    JOBYARD,
    Process,
    Server,
    ServerFailed,
    find_original,
    free_port,
    run_to_end,
    start_activated,
)
from tests.support.servers.sockets import SocketPeer, await_stat, connect, stat

BOTH = ["jobyard", "original"]


@pytest.fixture(params=BOTH)
def program(request: pytest.FixtureRequest) -> list[str]:
    """The command that is `jobyard beanstalkd` or the original."""
    if request.param == "jobyard":
        return [*JOBYARD, "beanstalkd"]
    path = find_original()
    if path is None:
        pytest.skip("beanstalkd is not installed")
    return [path]


def is_jobyard(program: list[str]) -> bool:
    return program[0] == sys.executable


@contextlib.contextmanager
def activated(program: list[str], *flags: str) -> Iterator[Server]:
    """Run the program on a socket handed over as systemd does."""
    server = start_activated([*program, *flags])
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def listening(
    program: list[str], *flags: str, address: tuple[str, int] | str, cwd: Path | None = None
) -> Iterator[SocketPeer]:
    """Run the program until it accepts at an address of its own choice; give a connection."""
    process = Process([*program, *flags], cwd=cwd)
    try:
        peer = await_listening(process, address)
        yield peer
        peer.close()
    finally:
        process.close()


def await_listening(process: Process, address: tuple[str, int] | str) -> SocketPeer:
    """Connect as soon as the server listens: it announces nothing, so it has to be tried."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline and process.child.poll() is None:
        try:
            return connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            select.select([], [], [], 0.02)
    raise ServerFailed(f"nobody listens at {address}; stderr: {process.errors()}")


def put(peer: SocketPeer, body: bytes) -> int:
    peer.send(b"put 0 0 60 %d\r\n" % len(body) + body + b"\r\n")
    word, number = peer.read_line().split()
    assert word == b"INSERTED"
    return int(number)


# -- questions -----------------------------------------------------------------------------------


def test_v_tells_the_version(program: list[str]) -> None:
    ended = run_to_end([*program, "-v"])
    assert ended.returncode == 0
    assert ended.stdout.startswith("beanstalkd 1.")
    assert len(ended.stdout.splitlines()) == 1


def test_h_tells_the_flags(program: list[str]) -> None:
    ended = run_to_end([*program, "-h"])
    assert ended.returncode == 0
    text = ended.stdout + ended.stderr
    for flag in ("-b", "-f", "-F", "-l", "-p", "-u", "-z", "-s", "-v", "-V", "-h"):
        assert f" {flag} " in text


@pytest.mark.parametrize(
    "flags",
    [
        ["-x"],
        ["--port", "11300"],
        ["-Vx"],
        ["surplus"],
        ["-V", "surplus"],
        ["-p"],
        ["-b"],
        ["-z"],
        ["-z", "many"],
        ["-f", "often"],
        ["-s", "big"],
    ],
)
def test_what_it_does_not_know_ends_with_5(program: list[str], flags: list[str]) -> None:
    ended = run_to_end([*program, *flags])
    assert ended.returncode == 5
    assert ended.stdout == ""
    assert ended.stderr != ""


def test_a_port_in_use_ends_with_111(program: list[str]) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        ended = run_to_end([*program, "-l", "127.0.0.1", "-p", str(port)])
    assert ended.returncode == 111


def test_an_address_that_is_not_ours_ends_with_111(program: list[str]) -> None:
    # 192.0.2.0/24 is set aside for documents: no machine has it.
    ended = run_to_end([*program, "-l", "192.0.2.1", "-p", str(free_port())])
    assert ended.returncode == 111


def test_a_directory_that_is_not_there_ends_with_10(program: list[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    ended = run_to_end([*program, "-l", "127.0.0.1", "-p", str(free_port()), "-b", str(missing)])
    assert ended.returncode == 10
    assert not missing.exists()


def test_a_directory_in_use_ends_with_10(program: list[str], tmp_path: Path) -> None:
    with activated(program, "-b", str(tmp_path)) as server:
        peer = connect(server.address)
        job_id = put(peer, b"x")
        ended = run_to_end(
            [*program, "-l", "127.0.0.1", "-p", str(free_port()), "-b", str(tmp_path)]
        )
        assert ended.returncode == 10
        assert peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
        peer.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_user_that_is_not_there_ends_with_33(program: list[str]) -> None:
    ended = run_to_end(
        [*program, "-l", "127.0.0.1", "-p", str(free_port()), "-u", "nobody-by-that-name"]
    )
    assert ended.returncode == 33


# -- flags that change what it does --------------------------------------------------------------


def test_listens_where_it_is_told(program: list[str], tmp_path: Path) -> None:
    port = free_port()
    where = ("127.0.0.1", port)
    with listening(
        program, "-l", "127.0.0.1", "-p", str(port), address=where, cwd=tmp_path
    ) as peer:
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"
        put(peer, b"in memory only")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags",
    [["-VVp{port}", "-l127.0.0.1"], ["-Vl", "127.0.0.1", "-Vp", "{port}"], ["-Fp{port}"]],
)
def test_flags_may_be_joined(program: list[str], flags: list[str]) -> None:
    port = free_port()
    words = [flag.format(port=port) for flag in flags]
    with listening(program, *words, address=("127.0.0.1", port)) as peer:
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"


def test_listens_on_a_socket_file(program: list[str], tmp_path: Path) -> None:
    path = tmp_path / "stalk.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as stale:
        stale.bind(str(path))
    path_flag = f"unix:{path}"
    with listening(program, "-l", path_flag, address=str(path)) as peer:
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"


def test_a_file_that_is_no_socket_ends_with_111(program: list[str], tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("keep me", encoding="ascii")
    ended = run_to_end([*program, "-l", f"unix:{path}"])
    assert ended.returncode == 111
    assert path.read_text(encoding="ascii") == "keep me"


def test_z_sets_the_largest_job(program: list[str]) -> None:
    with activated(program, "-z", "10") as server:
        peer = connect(server.address)
        await_stat(peer, "max-job-size", "10")
        put(peer, b"x" * 10)
        assert peer.ask(b"put 0 0 60 11\r\n" + b"x" * 11) == b"JOB_TOO_BIG\r\n"
        peer.close()


def test_z_has_a_ceiling_and_says_so(program: list[str]) -> None:
    with activated(program, "-z", "9999999999") as server:
        peer = connect(server.address)
        await_stat(peer, "max-job-size", "1073741824")
        assert "1073741824" in server.process.errors()
        peer.close()


@pytest.mark.parametrize("flag", ["-c", "-n"])
def test_old_flags_are_warned_of_and_ignored(program: list[str], flag: str) -> None:
    with activated(program, flag) as server:
        peer = connect(server.address)
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"
        assert server.process.errors() != ""
        peer.close()


def test_takes_the_socket_of_a_service_manager(program: list[str]) -> None:
    with activated(program) as server:
        peer = connect(server.address)
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"
        await_stat(peer, "pid", str(server.process.pid))
        peer.close()


# -- jobs on disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [["-f0"], ["-f", "50"], ["-F"], []])
def test_b_keeps_jobs_over_a_kill(program: list[str], flags: list[str], tmp_path: Path) -> None:
    with activated(program, "-b", str(tmp_path), *flags) as server:
        peer = connect(server.address)
        ids = [put(peer, b"%d" % n) for n in range(20)]
        assert peer.ask(b"delete %d" % ids[0]) == b"DELETED\r\n"
        server.process.signal(signal.SIGKILL)
        assert server.process.wait() == -signal.SIGKILL
        peer.close()
    with activated(program, "-b", str(tmp_path), *flags) as server:
        peer = connect(server.address)
        assert stat(peer.ask(b"stats"), "current-jobs-ready") == "19"
        assert peer.ask(b"peek %d" % ids[0]) == b"NOT_FOUND\r\n"
        assert peer.ask(b"reserve") == b"RESERVED %d 1\r\n1\r\n" % ids[1]
        peer.close()


def test_a_directory_of_the_original_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "binlog.1").write_bytes(b"\x07\0\0\0" + bytes(100))
    ended = run_to_end([*JOBYARD, "beanstalkd", "-l127.0.0.1", "-p0", "-b", str(tmp_path)])
    assert ended.returncode == 10
    assert "binlog.1" in ended.stderr


# -- signals -------------------------------------------------------------------------------------


def test_sigusr1_drains(program: list[str]) -> None:
    with activated(program) as server:
        peer = connect(server.address)
        put(peer, b"x")
        server.signal_drain()
        await_stat(peer, "draining", "true")
        assert peer.ask(b"put 0 0 60 1\r\nx") == b"DRAINING\r\n"
        assert peer.ask(b"reserve-with-timeout 0").startswith(b"RESERVED")
        peer.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told(program: list[str], how: signal.Signals) -> None:
    with activated(program) as server:
        peer = connect(server.address)
        peer.ask(b"list-tube-used")
        server.process.signal(how)
        # The original dies of the signal; Jobyard ends in order.
        assert server.process.wait() == (0 if is_jobyard(program) else -how)
        assert peer.await_end() == b""
        peer.close()
