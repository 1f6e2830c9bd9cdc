"""Fixtures of the tests of lakes."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.processes import free_port

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if there is one: what tests stop are processes, not disks."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=_MEMORY, prefix="lake-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def unused_url() -> str:
    """The url of a port where nothing listens."""
    return f"http://127.0.0.1:{free_port()}"
