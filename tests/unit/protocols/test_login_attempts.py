"""Failed attempts: mistakes are free, guesses are slow, and other clients are not delayed."""

from jobyard.protocols.login_attempts import (
    ADDRESSES_MAX,
    DELAY_MS,
    FAILURES_PER_S,
    FORGET_MS,
    FREE_FAILURES,
    REFUSAL_DELAY_MS_MAX,
    LoginAttempts,
)

NOW_MS = 1_700_000_000_000


def test_a_few_mistakes_are_free_and_then_each_costs_twice_as_much() -> None:
    attempts = LoginAttempts()
    delays = [attempts.fail("a", NOW_MS + n * 2000) for n in range(FREE_FAILURES + 12)]
    assert delays[:FREE_FAILURES] == [0] * FREE_FAILURES
    assert delays[FREE_FAILURES : FREE_FAILURES + 3] == [DELAY_MS, 2 * DELAY_MS, 4 * DELAY_MS]
    assert delays == sorted(delays)
    assert delays[-1] == REFUSAL_DELAY_MS_MAX
    assert attempts.failed_count == len(delays)
    assert attempts.fail("b", NOW_MS) == 0, "another address pays for nothing"


def test_a_delay_never_overflows() -> None:
    attempts = LoginAttempts()
    for n in range(5000):
        assert 0 <= attempts.fail("a", NOW_MS + n * 1000) <= REFUSAL_DELAY_MS_MAX


def test_all_is_forgotten_after_a_while() -> None:
    attempts = LoginAttempts()
    for _ in range(20):
        attempts.fail("a", NOW_MS)
    assert attempts.fail("a", NOW_MS + FORGET_MS) == 0


def test_past_a_rate_nothing_is_compared_for_the_rest_of_the_second() -> None:
    attempts = LoginAttempts()
    for n in range(FAILURES_PER_S):
        assert attempts.may_try("a", NOW_MS + n)
        attempts.fail("a", NOW_MS + n)
    assert not attempts.may_try("a", NOW_MS + 500)
    assert attempts.may_try("b", NOW_MS + 500)
    assert not attempts.may_try("a", NOW_MS + 999)
    assert attempts.may_try("a", NOW_MS + 1000)


def test_the_table_is_bounded_and_keeps_who_failed_last() -> None:
    attempts = LoginAttempts()
    for _ in range(10):
        attempts.fail("first", NOW_MS)
    for n in range(ADDRESSES_MAX):
        attempts.fail(f"other {n}", NOW_MS)
        if n % 1000 == 0:
            assert attempts.fail("busy", NOW_MS) >= 0
    assert len(attempts._by_address) == ADDRESSES_MAX
    assert attempts.fail("first", NOW_MS) == 0
    assert attempts.fail("busy", NOW_MS) > 0
