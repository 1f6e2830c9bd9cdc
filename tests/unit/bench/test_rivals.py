"""The original bunqueue: found only if complete, started without the terminal's environment."""

import socket
from pathlib import Path

import pytest

from bench.rivals import Bunqueue, await_port, find_bunqueue, free_port


def installed(root: Path) -> Bunqueue:
    """Lay out what the bootstrap would."""
    folder = root / "build" / "npm"
    (folder / "bin").mkdir(parents=True)
    bun = folder / "bin" / "bun"
    bun.touch(mode=0o755)
    package = folder / "node_modules" / "bunqueue"
    package.mkdir(parents=True)
    return Bunqueue(bun, package)


def test_is_not_found_where_nothing_is(tmp_path: Path) -> None:
    assert find_bunqueue(tmp_path) is None


def test_is_found_where_the_bootstrap_puts_it(tmp_path: Path) -> None:
    wanted = installed(tmp_path)
    assert find_bunqueue(tmp_path) == wanted


def test_is_not_found_without_its_runtime_or_its_package(tmp_path: Path) -> None:
    found = installed(tmp_path)
    found.package.rmdir()
    assert find_bunqueue(tmp_path) is None
    found.package.mkdir()
    found.bun.unlink()
    assert find_bunqueue(tmp_path) is None


def test_command_takes_no_setting_from_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTH_TOKENS", "theirs")
    monkeypatch.setenv("PATH", "/bin")
    command = installed(tmp_path).serve_command(7, None)
    assert command[:2] == ["env", "-i"]
    assert "PATH=/bin" in command
    assert not any("theirs" in word for word in command)
    assert any(word.startswith("RATE_LIMIT_MAX_REQUESTS=") for word in command)


def test_command_names_data_and_tokens_only_when_asked(tmp_path: Path) -> None:
    found = installed(tmp_path)
    plain = found.serve_command(7, None)
    assert plain[plain.index("--tcp-port") + 1] == "7"
    assert "--data-path" not in plain
    assert "--auth-tokens" not in plain
    whole = found.serve_command(7, tmp_path, "a,b")
    assert whole[whole.index("--data-path") + 1] == str(tmp_path / "bunqueue.db")
    assert whole[whole.index("--auth-tokens") + 1] == "a,b"


def test_port_that_accepts_is_awaited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert await_port(listener.getsockname()[1], lambda: False, 5.0)


def test_wait_ends_with_the_server_or_the_time() -> None:
    port = free_port()
    assert not await_port(port, lambda: True, 5.0)
    assert not await_port(port, lambda: False, 0.01)
