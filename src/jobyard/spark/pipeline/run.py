"""A run of the pipeline: what is new in the history of a yard, batch by batch, into a lake.

Progress is the position of the yard in the lake and nothing else: a run that was killed is undone
or ended as a whole by the next one. A run without news does nothing and needs no Spark.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobyard.client import JobyardError, Token
from jobyard.client.errors import Code, bad_option
from jobyard.lake import open_lake
from jobyard.lake.names import MANIFEST, SLO_FILE
from jobyard.lake.opening import Lake
from jobyard.lake.tables import Batch, Tables
from jobyard.spark.pipeline.batch import take_in
from jobyard.spark.pipeline.events import EventSource, History, ServerEvents
from jobyard.spark.pipeline.frames import settings, tasks_for
from jobyard.spark.pipeline.objectives import Objectives, read_objectives
from jobyard.spark.pipeline.progress import BatchDone, Listener, Lost, Started
from jobyard.spark.raising import error_of
from jobyard.spark.read.positions import parse_time

# Numbers in a batch: small enough to repeat after a kill, large enough for Spark to be quick.
BATCH_SEQS: Final = 250_000
BATCH_SEQS_MAX: Final = 10_000_000
# The year 3000, and as far back from now.
_TIME_MAX_MS: Final = 32_503_680_000_000
# A session, or what makes one when there is something to do.
Sparks = SparkSession | Callable[[], SparkSession]


class RunResult(NamedTuple):
    """What a run has done."""

    yard: str
    # The position before and after.
    from_seq: int
    to_seq: int
    rows: int
    batches: int
    elapsed_s: float


def run(  # noqa: PLR0913  options of a command, by name
    spark: Sparks,
    *,
    url: str,
    lake: str | Path,
    table_format: str | None = None,
    token: str | Token | None = None,
    since: str | None = None,
    batch: int = BATCH_SEQS,
    slo: str | Path | None = None,
    allow_gap: bool = False,
    progress: Listener | None = None,
) -> RunResult:
    """Take in what is new in the history of a yard, once.

    `since` bounds how far back the first run begins: an age such as `-6h`, an ISO time or
    milliseconds. `slo` is the file of objectives, by default `slo.toml` in the lake.
    """
    source = ServerEvents(url, token)
    return run_from(
        source, spark, lake=lake, table_format=table_format, since=since, batch=batch, slo=slo,
        allow_gap=allow_gap, progress=progress,
    )  # fmt: skip


def run_from(  # noqa: PLR0913  as `run`
    source: EventSource,
    spark: Sparks,
    *,
    lake: str | Path,
    table_format: str | None = None,
    since: str | None = None,
    batch: int = BATCH_SEQS,
    slo: str | Path | None = None,
    allow_gap: bool = False,
    progress: Listener | None = None,
) -> RunResult:
    """Take in what is new at a source of events, as `run` does."""
    if isinstance(batch, bool) or not 0 < batch <= BATCH_SEQS_MAX:
        raise bad_option("batch", f"{batch} is not from 1 to {BATCH_SEQS_MAX}")
    begun_s = time.monotonic()
    begin_ms = None if since is None else time_in_ms(since)
    objectives = objectives_of(Path(lake), slo)
    opened = open_lake(Path(lake), table_format)
    tell = progress or _nothing
    with opened.lock():
        tables = opened.tables
        history = source.history()
        position = tables.position(history.yard)
        start = _start(source, history, position, begin_ms, tell, allow_gap=allow_gap)
        rows = count = 0
        if start < history.head_seq:
            count = -(-(history.head_seq - start) // batch)
            tell(Started(history.yard, start, history.head_seq, count))
            # The start of a session takes a while.
            session = spark if isinstance(spark, SparkSession) or not callable(spark) else spark()
            with settings(session), named_errors():
                for number in range(1, count + 1):
                    to_seq = min(start + number * batch, history.head_seq)
                    part = Batch(history.yard, start + (number - 1) * batch, to_seq)
                    found = _one(session, tables, source, history, part, objectives, allow_gap)
                    rows += found
                    elapsed_s = time.monotonic() - begun_s
                    tell(
                        BatchDone(
                            history.yard, number, count, to_seq, found, rows / elapsed_s,
                            history.head_seq - to_seq, elapsed_s,
                        )
                    )  # fmt: skip
    end = max(position, history.head_seq) if count else position
    return RunResult(history.yard, position, end, rows, count, time.monotonic() - begun_s)


@contextmanager
def named_errors() -> Iterator[None]:
    """Raise an error of ours as such that Spark made an error of its own of."""
    try:
        yield
    except PySparkException as raised:
        found = error_of(raised)
        if found is None:
            raise
        raise found from None


def _one(
    spark: SparkSession,
    tables: Tables,
    source: EventSource,
    history: History,
    batch: Batch,
    objectives: Objectives,
    allow_gap: bool,  # noqa: FBT001  as the run was told
) -> int:
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks_for(batch.to_seq - batch.from_seq)))
    rows = source.rows(spark, history, batch.from_seq, batch.to_seq, allow_gap=allow_gap)
    return take_in(spark, tables, batch, rows, objectives)


def _start(
    source: EventSource,
    history: History,
    position: int,
    begin_ms: int | None,
    tell: Listener,
    *,
    allow_gap: bool,
) -> int:
    """Return the number after which the run begins; it is the position, unless rows are lost."""
    first = max(history.earliest_seq - 1, 0)
    if position == 0:
        # Nothing was taken in yet, so what is gone by now is not missed.
        begin = first if begin_ms is None else source.seq_at(begin_ms) - 1
        return min(max(begin, first), history.head_seq)
    if position > history.head_seq:
        # Numbers only rise: an older copy of the data directory was put back.
        raise JobyardError(
            Code.DATA_LOSS,
            f"the lake knows events of yard {history.yard} up to {position}, "
            f"and its history ends at {history.head_seq}",
            option="lake",
            remedy="The yard was put back to an older copy: use a new lake for it.",
        )
    if position < first:
        if not allow_gap:
            raise JobyardError(
                Code.DATA_LOSS,
                f"events {position + 1} to {first} of yard {history.yard} are gone: they left "
                "its history before they were taken in",
                option="lake",
                remedy="--allow-gap goes on without them; run more often, or raise --events-hours.",
            )
        tell(Lost(history.yard, position + 1, first))
        return min(first, history.head_seq)
    return position


def existing(lake: str | Path, table_format: str | None) -> Lake:
    """Open a lake that is there: what looks at one or mends it must not make one."""
    if not (Path(lake) / MANIFEST).is_dir():
        raise bad_option("lake", f"{lake} is no lake", "Name the folder that a run has filled.")
    return open_lake(Path(lake), table_format)


def time_in_ms(since: str, option: str = "since") -> int:
    """Return the time that a text means, in milliseconds."""
    try:
        found = parse_time(since)
    except ValueError as fault:
        raise bad_option(option, str(fault)) from None
    if max(found.at_ms or 0, found.before_now_ms or 0) > _TIME_MAX_MS:
        raise bad_option(option, f"{since[:40]!r} is too far away")
    if found.at_ms is not None:
        return found.at_ms
    return int(datetime.now(UTC).timestamp() * 1000) - (found.before_now_ms or 0)


def objectives_of(lake: Path, slo: str | Path | None) -> Objectives:
    """Return the objectives of a file, or of the one in the lake if there is one."""
    if slo is not None:
        return read_objectives(Path(slo))
    path = lake / SLO_FILE
    return read_objectives(path) if path.exists() else Objectives()


def _nothing(_: object) -> None:
    """Tell nobody."""
