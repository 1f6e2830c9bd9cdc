"""The reader of exports counts what it received, and refuses incomplete streams."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.clients.exports import Exports, parse_export, read_export
from bench.clients.topics import Topic
from bench.load import BenchError, Load
from bench.run import Run, Settings
from bench.scenarios.exports import measure_exports
from bench.servers import KINDS, Running, Stable

MEMORY = "jobyard-http-memory"
DURABLE = "jobyard-http-durable"
LINE = {"rows": 10, "size": 1000, "seconds": 0.5, "load_cpu_s": 0.1}
DOORS = ("beanstalk", "bunqueue", "glidemq", "http")


def test_a_line_is_read() -> None:
    seen = parse_export(json.dumps(LINE))
    assert (seen.rows, seen.size, seen.seconds, seen.load_cpu_s) == (10, 1000, 0.5, 0.1)


@pytest.mark.parametrize("line", ["", "{}", json.dumps(LINE | {"rows": None})])
def test_a_line_that_is_not_a_result_is_refused(line: str) -> None:
    with pytest.raises(BenchError, match="unexpected output of exports"):
        parse_export(line)


def stable(folder: Path) -> Stable:
    return Stable(folder, python_path=os.environ["PYTHONPATH"], doors=DOORS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with stable(tmp_path_factory.mktemp("servers")).serving(KINDS[MEMORY]) as running:
        yield running


def test_every_row_is_counted(server: Running) -> None:
    topic = Topic(server.port, "log")
    topic.make()
    topic.fill(5000)
    here = read_export(server.port, f"{topic.path}/export")
    there = Exports().run(server.port, server.pid, f"{topic.path}/export")
    assert here.rows == there.rows == 5000
    assert here.size == there.size > 5000 * 100
    assert there.server_cpu_s > 0


def test_a_refusal_is_no_result(server: Running) -> None:
    with pytest.raises(BenchError, match="404"):
        read_export(server.port, "/v0/topics/none/export")
    with pytest.raises(BenchError, match=r"failed.*404"):
        Exports().run(server.port, server.pid, "/v0/topics/none/export")


def test_a_small_run_has_its_figures(tmp_path: Path) -> None:
    settings = Settings(rounds=1, jobs=3000)
    available = frozenset({MEMORY, DURABLE})
    run = Run(settings, stable(tmp_path / "servers"), Load(tmp_path / "load"), available)
    measure_exports(run, (MEMORY, DURABLE))
    for name in (MEMORY, DURABLE):
        assert (run.figures.median(f"http.{name}.export.records_per_s") or 0) > 0
        assert (run.figures.median(f"http.{name}.export.bytes_per_record") or 0) > 100
    assert (run.figures.median(f"http.{DURABLE}.export-events.records_per_s") or 0) > 0
    assert run.notes == []
