"""What tests of the readers share: a server, a caller, and topics with records."""

from collections.abc import Iterator

import pytest

from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.processes import free_port


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpYard]:
    """A server for the tests of one module."""
    found = HttpYard("--data", str(tmp_path_factory.mktemp("yard")))
    yield found
    found.close()


@pytest.fixture
def topics(yard: HttpYard) -> Iterator[Topics]:
    """A caller of that server."""
    found = Topics(yard.address)
    yield found
    found.close()


@pytest.fixture
def unused_url() -> str:
    """The url of a port where nothing listens."""
    return f"http://127.0.0.1:{free_port()}"
