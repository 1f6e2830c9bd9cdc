import pytest

from bench.libraries import ROWS, Row, measure


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}, {row.library}")
def test_both_ways_do_their_work(row: Row) -> None:
    assert row.ours()
    assert row.theirs()
    assert measure(row.ours, 0.0001, 1) > 0


@pytest.mark.parametrize("row", ROWS[:2], ids=lambda row: row.name)
def test_both_readers_of_json_find_the_same(row: Row) -> None:
    assert row.ours() == row.theirs()
