"""Histograms of durations, from which percentiles are read.

Durations in whole milliseconds fall in bins: one for each value below 256, and 128 for each power
of two above, so that a bin is at most 0.8 % wide and its middle at most 0.4 % from every value in
it. Histograms are added; percentiles never are.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from jobyard.lake.report.kll import Longs

Reals = NDArray[np.float64]

# A double has 52 bits behind the point; seven of them, with the exponent, are the bin.
_SHIFT: Final = 52 - 7
_FIRST: Final = int(np.array([1.0]).view(np.int64)[0]) >> _SHIFT
# Up to 2**40 ms, which is 34 years; everything above is in the last bin.
BINS: Final = 1 + 40 * 128
# Of a value and the middle of its bin.
ERROR: Final = 0.004


def bins_of(durations_ms: Longs) -> Longs:
    """Return the bin of each duration; what is not above 0 is in the first."""
    bits = np.maximum(durations_ms, 1).astype(np.float64).view(np.int64)
    bins = (bits >> _SHIFT) - (_FIRST - 1)
    bins[durations_ms <= 0] = 0
    capped: Longs = np.minimum(bins, BINS - 1)
    return capped


def _middles() -> Reals:
    edges = ((np.arange(BINS + 1, dtype=np.int64) + (_FIRST - 1)) << _SHIFT).view(np.float64)
    # Whole numbers from the lower edge up to the last below the upper one.
    middles = np.where(edges[:-1] < 256, edges[:-1], (edges[:-1] + edges[1:] - 1) / 2)
    middles[0] = 0.0
    return middles


_MIDDLES: Final = _middles()


def percentiles(histograms: Longs, shares: tuple[float, ...]) -> Reals:
    """Return for each histogram (row) the values that these shares of it do not exceed.

    Not a number where a histogram is empty.
    """
    sums = np.cumsum(histograms, axis=-1)
    totals = sums[..., -1]
    found = np.full((*totals.shape, len(shares)), np.nan)
    for at, share in enumerate(shares):
        # Rounded, because 0.95 * 20 is a little more than 19.
        wanted = np.maximum(np.ceil(np.round(totals * share, 6)), 1)
        bins = np.minimum((sums < wanted[..., None]).sum(axis=-1), BINS - 1)
        found[..., at] = np.where(totals > 0, _MIDDLES[bins], np.nan)
    return found
