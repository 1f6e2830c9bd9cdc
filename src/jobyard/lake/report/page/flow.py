"""Sections about how jobs flow: throughput by queue, waiting against running, backlog."""

from collections.abc import Callable
from typing import Final

import numpy as np

from jobyard.lake.report import units
from jobyard.lake.report.facts import Facts
from jobyard.lake.report.kll import Longs
from jobyard.lake.report.page.marks import sparkline
from jobyard.lake.report.page.markup import Html, join, name_of, tag
from jobyard.lake.report.page.plots import REST, Plot, Series, listed
from jobyard.lake.report.page.tables import Heading, table

# Layers of their own; all other queues are one.
LAYERS: Final = 6
QUEUES_FIRST: Final = 12


def section(name: str, title: str, lead: Html, *parts: Html) -> Html:
    """Return a section with its heading and a sentence that says what is most worth knowing."""
    head = [tag("h2", title, id=f"{name}-title"), tag("p", lead, class_="lead")]
    return tag("section", *head, *parts, id=name, aria_labelledby=f"{name}-title")


def layers_of(names: list[str], values: Longs, many: str = "queues") -> list[Series]:
    """Return the first rows as layers, and the sum of the others as one."""
    # One row alone is shown, not called "others".
    shown = len(names) if len(names) <= LAYERS + 1 else LAYERS
    series = [Series(names[at], values[at], f"s{at + 1}") for at in range(shown)]
    if shown < len(names):
        label = f"{len(names) - shown} other {many}"
        series.append(Series(label, values[shown:].sum(axis=0), REST))
    return series


def throughput(facts: Facts) -> Html:
    """Return how many jobs were put, completed and failed."""
    queues, period = facts.queues, facts.period
    unit = f"jobs per {period.step_words()}"
    failed, lost = queues.by_step("failed"), _lost(queues.by_step)
    over_time = Plot(
        "Put, completed, failed",
        unit,
        [
            Series("completed", queues.by_step("completed"), "s1 solo", is_filled=True),
            Series("enqueued", queues.by_step("enqueued"), "s3 d2"),
            Series("failed or lost", failed + lost, "s2 solo"),
        ],
        period,
    )
    by_queue = layers_of(queues.names, queues.counts["completed"])
    plots = [over_time.steps()]
    if len(queues.names) > 1:
        plots.append(Plot("Completed by queue", unit, by_queue, period).layers())
    rows = [
        [
            period.label(at),
            *(
                units.exact(queues.by_step(name)[at])
                for name in ("enqueued", "claimed", "completed")
            ),
            *(units.exact(each[at]) for each in (failed, lost)),
            units.exact(queues.by_step("released")[at]),
            units.exact(queues.by_step("retried")[at]),
        ]
        for at in reversed(range(period.steps))
    ]
    heads = ("enqueued", "claimed", "completed", "failed", "lost¹", "released", "retried")
    columns = [Heading("time, newest first", "time"), *(Heading(each) for each in heads)]
    note = tag("p", "¹ expired or abandoned", class_="note")
    return section(
        "throughput",
        "Throughput",
        _throughput_lead(facts),
        listed(*plots),
        _queue_table(facts),
        tag("figure", tag("figcaption", tag("h3", "All queues over time"))),
        table("Jobs over time, newest first", columns, rows),
        note,
    )


def _lost(sums: Callable[[str], Longs]) -> Longs:
    """Return the runs that ended without a word of their worker."""
    return sums("expired") + sums("abandoned")


def _throughput_lead(facts: Facts) -> Html:
    queues, period = facts.queues, facts.period
    steps = queues.by_step("completed")
    best = int(steps.argmax())
    words = [f"{units.plural(queues.total('completed'), 'run')} completed"]
    parts: list[str | Html] = [*words]
    if len(queues.names) > 1:
        first = queues.by_queue("completed")
        top = int(first.argmax())
        share = units.share(first[top] / max(1, queues.total("completed")))
        parts += [f" in {units.plural(len(queues.names), 'queue')}; ", name_of(queues.names[top])]
        parts += [f" did {share} of them"]
    if period.steps > 1:
        parts.append(
            f". Busiest {period.step_words()}: {period.label(best)} ({units.count(steps[best])})"
        )
    return join(*parts, ".")


def _queue_table(facts: Facts) -> Html:
    queues = facts.queues
    counts = {name: queues.by_queue(name) for name in ("enqueued", "completed", "dead_lettered")}
    ended = queues.ended_by_queue()
    failed, lost = queues.by_queue("failed"), _lost(queues.by_queue)
    rows = []
    for at, name in enumerate(queues.names):
        rate = failed[at] / ended[at] if ended[at] else None
        rows.append(
            [
                name_of(name),
                sparkline(queues.counts["completed"][at]),
                *(units.exact(counts[each][at]) for each in ("enqueued", "completed")),
                *(units.exact(each[at]) for each in (failed, lost)),
                _alarming(rate),
                units.exact(counts["dead_lettered"][at]),
                units.duration(queues.wait.queues[at][1]),
                units.duration(queues.run.queues[at][1]),
            ]
        )
    heads = (
        *("enqueued", "completed", "failed", "lost¹"),
        *("fail rate", "dead letters", "wait p95", "run p95"),
    )
    columns = [
        Heading("queue", "name"),
        Heading("completed over time", "draw"),
        *(Heading(each) for each in heads),
    ]
    figure = tag("figure", tag("figcaption", tag("h3", "Queues by volume")))
    return join(figure, table("Queues by volume", columns, rows, QUEUES_FIRST))


def _alarming(rate: float | None) -> Html:
    """Return a rate of failures; one above 5 % stands out."""
    is_bad = rate is not None and rate > 0.05
    return tag("span", units.share(rate), class_="bad" if is_bad else None)


def load(facts: Facts) -> Html:
    """Return jobs that wait against runs that go on."""
    queues, workers, period = facts.queues, facts.workers, facts.period
    backlog = queues.backlog.sum(axis=0)
    waiting = np.maximum(0, backlog - queues.running)
    levels = Plot(
        "Waiting and running",
        "jobs at the end of each step",
        [
            Series("waiting or delayed", waiting, "s2 solo", is_filled=True),
            Series("running", queues.running, "s1 d2"),
        ],
        period,
    )
    fleet = Plot(
        "Workers at work",
        f"per {period.step_words()}",
        [
            Series("workers that took or ended a run", workers.active, "s4 solo", is_filled=True),
            Series("runs at a time, on average", workers.busy(), "s1 d2"),
        ],
        period,
        units.tenths,
    )
    busy = workers.busy()
    rows = [
        [
            period.label(at),
            *(units.exact(each[at]) for each in (waiting, queues.running, backlog)),
            units.exact(queues.backlog_peak[at]),
            units.exact(workers.active[at]),
            units.tenths(busy[at]),
        ]
        for at in reversed(range(period.steps))
    ]
    heads = ("waiting", "running", "both", "most of both", "workers", "runs at a time")
    columns = [Heading("time, newest first", "time"), *(Heading(each) for each in heads)]
    most = int(queues.backlog_peak.argmax())
    lead = (
        f"{units.count(waiting[-1])} waiting or delayed and {units.count(queues.running[-1])} "
        f"running at the end. At most {units.plural(queues.backlog_peak[most], 'job')} were not "
        "done at a time"
        + (
            f", in the {period.step_words()} from {period.label(most)}."
            if period.steps > 1
            else "."
        )
    )
    return section(
        "load",
        "Waiting and running",
        join(lead),
        listed(levels.lines(), fleet.lines()),
        table("Waiting and running over time, newest first", columns, rows),
    )


def backlog(facts: Facts) -> Html:
    """Return the jobs of each queue that are neither done nor gone."""
    queues, period = facts.queues, facts.period
    ends = queues.backlog[:, -1]
    peaks = queues.backlog.max(axis=1)
    order = sorted(range(len(ends)), key=lambda at: (-int(ends[at]), -int(peaks[at])))
    by_peak = sorted(range(len(ends)), key=lambda at: -int(peaks[at]))
    names = [queues.names[at] for at in by_peak]
    plot = Plot(
        "Backlog by queue",
        "jobs at the end of each step",
        layers_of(names, queues.backlog[by_peak]),
        period,
    )
    begins = queues.backlog[:, 0] - queues.counts["backlog_change"][:, 0]
    rows = [
        [
            name_of(queues.names[at]),
            sparkline(queues.backlog[at], "s2"),
            *(units.exact(each[at]) for each in (begins, peaks, ends)),
            units.signed(float(ends[at] - begins[at])),
        ]
        for at in order
    ]
    columns = [
        Heading("queue", "name"),
        Heading("over time", "draw"),
        *(Heading(each) for each in ("at the beginning", "most", "at the end", "change")),
    ]
    grown = int(ends.sum() - begins.sum())
    words = "grew" if grown > 0 else "shrank" if grown < 0 else "is what it was"
    parts: list[str | Html] = [f"The backlog {words}"]
    if grown:
        parts.append(f" by {units.plural(abs(grown), 'job')}")
    if len(order) > 1 and ends[order[0]]:
        parts += ["; the largest part is in ", name_of(queues.names[order[0]])]
    parts.append(".")
    if queues.backlog_before:
        parts.append(
            f" At least {units.plural(queues.backlog_before, 'job')} were there before the lake "
            "began; they are counted."
        )
    return section(
        "backlog",
        "Backlog",
        join(*parts),
        plot.layers(),
        table("Backlog by queue", columns, rows, QUEUES_FIRST),
    )
