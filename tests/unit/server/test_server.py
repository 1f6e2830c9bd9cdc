"""Starts that are refused, and the small parts of a server that need no process of their own.

Whole servers, their signals and their ends are tested as processes, in tests/acceptance/process.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.config import DROP_IN_EXIT_DATA, EXIT_DAMAGED, Config
from jobyard.errors import StartRefused
from jobyard.server.disk import FileStorage
from jobyard.server.log import Log
from jobyard.server.server import Server, _Stop, run
from tests.support.site.yard import OpenYard


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def config_for(folder: Path, port: int, *, drop_in: bool = False) -> Config:
    return Config(
        data=folder,
        beanstalk=f"127.0.0.1:{port}",
        bunqueue="off",
        http="off",
        glidemq="off",
        segment_size=1 << 16,
        drop_in=drop_in,
    )


def damaged(folder: Path) -> Path:
    """Create a directory whose first segment is damaged."""
    storage = FileStorage(folder)
    site = OpenYard(storage)
    client = site.connect()
    for _ in range(60):
        client.say(b"put 0 0 60 3000\r\n" + b"x" * 3000 + b"\r\n")
        site.commit()
    site.journal.close()
    storage.close()
    path = min(folder.glob("*.journal"))
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(bytes(data))
    return path


@contextlib.contextmanager
def refused(port: int) -> Iterator[pytest.ExceptionInfo[StartRefused]]:
    """Expect a refusal that leaves the port free."""
    with pytest.raises(StartRefused) as caught:
        yield caught
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize(("drop_in", "code"), [(False, EXIT_DAMAGED), (True, DROP_IN_EXIT_DATA)])
def test_damage_is_refused_with_file_and_offset(
    tmp_path: Path, port: int, *, drop_in: bool, code: int
) -> None:
    path = damaged(tmp_path / "data")
    with refused(port) as caught:
        run(config_for(tmp_path / "data", port, drop_in=drop_in))
    assert caught.value.exit_code == code
    assert path.name in str(caught.value)
    assert "offset" in str(caught.value)
    assert "jobyard repair" in str(caught.value)


@pytest.mark.parametrize(("drop_in", "code"), [(False, 1), (True, DROP_IN_EXIT_DATA)])
def test_a_directory_in_use_is_refused(
    tmp_path: Path, port: int, *, drop_in: bool, code: int
) -> None:
    storage = FileStorage(tmp_path / "data")
    with contextlib.closing(storage), refused(port) as caught:
        run(config_for(tmp_path / "data", port, drop_in=drop_in))
    assert caught.value.exit_code == code
    assert "in use" in str(caught.value)


def test_a_port_in_use_leaves_the_data_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartRefused, match=str(port)):
            run(config_for(tmp_path / "data", port))
    assert not (tmp_path / "data").exists()


def test_a_directory_that_its_group_may_write_to_is_reported_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o770)
    server = Server(Config(data=tmp_path), Log("warning", "text"), {})
    assert server._storage is not None
    server._storage.close()
    told = capsys.readouterr().err
    assert "is writable by its group (mode 0770): chmod g-w" in told


@pytest.mark.parametrize("jump_s", [-3600, 3600, 10 * 365 * 86400])
def test_a_jump_of_the_wall_clock_moves_only_what_is_written(
    monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    """Timers run on steady time; the journal notes how far the wall clock is from it."""
    server = Server(Config(memory=True), Log("error", "text"), {})
    server._correct_wall()
    assert abs(int(server._yard.journal.wall_offset_ms)) < 1000
    wall_s = time.time()
    before_ms = server._clock.now_ms()
    monkeypatch.setattr(time, "time", lambda: wall_s + jump_s)
    server._correct_wall()
    assert abs(int(server._yard.journal.wall_offset_ms) - jump_s * 1000) < 1000
    assert 0 <= server._clock.now_ms() - before_ms < 1000


# -- asked to stop -----------------------------------------------------------------------------


def test_damage_found_just_before_the_stop_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    async def stopped() -> None:
        server = Server(Config(memory=True), Log("info", "text"), {})
        server._yard.journal.damages.note_body(7, "0000000001.journal at offset 99")
        server._finish()

    asyncio.run(stopped())
    told = capsys.readouterr().err
    assert told.index("body of job 7 is damaged") < told.index("stopped")


def test_a_stop_waits_to_be_told() -> None:
    async def main() -> bool:
        stop = _Stop()
        asyncio.get_running_loop().call_soon(stop.set)
        await asyncio.wait_for(stop.wait(), 10)
        return True

    assert asyncio.run(main())


@pytest.mark.parametrize("reason", ["empty", "impatience", "time"])
def test_the_last_wait_ends_in_three_ways(reason: str) -> None:
    async def main() -> float:
        stop = _Stop()
        stop.set()
        loop = asyncio.get_running_loop()
        if reason == "empty":
            loop.call_later(0.01, stop.empty)
        elif reason == "impatience":
            loop.call_later(0.01, stop.set)
        started = time.monotonic()
        await stop.wait_empty(0.1 if reason == "time" else 10)
        return time.monotonic() - started

    waited_s = asyncio.run(main())
    assert 0.09 < waited_s < 5 if reason == "time" else waited_s < 5


def test_one_signal_is_not_impatience() -> None:
    async def main() -> None:
        stop = _Stop()
        stop.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait_empty(10), 0.05)
            raise AssertionError("the first signal counted twice")

    asyncio.run(main())
