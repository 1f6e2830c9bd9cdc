from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.settings import DEFAULTS, NO_LIMIT, Bucket, Group, Rules, Settings

RATES = st.tuples(st.integers(1, 1000), st.integers(1, 100_000))


def passed_until(bucket: Bucket, now_ms: int) -> int:
    count = 0
    while bucket.has_one(now_ms):
        bucket.take_one()
        count += 1
    return count


@given(RATES)
def test_a_full_bucket_lets_as_many_pass_as_were_asked_for(rate: tuple[int, int]) -> None:
    bucket = Bucket(*rate)
    bucket.fill(5000)
    assert passed_until(bucket, 5000) == rate[0]


@given(
    st.tuples(st.integers(2, 1000), st.integers(1, 100_000)),
    st.lists(st.integers(0, 5000), max_size=40),
)
def test_no_fraction_is_lost_or_won_however_often_it_is_asked(
    rate: tuple[int, int], steps: list[int]
) -> None:
    most, per_ms = rate
    bucket = Bucket(most, per_ms)
    bucket.begin(0)
    now_ms = count = 0
    for step in steps:
        # Never so long that the bucket could be full: what it cannot hold is meant to be lost.
        now_ms += min(step, per_ms // 2)
        count += passed_until(bucket, now_ms)
        assert count == now_ms * most // per_ms


@given(RATES)
def test_the_next_one_passes_at_the_time_that_was_told_and_not_before(
    rate: tuple[int, int],
) -> None:
    bucket = Bucket(*rate)
    bucket.begin(1000)
    next_ms = bucket.next_ms(1000)
    assert next_ms > 1000
    assert not bucket.has_one(next_ms - 1)
    assert bucket.has_one(next_ms)
    assert bucket.next_ms(next_ms) == next_ms


def test_a_bucket_never_holds_more_than_it_may() -> None:
    bucket = Bucket(3, 1000)
    bucket.fill(0)
    assert passed_until(bucket, 0) == 3
    assert passed_until(bucket, 1 << 50) == 3


def test_a_clock_that_stands_still_or_runs_back_fills_nothing() -> None:
    bucket = Bucket(2, 1000)
    bucket.begin(5000)
    assert not bucket.has_one(5000)
    assert not bucket.has_one(0)
    assert bucket.has_one(5500)


def test_a_limit_of_nothing_lets_nothing_pass_ever() -> None:
    for most in (0, -5):
        bucket = Bucket(most, 1000)
        bucket.fill(0)
        assert not bucket.has_one(1 << 40)
        assert bucket.next_ms(0) == NEVER_MS


def test_settings_are_read_back_whole() -> None:
    settings = Settings()
    names = [name for name in dir(settings) if not name.startswith("_")]
    fields = [name for name in names if not callable(getattr(settings, name))]
    assert len(fields) == 14
    for number, name in enumerate(fields, 1):
        old = getattr(settings, name)
        setattr(settings, name, not old if isinstance(old, bool) else number * 1000)
    again = Settings()
    again.fill(settings.encode())
    for name in fields:
        assert getattr(again, name) == getattr(settings, name)
        assert getattr(again, name) != getattr(DEFAULTS, name)


def test_a_group_is_read_back_and_its_rate_begins_empty() -> None:
    group = Group("g")
    assert group.is_plain()
    group.concurrency, group.is_paused = 3, True
    group.set_rate(5, 1000)
    again = Group("g")
    again.fill(group.encode(), 7000)
    assert not again.is_plain()
    assert (again.concurrency, again.is_paused) == (3, True)
    assert (again.rate_most, again.rate_ms) == (5, 1000)
    assert again.bucket is not None
    assert again.bucket.next_ms(7000) == 7200
    again.set_rate(NO_LIMIT, 0)
    assert again.bucket is None


def test_what_was_set_for_a_group_goes_before_what_a_puller_brings() -> None:
    group = Group("g")
    assert (group.limit(), group.rate()) == (NO_LIMIT, None)
    group.default_concurrency, group.default_bucket = 2, Bucket(1, 1)
    assert (group.limit(), group.rate()) == (2, group.default_bucket)
    group.concurrency = 0
    group.set_rate(9, 9)
    assert (group.limit(), group.rate()) == (0, group.bucket)


def test_a_group_is_forgotten_with_its_last_job_unless_something_is_set() -> None:
    rules = Rules()
    group = rules.group("g")
    assert rules.group("g") is group
    group.jobs_count = 1
    rules.forget_idle(group)
    assert rules.groups == {"g": group}
    group.jobs_count = 0
    group.is_paused = True
    rules.forget_idle(group)
    assert rules.groups == {"g": group}
    group.is_paused = False
    rules.forget_idle(group)
    assert rules.groups == {}
