"""Percentiles of histograms lie within the error that is stated."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobyard.lake.report.histogram import BINS, ERROR, bins_of, percentiles
from jobyard.lake.report.kll import Longs

SHARES = (0.5, 0.95, 0.99)


def histogram(values: list[int]) -> Longs:
    counts: Longs = np.bincount(bins_of(np.array(values, dtype=np.int64)), minlength=BINS)
    return counts


@given(st.lists(st.integers(0, 2**39), min_size=1, max_size=60))
def test_a_percentile_is_the_value_that_the_share_does_not_exceed(values: list[int]) -> None:
    found = percentiles(histogram(values)[None, :], SHARES)[0]
    for share, percentile in zip(SHARES, found, strict=True):
        exact = sorted(values)[math.ceil(round(share * len(values), 6)) - 1]
        assert abs(percentile - exact) <= max(ERROR * exact, 0 if exact < 256 else 1)


def test_small_values_are_exact() -> None:
    for value in range(256):
        assert percentiles(histogram([value])[None, :], (0.5,))[0, 0] == value


def test_values_outside_are_put_at_the_ends() -> None:
    assert bins_of(np.array([-5, 0, 2**62])).tolist() == [0, 0, BINS - 1]


def test_an_empty_histogram_has_no_percentile() -> None:
    assert np.isnan(percentiles(np.zeros((1, BINS), dtype=np.int64), SHARES)).all()
