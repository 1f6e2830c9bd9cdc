"""Numbers are shown with few digits and the unit that suits them."""

import datetime as dt

import pytest

from jobyard.lake.report import units

GAP = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "\N{EN DASH}"),
        (float("nan"), "\N{EN DASH}"),
        (0, "0 ms"),
        (12.4, "12 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (1240, "1.24 s"),
        (59_940, "59.9 s"),
        (59_960, "1.00 min"),
        (186_000, "3.10 min"),
        (5 * 3600_000, "5.00 h"),
        (72 * 3600_000, "3.00 d"),
        (400 * 86_400_000, "400 d"),
    ],
)
def test_durations(ms: float | None, text: str) -> None:
    assert units.duration(ms) == text.replace(" ", GAP)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10.0 k"),
        (12_345, "12.3 k"),
        (999_949, "1.00 M"),
        (4_560_000, "4.56 M"),
        (-12_345, "\N{MINUS SIGN}12.3 k"),
        (7e15, "7000 T"),
    ],
)
def test_counts(number: float, text: str) -> None:
    assert units.count(number) == text.replace(" ", GAP)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0, "0 %"),
        (0.00001, "<0.01 %"),
        (0.0012, "0.12 %"),
        (0.021, "2.1 %"),
        (0.56, "56 %"),
        (0.99999, "99.99 %"),
        (1, "100 %"),
        (1.2, "120 %"),
        (-0.304, "\N{MINUS SIGN}30 %"),
    ],
)
def test_a_share_that_is_not_all_or_nothing_never_reads_so(part: float, text: str) -> None:
    assert units.share(part) == text.replace(" ", GAP)


def test_labels_of_axes_have_no_zeros_behind_the_point() -> None:
    shown = [units.axis_count(each) for each in (0, 500, 30_000, 2_500_000, 100_000)]
    assert shown == [text.replace(" ", GAP) for text in ("0", "500", "30 k", "2.5 M", "100 k")]


def test_times_are_in_utc() -> None:
    east = dt.timezone(dt.timedelta(hours=2))
    assert units.clock(dt.datetime(2026, 11, 16, 1, 30, tzinfo=east)) == "2026-11-15 23:30"
    assert units.clock(None) == "\N{EN DASH}"
