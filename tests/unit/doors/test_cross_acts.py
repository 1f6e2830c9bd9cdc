"""Random commands at any door, in any order: nothing breaks, and all counts stay right."""

import pytest

from tests.support.random_doors import RandomDoors


@pytest.mark.parametrize("seed", range(8))
def test_any_acts_at_all_doors_leave_the_yard_whole(seed: int) -> None:
    doors = RandomDoors(seed)
    for _ in range(150):
        doors.step()
    doors.site.after_a_crash()
