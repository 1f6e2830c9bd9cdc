"""The figures as about twenty lines for a terminal of 80 columns, with colours only if asked."""

import unicodedata
from typing import Final

import numpy as np

from jobyard.lake.report import units
from jobyard.lake.report.facts import Emptiness, Facts
from jobyard.lake.report.page.markup import clean

_COLUMNS: Final = 80
_QUEUES: Final = 6
_ERRORS: Final = 3
_NAME: Final = 26
_BOLD, _DIM, _RED, _END = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_FAIL_RATE_MAX: Final = 0.05


def lines(facts: Facts | Emptiness, *, colours: bool) -> str:
    """Return the lines, each ended."""
    if isinstance(facts, Emptiness):
        told = _empty(facts)
    else:
        told = [
            *(_head(facts), ""),
            *_totals(facts),
            *("", *_queues(facts)),
            *_errors(facts),
            *_objectives(facts),
        ]
    text = "\n".join(line.rstrip() for line in told) + "\n"
    if not colours:
        for mark in (_BOLD, _DIM, _RED, _END):
            text = text.replace(mark, "")
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _empty(facts: Emptiness) -> list[str]:
    if facts.newest is None:
        reason = "This lake is empty."
    else:
        reason = (
            f"Nothing happened since {units.clock(facts.since)}; "
            f"the newest minute is {units.clock(facts.newest)}."
        )
    return [reason, "Fill it: jobyard pipeline run --url http://yard:6790 --lake ./lake"]


def _head(facts: Facts) -> str:
    scope = f"queue {clean(facts.queue)}" if facts.queue is not None else "all queues"
    period = f"{facts.period.words()} UTC"
    return f"{_BOLD}{period}{_END}  {_fitted(scope, _COLUMNS - 2 - _width(period)).rstrip()}"


def _totals(facts: Facts) -> list[str]:
    queues, workers = facts.queues, facts.workers
    ended, failed = queues.ended(), queues.total("failed")
    rate = failed / ended if ended else None
    backlog = queues.backlog.sum(axis=0)
    busy = float(workers.utilisation().mean()) if workers.names else None
    left = [
        ("enqueued", units.count(queues.total("enqueued"))),
        ("completed", units.count(queues.total("completed"))),
        ("failed", f"{units.count(failed)} ({units.share(rate)})"),
        ("dead letters", units.count(queues.total("dead_lettered"))),
        (
            "backlog",
            f"{units.count(backlog[-1])}, at most {units.count(queues.backlog_peak.max())}",
        ),
    ]
    right = [
        ("", "p50        p95        p99"),
        ("wait", "".join(_fitted(units.duration(each), 11) for each in queues.wait.all)),
        ("run", "".join(_fitted(units.duration(each), 11) for each in queues.run.all)),
        ("workers", f"{units.count(len(workers.names))}, busy {units.share(busy)}"),
        ("completed", _sparkline(queues.by_step("completed"))),
    ]
    return [
        f"{_DIM}{_fitted(a, 14)}{_END}{_fitted(b, 24)}{_DIM}{_fitted(c, 10)}{_END}{d}"
        for (a, b), (c, d) in zip(left, right, strict=True)
    ]


def _queues(facts: Facts) -> list[str]:
    queues = facts.queues
    ended = queues.ended_by_queue()
    failed = queues.by_queue("failed")
    heads = ("completed", "failed", "backlog", "wait p95", "run p95")
    told = [_DIM + _fitted("queue", _NAME) + "".join(f"{each:>10}" for each in heads) + _END]
    for at, name in enumerate(queues.names[:_QUEUES]):
        rate = failed[at] / ended[at] if ended[at] else None
        cells = [
            units.count(queues.by_queue("completed")[at]),
            units.share(rate),
            units.count(queues.backlog[at, -1]),
            units.duration(queues.wait.queues[at][1]),
            units.duration(queues.run.queues[at][1]),
        ]
        padded = [f"{each:>10}" for each in cells]
        if rate is not None and rate > _FAIL_RATE_MAX:
            padded[1] = f"{_RED}{padded[1]}{_END}"
        told.append(_fitted(clean(name), _NAME) + "".join(padded))
    if (others := len(queues.names) - _QUEUES) > 0:
        rest = queues.by_queue("completed")[_QUEUES:].sum()
        told.append(
            _fitted(f"{units.plural(others, 'other queue')}", _NAME) + f"{units.count(rest):>10}"
        )
    return told


def _errors(facts: Facts) -> list[str]:
    kinds = facts.letters.kinds[:_ERRORS]
    if not kinds:
        return []
    told = [
        "",
        f"{_DIM}{_fitted('dead letters: error', _NAME)}{'letters':>10}  queue, message{_END}",
    ]
    for kind in kinds:
        error = clean(kind.error_class or kind.reason or "no error told")
        rest = f"{clean(kind.queue)}: {clean(kind.error_message) or clean(kind.reason)}"
        many = f"{units.count(kind.letters):>10}"
        told.append(f"{_fitted(error, _NAME)}{many}  {_fitted(rest, _COLUMNS - _NAME - 12)}")
    return told


def _objectives(facts: Facts) -> list[str]:
    if not facts.objectives:
        return []
    worst = facts.objectives[0]
    left = units.share(worst.budget_left)
    shown = f"{_RED}{left}{_END}" if worst.budget_left < 0 else left
    what = _fitted(f"{clean(worst.queue)}: {clean(worst.name)}", 40).rstrip()
    return ["", f"{_DIM}least budget left{_END}  {shown}  {what}"]


def _sparkline(values: "np.typing.NDArray[np.int64]") -> str:
    group = -(-len(values) // 32)
    sums = np.add.reduceat(values, np.arange(0, len(values), group))
    top = max(int(sums.max()), 1)
    return "".join(_BLOCKS[min(7, int(each) * 8 // top)] for each in sums)


def _width(text: str) -> int:
    """Return how many columns a text takes; letters of East Asia take two."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _fitted(text: str, columns: int) -> str:
    """Return a text of exactly so many columns, cut or filled."""
    if _width(text) > columns - 1:
        while _width(text) > columns - 2:
            text = text[:-1]
        text += "…"
    return text + " " * (columns - _width(text))
