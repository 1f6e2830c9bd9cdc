"""A driver that is killed in the middle of a stream, and begins again from its checkpoint."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.servers.http import HttpYard, Topics

# The start of a JVM on a machine with other things to do.
RUN_S = 600
# It kills itself when a task has the row that it is told; 0 for none.
PROGRAM = """
import os
import signal
import sys

import jobyard.spark

url, folder, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = jobyard.spark.session(**{"spark.master": "local[2]", "spark.ui.enabled": False})
driver = spark._jvm.java.lang.ProcessHandle.current().pid()


def watch(batches):
    for batch in batches:
        if last in batch.column("seq").to_pylist():
            os.kill(driver, signal.SIGKILL)
        yield batch


stream = (
    spark.readStream.format("jobyard").option("url", url).option("topic", "killed")
    .option("startingOffsets", "-500").option("maxOffsetsPerTrigger", 100).load()
)
query = (
    stream.select("seq").mapInArrow(watch, "seq long").writeStream.format("parquet")
    .option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
found = spark.read.parquet(f"{folder}/out")
print(*found.selectExpr("count(*)", "count(distinct seq)", "min(seq)", "max(seq)").first())
spark.stop()
"""


def run(url: str, folder: Path, last: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, url, str(folder), str(last)],
        capture_output=True, text=True, timeout=RUN_S, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
    )  # fmt: skip


def test_a_driver_that_was_killed_goes_on_from_its_checkpoint(
    yard: HttpYard, tmp_path: Path
) -> None:
    topics = Topics(yard.address)

    def write(count: int) -> None:
        records = {"records": [{"data": 1}] * count}
        assert topics.ask("POST", "/v0/topics/killed", records)[0] < 300

    write(500)
    # In the first batch with rows: the newest 500 are others when Spark asks again.
    assert run(yard.url, tmp_path, 1).returncode != 0
    write(50)
    # In the middle of a later one.
    assert run(yard.url, tmp_path, 250).returncode != 0
    write(50)
    done = run(yard.url, tmp_path, 0)
    topics.close()
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == ["600", "600", "1", "600"]
