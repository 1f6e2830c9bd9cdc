"""Whether a lake holds what it should: a second count, by other means.

Bronze is counted against the server; silver and gold are computed from bronze and silver with
pyarrow and plain Python, without a statement of the pipeline and without Spark. Says what differs,
and where; changes nothing. Holds a few columns of all events in memory.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobyard.client import Token, YardClient
from jobyard.client.calls import topic_path
from jobyard.lake.schemas import (
    ATTEMPTS,
    DLQ_REASON_MINUTE,
    EVENTS,
    JOBS,
    QUEUE_MINUTE,
    TABLES,
    WORKER_MINUTE,
    TableSchema,
)
from jobyard.lake.tables import Tables
from jobyard.spark.options import EVENTS_TOPIC
from jobyard.spark.pipeline.events import ServerEvents
from jobyard.spark.pipeline.run import existing

# Seqs of one range that is counted at the server.
RANGE_SEQS: Final = 250_000
# Of each kind; a lake that is wrong everywhere needs no longer list.
FINDINGS_MAX: Final = 20
_FAILED: Final = ("failed", "buried", "dead_lettered")
_EXPIRED: Final = ("expired", "stalled", "disconnected")
_RUN: Final = ["yard", "queue", "job_id", "attempt"]


class Difference(NamedTuple):
    """Something that differs."""

    table: str
    # Which rows: a range of seqs, or a queue and a minute.
    where: str
    text: str


def check(
    lake: str | Path,
    url: str | None = None,
    *,
    token: str | Token | None = None,
    table_format: str | None = None,
) -> list[Difference]:
    """Return what differs in a lake; with a url, also between its bronze and that server."""
    opened = existing(lake, table_format)
    # A run that goes on would change tables between two looks.
    with opened.lock():
        tables = opened.tables
        events = _read(tables, EVENTS, [
            "yard", "seq", "ts", "event", "queue", "job_id", "deliveries", "state", "claimed_at",
            "finished_at", "enqueued_at",
        ])  # fmt: skip
        found = list(_keys(tables))
        if url is not None:
            found += _against_server(tables, events, url, token)
        found += _against_bronze(tables, events)
        found += _against_silver(tables)
    return found


def _read(tables: Tables, table: TableSchema, columns: Sequence[str]) -> pa.Table:
    parts = [pq.ParquetFile(path).read(columns=list(columns)) for _, path in tables.files(table)]
    if not parts:
        return pa.table({name: pa.nulls(0) for name in columns})
    # Files may differ in which columns can be null.
    found = pa.concat_tables(parts, promote_options="default")
    if "queue" in columns:
        queue = pc.fill_null(found["queue"].cast(pa.string()), "")
        found = found.set_column(list(columns).index("queue"), "queue", queue)
    return found


def _keys(tables: Tables) -> Iterator[Difference]:
    for table in TABLES.values():
        rows = _read(tables, table, table.key)
        if rows.num_rows:
            count = rows.num_rows - rows.group_by(list(table.key)).aggregate([]).num_rows
            if count:
                yield Difference(table.name, "", f"{count} rows have the key of another row")


def _against_server(
    tables: Tables, events: pa.Table, url: str, token: str | Token | None
) -> Iterator[Difference]:
    source = ServerEvents(url, token)
    history = source.history()
    mine = events.filter(pc.equal(events["yard"], history.yard))["seq"] if events.num_rows else None
    end = min(tables.position(history.yard), history.head_seq)
    if mine is None or not len(mine):
        if tables.position(history.yard):
            yield Difference("events", f"yard {history.yard}", "no event of this yard is there")
        return
    # What left the history is not there to be counted, nor what came before the lake.
    start = max(history.earliest_seq, pc.min(mine).as_py()) - 1
    with YardClient(source.url, source.token) as client:
        for after in range(start, end, RANGE_SEQS):
            to_seq = min(after + RANGE_SEQS, end)
            there = _exported(client, history.yard, after, to_seq)
            here = pc.sum(pc.and_(pc.greater(mine, after), pc.less_equal(mine, to_seq))).as_py()
            if here != there:
                yield Difference(
                    "events", f"yard {history.yard}, seqs {after + 1} to {to_seq}",
                    f"the lake has {here} events, the server {there}",
                )  # fmt: skip


def _exported(client: YardClient, yard: str, after: int, to_seq: int) -> int:
    """Return how many rows an export of a range has, as its proper end says."""
    query = {"from_seq": after, "to_seq": to_seq, "incarnation": yard, "columns": "seq"}
    with closing(client.stream(topic_path(EVENTS_TOPIC, "export"), query)) as stream:
        return int(stream.finish()["topics-rows"])


def _against_bronze(tables: Tables, events: pa.Table) -> Iterator[Difference]:
    if not events.num_rows:
        return
    events = events.sort_by([("yard", "ascending"), ("seq", "ascending")])
    events = events.append_column("attempt", events["deliveries"])
    is_run = pc.and_(pc.greater(pc.fill_null(events["attempt"], 0), 0),
                     pc.is_valid(events["claimed_at"]))  # fmt: skip
    is_claim = pc.equal(events["event"], "claimed")
    begun = events.filter(pc.and_(is_run, is_claim))
    ended = events.filter(pc.and_(is_run, pc.invert(is_claim))).group_by(_RUN, use_threads=False)
    ends = ended.aggregate([("event", "last"), ("finished_at", "last")])
    keys = pa.concat_tables([begun.select(_RUN), ends.select(_RUN)]).group_by(_RUN).aggregate([])
    runs = _read(tables, ATTEMPTS, [*_RUN, "run_ms", "outcome"])
    yield from _differ("attempts", "", "runs", keys.num_rows, runs.num_rows)
    seen = runs.filter(pc.is_valid(runs["run_ms"])) if runs.num_rows else runs
    yield from _same_counts("attempts", "outcome", ends["event_last"], seen["outcome"])
    jobs = events.group_by(["yard", "queue", "job_id"], use_threads=False)
    states = jobs.aggregate([("state", "last")])
    known = _read(tables, JOBS, ["state"])
    yield from _differ("jobs", "", "jobs", states.num_rows, known.num_rows)
    yield from _same_counts("jobs", "state", states["state_last"], known["state"])
    minutes = _read(tables, QUEUE_MINUTE, [
        "yard", "queue", "minute", "completed", "failed", "released", "expired",
    ])  # fmt: skip
    at = pc.floor_temporal(ends["finished_at_last"], unit="minute")
    ends = ends.append_column("minute", at)
    for name, outcomes in (
        ("completed", ("completed",)), ("failed", _FAILED), ("released", ("released",)),
        ("expired", _EXPIRED),
    ):  # fmt: skip
        wanted = ends.filter(pc.is_in(ends["event_last"], pa.array(outcomes)))
        yield from _same_sums("queue_minute", minutes, name, _counted(wanted))


def _against_silver(tables: Tables) -> Iterator[Difference]:
    runs = _read(tables, ATTEMPTS, [
        "yard", "queue", "worker", "claimed_at", "finished_at", "wait_ms", "run_ms",
    ])  # fmt: skip
    if not runs.num_rows:
        return
    minutes = _read(tables, QUEUE_MINUTE, [
        "yard", "queue", "minute", "enqueued", "claimed", "dead_lettered", "wait_p50", "wait_p95",
        "wait_p99", "run_p50", "run_p95", "run_p99",
    ])  # fmt: skip
    jobs = _read(tables, JOBS, ["yard", "queue", "enqueued_at"])
    for name, rows, at in (("enqueued", jobs, "enqueued_at"), ("claimed", runs, "claimed_at")):
        yield from _same_sums("queue_minute", minutes, name, _counted(_by_minute(rows, at)))
    letters = _read(tables, DLQ_REASON_MINUTE, ["yard", "queue", "minute", "count"])
    yield from _same_sums("queue_minute", minutes, "dead_lettered", _sums(letters, "count"))
    ended = _by_minute(runs, "finished_at")
    for name, rows in (("wait", _by_minute(runs, "claimed_at")), ("run", ended)):
        yield from _same_percentiles(minutes, name, rows)
    workers = _read(tables, WORKER_MINUTE, ["yard", "queue", "minute", "claimed", "busy_ms"])
    yield from _same_sums("worker_minute", workers, "busy_ms", _sums(ended, "run_ms"))
    claimed = _counted(_by_minute(runs, "claimed_at"))
    yield from _same_sums("worker_minute", workers, "claimed", claimed)


def _by_minute(rows: pa.Table, at: str) -> pa.Table:
    rows = rows.filter(pc.is_valid(rows[at]))
    return rows.append_column("minute", pc.floor_temporal(rows[at], unit="minute"))


_Sums = dict[tuple[Any, ...], int]


def _counted(rows: pa.Table) -> _Sums:
    counts = rows.group_by(["yard", "queue", "minute"]).aggregate([([], "count_all")])
    return {tuple(row.values())[:3]: row["count_all"] for row in _ordered(counts, "count_all")}


def _sums(rows: pa.Table, name: str) -> _Sums:
    if not rows.num_rows:
        return {}
    sums = rows.group_by(["yard", "queue", "minute"]).aggregate([(name, "sum")])
    return {
        tuple(row.values())[:3]: row[f"{name}_sum"] or 0 for row in _ordered(sums, f"{name}_sum")
    }


def _ordered(rows: pa.Table, last: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.select(["yard", "queue", "minute", last]).to_pylist()
    return found


def _same_sums(table: str, minutes: pa.Table, name: str, wanted: _Sums) -> Iterator[Difference]:
    found = _sums(minutes, name)
    differing = [key for key in {*found, *wanted} if found.get(key, 0) != wanted.get(key, 0)]
    for key in sorted(differing, key=str)[:FINDINGS_MAX]:
        yield from _differ(table, _place(key), name, wanted.get(key, 0), found.get(key, 0))


def _same_percentiles(minutes: pa.Table, name: str, rows: pa.Table) -> Iterator[Difference]:
    rows = rows.filter(pc.is_valid(rows[f"{name}_ms"]))
    lists = rows.group_by(["yard", "queue", "minute"]).aggregate([(f"{name}_ms", "list")])
    values = {
        tuple(row.values())[:3]: sorted(row[f"{name}_ms_list"])
        for row in _ordered(lists, f"{name}_ms_list")
    }
    bad = 0
    for row in minutes.to_pylist():
        key = (row["yard"], row["queue"], row["minute"])
        for percent in (50, 95, 99):
            wanted = _percentile(values.get(key, []), percent)
            found = row[f"{name}_p{percent}"]
            is_same = found == wanted or (
                found is not None and wanted is not None and math.isclose(found, wanted)
            )
            if not is_same and bad < FINDINGS_MAX:
                bad += 1
                yield from _differ("queue_minute", _place(key), f"{name}_p{percent}", wanted, found)


def _percentile(values: Sequence[int], percent: int) -> float | None:
    if not values:
        return None
    place, rest = divmod((len(values) - 1) * percent, 100)
    above = values[min(place + 1, len(values) - 1)]
    return values[place] + (above - values[place]) * rest / 100


def _same_counts(
    table: str, name: str, wanted: pa.ChunkedArray, found: pa.ChunkedArray
) -> Iterator[Difference]:
    counts = [
        {each["values"]: each["counts"] for each in pc.value_counts(values).to_pylist()}
        for values in (wanted, found)
    ]
    for value in sorted({*counts[0], *counts[1]}, key=str):
        where = f"{name} {value}"
        yield from _differ(table, where, "rows", counts[0].get(value, 0), counts[1].get(value, 0))


def _differ(
    table: str, where: str, name: str, wanted: object, found: object
) -> Iterator[Difference]:
    if wanted != found:
        yield Difference(table, where, f"{name}: {found} in the table, {wanted} by another count")


def _place(key: tuple[Any, ...]) -> str:
    yard, queue, minute = key
    return f"yard {yard}, queue {queue}, {minute:%Y-%m-%d %H:%M}"
