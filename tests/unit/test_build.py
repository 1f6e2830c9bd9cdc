"""The kind of a build is derived from its files, and is the kind requested for this run."""

import importlib
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from jobyard import build
from tools.compiled_build import ROOT


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("model/__init__.py", "model/job.py", "protocols/beanstalk/put.py", "cli/main.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def compile_module(package: Path, name: str) -> None:
    (package / (name + EXTENSION_SUFFIXES[0])).touch()


def test_packages_and_the_edge_are_not_compiled(package: Path) -> None:
    names = [str(path.relative_to(package)) for path in build.compiled_sources(package)]
    assert names == ["model/job.py", "protocols/beanstalk/put.py"]


def test_single_files_of_the_server_are_compiled(package: Path) -> None:
    (package / "server").mkdir()
    (package / "server/loop.py").touch()
    (package / "server/server.py").touch()
    assert package / "server/loop.py" in build.compiled_sources(package)
    assert package / "server/server.py" not in build.compiled_sources(package)


def test_a_build_is_compiled_only_when_all_of_it_is(package: Path) -> None:
    assert build.kind(package) == "plain"
    compile_module(package, "model/job")
    assert build.kind(package) == "mixed"
    compile_module(package, "protocols/beanstalk/put")
    assert build.kind(package) == "compiled"


def test_cold_modules_are_compiled_ones_that_are_there() -> None:
    package = Path(build.__file__).parent
    compiled = {str(path.relative_to(package)) for path in build.compiled_sources(package)}
    assert set(build.RARELY_RUN) <= compiled


def test_this_run_uses_the_build_it_was_asked_for() -> None:
    wanted = "compiled" if os.environ["PYTHONPATH"].endswith("compiled") else "plain"
    assert build.kind() == wanted


def test_modules_are_really_loaded_as_the_kind_says() -> None:
    package = Path(build.__file__).parent
    for source in build.compiled_sources(package):
        name = ".".join(["jobyard", *source.relative_to(package).with_suffix("").parts])
        is_extension = (importlib.import_module(name).__file__ or "").endswith(".so")
        assert is_extension == (build.kind() == "compiled"), name


@pytest.mark.skipif(build.kind() == "plain", reason="nothing was compiled for this run")
def test_mypyc_had_nothing_to_warn_of() -> None:
    assert (ROOT / "build/c/messages.txt").read_text() == ""
