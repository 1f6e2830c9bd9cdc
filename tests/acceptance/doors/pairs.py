"""The sixteen pairs of family and door, and how tests are named after them."""

from typing import Final

import pytest

from tests.support.doors import LETTERS

# Families whose jobs count attempts and stay with their result.
COUNTING: Final = "NG"
# Families whose jobs are tried for ever and are gone when they are finished.
PLAIN: Final = "BT"


def pairs(families: str = LETTERS, at: str = LETTERS) -> pytest.MarkDecorator:
    """Run a test for jobs of these families at these doors, each under the name of the pair."""
    found = [(family, door) for family in families for door in at]
    names = [f"{family}-to-{door}" for family, door in found]
    return pytest.mark.parametrize(("family", "door"), found, ids=names)
