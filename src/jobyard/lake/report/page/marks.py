"""Small drawings in rows: sparklines, bars, ranges, strips of heat; their numbers stand beside."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from jobyard.lake.report.histogram import Reals
from jobyard.lake.report.page.axes import Axis
from jobyard.lake.report.page.markup import Html, tag
from jobyard.lake.report.page.plots import Numbers

_WIDTH: Final = 100
_HEIGHT: Final = 24
_POINTS_MAX: Final = 60
# Classes of heat: none, and up to these shares.
HEAT: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def sparkline(values: Numbers, look: str = "s1") -> Html:
    """Return counts over time; steps are put together until there are few."""
    group = -(-len(values) // _POINTS_MAX)
    starts = np.arange(0, len(values), group)
    # Per step, so that a shorter last group is no drop.
    sizes = np.diff(np.append(starts, len(values)))
    means = np.add.reduceat(np.maximum(values, 0).astype(np.float64), starts) / sizes
    top = max(float(means.max()), 1e-9)
    tops = _HEIGHT - means / top * (_HEIGHT - 2)
    right = (starts + sizes) * _WIDTH / len(values)
    stairs = "".join(f"V{_place(y)}H{_place(x)}" for x, y in zip(right, tops, strict=True))
    return _drawing(
        tag("path", d=f"M0 {_HEIGHT}{stairs}V{_HEIGHT}Z", class_=f"fill {look}"),
        tag("path", d=f"M0 {_place(tops[0])}{stairs}", class_=f"line {look}"),
        kind="spark",
    )


def bar(share: float, look: str = "s1") -> Html:
    """Return a bar of a share of its space; what is below 0 has none."""
    width = min(max(0.0 if np.isnan(share) else share, 0.0), 1.0) * _WIDTH
    return _drawing(
        tag("rect", width=_WIDTH, height=_HEIGHT, class_="rail"),
        tag("rect", width=_place(width), height=_HEIGHT, class_=f"solid {look}"),
        kind="bar",
    )


def ranges(axis: Axis, rows: Sequence[tuple[Reals, str]]) -> Html:
    """Return for each row a line from its least to its greatest value with a dot at each."""
    shapes = []
    for at, (values, look) in enumerate(rows):
        y = _place((at + 0.5) * _HEIGHT / len(rows))
        places = [_place(axis.place(float(each)) * _WIDTH) for each in values if not np.isnan(each)]
        if not places:
            continue
        shapes.append(tag("path", d=f"M{places[0]} {y}H{places[-1]}", class_=f"range {look}"))
        dots = "".join(f"M{place} {y}h0" for place in places)
        shapes.append(tag("path", d=dots, class_=f"dot {look}"))
    grid = "".join(f"M{_place(axis.place(value) * _WIDTH)} 0V{_HEIGHT}" for value, _ in axis.ticks)
    return _drawing(tag("path", d=grid, class_="grid"), *shapes, kind="ranges")


def heat(shares: Reals, words: Sequence[str]) -> Html:
    """Return a strip in which each step has a strength of colour; words are the titles."""
    count = len(shares)
    levels = np.where(shares > 0, np.searchsorted(HEAT, np.minimum(shares, 1.0)) + 1, 0)
    cells = [
        tag(
            "rect",
            tag("title", words[at]),
            x=_place(at * _WIDTH / count),
            width=_place(_WIDTH / count),
            height=_HEIGHT,
            class_=f"h{int(levels[at])}",
        )
        for at in range(count)
    ]
    return _drawing(*cells, kind="heat")


def _drawing(*shapes: Html, kind: str) -> Html:
    return tag(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        class_=kind,
        aria_hidden="true",
    )


def _place(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
