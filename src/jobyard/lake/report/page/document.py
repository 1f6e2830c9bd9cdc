"""The page as a whole: head, headline figures, sections, and what the words mean."""

from typing import Final

import numpy as np

from jobyard.lake.report import units
from jobyard.lake.report.facts import Emptiness, Facts
from jobyard.lake.report.histogram import ERROR
from jobyard.lake.report.page import fleet, flow, speed, trouble
from jobyard.lake.report.page.marks import sparkline
from jobyard.lake.report.page.markup import Html, clean, isolated, join, name_of, tag
from jobyard.lake.report.page.plots import Numbers
from jobyard.lake.report.page.style import SCRIPT, STYLE, policy

_SECTIONS: Final = (
    ("throughput", "Throughput", flow.throughput),
    ("latency", "Latency", speed.latency),
    ("load", "Waiting and running", flow.load),
    ("failures", "Failures", trouble.failures),
    ("slowest", "Slowest queues", speed.slowest),
    ("workers", "Workers", fleet.workers),
    ("backlog", "Backlog", flow.backlog),
    ("objectives", "Objectives", trouble.objectives),
)
_MEANINGS: Final = (
    ("wait", "From the moment a job can be taken until it is taken; a delay is no waiting."),
    ("run", "From taken to its end, however it ends."),
    (
        "p50, p95, p99",
        (
            "50, 95, 99 % are at most this. Percentiles of hours, queues and the whole period come "
            "from the merged KLL sketches of their minutes, never from percentiles of minutes. "
            "The rank is right to about 1.5 % for minutes with more than 200 runs, and exact "
            f"below; the value is right to {ERROR * 100:.1f} %."
        ),
    ),
    (
        "backlog",
        (
            "Jobs that are neither done, dead nor gone: waiting, delayed and running. Counted from "
            "the first minute of the lake."
        ),
    ),
    (
        "utilisation",
        "Time spent in runs, of all time. A run counts where it ends, with all the time it took.",
    ),
    ("budget", "What may be missed: 1 less the target. Burn 1 uses it up exactly with the window."),
    ("time", "UTC."),
)


def document(facts: Facts | Emptiness) -> str:
    """Return the whole page."""
    if isinstance(facts, Emptiness):
        return _page("Empty lake", _empty(facts))
    subject = f"Queue {isolated(facts.queue)}" if facts.queue is not None else "Jobyard"
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in _SECTIONS]
    bar = tag("nav", tag("div", tag("ul", *links), class_="wrap"), aria_label="Sections")
    sections = [draw(facts) for _, _, draw in _SECTIONS]
    main = tag("main", _headline(facts), *sections, class_="wrap", id="main")
    head = tag("header", tag("div", *_title(facts), class_="wrap"))
    return _page(f"{subject}, {facts.period.words()}", join(head, bar, main, _footer()))


def _page(title: str, body: Html) -> str:
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} \N{EN DASH} report"),
        tag("style", Html(STYLE)),
    ]
    skip = tag("a", "Skip to the figures", href="#main", class_="skip")
    inner = join(tag("head", *head), tag("body", skip, body, tag("script", Html(SCRIPT))))
    return f"<!DOCTYPE html>\n{tag('html', inner, lang='en')}\n"


def _brand() -> Html:
    # Three tracks that end at one buffer: a yard.
    lines = tag("path", d="M2 5H13M2 11H20M2 17H16", class_="line s1")
    stop = tag("path", d="M21 6V16", class_="line s2")
    mark = tag("svg", lines, stop, viewBox="0 0 22 22", aria_hidden="true")
    return tag("p", mark, tag("span", tag("b", "Jobyard"), " report"), class_="brand")


def _title(facts: Facts) -> list[Html]:
    yards = [clean(each) for each in facts.queues.yards]
    queue = name_of(facts.queue) if facts.queue is not None else None
    scope = queue or join(units.exact(len(facts.queues.names)))
    about = [
        ("Yard" if len(yards) == 1 else f"{len(yards)} yards", join(", ".join(yards[:4]))),
        ("Queue" if queue else "Queues", scope),
        ("Length", join(facts.period.length_words())),
        ("Made", join(f"{units.clock(facts.made_at)} UTC")),
    ]
    rows = [tag("div", tag("dt", word), tag("dd", value)) for word, value in about]
    return [_brand(), tag("h1", facts.period.words()), tag("dl", *rows, class_="facts")]


def _tile(label: str, big: str, sub: str | Html, values: Numbers | None, look: str = "s1") -> Html:
    drawing = sparkline(values, look) if values is not None and len(values) > 1 else None
    return tag(
        "div",
        tag("dt", label),
        tag("dd", big, class_="big"),
        tag("dd", sub, class_="sub"),
        tag("dd", drawing, class_="trend", aria_hidden="true") if drawing else None,
        class_="tile",
    )


def _headline(facts: Facts) -> Html:
    queues, period = facts.queues, facts.period
    ended, failed = queues.ended(), queues.total("failed")
    wait, run = queues.wait, queues.run
    backlog = queues.backlog.sum(axis=0)
    tiles = [
        _tile(
            "Enqueued",
            units.count(queues.total("enqueued")),
            f"{units.count(queues.total('enqueued') / (period.last + 1 - period.first))} a minute",
            queues.by_step("enqueued"),
            "s3",
        ),
        _tile(
            "Completed",
            units.count(queues.total("completed")),
            f"{units.count(queues.busiest)} in the busiest minute, "
            f"{period.moment(queues.busiest_at)}",
            queues.by_step("completed"),
        ),
        _tile(
            "Failed runs",
            units.share(failed / ended if ended else None),
            f"{units.count(failed)} of {units.count(ended)} that ended",
            queues.by_step("failed"),
            "s2",
        ),
        _tile(
            "Dead letters",
            units.count(queues.total("dead_lettered")),
            _reason(facts),
            queues.by_step("dead_lettered"),
            "s2",
        ),
        *(
            _tile(
                f"95 % {word} at most",
                units.duration(each.all[1]),
                f"half {units.duration(each.all[0])}, 99 % {units.duration(each.all[2])}",
                np.nan_to_num(each.steps[:, 1]),
                look,
            )
            for word, each, look in (("waited", wait, "s5"), ("ran", run, "s4"))
        ),
        _tile(
            "Backlog at the end",
            units.count(backlog[-1]),
            f"at most {units.count(queues.backlog_peak.max())}",
            backlog,
            "s6",
        ),
        _last_tile(facts),
    ]
    title = tag("h2", "In short", class_="hidden", id="headline-title")
    grid = tag("dl", *tiles, class_="tiles")
    # Not a section with a frame: the tiles are one.
    return tag("div", title, grid, role="region", aria_labelledby="headline-title")


def _reason(facts: Facts) -> Html:
    if not facts.letters.reasons:
        return join("none in this time")
    reason, count = facts.letters.reasons[0], int(facts.letters.by_reason[0].sum())
    return join(name_of(reason or "no reason known"), f", {units.count(count)}")


def _last_tile(facts: Facts) -> Html:
    if facts.objectives:
        worst = facts.objectives[0]
        words = join(name_of(worst.queue), ": ", name_of(worst.name))
        lefts = np.array([max(budget, 0.0) for _, _, budget in worst.hours])
        return _tile("Least budget left", units.share(worst.budget_left), words, lefts, "s3")
    workers = facts.workers
    mean = float(workers.utilisation().mean()) if workers.names else None
    words = join(f"busy {units.share(mean)} of the time")
    return _tile("Workers", units.count(len(workers.names)), words, workers.active, "s3")


def _footer() -> Html:
    rows = [part for word, text in _MEANINGS for part in (tag("dt", word), tag("dd", text))]
    title = tag("h2", "What the words mean")
    return tag("footer", tag("div", title, tag("dl", *rows), class_="wrap"))


def _empty(facts: Emptiness) -> Html:
    if facts.newest is None:
        title, text = (
            "This lake is empty",
            "No event has become a figure yet. Fill it, then make the report again:",
        )
    else:
        title = f"Nothing happened since {units.clock(facts.since)}"
        newest = units.clock(facts.newest)
        text = f"The newest minute of this lake is {newest} UTC. Ask for more, or fill it:"
    commands = (
        "jobyard pipeline run --url http://yard:6790 --lake ./lake\n"
        "jobyard pipeline report --lake ./lake"
    )
    head = tag("header", tag("div", _brand(), tag("h1", title), class_="wrap"))
    made = tag("p", f"Made {units.clock(facts.made_at)} UTC.", class_="quiet")
    part = tag(
        "section",
        tag("h2", "What to do next"),
        tag("p", text),
        tag("pre", tag("code", commands)),
        made,
    )
    return join(head, tag("main", part, class_="wrap", id="main"))
