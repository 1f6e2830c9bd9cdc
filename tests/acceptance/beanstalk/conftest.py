"""Servers for the clients that people already use: Jobyard in both modes, and the original.

The same tests run against the original, to prove that they use nothing it does not support.
"""

from collections.abc import Iterator

import pytest

from tests.support.servers.sockets import SocketStage
from tests.support.transcripts.theatre import DATA, MEMORY, ORIGINAL, Theatre


@pytest.fixture(params=[MEMORY, DATA, ORIGINAL])
def player(request: pytest.FixtureRequest, theatre: Theatre) -> str:
    """The kind of server under test."""
    name = str(request.param)
    if name == ORIGINAL and theatre.original_version is None:
        pytest.skip("beanstalkd is not installed")
    return name


@pytest.fixture
def stage(player: str, theatre: Theatre) -> Iterator[SocketStage]:
    """A running server without jobs or tubes."""
    with theatre.borrow(player) as borrowed:
        yield borrowed


@pytest.fixture
def host_and_port(stage: SocketStage) -> tuple[str, int]:
    """Where it listens."""
    assert isinstance(stage.server.address, tuple)
    return stage.server.address
