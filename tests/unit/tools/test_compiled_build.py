"""The compiled copy: made from a tiny package by the real setup.py, kept, rebuilt, or missing."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jobyard import build
from tools.compiled_build import ROOT, CompiledCopy, digest

PYPROJECT = """
[project]
name = "jobyard"
version = "0"
[tool.setuptools.packages.find]
where = ["src"]
[tool.mypy]
mypy_path = "src"
"""
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler here"
)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledCopy:
    """A repository with two modules to compile and one to leave alone."""
    monkeypatch.setenv("JOBYARD_OBJECT_CACHE", str(tmp_path / "cache"))
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    package = tmp_path / "src" / "jobyard"
    for folder in (package, package / "model", package / "cli"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    shutil.copy(ROOT / "src/jobyard/build.py", package)
    (package / "model/job.py").write_text("STATE: int = 1\n")
    (package / "model/queue.py").write_text("from jobyard.model.job import STATE\nB: int = STATE\n")
    (package / "cli/main.py").write_text("C: int = 3\n")
    return CompiledCopy(tmp_path)


def value_in(copy: CompiledCopy, expression: str) -> str:
    """Evaluate an expression in a process that runs from the copy."""
    code = f"import jobyard.model.queue as queue, jobyard.cli.main as main; print({expression})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(copy.place)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@NEEDS_COMPILER
def test_the_copy_is_compiled_and_follows_its_sources(copy: CompiledCopy) -> None:
    (copy.sources / "model/old.py").write_text("")
    assert not copy.is_fresh()
    assert copy.make()
    assert copy.is_fresh()
    assert build.kind(copy.place / "jobyard") == "compiled"
    assert value_in(copy, "queue.B, queue.__file__.endswith('.so')") == "1 True"
    assert value_in(copy, "main.C, main.__file__.endswith('.py')") == "3 True"

    (copy.sources / "model/job.py").write_text("STATE: int = 2\n")
    (copy.sources / "model/old.py").unlink()
    assert not copy.is_fresh()
    assert copy.make()
    assert value_in(copy, "queue.B") == "2"
    assert not list(copy.place.rglob("old*"))
    assert build.kind(copy.place / "jobyard") == "compiled"


def compiled_files(capfd: pytest.CaptureFixture[str]) -> int:
    """Return how many C files were compiled, as the build reported."""
    *_, total = [line for line in capfd.readouterr().err.splitlines() if " compiling " in line]
    return int(total.split()[-2])


@NEEDS_COMPILER
def test_only_what_changed_is_compiled_again(
    copy: CompiledCopy, capfd: pytest.CaptureFixture[str]
) -> None:
    job, queue = copy.sources / "model/job.py", copy.sources / "model/queue.py"
    job.write_text("def state(more: int) -> str:\n    return f'{more}!'\n")
    queue.write_text("from jobyard.model.job import state\nB: str = state(1)\nC = b'queue'\n")
    assert copy.make()
    assert compiled_files(capfd) > 4
    # Another literal, and more of them: those of the other file move, it does not change.
    job.write_text("def state(more: int) -> str:\n    return 'a' + str(more) + 'b'\n")
    assert copy.make()
    assert compiled_files(capfd) == 2
    assert value_in(copy, "queue.B, queue.C") == "a1b b'queue'"
    # Another signature: the callers are compiled again too.
    job.write_text("def state(more: int, less: int = 7) -> str:\n    return f'{more} {less}'\n")
    assert copy.make()
    assert compiled_files(capfd) == 3
    assert value_in(copy, "queue.B, queue.C") == "1 7 b'queue'"


@NEEDS_COMPILER
def test_another_working_copy_compiles_nothing_again(
    copy: CompiledCopy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert copy.make()
    assert " compiling " in capfd.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    for name in ("setup.py", "pyproject.toml", "src"):
        (copy.root / name).rename(other / name)
    assert CompiledCopy(other).make()
    assert " compiling " not in capfd.readouterr().err
    assert value_in(CompiledCopy(other), "queue.B") == "1"


@NEEDS_COMPILER
def test_a_build_says_what_it_does(copy: CompiledCopy, capfd: pytest.CaptureFixture[str]) -> None:
    assert copy.make()
    output = capfd.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert lines[0] == "jobyard: translating 2 Python modules to C"
    assert all(line.startswith("jobyard: ") for line in lines)
    assert "jobyard: linking 3 of 3 files" in lines


def test_without_a_compiler_there_is_one_warning_and_no_copy(
    copy: CompiledCopy, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    copy.place.mkdir(parents=True)  # left from better days: it would be stale for ever
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert not copy.make()
    assert not copy.place.exists()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warning: no C compiler (/nonexistent/cc): Jobyard will run as plain")


def test_who_wants_no_compiling_hears_nothing(
    copy: CompiledCopy, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBYARD_COMPILE", "0")
    assert not copy.make()
    assert capfd.readouterr().err == ""


@NEEDS_COMPILER
def test_code_that_does_not_compile_is_an_error(copy: CompiledCopy) -> None:
    (copy.sources / "model/job.py").write_text("STATE: int = 'one'\n")
    with pytest.raises(SystemExit, match="does not compile"):
        copy.make()


def test_a_digest_knows_names_contents_and_facts(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("A = 1\n")
    first = digest(tmp_path, [source])
    assert digest(tmp_path, [source]) == first
    assert digest(tmp_path, [source], "another compiler") != first
    source.write_text("A = 2\n")
    assert digest(tmp_path, [source]) != first
    source.write_text("A = 1\n")
    source.rename(tmp_path / "b.py")
    assert digest(tmp_path, [tmp_path / "b.py"]) != first


def test_serving_asks_for_nothing_of_development() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "serve"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "bootstrap.sh environment" in planned or (ROOT / ".venv/ready").exists()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    # What compiles for `make` is what compiles for pip.
    assert sorted(extras["compile"]) == sorted(project["build-system"]["requires"])
    assert "jobyard[compile,uvloop,zstd,delta,iceberg]" in extras["dev"]
