"""Pushes and pulls a second."""

from jobyard.protocols.bunqueue.metrics.rates import LEAST_MS, SPAN_MS, Rates


def test_the_first_look_tells_the_average_since_the_start() -> None:
    rates = Rates(0)
    rates.look(500, 100, 5000)
    assert (rates.push_rate, rates.pull_rate) == (100.0, 20.0)


def test_rates_stay_the_same_when_read_often() -> None:
    rates = Rates(0)
    rates.look(1000, 0, 1000)
    rates.look(9000, 0, 1000 + LEAST_MS - 1)
    assert rates.push_rate == 1000.0


def test_the_average_moves_towards_what_is_now() -> None:
    rates = Rates(0)
    rates.look(1000, 1000, 1000)
    before = rates.push_rate
    rates.look(1000, 1000, 2000)
    assert 0 < rates.push_rate < before
    rates.look(1000, 1000, 2000 + SPAN_MS)
    assert (rates.push_rate, rates.pull_rate) == (0.0, 0.0)


def test_ends_are_distinguished() -> None:
    rates = Rates(0)
    rates.look(100, 100, 1000, 60, 20)
    assert (rates.complete_rate, rates.fail_rate) == (60.0, 20.0)
    rates.look(100, 100, 1000 + SPAN_MS, 60, 40)
    assert (rates.complete_rate, rates.fail_rate) == (0.0, 2.0)
