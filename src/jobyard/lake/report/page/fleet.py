"""The section about workers: how much of their time they spent in runs."""

from typing import Final

import numpy as np

from jobyard.lake.report import units
from jobyard.lake.report.facts import Facts
from jobyard.lake.report.page.flow import QUEUES_FIRST, section
from jobyard.lake.report.page.marks import heat
from jobyard.lake.report.page.markup import Html, clean, join, name_of, tag
from jobyard.lake.report.page.tables import Heading, table

_STRIPS: Final = 16
# Workers in the table; the terminal and the table of the lake have all.
_ROWS_MAX: Final = 1000


def workers(facts: Facts) -> Html:
    """Return the utilisation of each worker, over time and in all."""
    fleet = facts.workers
    if not fleet.names:
        return section("workers", "Workers", join("No worker took or ended a run in this time."))
    shares = fleet.utilisation()
    rows = [
        [
            name_of(fleet.names[at]),
            units.share(float(shares[at])),
            units.duration(float(fleet.busy_ms[at].sum())),
            *(units.exact(fleet.counts[name][at]) for name in ("claimed", "completed", "failed")),
            units.exact(fleet.counts["lost"][at]),
        ]
        for at in range(min(len(fleet.names), _ROWS_MAX))
    ]
    heads = ("utilisation", "busy", "claimed", "completed", "failed", "lost")
    columns = [Heading("worker", "name"), *(Heading(each) for each in heads)]
    mean = float(shares.mean())
    lead = (
        f"{units.plural(len(fleet.names), 'worker')}, busy {units.share(mean)} of the time on "
        f"average, the busiest {units.share(float(shares[0]))}. Above 100 % a worker has several "
        "runs at a time."
    )
    if len(fleet.names) > _ROWS_MAX:
        lead += f" The table has the {units.exact(_ROWS_MAX)} busiest."
    return section(
        "workers",
        "Workers",
        join(lead),
        _strips(facts),
        table("Workers, the busiest first", columns, rows, QUEUES_FIRST),
    )


def _strips(facts: Facts) -> Html:
    fleet, period = facts.workers, facts.period
    by_step = fleet.utilisation_by_step()
    shares = fleet.utilisation()
    rows: list[Html] = []
    for at in range(min(len(fleet.names), _STRIPS)):
        words = [
            f"{period.label(step)}: {units.share(float(by_step[at][step]))}"
            for step in range(period.steps)
        ]
        rows += [
            name_of(fleet.names[at]),
            tag("span", units.share(float(shares[at])), class_="value"),
            tag("div", heat(by_step[at], words), class_="draw"),
        ]
    ticks = [
        tag(
            "text",
            tick.label,
            x=f"{tick.share * 100:.2f}%",
            y=15,
            text_anchor="start" if tick.share < 0.04 else "end" if tick.share > 0.96 else "middle",
            class_="minor" if at % 2 else None,
        )
        for at, tick in enumerate(period.ticks())
    ]
    scale = tag("svg", *ticks, width="100%", height=20, class_="scale", aria_hidden="true")
    least, most = clean(fleet.names[-1]), clean(fleet.names[0])
    summary = (
        f"Utilisation over time: most is {most} with {units.share(float(shares[0]))}, "
        f"least {least} with {units.share(float(np.min(shares)))}. The table below has it all."
    )
    caption = tag(
        "figcaption",
        tag("h3", "Utilisation over time"),
        tag("p", "share of the time spent in runs; stronger is more"),
    )
    key = tag(
        "ul",
        *(
            tag(
                "li",
                tag(
                    "svg",
                    tag("rect", width=22, height=12, class_=f"h{at}"),
                    width=22,
                    height=12,
                    aria_hidden="true",
                ),
                label,
            )
            for at, label in enumerate(("0", "to 10 %", "25 %", "50 %", "75 %", "90 %", "more"))
        ),
        class_="legend",
    )
    grid = tag("div", *rows, scale, class_="rows", role="group", aria_label=summary)
    return tag("figure", caption, key, grid, class_="plot")
