"""A job of every family at every door: taken, shown and finished there."""

import pytest

from tests.support.doors import LETTERS, FourDoors

PAIRS = [(family, door) for family in LETTERS for door in LETTERS]


@pytest.mark.parametrize(("family", "door"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_a_job_goes_in_by_one_door_and_out_by_another(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    doors.door(family).put(queue, {"a": 1})
    worker = doors.door(door)
    taken = worker.must_take(queue)
    assert taken.data in ({"a": 1}, b'{"a":1}')
    worker.finish(taken)
    assert worker.is_empty(queue)
