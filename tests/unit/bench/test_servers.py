"""Servers: started until they are ready, always ended, and their output quoted on failure."""

import os
import shutil
from pathlib import Path

import pytest

from bench.clients.ask import read_ledger
from bench.load import BenchError
from bench.rivals import find_bunqueue
from bench.servers import KINDS, Rivals, Stable, ready_port

needs_rival = pytest.mark.skipif(shutil.which("beanstalkd") is None, reason="needs beanstalkd")

BUNQUEUE = find_bunqueue()

YARD = """
import signal, sys
print({line!r}, flush=True)
print("recovered 3 jobs in 0.5 s", file=sys.stderr, flush=True)
signal.pause()
"""


def stable_with_yard(tmp_path: Path, source: str) -> Stable:
    package = tmp_path / "path" / "jobyard"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(source)
    doors = ("beanstalk", "bunqueue", "http")
    return Stable(tmp_path / "servers", python_path=str(tmp_path / "path"), doors=doors)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_yard_serves_when_it_says_so(tmp_path: Path) -> None:
    stable = stable_with_yard(tmp_path, YARD.format(line="ready beanstalk=127.0.0.1:4242 data=x"))
    with stable.serving(KINDS["jobyard-memory"]) as server:
        assert server.port == 4242
        assert server.ready_seconds > 0
        assert server.rss_bytes() > 2**20
        assert is_running(server.pid)
    assert not is_running(server.pid)
    assert list((tmp_path / "servers").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("jobyard-memory", "--memory --beanstalk 127.0.0.1:0 --bunqueue off --http off"),
        ("jobyard-durable", "--data DATA --beanstalk 127.0.0.1:0 --bunqueue off --http off"),
        ("jobyard-bunqueue-memory", "--memory --beanstalk off --bunqueue 127.0.0.1:0 --http off"),
        (
            "jobyard-bunqueue-durable",
            "--data DATA --beanstalk off --bunqueue 127.0.0.1:0 --http off",
        ),
        ("jobyard-http-memory", "--memory --beanstalk off --bunqueue off --http 127.0.0.1:0"),
        ("jobyard-http-durable", "--data DATA --beanstalk off --bunqueue off --http 127.0.0.1:0"),
    ],
)
def test_a_yard_is_started_the_documented_way(tmp_path: Path, name: str, expected: str) -> None:
    source = "import sys; print(' '.join(sys.argv[1:]), file=sys.stderr); sys.exit(7)"
    stable = stable_with_yard(tmp_path, source)
    folder = stable.new_folder()
    with pytest.raises(BenchError) as failure:
        stable.start(KINDS[name], folder)
    words = str(failure.value).splitlines()[-1].replace(str(folder / "data"), "DATA")
    assert words == f"serve {expected}"


def test_a_yard_is_asked_at_the_door_it_was_started_for(tmp_path: Path) -> None:
    line = "ready bunqueue=127.0.0.1:4243 beanstalk=127.0.0.1:4242 data=x"
    stable = stable_with_yard(tmp_path, YARD.format(line=line))
    with stable.serving(KINDS["jobyard-bunqueue-memory"]) as server:
        assert server.port == 4243


def test_a_door_the_yard_does_not_have_is_named(tmp_path: Path) -> None:
    stable = Stable(tmp_path, doors=("beanstalk",))
    with pytest.raises(BenchError, match="this yard has no bunqueue door"):
        stable.start(KINDS["jobyard-bunqueue-memory"], stable.new_folder())


def test_a_yard_that_says_something_else_is_ended_and_quoted(tmp_path: Path) -> None:
    stable = stable_with_yard(tmp_path, YARD.format(line="hello"))
    with pytest.raises(BenchError, match="did not get ready; it printed 'hello"):
        stable.start(KINDS["jobyard-memory"], stable.new_folder())


def test_no_setting_leaks_in_from_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBYARD_DURABILITY", "os")
    monkeypatch.setenv("AUTH_TOKENS", "a")
    monkeypatch.setenv("RATE_LIMIT_MAX_REQUESTS", "1")
    monkeypatch.setenv("TOPICS_API_KEYS", "a")
    words = "('JOBYARD', 'AUTH', 'RATE', 'TOPICS')"
    source = (
        "import os, sys\n"
        f"sys.exit(' '.join(n for n in os.environ if any(w in n for w in {words})) + '.')"
    )
    stable = stable_with_yard(tmp_path, source)
    with pytest.raises(BenchError) as failure:
        stable.start(KINDS["jobyard-memory"], stable.new_folder())
    assert str(failure.value).splitlines()[-1] == "."


def test_a_failing_load_is_reported_with_the_servers_last_words(tmp_path: Path) -> None:
    stable = stable_with_yard(tmp_path, YARD.format(line="ready beanstalk=127.0.0.1:1 data=x"))
    with (
        pytest.raises(BenchError, match="jobyard-memory: load failed"),
        stable.serving(KINDS["jobyard-memory"]),
    ):
        raise BenchError("load failed")


@needs_rival
def test_the_rival_answers_once_it_is_started(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    with stable.serving(KINDS["beanstalkd-f0"]) as server:
        assert server.ready_jobs() == 0
        assert server.stats()["pid"] == str(server.pid)
        assert server.stats()["binlog-current-index"] == "1"


@needs_rival
def test_a_server_is_kept_on_its_cores(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    with Stable(tmp_path, cores={core}).serving(KINDS["beanstalkd"]) as server:
        assert os.sched_getaffinity(server.pid) == {core}


def test_a_missing_rival_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    stable = Stable(tmp_path)
    with pytest.raises(BenchError, match="beanstalkd is not installed"):
        stable.start(KINDS["beanstalkd"], stable.new_folder())


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("ready beanstalk=127.0.0.1:11300 data=/x\n", 11300),
        ("ready beanstalk=127.0.0.1:40001\n", 40001),
        ("ready http=127.0.0.1:1 beanstalk=[::1]:2 data=memory\n", 2),
        ("ready beanstalk=[::1]:2 bunqueue=127.0.0.1:3 data=memory\n", 2),
    ],
)
def test_the_port_is_read_from_the_ready_line(line: str, port: int) -> None:
    assert ready_port(line, "beanstalk") == port


@pytest.mark.parametrize(
    "line",
    ["", "already beanstalk=1:2", "ready beanstalk=unix:/x data=y", "ready bunqueue=127.0.0.1:3"],
)
def test_another_line_is_not_the_ready_line(line: str) -> None:
    assert ready_port(line, "beanstalk") is None


@pytest.mark.skipif(BUNQUEUE is None, reason="needs bunqueue")
@pytest.mark.parametrize("name", ["bunqueue", "bunqueue-sqlite"])
def test_bunqueue_keeps_on_disk_what_it_should(tmp_path: Path, name: str) -> None:
    stable = Stable(tmp_path, rivals=Rivals(bunqueue=BUNQUEUE))
    with stable.serving(KINDS[name]) as server:
        assert read_ledger(server.port).standing == 0
        assert any(tmp_path.glob("*/data/*")) == KINDS[name].is_durable
    assert not is_running(server.pid)


def test_a_bunqueue_that_is_not_installed_is_named(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    with pytest.raises(BenchError, match="bunqueue is not installed"):
        stable.start(KINDS["bunqueue"], stable.new_folder())
