"""Filters that a server can apply: bounds of seqs, and queue, event and time of the history.

Spark applies every filter again to what is read, so a filter that is passed on may only be wider
than Spark's, never narrower: what cannot be expressed exactly is left to Spark. The time of a
topic's records is not among them, as it may go back where a clock was set; startingTimestamp is
for that.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from jobyard.spark.options import ReadOptions
from jobyard.spark.read.columns import Table

_SEQ_MAX: Final = (1 << 63) - 1
# Beyond it the filters of a long IN would not fit into a request.
_WORDS_MAX: Final = 4096
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_COMPARING: Final = (
    EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual,
)  # fmt: skip


@dataclass(frozen=True)
class Bounds:
    """What rows must satisfy, as far as servers are concerned; by default nothing."""

    seq_min: int = 0
    seq_max: int = _SEQ_MAX
    ts_min_ms: int | None = None
    ts_max_ms: int | None = None
    # Allowed values by column; None allows all.
    words: dict[str, frozenset[str]] = field(default_factory=dict)

    def query(self, options: ReadOptions) -> dict[str, str]:
        """Return the parameters of an export."""
        if options.jobs:
            states = self.words.get("state", frozenset(options.states))
            return {"jobs": ",".join(each for each in options.states if each in states)}
        if not options.is_events:
            return {}
        query: dict[str, str] = {
            name: ",".join(sorted(self.words[name]))
            for name in ("queue", "event")
            if name in self.words
        }
        if self.ts_min_ms is not None:
            query["from_ts"] = str(max(self.ts_min_ms, 0))
        if self.ts_max_ms is not None:
            query["to_ts"] = str(max(self.ts_max_ms, 0))
        return query

    def is_empty(self, options: ReadOptions) -> bool:
        """Return whether no row can satisfy them."""
        return (
            self.seq_min > self.seq_max
            or any(not words for words in self.words.values())
            or bool(options.jobs and not self.query(options)["jobs"])
        )

    def allows(self, topic: str) -> bool:
        """Return whether rows of a topic can satisfy them."""
        return topic in self.words.get("topic", (topic,))


def bounds_of(filters: Iterable[Filter], table: Table, options: ReadOptions) -> Bounds:
    """Return what can be passed on of filters that Spark joins with AND."""
    bounds = Bounds()
    for each in filters:
        if isinstance(each, (*_COMPARING, In)) and len(each.attribute) == 1:
            bounds = _narrowed(bounds, each, table.source_of(each.attribute[0]), options)
    return bounds


def _narrowed(bounds: Bounds, each: Filter, source: str, options: ReadOptions) -> Bounds:
    word_columns = {"topic"}
    if options.is_events:
        word_columns = {"queue", "event"}
    elif options.jobs:
        word_columns = {"state"}
    if source in word_columns:
        return _with_words(bounds, each, source)
    if source == ("queue_seq" if options.jobs else "seq"):
        return _with_seqs(bounds, each)
    if source == "ts" and options.is_events:
        return _with_times(bounds, each)
    return bounds


def _with_words(bounds: Bounds, each: Filter, source: str) -> Bounds:
    if isinstance(each, EqualTo | EqualNullSafe):
        values = [each.value]
    elif isinstance(each, In):
        values = list(each.value)
    else:
        return bounds
    # A comma separates values; null equals nothing here.
    texts = [value for value in values if isinstance(value, str)]
    is_sendable = not any("," in text or not text for text in texts)
    if len(texts) < len(values) or not is_sendable or sum(map(len, texts)) > _WORDS_MAX:
        return bounds
    words = frozenset(texts) & bounds.words.get(source, frozenset(texts))
    return replace(bounds, words={**bounds.words, source: words})


def _with_seqs(bounds: Bounds, each: Filter) -> Bounds:
    values = _values(each)
    if not values or not all(isinstance(value, int) for value in values):
        return bounds
    least, most = _span(each, min(values), max(values), 1)
    return replace(
        bounds,
        seq_min=bounds.seq_min if least is None else max(bounds.seq_min, least),
        seq_max=bounds.seq_max if most is None else min(bounds.seq_max, most),
    )


def _with_times(bounds: Bounds, each: Filter) -> Bounds:
    values = _values(each)
    if not values or not all(
        isinstance(value, datetime) and value.tzinfo is not None for value in values
    ):
        return bounds
    # Whole milliseconds, rounded outwards.
    first, last = (min(values) - _EPOCH), (max(values) - _EPOCH)
    least, most = _span(each, first // _MS, -(-last // _MS), 0)
    least_now, most_now = bounds.ts_min_ms, bounds.ts_max_ms
    if least is not None:
        least_now = least if least_now is None else max(least_now, least)
    if most is not None:
        most_now = most if most_now is None else min(most_now, most)
    return replace(bounds, ts_min_ms=least_now, ts_max_ms=most_now)


def _values(each: Filter) -> list[Any]:
    """Return the literals that a filter compares with."""
    if isinstance(each, In):
        return list(each.value)
    assert isinstance(each, _COMPARING)
    return [each.value]


def _span(each: Filter, first: int, last: int, step: int) -> tuple[int | None, int | None]:
    """Return the least and the greatest value that can pass; `step` is the next whole value."""
    if isinstance(each, GreaterThan):
        return first + step, None
    if isinstance(each, GreaterThanOrEqual):
        return first, None
    if isinstance(each, LessThan):
        return None, last - step
    if isinstance(each, LessThanOrEqual):
        return None, last
    return first, last
