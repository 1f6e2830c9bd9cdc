"""Fixtures of the tests that treat a real server process badly."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard
from tests.support.servers.faults import Faults, Unavailable, build_library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C library that makes calls fail."""
    try:
        return build_library(tmp_path_factory.mktemp("faults"))
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def faults(library: Path, tmp_path: Path) -> Iterator[Faults]:
    """The switches of the server in the same test."""
    with contextlib.closing(Faults(library, tmp_path / "faults")) as made:
        yield made


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """A running server with small segments."""
    with contextlib.closing(Yard(tmp_path / "data", *SMALL_SEGMENTS)) as made:
        made.start()
        yield made


@pytest.fixture
def faulty_yard(tmp_path: Path, faults: Faults) -> Iterator[Yard]:
    """A running server whose disk fails on request."""
    with contextlib.closing(Yard(tmp_path / "data", *SMALL_SEGMENTS, env=faults.env)) as made:
        made.start()
        yield made
