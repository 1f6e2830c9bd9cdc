"""Everything that a report tells, read from a lake once; page and terminal show it.

Chooses the period: from the first minute of the lake, or `since`, to its newest minute.
"""

import difflib
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from jobyard.client.errors import JobyardError, bad_option
from jobyard.lake.opening import Lake
from jobyard.lake.report.gold import Gold, Slice, attempts, queues_of, span
from jobyard.lake.report.letters import Letters, read_letters
from jobyard.lake.report.objectives import ObjectiveState, read_objectives
from jobyard.lake.report.period import Period, minute_of, period_of
from jobyard.lake.report.queues import Queues, read_queues
from jobyard.lake.report.workers import Workers, read_workers
from jobyard.lake.schemas import QUEUE_MINUTE

# Names that an error may offer in the place of one that is not there.
_OFFERED: Final = 3
_SEARCHED: Final = 10_000
Since = datetime | timedelta | None


class Facts(NamedTuple):
    """The figures of one report."""

    made_at: datetime
    queue: str | None
    period: Period
    queues: Queues
    workers: Workers
    letters: Letters
    objectives: list[ObjectiveState]


class Emptiness(NamedTuple):
    """Why there is nothing to tell."""

    made_at: datetime
    # When the newest row of the lake happened; None if it has none.
    newest: datetime | None
    since: datetime | None


def gather(
    lake: Lake, *, since: Since = None, queue: str | None = None, now: datetime | None = None
) -> Facts | Emptiness:
    """Read gold; times without a zone are UTC, and a timedelta counts back from now."""
    made_at = _utc(now) if now is not None else datetime.now(UTC)
    begin = (
        _utc(made_at - since if isinstance(since, timedelta) else since)
        if since is not None
        else None
    )
    with lake.reading():
        return attempts(lake.tables, lambda gold: _gather(gold, begin, queue, made_at))


def _gather(
    gold: Gold, since: datetime | None, queue: str | None, made_at: datetime
) -> Facts | Emptiness:
    ends = span(gold, QUEUE_MINUTE)
    if ends is None:
        return Emptiness(made_at, None, since)
    first, last = ends
    if since is not None:
        first = max(first, minute_of(since))
    if first > last:
        return Emptiness(made_at, datetime.fromtimestamp(last * 60, UTC), since)
    period = period_of(first, last)
    part = Slice(gold, first, last, queue)
    queues = read_queues(part, period)
    if queue is not None and not queues.names:
        raise _no_such_queue(queue, queues_of(gold, first, last, _SEARCHED), period)
    return Facts(
        made_at,
        queue,
        period,
        queues,
        read_workers(part, period),
        read_letters(part, period),
        read_objectives(part),
    )


def _no_such_queue(queue: str, names: list[str], period: Period) -> JobyardError:
    near = difflib.get_close_matches(queue, names, _OFFERED, 0.5) or names[:_OFFERED]
    return bad_option(
        "queue",
        f"Nothing happened in the queue {queue[:100]!r} in this time ({period.words()}).",
        f"Queues in which something did: {', '.join(repr(name[:100]) for name in near)}.",
    )


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
