"""A run: a measurement with errors leaves no figure, and a note is printed once."""

import dataclasses
from pathlib import Path

import pytest

from bench.load import BenchError, Load, LoadResult
from bench.run import Run, Settings
from bench.servers import Stable

RESULT = LoadResult(
    seconds=1.0, operations=1000, errors=0, jobs_finished=400, ops_per_s=1000.0, p50_us=1.0,
    p99_us=2.0, max_us=3.0, server_cpu_s=0.5, load_cpu_s=0.25,
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    available = frozenset({"beanstalkd", "echo"})
    return Run(Settings(), Stable(tmp_path), Load(tmp_path / "load"), available)


def test_everything_the_load_saw_is_noted(run: Run) -> None:
    run.note_result("a.b", RESULT)
    assert {name: run.figures.median(name) for name in run.figures.names()} == {
        "a.b.ops_per_s": 1000.0,
        "a.b.p50_us": 1.0,
        "a.b.p99_us": 2.0,
        "a.b.max_us": 3.0,
        "a.b.load_core_share": 0.25,
        "a.b.server_core_share": 0.5,
        "a.b.server_us_per_op": 500.0,
    }


@pytest.mark.parametrize("change", [{"errors": 1}, {"operations": 0}])
def test_a_result_with_errors_or_without_work_is_no_figure(
    run: Run, change: dict[str, int]
) -> None:
    with pytest.raises(BenchError, match="not recorded"):
        run.note_result("a.b", dataclasses.replace(RESULT, **change))
    assert list(run.figures.names()) == []


def test_servers_that_are_not_there_are_left_out(run: Run) -> None:
    kinds = run.kinds(["jobyard-memory", "echo", "beanstalkd"])
    assert [kind.name for kind in kinds] == ["echo", "beanstalkd"]


def test_a_note_is_said_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.note("busy")
    run.note("busy")
    assert run.notes == ["busy"]
    assert capsys.readouterr().err == "busy\n"
