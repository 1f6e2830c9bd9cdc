"""The cost of one damaged place after a repair: only jobs that were hit, and all are reported."""

import pytest

from tests.support.random.flips import BIT, SECTOR_NOISE, UNREADABLE, Outcome, run


def wrong(outcomes: list[Outcome]) -> list[str]:
    return [one.text for one in outcomes if one.unhit or one.back > one.told_back]


def test_a_flipped_bit_costs_no_job() -> None:
    outcomes = run(100, BIT, seed=11)
    assert wrong(outcomes) == []
    assert sum(one.lost + one.back for one in outcomes) == 0


@pytest.mark.parametrize("kind", [SECTOR_NOISE, UNREADABLE])
def test_a_damaged_sector_costs_the_jobs_in_it(kind: str) -> None:
    outcomes = run(100, kind, seed=12)
    assert wrong(outcomes) == []
    lost = sum(one.lost for one in outcomes)
    assert 0 < lost < 300
    assert sum(one.told_lost for one in outcomes) > lost // 3
