"""Any period is cut into few steps at round times that cover it."""

from hypothesis import given
from hypothesis import strategies as st

from jobyard.lake.report.period import DAY, STEPS_MAX, period_of

NOW = 29_900_000


@given(st.integers(0, NOW), st.integers(0, 3000 * DAY))
def test_steps_cover_the_period_and_are_few(first: int, length: int) -> None:
    period = period_of(first, first + length)
    assert period.start <= first < period.start + period.step
    assert period.end() - period.step <= first + length < period.end()
    assert 1 <= period.steps <= STEPS_MAX
    assert period.start % period.step == 0


@given(st.integers(0, NOW), st.integers(0, 20_000 * DAY))
def test_ticks_are_few_and_inside(first: int, length: int) -> None:
    ticks = period_of(first, first + length).ticks()
    assert len(ticks) <= 9
    assert all(0 <= tick.share < 1 for tick in ticks)


def test_a_week_has_a_step_for_each_hour() -> None:
    monday = 7 * DAY * 2900 + 4 * DAY
    period = period_of(monday, monday + 7 * DAY - 1)
    assert (period.step, period.steps, period.step_words()) == (60, 168, "hour")
    assert period.length_words() == "7 days"


def test_words_of_short_and_long_periods() -> None:
    assert period_of(NOW, NOW).words() == "6 Nov 2026, 21:20 \N{EN DASH} 21:21"
    assert period_of(NOW, NOW + DAY).words() == "6 Nov 2026, 21:20 \N{EN DASH} 7 Nov 21:21"
    assert period_of(NOW, NOW + 60 * DAY).words() == "6 Nov 2026 \N{EN DASH} 5 Jan 2027"
    assert period_of(NOW, NOW + 60 * DAY).step_words() == "12 hours"
    assert period_of(NOW, NOW + 199).length_words() == "3 h 20 min"
