"""A yard as a data source of Spark, through PySpark: `format("jobyard")`.

The only package that imports pyspark, and of ours it imports the client alone. Readers run on the
driver and on executors, so everything that passes between them can be pickled and holds no token.
"""

try:
    import pyarrow as pa  # noqa: F401  its absence is explained before anything else fails
    import pyspark  # noqa: F401  likewise
except ModuleNotFoundError as _fault:
    raise ImportError(
        f"jobyard.spark needs {_fault.name}: pip install 'jobyard[spark]'", name=_fault.name
    ) from None

from jobyard.client.errors import JobyardError
from jobyard.spark.archive.replay import ReplayResult, replay
from jobyard.spark.enqueue import EnqueueResult, enqueue
from jobyard.spark.fleet.jobs import Backoff, Bury, Job, Retry
from jobyard.spark.fleet.work import work
from jobyard.spark.mirror import mirror
from jobyard.spark.raising import error_of
from jobyard.spark.session import register, session
from jobyard.spark.source import FORMAT, JobyardSource

__all__ = [
    "FORMAT",
    "Backoff",
    "Bury",
    "EnqueueResult",
    "Job",
    "JobyardError",
    "JobyardSource",
    "ReplayResult",
    "Retry",
    "enqueue",
    "error_of",
    "mirror",
    "register",
    "replay",
    "session",
    "work",
]
