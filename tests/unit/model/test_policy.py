from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.policy import (
    BACKOFF_EXPONENTIAL,
    BACKOFF_FIXED,
    BACKOFF_PLAIN,
    PLAIN,
    Policy,
    backoff_ms,
    exact_backoff_ms,
)

NUMBERS = (
    "max_attempts",
    "backoff_kind",
    "backoff_ms",
    "backoff_max_ms",
    "timeout_ms",
    "ttl_ms",
    "stall_ms",
    "flags",
    "child_failure",
    "stack_limit",
    "logs_kept",
    "size_limit",
)
LONG = st.integers(-(1 << 62), 1 << 62)


@given(
    st.lists(LONG, min_size=len(NUMBERS), max_size=len(NUMBERS)),
    st.text(max_size=30),
    st.binary(max_size=30),
)
def test_a_policy_is_read_back_whole(numbers: list[int], name: str, opts: bytes) -> None:
    policy = Policy(7)
    for field, number in zip(NUMBERS, numbers, strict=True):
        setattr(policy, field, number)
    policy.name = name
    policy.opts = opts
    again = Policy(8)
    again.fill(policy.encode())
    assert [getattr(again, field) for field in NUMBERS] == numbers
    assert (again.name, again.opts, again.number) == (name, opts, 8)
    assert again.text == again.encode() == policy.encode()


def test_every_wish_makes_another_policy() -> None:
    texts = {Policy(0).encode()}
    for field in NUMBERS:
        policy = Policy(0)
        setattr(policy, field, 12_345)
        texts.add(policy.encode())
    named = Policy(0)
    named.name = "mail"
    texts.add(named.encode())
    assert len(texts) == len(NUMBERS) + 2


def test_a_job_nothing_was_asked_for_has_the_policy_that_needs_no_record() -> None:
    assert (PLAIN.number, PLAIN.max_attempts, PLAIN.ttl_ms, PLAIN.flags) == (0, 0, 0, 0)


@given(st.integers(1, 1 << 40), st.integers(1, 40))
def test_a_wait_grows_from_half_to_one_and_a_half_of_the_doubled_base(
    job_id: int, attempts: int
) -> None:
    for kind in (BACKOFF_PLAIN, BACKOFF_EXPONENTIAL):
        policy = Policy(0)
        policy.backoff_kind = kind
        doubled = min(1000 << min(attempts, 24), policy.backoff_max_ms)
        wait_ms = backoff_ms(policy, job_id, attempts)
        assert doubled // 2 <= wait_ms <= min(doubled * 3 // 2, policy.backoff_max_ms)
        assert wait_ms == backoff_ms(policy, job_id, attempts), "a replay draws the same"


@given(st.integers(1, 1 << 40), st.integers(1, 40))
def test_a_fixed_wait_stays_about_the_same(job_id: int, attempts: int) -> None:
    policy = Policy(0)
    policy.backoff_kind = BACKOFF_FIXED
    assert 800 <= backoff_ms(policy, job_id, attempts) <= 1200


def test_jobs_that_failed_together_come_back_apart() -> None:
    policy = Policy(0)
    waits = {backoff_ms(policy, job_id, 1) for job_id in range(1, 201)}
    assert len(waits) > 100
    assert max(waits) - min(waits) > 1500


def test_no_base_is_no_wait() -> None:
    policy = Policy(0)
    policy.backoff_ms = 0
    assert [backoff_ms(policy, 1, attempts) for attempts in (1, 5)] == [0, 0]


def test_an_exact_backoff_is_as_long_as_was_asked_for() -> None:
    policy = Policy(0)
    policy.backoff_ms = 100
    assert [exact_backoff_ms(policy, each) for each in (1, 2, 3)] == [0, 0, 0]
    policy.backoff_kind = BACKOFF_FIXED
    assert [exact_backoff_ms(policy, each) for each in (1, 2, 3)] == [100, 100, 100]
    policy.backoff_kind = BACKOFF_EXPONENTIAL
    assert [exact_backoff_ms(policy, each) for each in (1, 2, 3)] == [100, 200, 400]
