"""Moves dead letters and dead jobs back into their queue, each once, however often it is run.

The server stores under a key what it has moved. The key of a letter is the same in every run, so a
run that was killed is simply run again: it moves the rest. A job that stays in its queue keeps its
number when it dies again, so its key also has its deliveries.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from jobyard.client.calls import YardClient
from jobyard.client.errors import JobyardError, bad_option
from jobyard.client.redrive import REDRIVE_MAX
from jobyard.client.redrive import redrive as redrive_named
from jobyard.spark.letters.table import DEAD_JOB, LETTER, connecting_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_NEEDED: Final = ("kind", "queue", "seq", "job_id", "deliveries")
_KEY: Final = "dlq"
# What a server answers that can take no more for now.
_FULL: Final = frozenset({"topic_full", "storage_full", "too_many_keys"})
RATE_MAX: Final = 1_000_000


@dataclass(frozen=True)
class RedriveResult:
    """What a redrive has done; with `dry_run`, what it would do."""

    moved: int = 0
    # Moved by an earlier run.
    already: int = 0
    # Not moved, by the server's word for why: `gone`, `not_json` and so on.
    skipped: dict[str, int] = field(default_factory=dict)
    # Not reached because the server stopped: its code, such as `topic_full`.
    left: int = 0
    stopped: str = ""
    dry_run: bool = False


def redrive(
    df: "DataFrame",
    *,
    where: "str | Column | None" = None,
    patch: dict[str, object] | None = None,
    rate: int | None = None,
    dry_run: bool = False,
    pause: Callable[[float], object] = time.sleep,
    **options: object,
) -> RedriveResult:
    """Move the rows of a table that `dlq` returned back into their queues.

    `where` chooses some of them, `patch` is merged into their data (RFC 7396), `rate` is the most
    jobs a second. It stops at the first queue or disk that is full: run it again later. `options`
    say how the server is reached.
    """
    missing = [name for name in _NEEDED if name not in df.columns]
    if missing:
        raise bad_option(
            "df", f"there is no column {missing[0]}", "Give what dlq() returned, or rows of it."
        )
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise bad_option("rate", f"{rate} is not from 1 to {RATE_MAX} jobs a second")
    reached = connecting_of({name: str(value) for name, value in options.items()})
    chosen = df if where is None else df.where(where)
    rows = chosen.select(*_NEEDED).distinct()
    # Ordered, so that letters come back in the order in which they died.
    runs = f.when(f.col("kind") == DEAD_JOB, f.col("deliveries"))
    ordered = rows.orderBy("queue", f.desc("kind"), runs, "seq", "job_id")
    moving = _Moving(patch, rate, pause, dry_run=dry_run)
    with reached.client() as client:
        for group in _calls_of(ordered.toLocalIterator(), rate):
            moving.send(client, group)
    return moving.result()


def _calls_of(rows: "Iterator[Row]", rate: int | None) -> "Iterator[list[Row]]":
    """Yield the rows of each call."""
    most = min(REDRIVE_MAX, rate or REDRIVE_MAX)
    for _, group in groupby(rows, key=_of_one_call):
        found: list[Row] = []
        for row in group:
            found.append(row)
            if len(found) == most:
                yield found
                found = []
        if found:
            yield found


def _of_one_call(row: "Row") -> tuple[str, str, int]:
    # Letters of one queue share a key, dead jobs only those with as many deliveries.
    return row.queue, row.kind, row.deliveries if row.kind == DEAD_JOB else 0


class _Moving:
    """The calls of one redrive, and what they have done so far."""

    def __init__(
        self,
        patch: dict[str, object] | None,
        rate: int | None,
        pause: Callable[[float], object],
        *,
        dry_run: bool,
    ) -> None:
        self._patch = patch
        self._rate = rate
        self._pause = pause
        self._dry_run = dry_run
        self._moved = 0
        self._already = 0
        self._skipped: Counter[str] = Counter()
        self._left = 0
        self._stopped = ""

    def send(self, client: YardClient, rows: "list[Row]") -> None:
        """Move some rows, which share queue, kind and key; only count them once it was stopped."""
        if self._stopped:
            self._left += len(rows)
            return
        first = rows[0]
        if first.kind not in (LETTER, DEAD_JOB):
            raise bad_option("df", f"kind is {first.kind!r}, neither {LETTER} nor {DEAD_JOB}")
        is_letter = first.kind == LETTER
        begun_s = time.monotonic()
        try:
            answer = redrive_named(
                client,
                first.queue,
                seqs=[row.seq for row in rows] if is_letter else None,
                job_ids=None if is_letter else [row.job_id for row in rows],
                patch=self._patch,
                key=_KEY if is_letter else f"{_KEY}:{first.deliveries}",
                dry_run=self._dry_run,
            )
        except JobyardError as error:
            if error.code not in _FULL:
                raise
            self._stopped = error.code
            self._left += len(rows)
            return
        self._moved += answer.size("moved")
        self._already += answer.size("already")
        self._skipped.update(why for _, why in answer.pairs("skipped"))
        self._left += answer.number("left")
        self._stopped = answer.text_or("stopped", "")
        if self._rate is not None and not self._dry_run:
            self._pause(max(0.0, len(rows) / self._rate - (time.monotonic() - begun_s)))

    def result(self) -> RedriveResult:
        """Return what was done."""
        return RedriveResult(
            self._moved,
            self._already,
            dict(self._skipped),
            self._left,
            self._stopped,
            self._dry_run,
        )
