"""Sections about what went wrong: failures by reason, objectives and their budgets."""

from typing import Final

import numpy as np

from jobyard.lake.report import units
from jobyard.lake.report.facts import Facts
from jobyard.lake.report.letters import LetterKind
from jobyard.lake.report.objectives import ObjectiveState
from jobyard.lake.report.page.axes import linear
from jobyard.lake.report.page.flow import LAYERS, QUEUES_FIRST, layers_of, section
from jobyard.lake.report.page.marks import bar
from jobyard.lake.report.page.markup import Html, clean, join, name_of, tag
from jobyard.lake.report.page.plots import Plot, Series, listed
from jobyard.lake.report.page.tables import Heading, table

_BAD_ENDS: Final = ("failed", "expired", "abandoned", "released")
_LOOKS: Final = ("s2", "s5", "s4", "s6")
# Of a fingerprint: enough to tell one from another.
_FINGERPRINT_SIZE: Final = 8


def failures(facts: Facts) -> Html:
    """Return runs that did not end well, and dead letters by reason and error."""
    queues, letters, period = facts.queues, facts.letters, facts.period
    per_step = f"per {period.step_words()}"
    runs = [
        Series(name, queues.by_step(name), look)
        for name, look in zip(_BAD_ENDS, _LOOKS, strict=True)
        if name == "failed" or queues.total(name)
    ]
    plots = [Plot("Runs that did not complete", f"runs {per_step}", runs, period).layers()]
    names = [each or "no reason known" for each in letters.reasons]
    if names:
        by_reason = layers_of(names, letters.by_reason, "reasons")
        plots.append(
            Plot("Dead letters by reason", f"letters {per_step}", by_reason, period).layers()
        )
    rows = [
        [
            period.label(at),
            *(units.exact(queues.by_step(name)[at]) for name in _BAD_ENDS),
            units.exact(queues.by_step("dead_lettered")[at]),
        ]
        for at in reversed(range(period.steps))
    ]
    columns = [
        Heading("time, newest first", "time"),
        *(Heading(each) for each in (*_BAD_ENDS, "dead letters")),
    ]
    return section(
        "failures",
        "Failures",
        _failures_lead(facts),
        listed(*plots),
        table("Runs that did not complete, newest first", columns, rows),
        _kinds(facts),
    )


def _failures_lead(facts: Facts) -> Html:
    queues, letters = facts.queues, facts.letters
    failed, ended = queues.total("failed"), queues.ended()
    rate = units.share(failed / ended) if ended else units.NOTHING
    parts: list[str | Html] = [
        f"{units.plural(failed, 'run')} failed, {rate} of all that ended; ",
        f"{units.plural(queues.total('dead_lettered'), 'job')} became dead letters",
    ]
    if letters.kinds:
        kind = letters.kinds[0]
        parts += [", most often for ", name_of(_error_name(kind)), " in ", name_of(kind.queue)]
    return join(*parts, ".")


def _kinds(facts: Facts) -> Html:
    letters = facts.letters
    figure = tag("figure", tag("figcaption", tag("h3", "Dead letters by error")))
    if not letters.kinds:
        return join(figure, tag("p", "No job became a dead letter in this time.", class_="none"))
    rows = [
        [
            join(name_of(_error_name(kind)), _message(kind)),
            units.exact(kind.letters),
            name_of(kind.queue),
            clean(kind.reason) or units.NOTHING,
            join(units.clock(kind.first_seen), tag("br"), units.clock(kind.last_seen)),
            ", ".join(str(each) for each in kind.job_ids) or units.NOTHING,
        ]
        for kind in letters.kinds
    ]
    columns = [
        Heading("error and its first message", "wide"),
        Heading("letters", "small"),
        *(Heading("queue", "text"), Heading("reason", "text")),
        *(Heading("first and last seen", "time"), Heading("some job ids", "text")),
    ]
    grid = table("Dead letters by error and queue", columns, rows, 8)
    left_out = letters.kinds_count - len(letters.kinds)
    more = tag("p", f"{units.plural(left_out, 'rarer kind')} left out.", class_="lead")
    return join(figure, grid, more if left_out else None)


def _message(kind: LetterKind) -> Html | None:
    message = clean(kind.error_message)
    return tag("bdi", message, class_="under clip", title=message) if message else None


def _error_name(kind: LetterKind) -> str:
    return kind.error_class or kind.fingerprint[:_FINGERPRINT_SIZE] or "no error told"


def objectives(facts: Facts) -> Html:
    """Return the objectives, what is left of their budgets, and how fast it burns."""
    found = facts.objectives
    if not found:
        hint = "No objectives are set. Write them in slo.toml, and the pipeline measures them."
        return section("objectives", "Objectives", join(hint))
    broken = [each for each in found if each.budget_left < 0]
    missed = [each for each in found if each.ratio() < each.target]
    lead = (
        f"{units.plural(len(found), 'objective')}: {len(broken) or 'none'} without budget, "
        f"{len(missed) or 'none'} below the target in this time."
    )
    rows = [_objective_row(each, facts) for each in found]
    columns = [
        *(
            Heading("objective", "name"),
            Heading("queue", "text"),
            Heading("budget", "draw"),
        ),
        *(Heading("budget left"), Heading("met"), Heading("target"), Heading("missed")),
        *(Heading("worst burn, 1 h"), Heading("worst burn, 6 h")),
    ]
    return section(
        "objectives",
        "Objectives",
        join(lead),
        _objective_plots(facts),
        table("Objectives, the least budget first", columns, rows, QUEUES_FIRST),
    )


def _objective_row(each: ObjectiveState, facts: Facts) -> list[str | Html]:
    left = each.budget_left
    is_bad = left < 0
    yard = f", yard {clean(each.yard)[:12]}" if len(facts.queues.yards) > 1 else None
    return [
        name_of(each.name),
        join(name_of(each.queue), yard),
        bar(left, "s3" if left > 0.25 else "s5"),
        tag("span", units.share(left), class_="bad" if is_bad else None),
        tag(
            "span", units.share(each.ratio()), class_="bad" if each.ratio() < each.target else None
        ),
        units.share(each.target),
        f"{units.exact(each.bad)} of {units.count(each.good + each.bad)}",
        f"{units.tenths(each.burn_1h)}\N{MULTIPLICATION SIGN}",
        f"{units.tenths(each.burn_6h)}\N{MULTIPLICATION SIGN}",
    ]


def _objective_plots(facts: Facts) -> Html:
    period, top = facts.period, facts.objectives[:LAYERS]
    left, burn = [], []
    dashes = ("solo", "d2", "d3", "solo", "d2", "d3")
    for at, each in enumerate(top):
        lefts = np.full(period.steps, np.nan)
        burns = np.full(period.steps, np.nan)
        for hour, burn_6h, budget in each.hours:
            # An hour that began before the period belongs to its first step.
            step = max(hour - period.start, 0) // period.step
            if step < period.steps:
                lefts[step] = budget
                burns[step] = np.fmax(burns[step], burn_6h)
        label = f"{each.name} · {each.queue}"
        left.append(Series(label, _carried(lefts, period.step), f"s{at + 1} {dashes[at]}"))
        burn.append(Series(label, _carried(burns, period.step), f"s{at + 1} {dashes[at]}"))
    which = "" if len(facts.objectives) <= LAYERS else f", the {LAYERS} with the least"
    budgets = Plot(
        "Budget left", f"share of the budget of the window{which}", left, period, units.share
    )
    burns_plot = Plot(
        "Burn over six hours",
        "times faster than the budget allows, 1 is just allowed",
        burn,
        period,
        _times,
    )
    known = [value for each in left for value in each.values if not np.isnan(value)]
    axis = linear(1.0, units.share, min(known, default=0.0))
    return listed(budgets.lines(axis), burns_plot.lines())


def _carried(values: "np.typing.NDArray[np.float64]", step: int) -> "np.typing.NDArray[np.float64]":
    """Let an hour's value hold for its steps, where steps are shorter than an hour."""
    carried, steps = values.copy(), 60 // step if step < 60 else 1
    for at in np.flatnonzero(~np.isnan(values)).tolist():
        for later in range(at + 1, min(at + steps, len(values))):
            if not np.isnan(values[later]):
                break
            carried[later] = values[at]
    return carried


def _times(number: float) -> str:
    return f"{units.tenths(number)}\N{MULTIPLICATION SIGN}"
