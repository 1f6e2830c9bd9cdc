"""A run that is killed at a named point, and one after it that ends or undoes what it left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobyard.spark.pipeline.run import run_from
from tests.support.lake.lives import Lives
from tests.support.lake.memory import MemoryEvents, everything

# The start of a JVM on a machine with other things to do.
RUN_S = 300
SEED = 11
STEPS = 120
PROGRAM = """
import os
import random
import signal
import sys
from pathlib import Path

import jobyard.spark
from jobyard.lake.disk import Disk
from jobyard.lake.parquet import ParquetTables
from jobyard.spark.pipeline.batch import Staging
from jobyard.spark.pipeline.run import run_from
from tests.support.lake.lives import Lives
from tests.support.lake.memory import MemoryEvents

lake, point, number, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
spots = {
    "bronze": (Staging, "add"), "staging": (Staging, "replace"),
    "before": (ParquetTables, "commit"), "within": (Disk, "rename"),
    "after": (ParquetTables, "commit"),
}
place, name = spots[point]
whole = getattr(place, name)
calls = 0


def dying(*args, **kwargs):
    global calls
    calls += 1
    if point == "before" and calls == number:
        os.kill(os.getpid(), signal.SIGKILL)
    found = whole(*args, **kwargs)
    if calls == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return found


setattr(place, name, dying)
settings = {"spark.master": "local[2]", "spark.ui.enabled": False}
spark = jobyard.spark.session(**settings, **{"spark.sql.shuffle.partitions": 2})
events = Lives(random.Random(SEED).randrange).live(STEPS)
run_from(MemoryEvents(events), spark, lake=Path(lake), batch=batch)
""".replace("SEED", str(SEED)).replace("STEPS", str(STEPS))


@pytest.fixture(scope="module")
def events() -> MemoryEvents:
    import random  # noqa: PLC0415  as the program draws them

    return MemoryEvents(Lives(random.Random(SEED).randrange).live(STEPS))


@pytest.fixture(scope="module")
def wanted(
    spark: SparkSession, events: MemoryEvents, tmp_path_factory: pytest.TempPathFactory
) -> object:
    lake = tmp_path_factory.mktemp("whole") / "lake"
    run_from(events, spark, lake=lake)
    return everything(lake)


@pytest.mark.parametrize(
    ("point", "number"),
    # In the second batch: bronze is staged; half of silver and gold; all of it; some of the files
    # are in their places; all are.
    [("bronze", 2), ("staging", 8), ("before", 2), ("within", 30), ("after", 2)],
)
def test_a_run_that_was_killed_is_ended_or_undone(
    spark: SparkSession, events: MemoryEvents, wanted: object, tmp_path: Path, point: str,
    number: int,
) -> None:  # fmt: skip
    lake = tmp_path / "lake"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(lake), point, str(number), str(events.head // 2)],
        capture_output=True, text=True, timeout=RUN_S, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]
    run_from(events, spark, lake=lake)
    assert everything(lake) == wanted
