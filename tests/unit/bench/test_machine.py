"""The machine: facts that can be checked against the machine they were taken from."""

import os
from pathlib import Path

import pytest

from bench.machine import (
    Meters,
    Quiet,
    core_split,
    filesystem_of,
    measure_sync_us,
    probe_yard,
    read_meters,
)

ROOT = Path(__file__).parents[3]


def test_the_file_system_of_a_pseudo_folder_is_known() -> None:
    assert filesystem_of(Path("/proc/self")) == "proc"


def test_a_sync_takes_time_and_leaves_no_file(tmp_path: Path) -> None:
    assert measure_sync_us(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []


def test_load_and_server_never_share_a_core() -> None:
    split = core_split()
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        assert split is None
    else:
        assert split is not None
        servers, load = split
        assert servers | load == cores
        assert not servers & load


def test_the_yard_under_test_is_the_one_that_is_found() -> None:
    from jobyard import __version__, build  # noqa: PLC0415 - conftest.py has chosen the build

    yard = probe_yard(ROOT)
    assert yard is not None
    assert (yard.version, yard.build) == (__version__, build.kind())
    assert "beanstalk" in yard.doors
    assert yard.python_path is not None
    assert Path(yard.python_path.split(os.pathsep)[0]).is_absolute()


def test_no_yard_is_found_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobyard").mkdir()
    (tmp_path / "jobyard" / "__init__.py").write_text("raise ImportError('not a yard')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert probe_yard(ROOT) is None


def test_own_work_is_not_the_work_of_others() -> None:
    readings = iter([Meters(10.0, 100.0, 7.0), Meters(14.0, 107.0, 12.0)])
    assert Quiet(lambda: next(readings)).others_cores() == 0.5


def test_the_meters_run() -> None:
    before = read_meters()
    after = read_meters()
    assert after.elapsed_s > before.elapsed_s
    assert after.own_s >= before.own_s > 0
    assert after.busy_s >= before.busy_s > before.own_s
