from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.details import (
    FAILURES_KEPT,
    KEY_EXTENDS,
    KEY_PLAIN,
    KEY_REPLACES,
    Failure,
    FailureReason,
    JobDetails,
    LogLine,
    Outcome,
)
from jobyard.model.details_codec import (
    FieldWriter,
    Tag,
    absorb,
    encode_details,
    failure_field,
    log_field,
    member_field,
    result_field,
    size_of,
)
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK, Job
from jobyard.model.members import Member, MemberState
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue
from tests.support.site.snapshot import extra_facts

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
def extras(draw: st.DrawFn) -> JobDetails:
    details = JobDetails()
    for name in ("custom_id", "group_id", "message", "stack"):
        if draw(st.booleans()):
            setattr(details, name, draw(TEXTS))
    details.progress = draw(st.sampled_from(["", "55", "100"]))
    details.protocol_fields = draw(st.binary(max_size=20))
    details.parent_id = draw(st.integers(0, 1 << 40))
    if draw(st.booleans()):
        details.unique_key = draw(TEXTS)
        details.key_mode = draw(st.sampled_from([KEY_PLAIN, KEY_EXTENDS, KEY_REPLACES]))
        details.key_ttl_ms = draw(st.integers(0, 1 << 40))
        details.key_until_ms = draw(st.one_of(st.just(0), TIMES))
    details.members = draw(st.none() | MEMBERS)
    details.logs = draw(st.none() | st.lists(LINES, max_size=4))
    details.failures = draw(st.none() | st.lists(FAILURES, max_size=FAILURES_KEPT))
    if draw(st.booleans()):
        details.retries, details.retried_ms = draw(st.integers(1, 99)), draw(TIMES)
    if draw(st.booleans()):
        ended = outcome()
        ended.started_ms = draw(st.one_of(st.just(0), TIMES))
        ended.reason, ended.error = draw(st.integers(0, FailureReason.UNKNOWN)), draw(TEXTS)
        result = draw(st.binary(max_size=20))
        ended.set_result(MSGPACK if result else 0, result)
        details.outcome = ended
    return details


def result_in(details: JobDetails) -> bytes:
    return b"" if details.outcome is None else details.outcome.result


@given(extras())
def test_what_is_written_is_read_back_whole(details: JobDetails) -> None:
    data = encode_details(details)
    again = JobDetails()
    if details.outcome is not None:
        again.outcome = outcome()
    absorb(again, b"before" + data + b"after", 6, 6 + len(data), 0)
    assert extra_facts(again) == extra_facts(details)
    assert result_in(again) == result_in(details)
    assert encode_details(again) == data


@given(extras())
def test_the_size_is_known_without_writing(details: JobDetails) -> None:
    assert size_of(details) == len(encode_details(details))


def test_nothing_weighs_nothing() -> None:
    details = JobDetails()
    assert (encode_details(details), size_of(details)) == (b"", 0)
    details.outcome = outcome()
    assert (encode_details(details), size_of(details)) == (b"", 0)


def test_times_are_carried_over_to_the_clock_of_the_reader() -> None:
    details = JobDetails()
    details.unique_key, details.key_until_ms, details.key_ttl_ms = "k", 100, 7
    details.logs = [LogLine(200, "info", "text")]
    details.failures = [Failure(1, 300, 400, FailureReason.STALLED, "error")]
    details.retries, details.retried_ms = 2, 500
    details.outcome = outcome()
    details.outcome.started_ms = 600
    data = encode_details(details)
    again = JobDetails()
    again.outcome = outcome()
    absorb(again, data, 0, len(data), 10_000)
    assert (again.key_until_ms, again.key_ttl_ms) == (10_100, 7)
    assert [line.at_ms for line in again.logs or ()] == [10_200]
    assert [(one.started_ms, one.failed_ms) for one in again.failures or ()] == [(10_300, 10_400)]
    assert (again.retries, again.retried_ms) == (2, 10_500)
    assert again.outcome.started_ms == 10_600


def news(details: JobDetails, fields: FieldWriter) -> None:
    data = fields.done()
    absorb(details, data, 0, len(data), 0)


def test_news_change_only_what_they_tell() -> None:
    details = JobDetails()
    details.custom_id, details.unique_key = "id", "key"
    fields = FieldWriter()
    fields.text(Tag.PROGRESS, "40\0half\0way")
    fields.numbers(Tag.KEY_UNTIL, (77,), b"")
    news(details, fields)
    assert (details.progress, details.message, details.key_until_ms) == ("40", "half\0way", 77)
    assert (details.custom_id, details.unique_key) == ("id", "key")
    fields = FieldWriter()
    fields.begin(Tag.KEY_DROPPED, 0)
    news(details, fields)
    assert (details.custom_id, details.unique_key) == ("id", "")


def test_a_log_is_cut_from_its_old_end() -> None:
    details = JobDetails()
    for number in range(5):
        fields = FieldWriter()
        log_field(fields, LogLine(number, "info", f"line {number}"))
        news(details, fields)
    fields = FieldWriter()
    fields.numbers(Tag.LOGS_CUT, (2,), b"")
    news(details, fields)
    assert [line.text for line in details.logs or ()] == ["line 3", "line 4"]
    fields = FieldWriter()
    fields.numbers(Tag.LOGS_CUT, (0,), b"")
    news(details, fields)
    assert details.logs is None


def test_of_many_failures_the_newest_are_reported() -> None:
    details = JobDetails()
    for attempt in range(1, FAILURES_KEPT + 4):
        fields = FieldWriter()
        failure_field(fields, Failure(attempt, 1, 2, FailureReason.TIMED_OUT, "late"))
        news(details, fields)
    attempts = [failure.attempt for failure in details.failures or ()]
    assert attempts == list(range(4, FAILURES_KEPT + 4))


def test_news_of_a_member_take_the_place_of_the_old() -> None:
    details = JobDetails()
    details.members = [Member(1, "q:1"), Member(2, "q:2")]
    assert details.open_count() == 2
    fields = FieldWriter()
    member_field(fields, member(1, "q:1", MemberState.SETTLED, b"result"))
    news(details, fields)
    assert [(one.child_id, one.state, one.value) for one in details.members] == [
        (1, MemberState.SETTLED, b"result"),
        (2, MemberState.OPEN, b""),
    ]
    assert details.open_count() == 1


def test_a_result_belongs_to_a_job_at_rest_only() -> None:
    details = JobDetails()
    fields = FieldWriter()
    result_field(fields, MSGPACK, b"r")
    news(details, fields)
    assert details.outcome is None
    details.outcome = outcome()
    news(details, fields)
    assert (details.outcome.codec, details.outcome.result) == (MSGPACK, b"r")


def test_the_numbers_of_fields_never_change() -> None:
    fields = FieldWriter()
    fields.text(1, "a")
    assert fields.done() == b"\x01\x01\0\0\0a"
    assert (Tag.MEMBER, Tag.PROGRESS, Tag.RESULT, Tag.KEY_UNTIL, Tag.KEY_DROPPED, Tag.LOGS_CUT) == (
        5,
        6,
        10,
        12,
        13,
        14,
    )
