"""A port in memory; afterwards every counter is compared with what it counts."""

from collections.abc import Iterator

import pytest

from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics


@pytest.fixture
def site() -> Iterator[BareTopics]:
    """A yard with the HTTP port open."""
    found = BareTopics()
    yield found
    found.check()


@pytest.fixture
def api(site: BareTopics) -> TopicsClient:
    """A connection to it."""
    return site.api
