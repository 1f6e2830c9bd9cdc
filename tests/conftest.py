"""Fixtures every test room may use."""

from collections.abc import Iterator

import pytest

from tests.support.transcripts.theatre import Theatre


@pytest.fixture(scope="session")
def theatre() -> Iterator[Theatre]:
    """Shared servers for transcripts, ended with the run."""
    built = Theatre()
    yield built
    built.close()
