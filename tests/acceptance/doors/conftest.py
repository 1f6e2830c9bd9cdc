"""One server with all four doors per module, durable as by default."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.servers.doors import FourDoors


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourDoors]:
    """The server of the module and a client of each door."""
    data = tmp_path_factory.mktemp("doors") / "data"
    with contextlib.closing(FourDoors("--data", str(data))) as four:
        yield four


@pytest.fixture
def queue(doors: FourDoors) -> str:
    """A queue that no other test uses."""
    return doors.queue()
