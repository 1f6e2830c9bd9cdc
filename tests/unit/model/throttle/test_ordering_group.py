from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.ordering_group import OrderingGroup
from jobyard.model.throttle.ordering_throttle import OrderingLimits


def group_with(*numbers: int) -> OrderingGroup:
    ordering = OrderingGroup("a")
    ordering.limits = OrderingLimits(*numbers)
    return ordering


@given(
    st.integers(1, 5000),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=30),
)
def test_a_bucket_holds_what_flowed_in_less_what_was_taken(
    refill: int, steps: list[tuple[int, int]]
) -> None:
    capacity = 3000
    ordering = group_with(9, 0, 0, capacity, refill)
    ordering.begin(0)
    now_ms, tokens, remainder = 0, 0, 0
    for wait_ms, cost in steps:
        now_ms += wait_ms
        flow = wait_ms * refill + remainder
        tokens, remainder = tokens + flow // 1000, flow % 1000
        if tokens >= capacity:
            # Tokens that flow into a full bucket are lost.
            tokens, remainder = capacity, 0
        assert ordering.tokens(now_ms) == tokens
        at_ms = int(ordering.may_start_ms(cost, now_ms))
        assert (at_ms == now_ms) == (tokens >= cost)
        if at_ms == now_ms:
            ordering.start(cost, now_ms)
            tokens -= cost


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 5000))
def test_it_opens_at_the_moment_it_told_and_not_before(
    cost: int, refill: int, since_ms: int
) -> None:
    ordering = group_with(9, 0, 0, 3000, refill)
    ordering.begin(0)
    at_ms = int(ordering.may_start_ms(cost, since_ms))
    if at_ms > since_ms:
        assert ordering.may_start_ms(cost, at_ms - 1) > at_ms - 1
    assert ordering.may_start_ms(cost, at_ms) == at_ms


def test_without_a_flow_it_never_opens_again() -> None:
    ordering = group_with(9, 0, 0, 3000, 0)
    ordering.begin(0)
    assert ordering.may_start_ms(1, 1 << 50) == NEVER_MS


def test_long_times_and_large_limits_stay_within_their_bits() -> None:
    ordering = group_with(9, 0, 0, 1 << 62, 1 << 62)
    ordering.begin(0)
    assert ordering.tokens(1 << 50) == ordering.limits.capacity
    ordering.start(1 << 51, 1 << 50)
    assert ordering.may_start_ms(1 << 52, 1 << 50) == (1 << 50) + 500


def test_a_window_opens_with_the_first_that_starts() -> None:
    ordering = group_with(9, 2, 100, 0, 0)
    for now_ms in (1000, 1050):
        assert ordering.may_start_ms(1, now_ms) == now_ms
        ordering.start(1, now_ms)
    assert ordering.may_start_ms(1, 1060) == 1100
    assert ordering.may_start_ms(1, 1100) == 1100
    ordering.start(1, 1170)
    assert ordering.may_start_ms(1, 1180) == 1180


def test_after_a_restart_the_window_is_closed() -> None:
    ordering = group_with(9, 2, 100, 0, 0)
    ordering.begin(1000)
    assert ordering.may_start_ms(1, 1001) == 1100


def test_a_closed_ordering_group_is_closed_for_all_jobs() -> None:
    ordering = group_with(9, 0, 0, 0, 0)
    ordering.closed_until_ms = 70
    assert ordering.may_start_ms(1, 10) == 70
    assert ordering.may_start_ms(1, 80) == 80
