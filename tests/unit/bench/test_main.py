"""The whole run, as short as possible: servers start, figures are recorded, nothing is left."""

import json
import os
import shutil
from pathlib import Path

import pytest

from bench.__main__ import ROOT, main
from bench.floors import Floors
from bench.rivals import find_bunqueue
from bench.wrk import find_wrk

needs_rival = pytest.mark.skipif(
    shutil.which("beanstalkd") is None or shutil.which("cc") is None,
    reason="needs beanstalkd and a C compiler",
)


@pytest.fixture(scope="module")
def shared_workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workshop")


@pytest.fixture(autouse=True)
def workshop(shared_workshop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for this run only: the tests of another build may run at the same time."""
    monkeypatch.setattr("bench.__main__.WORKSHOP", shared_workshop)
    return shared_workshop


def only_document(folder: Path) -> dict[str, dict[str, object]]:
    (path,) = folder.iterdir()
    read: dict[str, dict[str, object]] = json.loads(path.read_text())
    return read


@needs_rival
def test_a_quick_run_measures_the_rival(
    tmp_path: Path, workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert not list(workshop.glob("run-*"))


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


def test_without_wrk_the_loads_over_http_are_left_out_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.find_wrk", lambda: None)
    arguments = ["--quick", "--servers", "beanstalkd", "--scenarios", "http"]
    assert main([*arguments, "--results", str(tmp_path)]) == 0
    assert "NO WRK: write, write100, diff256, diff1000, claim8" in capsys.readouterr().out
    found = only_document(tmp_path)
    assert found["machine"]["wrk"] is None
    assert found["figures"] == {}


@pytest.mark.skipif(find_wrk() is None or shutil.which("cc") is None, reason="needs wrk and cc")
def test_the_http_floor_is_measured_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Plain, from the sources: compiling takes minutes.
    plain = Path(f"{ROOT}{os.pathsep}{ROOT / 'src'}")
    monkeypatch.setattr("bench.__main__.build_floors", lambda _folder, _root: Floors(plain))
    arguments = ["--quick", "--servers", "httpecho", "--scenarios", "http"]
    assert main([*arguments, "--results", str(tmp_path)]) == 0
    figures = only_document(tmp_path)["figures"]
    assert "http.httpecho.write.server_us_per_record" in figures
    assert not any("diff" in name or "streams" in name for name in figures)


@pytest.mark.parametrize(
    "arguments", [["--scenarios", "bunqueue"], ["--scenarios", "http", "--servers", "beanstalkd"]]
)
def test_floors_nobody_asked_for_are_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("bench.__main__.find_bunqueue", lambda _root: None)
    monkeypatch.setattr("bench.__main__.probe_yard", lambda _root: None)
    monkeypatch.setattr(
        "bench.__main__.build_floors", lambda _folder, _root: pytest.fail("built floors")
    )
    assert main(["--quick", *arguments, "--results", str(tmp_path)]) == 0


def test_an_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--scenarios", "throughput,tea"])
    assert "'tea' is not one of throughput" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--rounds", "--jobs"])
def test_none_is_not_a_number_of_rounds(flag: str) -> None:
    with pytest.raises(SystemExit):
        main([flag, "0"])
