"""Batches of events through Spark: any cut has the same tables, and they are the oracle's."""

import math
import random
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from jobyard.client import JobyardError
from jobyard.lake import open_lake
from jobyard.lake.schemas import TABLES
from jobyard.spark.pipeline import BatchDone, backfill, check
from jobyard.spark.pipeline.run import run_from
from tests.support.lake.lives import YARD, Lives
from tests.support.lake.memory import MemoryEvents, everything
from tests.support.lake.oracle import Oracle

SLO = """
window_days = 1
[objectives.quick]
queues = ["mails", "orders-*"]
wait_ms = 1000
target = 0.9
[objectives.done]
queues = ["*"]
total_ms = 60000
target = 0.5
"""
OBJECTIVES = [
    {"name": "quick", "queues": "mails|orders-.*", "wait_ms": 1000, "target": 0.9},
    {"name": "done", "queues": ".*", "total_ms": 60_000, "target": 0.5},
]


def lived(seed: int, steps: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return Lives(chance.randrange).live(steps)


def assert_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]], name: str) -> None:
    keys = sorted(wanted[0]) if wanted else []
    left = sorted(_text(row, keys) for row in found)
    right = sorted(_text(row, keys) for row in wanted)
    # A few lines of what differs say more than both tables.
    assert [row for row in left if row not in right][:3] == [
        row for row in right if row not in left
    ][:3], name
    assert left == right, name


def _text(row: dict[str, Any], keys: list[str]) -> str:
    """Return a row as a text: times in one zone, and numbers as far as a float is exact."""
    plain = {}
    for key in keys:
        value = row[key]
        if isinstance(value, float):
            value = float(f"{value:.9g}")
        plain[key] = value.isoformat() if isinstance(value, datetime) else value
    return str(plain)


def assert_as_oracle(tables: dict[str, list[dict[str, Any]]], events: list[Any]) -> None:
    oracle = Oracle(events, YARD)
    for name, wanted in {
        "attempts": oracle.attempts,
        "jobs": oracle.jobs,
        "queue_minute": oracle.queue_minute(),
        "worker_minute": oracle.worker_minute(),
        "dlq_reason_minute": oracle.dlq_reason_minute(),
        "slo": oracle.slo(OBJECTIVES, 1),
    }.items():
        assert_same(tables[name], wanted, name)


@pytest.fixture
def slo(tmp_path: Path) -> Path:
    path = tmp_path / "slo.toml"
    path.write_text(SLO)
    return path


def take(spark: SparkSession, lake: Path, events: list[Any], cuts: list[int], slo: Path) -> Any:
    source = MemoryEvents(events)
    for cut in [*cuts, source.head]:
        source.head = cut
        run_from(source, spark, lake=lake, slo=slo)
    return everything(lake)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_tables_are_those_of_the_oracle(
    spark: SparkSession, tmp_path: Path, slo: Path, seed: int
) -> None:
    events = lived(seed, 400)
    tables = take(spark, tmp_path / "lake", events, [], slo)
    assert len(tables["events"]) == len(events)
    assert_as_oracle(tables, events)


@settings(
    max_examples=4, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    seed=st.integers(0, 10_000),
    shares=st.lists(st.floats(0.02, 0.98), min_size=1, max_size=3),
    lost=st.sampled_from((0, 30)),
)
def test_any_cut_has_the_same_tables(
    spark: SparkSession, tmp_path: Path, slo: Path, seed: int, shares: list[float], lost: int
) -> None:
    events = lived(seed, 120)
    # The lake may have begun after some of the jobs.
    events = events[lost:]
    head = events[-1]["seq"]
    cuts = sorted({math.floor(share * head) for share in shares} - {0})
    lake = tmp_path / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    assert_as_oracle(take(spark, lake, events, cuts, slo), events)


def test_another_yard_does_not_disturb(spark: SparkSession, tmp_path: Path, slo: Path) -> None:
    """Two yards have jobs of the same numbers in the same minutes."""
    mine, theirs = MemoryEvents(lived(5, 150)), MemoryEvents(lived(6, 150), "yard-2")
    lake, alone = tmp_path / "lake", tmp_path / "alone"
    for head in (mine.head // 2, mine.head):
        for source in (theirs, mine):
            source.head = min(head, source.all[-1]["seq"])
            run_from(source, spark, lake=lake, slo=slo)
    run_from(mine, spark, lake=alone, slo=slo)
    both = everything(lake)
    of_mine = {name: [row for row in rows if row["yard"] == YARD] for name, rows in both.items()}
    assert of_mine == everything(alone)


def test_a_backfill_and_a_check_find_the_same(
    spark: SparkSession, tmp_path: Path, slo: Path
) -> None:
    events = lived(7, 250)
    lake = tmp_path / "lake"
    before = take(spark, lake, events, [events[100]["seq"]], slo)
    assert check(lake) == []
    days = sorted({row["at"][0] for row in before["queue_minute"]})
    assert len(days) > 1
    result = backfill(spark, lake, days[0], days[-1], slo=slo)
    assert result.events == len(events)
    assert everything(lake) == before
    backfill(spark, lake, slo=slo)
    assert everything(lake) == before
    # A file that another hand has changed is found.
    tables = open_lake(lake).tables
    (_, path), *_ = tables.files(TABLES["queue_minute"])
    rows = pq.ParquetFile(path).read()
    wrong = pa.array([value + 1 for value in rows["claimed"].to_pylist()])
    at = rows.schema.get_field_index("claimed")
    pq.write_table(rows.set_column(at, "claimed", wrong), path)
    with pytest.raises(JobyardError, match="lake_damaged"):
        check(lake)


def test_a_run_without_news_needs_no_spark(spark: SparkSession, tmp_path: Path) -> None:
    source = MemoryEvents(lived(8, 20))
    lake = tmp_path / "lake"
    seen: list[object] = []
    result = run_from(source, lambda: spark, lake=lake, batch=25, progress=seen.append)
    assert result.batches == len([each for each in seen if isinstance(each, BatchDone)]) > 1
    assert result.rows == len(source.all)
    files = {path: path.stat().st_mtime_ns for path in lake.rglob("*")}

    def none() -> SparkSession:
        raise AssertionError("a run without news starts no session")

    again = run_from(source, none, lake=lake)
    assert (again.rows, again.batches, again.to_seq) == (0, 0, source.head)
    assert {
        path: at for path, at in files.items() if path.suffix == ".parquet"
    } == {
        path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet")
    }  # fmt: skip


def test_duckdb_counts_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """A second opinion, from files by path."""
    duckdb = pytest.importorskip("duckdb")
    lake = tmp_path / "lake"
    run_from(MemoryEvents(lived(9, 300)), spark, lake=lake)
    files = f"read_parquet('{lake}/{{}}/**/*.parquet', hive_partitioning = true)".format
    found = duckdb.sql(f"""
        WITH begun AS (
            SELECT queue, date_trunc('minute', claimed_at) AS minute, count(*) AS claimed,
                quantile_cont(wait_ms, 0.95) AS wait_p95
            FROM {files("attempts")} GROUP BY ALL
        ), ended AS (
            SELECT queue, date_trunc('minute', finished_at) AS minute,
                count(*) FILTER (outcome = 'completed') AS completed,
                quantile_cont(run_ms, 0.5) AS run_p50
            FROM {files("attempts")} WHERE finished_at IS NOT NULL GROUP BY ALL
        )
        SELECT count(*), count(*) FILTER (
            m.claimed != coalesce(b.claimed, 0) OR m.completed != coalesce(e.completed, 0)
            OR abs(coalesce(m.wait_p95, -1) - coalesce(b.wait_p95, -1)) > 1e-6
            OR abs(coalesce(m.run_p50, -1) - coalesce(e.run_p50, -1)) > 1e-6)
        FROM {files("queue_minute")} AS m
            LEFT JOIN begun AS b USING (queue, minute) LEFT JOIN ended AS e USING (queue, minute)
    """).fetchall()[0]
    assert found[0] > 20
    assert found[1] == 0
