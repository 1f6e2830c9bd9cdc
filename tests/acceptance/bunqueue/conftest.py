"""One server for the run and a queue for each test.

Tests use queue names, ids and cron names that no other test uses, so that one
server serves them all; one that a test has brought down is replaced for the next.
"""

import contextlib
import itertools
import re
import secrets
from collections.abc import Iterator

import pytest

from tests.support.servers.bunqueue import ORIGINAL, Client, Yard
from tests.support.servers.processes import parse_address

_numbers = itertools.count(1)
# A server that is not ours lives on after the run, with every queue of it.
_run = secrets.token_hex(3)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """The server of the run, started when the first test needs it."""
    with contextlib.closing(
        Yard("--data", str(tmp_path_factory.mktemp("bunqueue") / "data"))
    ) as yard:
        yield yard


@pytest.fixture
def address(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Where the server under test listens."""
    if ORIGINAL:
        given = parse_address(ORIGINAL)
        assert isinstance(given, tuple)
        return given
    shared: Yard = request.getfixturevalue("shared")
    if not shared.is_running:
        shared.start()
    return shared.bunqueue


@pytest.fixture(autouse=True)
def alive(shared: Yard) -> Iterator[None]:
    """Check that no test brings the server down; report the one that did, with the server's log."""
    yield
    if shared.has_ended:
        said = shared.process.errors()
        shared.close()
        pytest.fail(f"the server has ended: {said[-3000:]}")


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[Client]:
    """A connection."""
    with Client(address) as made:
        yield made


@pytest.fixture
def other(address: tuple[str, int]) -> Iterator[Client]:
    """A second connection."""
    with Client(address) as made:
        yield made


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue no other test uses, also usable as the start of an id."""
    plain = re.sub("[^a-z]+", "-", str(request.node.name).removeprefix("test_"))
    return f"q{next(_numbers)}-{_run}-{plain}"[:80].rstrip("-")
