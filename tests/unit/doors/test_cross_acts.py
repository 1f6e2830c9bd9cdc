"""Random commands at any door, in any order: nothing breaks, and all counts stay right."""

import pytest

from tests.support.random.crowd import Crowd


@pytest.mark.parametrize("seed", range(8))
def test_any_acts_at_all_doors_leave_the_yard_whole(seed: int) -> None:
    crowd = Crowd(seed, "p", "q")
    for _ in range(150):
        crowd.step()
    crowd.doors.after_a_crash()
