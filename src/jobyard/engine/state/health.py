"""The problems of a yard that is still serving: the one place that every door reports them from."""

from typing import Final

from jobyard.engine.state.yard import Yard

# New jobs are refused; everything else works.
DISK_FULL: Final = "disk_full"
# Something on the disk cannot be read back.
DAMAGED: Final = "damaged"


def problems(yard: Yard) -> list[str]:
    """Return the names of current problems; empty if there are none."""
    found: list[str] = []
    if yard.journal.is_full:
        found.append(DISK_FULL)
    if yard.journal.damages.count() > 0:
        found.append(DAMAGED)
    return found
