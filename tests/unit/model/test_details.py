from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.details import (
    FAILURES_KEPT,
    KEY_DROPPED,
    KEY_EXTENDS,
    KEY_PLAIN,
    KEY_REPLACES,
    KEY_UNTIL,
    LOGS_CUT,
    MEMBER,
    OPEN,
    PROGRESS,
    RESULT,
    SETTLED,
    STALLED,
    TIMED_OUT,
    UNKNOWN,
    Extra,
    Failure,
    Fields,
    LogLine,
    Member,
    Outcome,
    absorb,
    encode_extra,
    failure_field,
    log_field,
    member_field,
    result_field,
    size_of,
)
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue
from tests.support.yards import extra_facts

TEXTS = st.text(max_size=20)
TIMES = st.integers(1, 1 << 50)
FAILURES = st.builds(Failure, st.integers(1, 99), TIMES, TIMES, st.integers(0, 6), TEXTS)
LINES = st.builds(LogLine, TIMES, st.sampled_from(["info", "warn"]), TEXTS)


def member(child_id: int, label: str, state: int, value: bytes) -> Member:
    made = Member(child_id, label)
    made.state, made.value = state, value
    return made


MEMBERS = st.lists(
    st.builds(member, st.integers(1, 1 << 40), TEXTS, st.integers(0, 4), st.binary(max_size=20)),
    unique_by=lambda one: (one.child_id, one.label),
    max_size=4,
)


def outcome() -> Outcome:
    job = Job(1, Queue("q"), 1, 1, 0, 0, 0, 0, PLAIN, b"", 0, BUNQUEUE, MSGPACK)
    return Outcome(1, job, 5000)


@st.composite
def extras(draw: st.DrawFn) -> Extra:
    extra = Extra()
    for name in ("custom_id", "group_id", "message", "stack"):
        if draw(st.booleans()):
            setattr(extra, name, draw(TEXTS))
    extra.progress = draw(st.sampled_from(["", "55", "100"]))
    extra.marks = draw(st.binary(max_size=20))
    extra.parent_id = draw(st.integers(0, 1 << 40))
    if draw(st.booleans()):
        extra.unique_key = draw(TEXTS)
        extra.key_mode = draw(st.sampled_from([KEY_PLAIN, KEY_EXTENDS, KEY_REPLACES]))
        extra.key_ttl_ms = draw(st.integers(0, 1 << 40))
        extra.key_until_ms = draw(st.one_of(st.just(0), TIMES))
    extra.members = draw(st.none() | MEMBERS)
    extra.logs = draw(st.none() | st.lists(LINES, max_size=4))
    extra.failures = draw(st.none() | st.lists(FAILURES, max_size=FAILURES_KEPT))
    if draw(st.booleans()):
        extra.retries, extra.retried_ms = draw(st.integers(1, 99)), draw(TIMES)
    if draw(st.booleans()):
        ended = outcome()
        ended.started_ms = draw(st.one_of(st.just(0), TIMES))
        ended.reason, ended.error = draw(st.integers(0, UNKNOWN)), draw(TEXTS)
        result = draw(st.binary(max_size=20))
        ended.set_result(MSGPACK if result else 0, result)
        extra.outcome = ended
    return extra


def result_in(extra: Extra) -> bytes:
    return b"" if extra.outcome is None else extra.outcome.result


@given(extras())
def test_what_is_written_is_read_back_whole(extra: Extra) -> None:
    data = encode_extra(extra)
    again = Extra()
    if extra.outcome is not None:
        again.outcome = outcome()
    absorb(again, b"before" + data + b"after", 6, 6 + len(data), 0)
    assert extra_facts(again) == extra_facts(extra)
    assert result_in(again) == result_in(extra)
    assert encode_extra(again) == data


@given(extras())
def test_the_size_is_known_without_writing(extra: Extra) -> None:
    assert size_of(extra) == len(encode_extra(extra))


def test_nothing_weighs_nothing() -> None:
    extra = Extra()
    assert (encode_extra(extra), size_of(extra)) == (b"", 0)
    extra.outcome = outcome()
    assert (encode_extra(extra), size_of(extra)) == (b"", 0)


def test_times_are_carried_over_to_the_clock_of_the_reader() -> None:
    extra = Extra()
    extra.unique_key, extra.key_until_ms, extra.key_ttl_ms = "k", 100, 7
    extra.logs = [LogLine(200, "info", "text")]
    extra.failures = [Failure(1, 300, 400, STALLED, "error")]
    extra.retries, extra.retried_ms = 2, 500
    extra.outcome = outcome()
    extra.outcome.started_ms = 600
    data = encode_extra(extra)
    again = Extra()
    again.outcome = outcome()
    absorb(again, data, 0, len(data), 10_000)
    assert (again.key_until_ms, again.key_ttl_ms) == (10_100, 7)
    assert [line.at_ms for line in again.logs or ()] == [10_200]
    assert [(one.started_ms, one.failed_ms) for one in again.failures or ()] == [(10_300, 10_400)]
    assert (again.retries, again.retried_ms) == (2, 10_500)
    assert again.outcome.started_ms == 10_600


def news(extra: Extra, fields: Fields) -> None:
    data = fields.done()
    absorb(extra, data, 0, len(data), 0)


def test_news_change_only_what_they_tell() -> None:
    extra = Extra()
    extra.custom_id, extra.unique_key = "id", "key"
    fields = Fields()
    fields.text(PROGRESS, "40\0half\0way")
    fields.numbers(KEY_UNTIL, (77,), b"")
    news(extra, fields)
    assert (extra.progress, extra.message, extra.key_until_ms) == ("40", "half\0way", 77)
    assert (extra.custom_id, extra.unique_key) == ("id", "key")
    fields = Fields()
    fields.begin(KEY_DROPPED, 0)
    news(extra, fields)
    assert (extra.custom_id, extra.unique_key) == ("id", "")


def test_a_log_is_cut_from_its_old_end() -> None:
    extra = Extra()
    for number in range(5):
        fields = Fields()
        log_field(fields, LogLine(number, "info", f"line {number}"))
        news(extra, fields)
    fields = Fields()
    fields.numbers(LOGS_CUT, (2,), b"")
    news(extra, fields)
    assert [line.text for line in extra.logs or ()] == ["line 3", "line 4"]
    fields = Fields()
    fields.numbers(LOGS_CUT, (0,), b"")
    news(extra, fields)
    assert extra.logs is None


def test_of_many_failures_the_newest_are_told() -> None:
    extra = Extra()
    for attempt in range(1, FAILURES_KEPT + 4):
        fields = Fields()
        failure_field(fields, Failure(attempt, 1, 2, TIMED_OUT, "late"))
        news(extra, fields)
    attempts = [failure.attempt for failure in extra.failures or ()]
    assert attempts == list(range(4, FAILURES_KEPT + 4))


def test_news_of_a_member_take_the_place_of_the_old() -> None:
    extra = Extra()
    extra.members = [Member(1, "q:1"), Member(2, "q:2")]
    assert extra.open_count() == 2
    fields = Fields()
    member_field(fields, member(1, "q:1", SETTLED, b"result"))
    news(extra, fields)
    assert [(one.child_id, one.state, one.value) for one in extra.members] == [
        (1, SETTLED, b"result"),
        (2, OPEN, b""),
    ]
    assert extra.open_count() == 1


def test_a_result_belongs_to_a_job_at_rest_only() -> None:
    extra = Extra()
    fields = Fields()
    result_field(fields, MSGPACK, b"r")
    news(extra, fields)
    assert extra.outcome is None
    extra.outcome = outcome()
    news(extra, fields)
    assert (extra.outcome.codec, extra.outcome.result) == (MSGPACK, b"r")


def test_the_numbers_of_fields_never_change() -> None:
    fields = Fields()
    fields.text(1, "a")
    assert fields.done() == b"\x01\x01\0\0\0a"
    assert (MEMBER, PROGRESS, RESULT, KEY_UNTIL, KEY_DROPPED, LOGS_CUT) == (5, 6, 10, 12, 13, 14)
