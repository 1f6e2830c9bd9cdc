"""Counts by the minute."""

from jobyard.model.index.minute_counter import MINUTE_MS, MINUTES_KEPT, MinuteCounter

START_MS = 1_700_000_040_000  # the first moment of a minute


def test_nothing_was_counted_at_first() -> None:
    minute_counter = MinuteCounter()
    assert (minute_counter.total, minute_counter.last_count, minute_counter.by_minute()) == (
        0,
        0,
        [],
    )


def test_minutes_come_newest_first_with_the_empty_ones_between() -> None:
    minute_counter = MinuteCounter()
    for after_ms in (0, MINUTE_MS - 1, 3 * MINUTE_MS, 3 * MINUTE_MS, 3 * MINUTE_MS + 1):
        minute_counter.add(START_MS + after_ms)
    assert minute_counter.by_minute() == [3, 0, 0, 2]
    assert (minute_counter.total, minute_counter.last_count) == (5, 3)
    assert minute_counter.last_ms == START_MS + 3 * MINUTE_MS + 1


def test_a_day_is_kept() -> None:
    minute_counter = MinuteCounter()
    for minute in range(2 * MINUTES_KEPT):
        minute_counter.add(START_MS + minute * MINUTE_MS)
    assert minute_counter.by_minute() == [1] * MINUTES_KEPT
    assert minute_counter.total == 2 * MINUTES_KEPT


def test_what_is_long_past_is_forgotten() -> None:
    minute_counter = MinuteCounter()
    minute_counter.add(START_MS)
    minute_counter.add(START_MS + 1000 * MINUTES_KEPT * MINUTE_MS)
    assert minute_counter.by_minute() == [1]
    assert minute_counter.total == 2
