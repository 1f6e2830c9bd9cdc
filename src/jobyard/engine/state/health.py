"""What is wrong with a yard that goes on serving: the one place that every door tells it from."""

from typing import Final

from jobyard.engine.state.yard import Yard

# New jobs are refused, all else works.
DISK_FULL: Final = "disk_full"
# Something on the disk cannot be read back.
DAMAGED: Final = "damaged"


def problems(yard: Yard) -> list[str]:
    """Return what is wrong, each by its word; empty where all is well."""
    found: list[str] = []
    if yard.journal.is_full:
        found.append(DISK_FULL)
    if yard.journal.damages.count() > 0:
        found.append(DAMAGED)
    return found
