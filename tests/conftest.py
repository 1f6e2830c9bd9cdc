"""Fixtures every test room may use."""

from collections.abc import Iterator

import pytest

from tests.support.site.site import forget_sites
from tests.support.transcripts.theatre import Theatre


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Free the memory of a test whose fixtures are closed."""
    forget_sites()


@pytest.fixture(scope="session")
def theatre() -> Iterator[Theatre]:
    """Shared servers for transcripts, ended with the run."""
    built = Theatre()
    yield built
    built.close()
