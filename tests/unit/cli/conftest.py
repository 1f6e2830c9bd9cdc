"""A command line for tests; the server behind it only records its arguments."""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TextIO

import pytest

from jobyard.cli.main import main
from jobyard.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable


class Outcome(NamedTuple):
    exit_code: int
    out: str
    err: str


class Terminal:
    """Types commands in a folder of its own and remembers what reached the server."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.configs: list[Config] = []
        self.inspections: list[tuple[str, Path]] = []
        self.answer: Callable[[], int] = lambda: 0
        self._replace("jobyard.server.server", run=self._run)
        self._replace(
            "jobyard.server.check_repair",
            check=lambda directory, out: self._inspect("check", directory, out),
            repair=lambda directory, out: self._inspect("repair", directory, out),
        )

    def type(self, *words: str, **environ: str) -> Outcome:
        for name, value in environ.items():
            self._monkeypatch.setenv(name, value)
        exit_code = main(words)
        out, err = self._capsys.readouterr()
        return Outcome(exit_code, out, err)

    @property
    def config(self) -> Config:
        (config,) = self.configs
        return config

    def _replace(self, name: str, **functions: object) -> None:
        module = ModuleType(name)
        for word, function in functions.items():
            setattr(module, word, function)
        self._monkeypatch.setitem(sys.modules, name, module)
        # `from package import module` checks the package first.
        package, _, leaf = name.rpartition(".")
        self._monkeypatch.setattr(import_module(package), leaf, module, raising=False)

    def _run(self, config: Config) -> int:
        self.configs.append(config)
        return self.answer()

    def _inspect(self, verb: str, directory: Path, out: TextIO) -> int:
        self.inspections.append((verb, directory))
        out.write(f"{verb} was here\n")
        return self.answer()


@pytest.fixture
def terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("JOBYARD_", "LISTEN_"))]:
        monkeypatch.delenv(name)
    return Terminal(capsys, monkeypatch)
