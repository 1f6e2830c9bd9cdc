from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from jobyard.spark.options import ReadOptions, read_options
from jobyard.spark.read.columns import Table, schema_of, table_of
from jobyard.spark.read.pushdown import Bounds, bounds_of

MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)
MOMENT_MS = int(MOMENT.timestamp() * 1000)


def options(**given: str) -> ReadOptions:
    return read_options({"url": "http://h:1", **given}, is_stream=False)


TOPIC = options(topic="a")
EVENTS = options(topic="_events")
JOBS = options(jobs="q", states="dead,ready")


def bounds(chosen: ReadOptions, *filters: Filter) -> Bounds:
    return bounds_of(filters, Table(chosen, schema_of(table_of(chosen))), chosen)


def seqs(*filters: Filter, chosen: ReadOptions = TOPIC) -> tuple[int, int]:
    found = bounds(chosen, *filters)
    return found.seq_min, min(found.seq_max, 1000)


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([EqualTo(("seq",), 5)], (5, 5)),
        ([EqualNullSafe(("seq",), 5)], (5, 5)),
        ([GreaterThan(("seq",), 5)], (6, 1000)),
        ([GreaterThanOrEqual(("seq",), 5)], (5, 1000)),
        ([LessThan(("seq",), 5)], (0, 4)),
        ([LessThanOrEqual(("seq",), 5)], (0, 5)),
        ([In(("seq",), (9, 5, 7))], (5, 9)),
        ([GreaterThan(("seq",), 5), LessThan(("seq",), 9), GreaterThan(("seq",), 3)], (6, 8)),
        ([Not(EqualTo(("seq",), 5))], (0, 1000)),
        ([IsNotNull(("seq",))], (0, 1000)),
        ([EqualTo(("seq",), None)], (0, 1000)),
        ([EqualTo(("seq",), 5.5)], (0, 1000)),
        ([EqualTo(("seq", "x"), 5)], (0, 1000)),
        ([EqualTo(("partition",), 5)], (0, 1000)),
    ],
)
def test_bounds_of_seqs(filters: list[Filter], span: tuple[int, int]) -> None:
    assert seqs(*filters) == span


def test_the_seq_has_other_names() -> None:
    assert seqs(EqualTo(("offset",), 5), chosen=options(subscribe="a")) == (5, 5)
    assert seqs(EqualTo(("queue_seq",), 5), chosen=JOBS) == (5, 5)
    assert seqs(EqualTo(("seq",), 5), chosen=JOBS) == (0, 1000)


def test_words_of_the_history() -> None:
    found = bounds(
        EVENTS,
        In(("queue",), ("b", "a", "c")),
        In(("queue",), ("a", "b", "x")),
        EqualTo(("event",), "failed"),
    )
    assert found.query(EVENTS) == {"queue": "a,b", "event": "failed"}
    assert not found.is_empty(EVENTS)
    assert bounds(EVENTS, EqualTo(("queue",), "a"), EqualTo(("queue",), "b")).is_empty(EVENTS)


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("queue",), "a,b"),
        EqualTo(("queue",), ""),
        EqualTo(("queue",), None),
        In(("queue",), ("a", None)),
        In(("queue",), tuple(f"q{at:04}" for at in range(1000))),
        StringStartsWith(("queue",), "a"),
        GreaterThan(("queue",), "a"),
        Not(EqualTo(("queue",), "a")),
        EqualTo(("state",), "gone"),
        GreaterThan(("ts",), datetime(2026, 1, 1)),  # noqa: DTZ001  as Spark sends a time without zone
    ],
)
def test_what_cannot_be_sent_is_left_to_spark(each: Filter) -> None:
    assert bounds(EVENTS, each) == Bounds()


def test_times_of_the_history_are_rounded_outwards() -> None:
    odd = MOMENT + timedelta(microseconds=1)
    found = bounds(EVENTS, GreaterThan(("ts",), odd), LessThan(("ts",), odd))
    assert found.query(EVENTS) == {"from_ts": str(MOMENT_MS), "to_ts": str(MOMENT_MS + 1)}
    # A clock that was set back makes times of records fall; nothing can be skipped by them.
    assert bounds(TOPIC, GreaterThan(("ts",), MOMENT)) == Bounds()


def test_topics_are_chosen() -> None:
    found = bounds(TOPIC, EqualTo(("topic",), "a"))
    assert found.allows("a")
    assert not found.allows("b")


def test_states_of_jobs() -> None:
    assert bounds(JOBS).query(JOBS) == {"jobs": "dead,ready"}
    assert bounds(JOBS, In(("state",), ("ready", "leased"))).query(JOBS) == {"jobs": "ready"}
    assert bounds(JOBS, EqualTo(("state",), "leased")).is_empty(JOBS)


MAKERS: list[tuple[Any, Any]] = [
    (EqualTo, lambda row, value: row == value),
    (GreaterThan, lambda row, value: row > value),
    (GreaterThanOrEqual, lambda row, value: row >= value),
    (LessThan, lambda row, value: row < value),
    (LessThanOrEqual, lambda row, value: row <= value),
]


@given(st.lists(st.tuples(st.sampled_from(MAKERS), st.integers(-5, 60)), max_size=6))
def test_no_row_that_passes_is_left_out(chosen: list[tuple[tuple[Any, Any], int]]) -> None:
    micro = timedelta(microseconds=1)
    made = [maker(("seq",), value) for (maker, _), value in chosen]
    timed = [maker(("ts",), MOMENT + 100 * value * micro) for (maker, _), value in chosen]
    found = bounds(EVENTS, *made, *timed)
    for row in range(60):
        if all(passes(row, value) for (_, passes), value in chosen):
            assert found.seq_min <= row <= found.seq_max
            at_ms = (MOMENT + 100 * row * micro).timestamp() * 1000
            assert found.ts_min_ms is None or found.ts_min_ms <= at_ms
            assert found.ts_max_ms is None or at_ms <= found.ts_max_ms
