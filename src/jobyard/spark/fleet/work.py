"""`work`: a function runs on the jobs of a queue, on all executors of a Spark session.

A stream of claims, the function in child processes of the tasks, and the sink that ends the runs.
Runs end exactly once; the function may be called more than once for a job. Nothing that the
function does ends the query: what it raises and what ends its process are ends of runs.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
from pyspark.sql.utils import is_remote

from jobyard.client import JobyardError
from jobyard.client.calls import topic_path
from jobyard.client.errors import bad_option
from jobyard.spark.fleet.calls import BatchCalls, Calls, RowCalls
from jobyard.spark.fleet.child import Child
from jobyard.spark.fleet.claims import WorkerClaims
from jobyard.spark.fleet.columns import IDENTITY
from jobyard.spark.fleet.isolation import IsolatedWork
from jobyard.spark.fleet.jobs import Backoff, OnError
from jobyard.spark.fleet.options import BATCH, LEASE_MS, ClaimOptions, claim_options, end_options
from jobyard.spark.options import cores, take_token
from jobyard.spark.write.refusals import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

REPLAYS_MAX: Final = 3
# What a task says of each job.
_WORKED: Final = (
    "queue string, worker string, epoch bigint, claim string, seq bigint, lease_id string, "
    "_status string, _delay_ms bigint, _error string, _result binary"
)
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
# Options that both ends of the stream have, as Spark lowers them.
_SHARED: Final = frozenset({"url", "token", "tokenenv", "tokenfile", "timeoutms", "maxretries"})


def work(  # noqa: PLR0913  each has a default, and a name that callers write
    spark: "SparkSession",
    queue: str,
    worker: str,
    handler: Callable[..., object],
    *,
    batch: int = BATCH,
    lease_ms: int = LEASE_MS,
    results: str | None = None,
    trigger: Mapping[str, object] | str | None = None,
    max_claim_replays: int = REPLAYS_MAX,
    on_error: OnError | None = None,
    vectorized: bool = False,
    checkpoint: str | None = None,
    **options: object,
) -> "StreamingQuery":
    """Start to work on a queue, and return the query.

    `handler` gets a `Job`, or with `vectorized` an Arrow batch of jobs, and returns a result, or
    `Retry` or `Bury`; what it raises is up to `on_error`. `results` names the topic of the results.
    `trigger` is as for `DataStreamWriter.trigger`, or the text of a `processingTime`. `options` are
    those of the format: `url`, `token` and so on.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    given = {
        "minpartitions": str(_tasks(spark)), **given,
        "queue": queue, "worker": worker, "batch": str(batch), "leasems": str(lease_ms),
    }  # fmt: skip
    shared = {name: value for name, value in given.items() if name in _SHARED}
    ending = {**shared, "results": results} if results is not None else shared
    rest, token = take_token(given)
    claims = claim_options(rest, token, cores())
    end_options(take_token(ending)[0], token)
    if not 0 <= max_claim_replays <= 1000:
        raise bad_option("max_claim_replays", f"{max_claim_replays} is not between 0 and 1000")
    _check_server(claims, results)
    kind = BatchCalls if vectorized else RowCalls
    calls = kind(handler, on_error or Backoff(), has_results=results is not None)
    jobs = spark.readStream.format("jobyard").options(**given).load()
    worked = jobs.mapInArrow(FleetTask(calls, max_claim_replays), _WORKED)
    writer = worked.writeStream.format("jobyard").options(**ending)
    if checkpoint is None and not spark.conf.get(_CHECKPOINTS, ""):
        checkpoint = Path(tempfile.mkdtemp(prefix="jobyard-work-")).as_uri()
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if trigger is not None:
        named = {"processingTime": trigger} if isinstance(trigger, str) else dict(trigger)
        writer = writer.trigger(**named)
    return writer.start()


@final
class FleetTask:
    """The function, as Spark calls it in each task."""

    def __init__(self, calls: Calls, replays_max: int) -> None:
        self._calls = calls
        self._replays_max = replays_max

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what is to become of each job."""
        isolated = IsolatedWork(lambda: Child(self._calls), self._replays_max)
        try:
            for batch in batches:
                done = 0
                for found in isolated.outcomes(batch):
                    jobs = batch.slice(done, found.num_rows).select(list(IDENTITY))
                    done += found.num_rows
                    yield pa.RecordBatch.from_arrays(
                        [*jobs.columns, *found.columns],
                        names=[*IDENTITY, *found.schema.names],
                    )
            isolated.close()
        finally:
            # Does nothing if all was done.
            isolated.kill()


def _tasks(spark: "SparkSession") -> int:
    """Return how many tasks run at once, as far as a client can know."""
    return cores() if is_remote() else int(spark.sparkContext.defaultParallelism)


def _check_server(claims: ClaimOptions, results: str | None) -> None:
    """Refuse what cannot succeed, before Spark plans anything."""
    with claims.connecting.client() as client:
        calls = WorkerClaims(client, claims)
        calls.ready()
        calls.check_size()
        if results is not None:
            try:
                client.get(topic_path(results))
            except JobyardError as error:
                raise explained(error.within(option="results"), results) from None
