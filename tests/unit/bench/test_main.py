"""The whole run, as short as it can be: servers start, figures come, nothing stays behind."""

import json
import shutil
from pathlib import Path

import pytest

from bench.__main__ import WORKSHOP, main
from bench.rivals import find_bunqueue

needs_rival = pytest.mark.skipif(
    shutil.which("beanstalkd") is None or shutil.which("cc") is None,
    reason="needs beanstalkd and a C compiler",
)


def only_document(folder: Path) -> dict[str, dict[str, object]]:
    (path,) = folder.iterdir()
    read: dict[str, dict[str, object]] = json.loads(path.read_text())
    return read


@needs_rival
def test_a_quick_run_measures_the_rival(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(WORKSHOP.glob("run-*"))
    arguments = ["--quick", "--seconds", "0.05", "--servers", "beanstalkd,beanstalkd-unsynced"]
    arguments += ["--scenarios", "throughput,memory,recovery", "--jobs", "2000"]
    assert main([*arguments, "--results", str(tmp_path)]) == 0
    figures = only_document(tmp_path)["figures"]
    for shape in ("1x1", "16x1", "64x1", "256x1", "4x64"):
        assert f"throughput.beanstalkd.{shape}.ops_per_s" in figures
    assert "memory.beanstalkd.bytes_per_job" in figures
    assert "recovery.beanstalkd-unsynced.ready_seconds" in figures
    printed = capsys.readouterr()
    assert "QUICK RUN" in printed.out
    assert "goals: 0 met, 0 short" in printed.out
    assert set(WORKSHOP.glob("run-*")) <= before


@pytest.mark.skipif(
    find_bunqueue() is None or shutil.which("cc") is None,
    reason="needs bunqueue and a C compiler",
)
def test_a_quick_run_measures_bunqueue(tmp_path: Path) -> None:
    arguments = ["--quick", "--seconds", "0.05", "--servers", "bunqueue"]
    assert main([*arguments, "--scenarios", "bunqueue", "--results", str(tmp_path)]) == 0
    found = only_document(tmp_path)
    assert "on bun" in str(found["machine"]["bunqueue"])
    for shape in ("1x1", "16x1", "64x1", "4x50", "4x50-owned", "4x1x50"):
        assert f"bunqueue.bunqueue.{shape}.ops_per_s" in found["figures"]
    assert "bunqueue.bunqueue.4x1x50.jobs_per_s" in found["figures"]


def test_a_rival_that_is_not_there_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.find_bunqueue", lambda _root: None)
    arguments = ["--quick", "--servers", "bunqueue", "--scenarios", "bunqueue"]
    assert main([*arguments, "--results", str(tmp_path)]) == 0
    assert "NO RIVAL: bunqueue is not installed" in capsys.readouterr().out
    assert only_document(tmp_path)["figures"] == {}


def test_an_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--scenarios", "throughput,tea"])
    assert "'tea' is none of throughput" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--rounds", "--jobs"])
def test_none_is_not_a_number_of_rounds(flag: str) -> None:
    with pytest.raises(SystemExit):
        main([flag, "0"])
