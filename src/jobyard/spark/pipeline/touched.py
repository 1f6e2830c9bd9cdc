"""What a batch touches: which partitions it changes, found from columns and footers alone.

Reads a few columns of the staged events, and of those partitions of silver that may know their
jobs, with pyarrow and without a job of Spark. May name a partition too many, never one too few.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Final, NamedTuple, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobyard.lake.schemas import ATTEMPTS, JOBS, TableSchema
from jobyard.lake.tables import Partition, PartitionFacts, Tables

# Where jobs lie whose put nobody told of.
UNDATED: Final = "1970-01-01"
_HOUR_US: Final = 3_600_000_000
_EVENT_COLUMNS: Final = ["event", "ts", "job_id", "enqueued_at", "claimed_at", "finished_at"]


# The condition that a time, given as an expression of SQL, is in a span.
Span = Callable[[str], str]


class Touched(NamedTuple):
    """Partitions of silver that change, and hours of gold."""

    attempts: frozenset[Partition]
    jobs: frozenset[Partition]
    hours: frozenset[Partition]

    @property
    def days(self) -> frozenset[Partition]:
        """Return the days of the hours."""
        return frozenset((day,) for day, _ in self.hours)


@final
class Snapshot:
    """The tables as they are before a batch: the lock of the run keeps them so."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._partitions: dict[str, Mapping[Partition, PartitionFacts]] = {}

    def partitions(self, table: TableSchema) -> Mapping[Partition, PartitionFacts]:
        """Return the partitions of a table, which takes a look at each file the first time."""
        if table.name not in self._partitions:
            self._partitions[table.name] = self._tables.partitions(table)
        return self._partitions[table.name]

    def files(self, table: TableSchema, partitions: Iterable[Partition]) -> list[Path]:
        """Return the files of partitions that there are."""
        known = self.partitions(table)
        wanted = [each for each in partitions if each in known]
        return [path for _, path in self._tables.files(table, wanted)] if wanted else []


def events_in(paths: Iterable[Path]) -> pa.Table:
    """Return the columns of staged events that tell what they touch."""
    return _concat(_read(path, _EVENT_COLUMNS) for path in paths)


def touched(tables: Snapshot, yard: str, events: pa.Table) -> Touched:
    """Return what the events of one yard touch."""
    attempts, old_ends = _attempts(tables, yard, events)
    jobs, told = _jobs(tables, yard, events)
    puts = events.filter(pc.equal(events["event"], "enqueued"))["enqueued_at"]
    hours = set(attempts)
    for times in (events["ts"], events["finished_at"], old_ends, puts, told):
        hours |= hours_of(times)
    return Touched(frozenset(attempts), frozenset(jobs), frozenset(hours))


def _attempts(
    tables: Snapshot, yard: str, events: pa.Table
) -> tuple[set[Partition], pa.ChunkedArray]:
    """Return the partitions of runs, and when those runs ended whose end may change."""
    found = hours_of(events["claimed_at"])
    ids = pc.unique(events["job_id"])
    ends = []
    for partition, facts in tables.partitions(ATTEMPTS).items():
        if not facts.nulls.get("run_ms", 0) or not _may_have(facts, ids):
            continue
        columns = ["yard", "job_id", "run_ms", "finished_at"]
        runs = _matching(tables, partition, columns, yard, ids)
        runs = runs.filter(pc.is_null(runs["run_ms"]))
        if runs.num_rows:
            found.add(partition)
            ends.append(runs["finished_at"].combine_chunks())
    return found, pa.chunked_array(ends, pa.timestamp("us", tz="UTC"))


def _jobs(tables: Snapshot, yard: str, events: pa.Table) -> tuple[set[Partition], pa.ChunkedArray]:
    """Return the partitions of jobs, and puts that only now are known."""
    is_put = pc.equal(events["event"], "enqueued")
    found: set[Partition] = {(day,) for day, _ in hours_of(events.filter(is_put)["enqueued_at"])}
    put = pc.unique(events.filter(is_put)["job_id"])
    rest = events.filter(pc.invert(pc.is_in(events["job_id"], put)))
    ids = pc.unique(rest["job_id"])
    dated = []
    for partition, facts in tables.partitions(JOBS).items():
        if len(ids) == 0 or not _may_have(facts, ids):
            continue
        jobs = _matching(tables, partition, ["yard", "job_id"], yard, ids)
        if jobs.num_rows:
            found.add(partition)
            if partition[0] != UNDATED:
                dated.append(jobs["job_id"].combine_chunks())
    known = pa.chunked_array(dated, pa.int64())
    news = rest.filter(pc.invert(pc.is_in(rest["job_id"], known.combine_chunks())))
    told = news["enqueued_at"].drop_null()
    found |= {(day,) for day, _ in hours_of(told)}
    if news.num_rows:
        found.add((UNDATED,))
    return found, told


def _may_have(facts: PartitionFacts, ids: pa.Array) -> bool:
    """Return whether one of some jobs may be in a partition, by the bounds of its numbers."""
    least, greatest = facts.least.get("job_id"), facts.greatest.get("job_id")
    if least is None or greatest is None:
        return False
    return bool(pc.any(pc.and_(pc.greater_equal(ids, least), pc.less_equal(ids, greatest))).as_py())


def _matching(
    tables: Snapshot, partition: Partition, columns: list[str], yard: str, ids: pa.Array
) -> pa.Table:
    table = ATTEMPTS if len(partition) > 1 else JOBS
    paths = tables.files(table, [partition])
    rows = _concat(_read(path, columns) for path in paths)
    return rows.filter(
        pc.and_(pc.equal(rows["yard"], yard), pc.is_in(rows["job_id"], value_set=ids))
    )


def _concat(parts: Iterable[pa.Table]) -> pa.Table:
    # Files may differ in which columns can be null.
    return pa.concat_tables(list(parts), promote_options="default")


def _read(path: Path, columns: list[str]) -> pa.Table:
    # Of this file alone: its folders are no columns.
    return pq.ParquetFile(path).read(columns=columns)


def hours_of(times: pa.ChunkedArray) -> set[Partition]:
    """Return the hours of times as partitions."""
    found = pc.unique(pc.floor_temporal(times, unit="hour")).to_pylist()
    return {(f"{each:%Y-%m-%d}", str(each.hour)) for each in found if each is not None}


def with_ends_in(
    facts: Mapping[Partition, PartitionFacts], hours: Iterable[Partition]
) -> set[Partition]:
    """Return the partitions of runs that may have begun or ended in one of some hours."""
    wanted = set(hours)
    begins = sorted(_begin_us(hour) for hour in wanted)
    return {
        partition
        for partition, each in facts.items()
        if partition in wanted or _overlaps(each, begins)
    }


def _overlaps(facts: PartitionFacts, begins: Sequence[int]) -> bool:
    least, greatest = facts.least.get("finished_at"), facts.greatest.get("finished_at")
    if least is None or greatest is None:
        return False
    return any(begin <= greatest and least < begin + _HOUR_US for begin in begins)


def _begin_us(hour: Partition) -> int:
    return int(time_of(hour).timestamp()) * 1_000_000


def day_of(text: str) -> date:
    """Return the day that a folder is named after."""
    return date.fromisoformat(text)


def time_of(hour: Partition) -> datetime:
    """Return the beginning of an hour."""
    return datetime.combine(day_of(hour[0]), time(int(hour[1])), UTC)


def within_hours(hours: Iterable[Partition]) -> Span:
    """Return the span of some hours."""
    begins = ", ".join(str(int(time_of(hour).timestamp())) for hour in sorted(hours))
    return lambda at: f"unix_seconds(date_trunc('HOUR', {at})) IN ({begins})"


def within_days(since: date | None, until: date | None) -> Span:
    """Return the span from one day to before another; None is no bound."""
    first = f"DATE '{since or date.min}'"
    last = f"DATE '{until or date.max}'"
    return lambda at: f"(to_date({at}) >= {first} AND to_date({at}) < {last})"
