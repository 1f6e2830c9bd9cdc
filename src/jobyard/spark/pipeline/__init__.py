"""The pipeline of a lake on Spark: events of jobs become runs, jobs and minutes.

Fills the tables of `jobyard.lake.schemas` from the history of a yard. Uses Spark's SQL and nothing
of its JVM behind it, so a session of Spark Connect will do; runs no Python code per row.
"""

from jobyard.spark.pipeline.backfill import BackfillResult, backfill
from jobyard.spark.pipeline.check import Difference, check
from jobyard.spark.pipeline.progress import BatchDone, Event, Listener, Lost, Started
from jobyard.spark.pipeline.run import RunResult, run

__all__ = [
    "BackfillResult",
    "BatchDone",
    "Difference",
    "Event",
    "Listener",
    "Lost",
    "RunResult",
    "Started",
    "backfill",
    "check",
    "run",
]
