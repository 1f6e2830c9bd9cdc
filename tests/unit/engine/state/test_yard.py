import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.state.yard import STAMP_SHIFT
from jobyard.model.index.item import Item
from tests.support.random.beanstalk import RandomRun
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


@pytest.mark.parametrize("seed", range(6))
def test_every_counter_and_index_agrees_with_the_jobs_after_every_command(seed: int) -> None:
    site = OpenYard()
    run = RandomRun(site, seed)
    for _ in range(400):
        run.step()
        recount(site.yard)
    run.leave()
    recount(site.yard)


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_at_any_moment_finds_the_same_yard(seed: int) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, budget=20_000)
    run = RandomRun(site, 100 + seed)
    for number in range(400):
        run.step()
        if number % 3 == 0:
            site.commit()
        if number % 20 == 0:
            site.commit()
            recount(site.yard)
            again = OpenYard(storage.cut_off(), site.now_ms, budget=20_000)
            site.jump()
            assert snapshot(again.yard) == snapshot(site.yard)
            recount(again.yard)


@given(st.lists(st.integers(-5, 5), max_size=50))
@settings(max_examples=30)
def test_stamps_rise_whatever_the_clock_does(steps: list[int]) -> None:
    yard = OpenYard().yard
    now_ms, last = NOW_MS, 0
    for step in steps:
        now_ms += step
        stamp = yard.stamp(now_ms)
        assert stamp > last
        last = int(stamp)


def test_a_stamp_is_the_time_it_was_drawn_and_a_number_within_it() -> None:
    yard = OpenYard().yard
    assert yard.stamp(NOW_MS) == NOW_MS << STAMP_SHIFT
    assert yard.stamp(NOW_MS) == (NOW_MS << STAMP_SHIFT) + 1
    assert yard.stamp(NOW_MS + 1) == (NOW_MS + 1) << STAMP_SHIFT


def test_a_timer_can_be_set_earlier_but_not_later() -> None:
    yard = OpenYard().yard
    item = Item(0, 0, 0)
    yard.arm(item, 500)
    yard.arm(item, 900)
    assert yard.next_timer_ms() == 500
    yard.arm(item, 100)
    assert yard.next_timer_ms() == 100
    yard.disarm(item)
    yard.disarm(item)
    assert yard.timers.items == []


def test_holders_and_waiters_draw_from_one_row_of_numbers() -> None:
    site = OpenYard()
    first, second = site.connect(), site.connect()
    assert second.lease_set.key == first.lease_set.key + 1
    assert site.yard.new_number() == second.lease_set.key + 1
