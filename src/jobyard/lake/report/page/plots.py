"""Plots over time, as SVG that fits any width: shapes are stretched, text and strokes are not.

A plot is three drawings: labels of values at the left, the field with its lines, and in it a
stretched drawing of `WIDTH` by `HEIGHT` units that has the shapes. Each step of the period has a
band with the numbers of that step as its title, which browsers show to a pointer.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from jobyard.lake.report import units
from jobyard.lake.report.histogram import Reals
from jobyard.lake.report.kll import Longs
from jobyard.lake.report.page.axes import Axis, durations, linear
from jobyard.lake.report.page.markup import Html, clean, isolated, join, name_of, tag
from jobyard.lake.report.period import Period

WIDTH: Final = 1000
HEIGHT: Final = 200
# Above and below the field, for half a label and the labels of time.
_ABOVE: Final = 10
_BELOW: Final = 26
_LABELS_WIDTH: Final = 60
# The look of what is not told one by one.
REST: Final = "s7"

Numbers = Reals | Longs


class Series(NamedTuple):
    """One line or layer: its label, its value for each step, and how it looks (a class)."""

    label: str
    values: Numbers
    look: str
    # Fills the space below a line.
    is_filled: bool = False


class Plot(NamedTuple):
    """A plot with its words; `unit` says what one number is."""

    title: str
    unit: str
    series: Sequence[Series]
    period: Period
    show: Callable[[float], str] = units.exact

    def lines(self, axis: Axis | None = None) -> Html:
        """Return straight lines between the middles of the steps: for levels and percentiles."""
        axis = axis or linear(_greatest(self.series), low=_least(self.series))
        shapes = [
            shape for each in reversed(self.series) for shape in _line(each, axis, self.period)
        ]
        return self._figure(axis, shapes)

    def steps(self) -> Html:
        """Return lines of steps: for counts of each step."""
        axis = linear(_greatest(self.series))
        shapes = []
        for each in reversed(self.series):
            tops = _heights(each.values, axis)
            if each.is_filled:
                path = _layer(tops, np.full(len(tops), float(HEIGHT)), self.period)
                shapes.append(tag("path", d=path, class_=f"fill {each.look}"))
            shapes.append(tag("path", d=_stairs(tops, self.period), class_=f"line {each.look}"))
        return self._figure(axis, shapes)

    def layers(self) -> Html:
        """Return layers on top of each other, the first at the bottom: for parts of a sum."""
        sums = np.cumsum(np.array([np.maximum(each.values, 0) for each in self.series]), axis=0)
        axis = linear(float(sums[-1].max(initial=0)))
        floor = np.full(self.period.steps, float(HEIGHT))
        shapes = []
        for each, top in zip(self.series, sums, strict=True):
            tops = _heights(top, axis)
            path = _layer(tops, floor, self.period)
            shapes.append(tag("path", d=path, class_=f"layer {each.look}"))
            if each.look == REST:
                # Pale, since it is no queue of its own; its edge is as clear as the others.
                shapes.append(tag("path", d=_stairs(tops, self.period), class_=f"line thin {REST}"))
            floor = tops
        return self._figure(axis, shapes)

    def percentiles(self) -> Html:
        """Return lines of durations on a logarithmic axis."""
        axis = durations(_least(self.series, 1.0), _greatest(self.series))
        return self.lines(axis)

    def _figure(self, axis: Axis, shapes: Sequence[Html]) -> Html:
        kind = ", logarithmic" if axis.is_log else ""
        caption = tag("figcaption", tag("h3", self.title), tag("p", f"{self.unit}{kind}"))
        picture = tag(
            "div",
            _value_labels(axis),
            _field(axis, self.period, [*shapes, *self._bands()]),
            class_="chart",
            role="img",
            aria_label=f"{self.title}: {self.unit}. {self._summary()} The table below has it all.",
        )
        return tag("figure", caption, legend(self.series), picture, class_="plot")

    def _summary(self) -> str:
        words = []
        for each in self.series:
            known = each.values[~np.isnan(each.values.astype(np.float64))]
            if len(known):
                least, most = self.show(float(known.min())), self.show(float(known.max()))
                words.append(f"{clean(each.label)} from {least} to {most}")
        return "; ".join(words) + "." if words else "There is nothing in this time."

    def _bands(self) -> list[Html]:
        period, bands = self.period, []
        for at in range(period.steps):
            begin, end = at * WIDTH / period.steps, (at + 1) * WIDTH / period.steps
            lines = [
                f"{isolated(each.label)}: {self.show(float(each.values[at]))}"
                for each in self.series
            ]
            bands.append(
                tag(
                    "rect",
                    tag("title", "\n".join([period.label(at), *lines])),
                    x=_place(begin),
                    width=_place(end - begin),
                    height=HEIGHT,
                    class_="band",
                )
            )
        return bands


def legend(series: Sequence[Series]) -> Html:
    """Return what the looks of the series mean; one series needs none."""
    if len(series) < 2:
        return Html("")
    items = [
        tag(
            "li",
            tag(
                "svg",
                tag("path", d="M0 6H22", class_=f"line {each.look}"),
                width=22,
                height=12,
                aria_hidden="true",
            ),
            name_of(each.label),
        )
        for each in series
    ]
    return tag("ul", *items, class_="legend")


def _field(axis: Axis, period: Period, shapes: Sequence[Html]) -> Html:
    grid = [
        tag("line", x1="0", x2="100%", y1=y, y2=y, class_="base" if value == 0 else "grid")
        for value, y in ((value, _tick_y(axis, value)) for value, _ in axis.ticks)
    ]
    ticks = period.ticks()
    labels = []
    for at, tick in enumerate(ticks):
        # At the right end a label would leave the page; at the left there is room.
        anchor = "end" if tick.share > 0.96 else "middle"
        share = f"{tick.share * 100:.2f}%"
        labels.append(
            tag(
                "g",
                tag(
                    "line",
                    x1=share,
                    x2=share,
                    y1=_ABOVE + HEIGHT,
                    y2=_ABOVE + HEIGHT + 5,
                    class_="base",
                ),
                tag("text", tick.label, x=share, y=_ABOVE + HEIGHT + 21, text_anchor=anchor),
                class_="minor" if at % 2 and len(ticks) > 4 else None,
            )
        )
    stretched = tag(
        "svg",
        *shapes,
        y=_ABOVE,
        width="100%",
        height=HEIGHT,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        class_="shapes",
    )
    return tag(
        "svg",
        *grid,
        *labels,
        stretched,
        width="100%",
        height=_ABOVE + HEIGHT + _BELOW,
        class_="field",
        aria_hidden="true",
    )


def _value_labels(axis: Axis) -> Html:
    labels = [
        tag(
            "text",
            label,
            x=_LABELS_WIDTH - 8,
            y=f"{float(_tick_y(axis, value)) + 4:.1f}",
            text_anchor="end",
        )
        for value, label in axis.ticks
    ]
    return tag(
        "svg",
        *labels,
        width=_LABELS_WIDTH,
        height=_ABOVE + HEIGHT + _BELOW,
        class_="values",
        aria_hidden="true",
    )


def _tick_y(axis: Axis, value: float) -> str:
    return f"{_ABOVE + HEIGHT * (1 - axis.place(value)):.1f}"


def _line(series: Series, axis: Axis, period: Period) -> list[Html]:
    """Return the pieces of a line between steps that have nothing to tell."""
    middles = (np.arange(period.steps) + 0.5) * WIDTH / period.steps
    tops = _heights(series.values, axis)
    known = ~np.isnan(tops)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], known.astype(np.int8), [0]])))
    pieces, filled = [], []
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        points = " ".join(
            f"{_place(x)} {_place(y)}"
            for x, y in zip(middles[begin:end], tops[begin:end], strict=True)
        )
        # A step alone is a line of no length: its round ends make it a dot.
        pieces.append(f"M{points}" + ("h0" if end - begin == 1 else ""))
        left, right = _place(middles[begin]), _place(middles[end - 1])
        filled.append(f"M{left} {HEIGHT}L{points}L{right} {HEIGHT}Z")
    shapes = []
    if pieces:
        is_dot = bool(known.sum() == 1)
        look = f"{'dot' if is_dot else 'line'} {series.look}"
        shapes.append(tag("path", d="".join(pieces), class_=look))
    if filled and series.is_filled:
        shapes.insert(0, tag("path", d="".join(filled), class_=f"fill {series.look}"))
    return shapes


def _stairs(tops: Reals, period: Period) -> str:
    ends = (np.arange(period.steps) + 1) * WIDTH / period.steps
    return f"M0 {_place(tops[0])}" + "".join(
        f"V{_place(y)}H{_place(x)}" for x, y in zip(ends, tops, strict=True)
    )


def _layer(tops: Reals, floor: Reals, period: Period) -> str:
    """Return the outline between two lines of steps."""
    begins = np.arange(period.steps) * WIDTH / period.steps
    back = "".join(
        f"V{_place(y)}H{_place(x)}" for x, y in zip(begins[::-1], floor[::-1], strict=True)
    )
    return f"{_stairs(tops, period)}{back}Z"


def _heights(values: Numbers, axis: Axis) -> Reals:
    return np.array(
        [np.nan if np.isnan(each) else HEIGHT * (1 - axis.place(float(each))) for each in values]
    )


def _place(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _greatest(series: Sequence[Series]) -> float:
    return max((float(np.nanmax(each.values)) for each in series if _has_any(each)), default=0.0)


def _least(series: Sequence[Series], default: float = 0.0) -> float:
    return min(
        (float(np.nanmin(each.values)) for each in series if _has_any(each)), default=default
    )


def _has_any(series: Series) -> bool:
    return not bool(np.isnan(series.values.astype(np.float64)).all())


def listed(*parts: Html | None) -> Html:
    """Return plots beside each other, where there is room."""
    return tag("div", join(*parts), class_="plots")
