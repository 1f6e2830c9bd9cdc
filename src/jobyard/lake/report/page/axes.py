"""Axes of values: where a value lies, and which values are labelled.

A place is a share of the height, from 0 at the bottom to 1 at the top; values outside are put at
the nearest end, so nothing is drawn outside a plot.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from jobyard.lake.report import units

_MS: Final = (
    *(1.0, 10.0, 100.0, 1e3, 10e3, 60e3, 600e3),
    *(3600e3, 36_000e3, 86_400e3, 864_000e3, 8_640_000e3, 86_400_000e3, 1e13),
)
_TICKS: Final = 4


class Axis(NamedTuple):
    """From `low` to `high`, with labels at some values."""

    low: float
    high: float
    is_log: bool
    ticks: tuple[tuple[float, str], ...]

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)


def linear(high: float, label: Callable[[float], str] = units.axis_count, low: float = 0.0) -> Axis:
    """Return an axis from 0, or a round number below `low`, to a round number above `high`."""
    low = min(low, 0.0)
    high = high if high > low else low + 1.0
    step = _round_step((high - low) / _TICKS)
    if label is units.axis_count:
        step = max(step, 1.0)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    ticks = tuple((at * step, label(at * step)) for at in range(first, last + 1))
    return Axis(first * step, last * step, is_log=False, ticks=ticks)


def durations(low: float, high: float) -> Axis:
    """Return a logarithmic axis of milliseconds with these in it; it begins at 1 ms at least."""
    begin = max((each for each in _MS if each <= max(low, 1.0)), default=_MS[0])
    end = next((each for each in _MS if each >= max(high, 2.0) and each > begin), _MS[-1])
    inside = [each for each in _MS if begin <= each <= end]
    return Axis(begin, end, is_log=True, ticks=tuple((at, _short(at)) for at in inside))


def _short(ms: float) -> str:
    """Return a label of a round duration: without digits behind the point."""
    text = units.duration(ms)
    number, gap, unit = text.partition("\N{NO-BREAK SPACE}")
    return f"{float(number):g}{gap}{unit}"


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(each for each in (1, 2, 2.5, 5, 10) if step <= each * power * (1 + 1e-9)) * power
