"""`jobyard serve` as a process: how it starts, refuses to start, drains and ends."""

import contextlib
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.servers.processes import (
    JOBYARD,
    Process,
    Server,
    parse_address,
    parse_ready,
    run_to_end,
    start_jobyard,
)
from tests.support.servers.sockets import await_stat, connect

# The guarantee for stopping the server.
STOP_S: Final = 10.0


@contextlib.contextmanager
def running(*flags: str, address: str = "127.0.0.1:0", cwd: Path | None = None) -> Iterator[Server]:
    server = start_jobyard(*flags, address=address, cwd=cwd)
    try:
        yield server
    finally:
        server.close()


def serve(*flags: str) -> list[str]:
    return [*JOBYARD, "serve", *flags]


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file in a folder but those a server makes in advance."""
    return {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.suffix != ".spare"
    }


def test_the_ready_line_is_all_of_stdout(tmp_path: Path) -> None:
    process = Process(serve("--data", str(tmp_path / "yard"), "--beanstalk", "127.0.0.1:0"))
    try:
        ready = parse_ready(process.read_line())
        address = parse_address(ready["beanstalk"])
        assert address[0] == "127.0.0.1"
        assert address[1] != 0
        assert Path(ready["data"]).resolve() == (tmp_path / "yard").resolve()
        peer = connect(address)
        assert peer.ask(b"list-tube-used") == b"USING default\r\n"
        peer.close()
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.rest_of_output() == ""
    finally:
        process.close()


def test_memory_mode_leaves_no_file(tmp_path: Path) -> None:
    with running("--memory", cwd=tmp_path) as server:
        peer = connect(server.address)
        peer.send(b"put 0 0 60 1\r\nx\r\n")
        assert peer.read_line().startswith(b"INSERTED")
        peer.close()
        assert list(tmp_path.iterdir()) == []


def test_data_goes_to_jobyard_data_by_default(tmp_path: Path) -> None:
    with running(cwd=tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["jobyard-data"]


def test_a_port_in_use_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        ended = run_to_end(
            serve("--data", str(tmp_path / "yard"), "--beanstalk", f"127.0.0.1:{port}")
        )
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert f"127.0.0.1:{port}" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with running("--data", str(tmp_path)) as server:
        peer = connect(server.address)
        peer.send(b"put 0 0 60 1\r\nx\r\n")
        assert peer.read_line() == b"INSERTED 1\r\n"
        before = snapshot(tmp_path)
        ended = run_to_end(serve("--data", str(tmp_path), "--beanstalk", "127.0.0.1:0"))
        assert ended.returncode != 0
        assert ended.stdout == ""
        assert len(ended.stderr.splitlines()) == 1
        assert str(tmp_path) in ended.stderr
        assert snapshot(tmp_path) == before
        assert peer.ask(b"delete 1") == b"DELETED\r\n"
        peer.close()


@pytest.mark.parametrize(
    ("flags", "right"),
    [
        (["--beanstak", "127.0.0.1:0"], "--beanstalk"),
        (["--dat", "x"], "--data"),
        (["--memry"], "--memory"),
        (["--max-jobsize", "10"], "--max-job-size"),
    ],
)
def test_a_wrong_flag_names_the_right_one(flags: list[str], right: str, tmp_path: Path) -> None:
    ended = run_to_end(serve(*flags), cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert flags[0] in ended.stderr
    assert f"{right}?" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags",
    [
        ["--beanstalk", "nonsense"],
        ["--beanstalk", "127.0.0.1:99999"],
        ["--max-job-size", "2GiB"],
        ["--durability", "maybe"],
        ["--memory", "--data", "x"],
        ["--beanstalk", "off"],
        ["--beanstalk", "0.0.0.0:0"],
        ["surplus"],
    ],
)
def test_nonsense_is_refused_in_one_line(flags: list[str], tmp_path: Path) -> None:
    ended = run_to_end(serve(*flags), cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_heard_and_flags_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBYARD_MEMORY", "true")
    monkeypatch.setenv("JOBYARD_MAX_JOB_SIZE", "11")
    with running(cwd=tmp_path) as server:
        peer = connect(server.address)
        await_stat(peer, "max-job-size", "11")
        peer.close()
    with running("--max-job-size", "12", cwd=tmp_path) as server:
        peer = connect(server.address)
        await_stat(peer, "max-job-size", "12")
        peer.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--memory"], ["--data", "yard"]])
def test_sigterm_ends_with_0_whoever_is_connected(flags: list[str], tmp_path: Path) -> None:
    with running(*flags, cwd=tmp_path) as server:
        idle = connect(server.address)
        waiting = connect(server.address)
        waiting.send(b"reserve\r\n")
        writing = connect(server.address)
        writing.send(b"put 0 0 60 10\r\nhalf")
        await_stat(idle, "current-waiting", "1")
        server.process.signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert idle.await_end() == b""
        # A waiting client may get any answer, but not a job.
        assert not waiting.await_end().startswith(b"RESERVED")
        assert writing.await_end() == b""
        for peer in (idle, waiting, writing):
            peer.close()


def test_a_unix_socket_serves_and_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "yard.sock"
    with running("--memory", address=f"unix:{path}") as server:
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert server.address == str(path)
        peer = connect(server.address)
        assert peer.ask(b"use x") == b"USING x\r\n"
        peer.close()
        server.process.signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert not path.exists()


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "yard.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as gone:
        gone.bind(str(path))
    with running("--memory", address=f"unix:{path}") as server:
        peer = connect(server.address)
        assert peer.ask(b"use x") == b"USING x\r\n"
        peer.close()


def test_a_file_that_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("keep me", encoding="ascii")
    ended = run_to_end(serve("--memory", "--beanstalk", f"unix:{path}"))
    assert ended.returncode != 0
    assert len(ended.stderr.splitlines()) == 1
    assert path.read_text(encoding="ascii") == "keep me"


def test_the_ready_line_survives_a_reader_that_left(tmp_path: Path) -> None:
    """A supervisor may close the pipe; the server must not die of it."""
    with running("--memory", cwd=tmp_path) as server:
        assert server.process.child.stdout is not None
        server.process.child.stdout.close()
        server.process.child.stdout = None
        peer = connect(server.address)
        peer.send(b"put 0 0 60 1\r\nx\r\n")
        assert peer.read_line() == b"INSERTED 1\r\n"
        peer.close()
        server.process.signal(signal.SIGTERM)
        assert server.process.wait() == 0


def test_statistics_name_the_process(tmp_path: Path) -> None:
    with running("--data", str(tmp_path)) as server:
        peer = connect(server.address)
        await_stat(peer, "pid", str(server.process.pid))
        await_stat(peer, "hostname", os.uname().nodename)
        await_stat(peer, "platform", os.uname().machine)
        peer.close()


def test_sigterm_does_not_wait_for_ever_for_a_peer_that_reads_nothing() -> None:
    with running("--memory") as server:
        peer = connect(server.address)
        peer.send(b"put 0 0 60 60000\r\n" + b"x" * 60000 + b"\r\n")
        assert peer.read_line() == b"INSERTED 1\r\n"
        # Far more than the buffers of both sides hold: the server is left with unsent answers.
        peer.send(b"peek-ready\r\n" * 1000)
        other = connect(server.address)
        assert other.ask(b"list-tube-used") == b"USING default\r\n"
        began = time.monotonic()
        server.process.signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert time.monotonic() - began < STOP_S
        other.close()
        peer.close()


def test_without_room_for_bodies_a_put_is_refused_and_the_rest_goes_on() -> None:
    with running("--memory", "--body-memory", "1000") as server:
        peer = connect(server.address)
        peer.send(b"put 0 0 60 600\r\n" + b"x" * 600 + b"\r\n")
        assert peer.read_line() == b"INSERTED 1\r\n"
        peer.send(b"put 0 0 60 600\r\n" + b"y" * 600 + b"\r\n")
        assert peer.read_line() == b"OUT_OF_MEMORY\r\n"
        assert peer.ask(b"delete 1") == b"DELETED\r\n"
        peer.send(b"put 0 0 60 600\r\n" + b"z" * 600 + b"\r\n")
        assert peer.read_line().startswith(b"INSERTED")
        peer.close()
