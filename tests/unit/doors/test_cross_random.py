"""Whatever clients of all doors do to one queue, it stays consistent, and the doors agree."""

import pytest

from tests.support.random.crowd import Crowd


@pytest.mark.parametrize("seed", range(6))
def test_a_crowd_leaves_a_queue_whole(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(120):
        crowd.step()
    assert crowd.doors.yard.journal.next_id > 1
