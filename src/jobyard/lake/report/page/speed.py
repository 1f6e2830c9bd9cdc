"""Sections about how long things take: latency over time, the slowest queues."""

from typing import Final

import numpy as np

from jobyard.lake.report import units
from jobyard.lake.report.facts import Facts
from jobyard.lake.report.page.axes import Axis, durations
from jobyard.lake.report.page.flow import QUEUES_FIRST, section
from jobyard.lake.report.page.marks import ranges
from jobyard.lake.report.page.markup import Html, join, name_of, tag
from jobyard.lake.report.page.plots import Plot, Series, legend, listed
from jobyard.lake.report.page.tables import Heading, table
from jobyard.lake.report.queues import QUEUES_MEASURED, Latency

SLOWEST: Final = 12
_PERCENTILES: Final = ("p50", "p95", "p99")


def latency(facts: Facts) -> Html:
    """Return percentiles of waits and runs over time."""
    wait, run, period = facts.queues.wait, facts.queues.run, facts.period
    plots = [
        Plot(title, unit, _percentile_lines(each, look), period, units.duration).percentiles()
        for title, unit, each, look in (
            ("Wait", "from ready to taken", wait, "s2"),
            ("Run", "from taken to its end", run, "s1"),
        )
    ]
    rows = [
        [
            period.label(at),
            *(
                units.duration(number)
                for each in (wait, run)
                for number in (*each.steps[at], each.steps_max[at])
            ),
        ]
        for at in reversed(range(period.steps))
    ]
    heads = [f"{kind} {share}" for kind in ("wait", "run") for share in (*_PERCENTILES, "max")]
    columns = [Heading("time, newest first", "time"), *(Heading(each) for each in heads)]
    lead = (
        f"Half of the jobs waited at most {units.duration(wait.all[0])}, 99 % at most "
        f"{units.duration(wait.all[2])}; half of the runs took at most "
        f"{units.duration(run.all[0])}, 99 % at most {units.duration(run.all[2])}."
    )
    if np.isnan(wait.all).all() or np.isnan(run.all).all():
        lead = "No run both began and ended in this time."
    return section(
        "latency",
        "Latency",
        join(lead),
        listed(*plots),
        table("Percentiles over time, newest first", columns, rows),
    )


def _percentile_lines(times: Latency, look: str) -> list[Series]:
    styles = (f"{look} solo", f"{look} d2", f"{look} d3")
    return [
        Series(share, times.steps[:, at], style)
        for at, (share, style) in enumerate(zip(_PERCENTILES, styles, strict=True))
    ]


def slowest(facts: Facts) -> Html:
    """Return the queues whose 95th percentile of wait or run is greatest."""
    queues = facts.queues
    wait, run = queues.wait, queues.run
    worst = np.fmax(wait.queues[:, 1], run.queues[:, 1])
    known = [at for at in range(len(queues.names)) if not np.isnan(worst[at])]
    order = sorted(known, key=lambda at: -float(worst[at]))
    if not order:
        return section("slowest", "Slowest queues", join("No run began or ended in this time."))
    top = order[:SLOWEST]
    shown = np.concatenate([wait.queues[top].ravel(), run.queues[top].ravel()])
    axis = durations(float(np.nanmin(shown)), float(np.nanmax(shown)))
    rows = [
        [
            name_of(queues.names[at]),
            units.exact(queues.by_queue("claimed")[at]),
            *(
                units.duration(number)
                for each in (wait, run)
                for number in (*each.queues[at], each.queues_max[at])
            ),
        ]
        for at in order
    ]
    heads = [f"{kind} {share}" for kind in ("wait", "run") for share in (*_PERCENTILES, "max")]
    columns = [
        Heading("queue", "name"),
        Heading("runs"),
        *(Heading(each) for each in heads),
    ]
    first = order[0]
    parts: list[str | Html] = [name_of(queues.names[first])]
    parts.append(
        f" is slowest: 95 % of its jobs waited at most {units.duration(wait.queues[first][1])}, "
        f"95 % of its runs took at most {units.duration(run.queues[first][1])}."
    )
    if len(queues.names) > QUEUES_MEASURED:
        parts.append(f" Only the {units.exact(QUEUES_MEASURED)} greatest queues are measured.")
    return section(
        "slowest",
        "Slowest queues",
        join(*parts),
        _range_figure(facts, top, axis),
        table("Queues by their 95th percentile", columns, rows, QUEUES_FIRST),
    )


def _range_figure(facts: Facts, order: list[int], axis: Axis) -> Html:
    queues = facts.queues
    rows = []
    for at in order:
        wait, run = queues.wait.queues[at], queues.run.queues[at]
        rows += [
            name_of(queues.names[at]),
            tag("span", units.duration(float(np.fmax(wait[1], run[1]))), class_="value"),
            tag("div", ranges(axis, [(wait, "s2"), (run, "s1")]), class_="draw"),
        ]
    ticks = [
        tag("text", label, x=f"{share:.2f}%", y=15, text_anchor=_anchor(share))
        for share, label in ((axis.place(value) * 100, label) for value, label in axis.ticks)
    ]
    scale = tag("svg", *ticks, width="100%", height=20, class_="scale", aria_hidden="true")
    unit = (
        "p50, p95 and p99 of waits (upper line) and runs (lower line), logarithmic; at the right "
        "the greater p95"
    )
    caption = tag(
        "figcaption", tag("h3", "From the median to the slowest hundredth"), tag("p", unit)
    )
    none = np.zeros(0)
    key = legend([Series("wait", none, "s2 solo"), Series("run", none, "s1 solo")])
    return tag("figure", caption, key, tag("div", *rows, scale, class_="rows"), class_="plot")


def _anchor(share: float) -> str:
    return "start" if share < 1 else "end" if share > 99 else "middle"
