"""One server for the run, and clients of redis-py in both versions of the protocol.

Each test uses its own queue names.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers.glidemq import Yard

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """The server of the run."""
    data = tmp_path_factory.mktemp("glidemq") / "data"
    with contextlib.closing(Yard("--data", str(data))) as yard:
        yield yard


@pytest.fixture(params=[2, 3])
def client(shared: Yard, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of the server of the run."""
    with shared.client(protocol=request.param) as client:
        yield client


@pytest.fixture
def queue() -> str:
    """The start of the keys of a queue that no other test uses."""
    return f"glide:{{q{next(_numbers)}}}:"
