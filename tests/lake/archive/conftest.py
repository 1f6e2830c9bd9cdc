"""What tests of archives share: a server, a caller, and a client."""

from collections.abc import Iterator

import pytest

from jobyard.client import YardClient
from tests.support.servers.http import HttpYard, Topics


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
def client(yard: HttpYard) -> Iterator[YardClient]:
    """A client of that server."""
    with YardClient(yard.url) as found:
        yield found
