"""Batches of events through Spark: any cut has the same tables, and they are the oracle's."""

import math
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from jobyard.client import JobyardError
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
    left = sorted(str(sorted(_rounded(row, keys).items())) for row in found)
    right = sorted(str(sorted(_rounded(row, keys).items())) for row in wanted)
    assert left == right, name


def _rounded(row: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    return {
        key: float(f"{row[key]:.9g}") if isinstance(row[key], float) else row[key] for key in keys
    }


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
    late=st.booleans(),
)
def test_any_cut_has_the_same_tables(
    spark: SparkSession, tmp_path: Path, slo: Path, seed: int, shares: list[float], late: bool
) -> None:
    events = lived(seed, 120)
    if late:
        # The lake began after some of the jobs.
        events = events[30:]
    head = events[-1]["seq"]
    cuts = sorted({math.floor(share * head) for share in shares} - {0})
    lake = tmp_path / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    assert_as_oracle(take(spark, lake, events, cuts, slo), events)
