"""`python -m bench.spark_jobs`: one Spark session, and one measurement for each line of stdin.

A line is `{"job": NAME, ...}` with the arguments of that job, and the answer is one line of
figures. What else is printed, by Spark or by anything that Spark starts, goes to stderr.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from bench.spark_jobs import reads, streams, writes
from bench.spark_jobs.saved import SavedSource, save_exports
from jobyard.spark import session

Seen = dict[str, float]
SETTINGS: Final = {
    "spark.master": "local[2]",
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.log.level": "ERROR",
}
JOBS: Final[dict[str, Callable[..., Seen]]] = {
    "make_bodies": writes.make_bodies,
    "write": writes.write,
    "plain_send": writes.plain_send,
    "count": reads.count,
    "read": reads.read,
    "keep": reads.keep,
    "save_exports": save_exports,
    "drain": streams.drain,
    "micro_batches": streams.micro_batches,
    "rate_batches": streams.rate_batches,
}


def main() -> None:
    """Serve until stdin ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        # For this process and for all that it starts.
        os.dup2(2, 1)
        spark = session("jobyard-bench", **SETTINGS)
        spark.dataSource.register(SavedSource)
        _answer(answers.fileno(), {"is_ready": 1.0})
        try:
            for line in sys.stdin:
                asked = json.loads(line)
                _answer(answers.fileno(), JOBS[asked.pop("job")](spark, **asked))
        finally:
            _end(spark)


def _answer(file: int, seen: Seen) -> None:
    os.write(file, (json.dumps(seen) + "\n").encode())


def _end(spark: SparkSession) -> None:
    """End Java and wait for it: only then its processor time counts as this run's own."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001  no other way to reach the process
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
