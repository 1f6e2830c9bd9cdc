"""The scenario of stalls: a pinger during heavy commands."""

import shutil
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.heavy.commands import HEAVY
from bench.scenarios import stalls
from tests.unit.bench.test_main import only_document

SHOWN = ("Obliterate", "jobs-list", "topics", "routers")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_quick_run_pings_beside_heavy_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.WORKSHOP", tmp_path / "workshop")
    results = tmp_path / "results"
    some = tuple(one for one in HEAVY if one.name in SHOWN)
    assert len(some) == len(SHOWN)
    monkeypatch.setattr(stalls, "HEAVY", some)
    arguments = ["--quick", "--servers", "jobyard-all-memory", "--scenarios", "stalls"]
    assert main([*arguments, "--jobs", "3000", "--results", str(results)]) == 0
    figures = only_document(results)["figures"]
    for name in SHOWN:
        assert f"stalls.jobyard-all-memory.{name}.cpu_ms" in figures
    assert "stalls: a client at another door" in capsys.readouterr().out


def test_every_heavy_command_has_a_name_of_its_own() -> None:
    names = [one.name for one in HEAVY]
    assert len(set(names)) == len(names)
    assert all("." not in name for name in names)
