"""A stream of claims and its sink as Spark drives them, with a checkpoint that outlives drivers.

A driver may die at the named points of a batch; the next one begins again from the checkpoint. What
a driver holds in memory is gone then, and nobody extends its leases.
"""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from jobyard.spark.fleet.calls import Calls, JobOutcome, RowCalls, as_columns
from jobyard.spark.fleet.columns import IDENTITY, arrow_schema, job_schema
from jobyard.spark.fleet.jobs import Backoff, Job
from jobyard.spark.fleet.options import ClaimOptions, EndOptions, claim_options, end_options
from jobyard.spark.fleet.sink import abort_ends, commit_ends, write_ends
from jobyard.spark.fleet.source import ClaimStreamReader
from tests.support.clients.spark import Row, read_batch
from tests.support.servers.http import HttpYard, Topics
from tests.support.values.pickled import sent

# Where a driver may die: after its claim, after Spark has noted the batch, after the tasks, and
# after the commit of the server.
CLAIMED, LOGGED, WORKED, COMMITTED = POINTS = ("claimed", "logged", "worked", "committed")


class DriverDied(Exception):
    """The driver ended at the point that a test named."""


@dataclass
class Checkpoint:
    """What Spark keeps of a query."""

    query: str = field(default_factory=lambda: str(uuid.uuid4()))
    offsets: list[Any] = field(default_factory=list)
    commits: int = 0


class FleetQuery:
    """One run of a query."""

    def __init__(
        self,
        url: str,
        queue: str,
        call: Callable[[Job], object] = lambda _: None,
        checkpoint: Checkpoint | None = None,
        *,
        lease_ms: int = 0,
        results: str = "",
        **options: str,
    ) -> None:
        given = {"url": url, "queue": queue, "worker": "w", "batch": "100", **options}
        claims: ClaimOptions = claim_options(given, None, 2)
        if lease_ms:
            claims = replace(claims, lease_ms=lease_ms)
        kept = {name: each for name, each in given.items() if name in ("url", "maxretries")}
        if results:
            kept["results"] = results
        self.ends: EndOptions = end_options(kept, None)
        self.reader = ClaimStreamReader(sent(claims), arrow_schema(job_schema()))
        self.checkpoint = checkpoint if checkpoint is not None else Checkpoint()
        self.calls: Calls = RowCalls(call, Backoff(), has_results=bool(results))
        # Handed to tasks, by micro-batch.
        self.read: list[list[int]] = []
        self.answers: list[Any] = []

    def run(self, dies_at: str = "", at_batch: int = -1) -> None:
        """Work until nothing is claimed any more; die at a point of a batch."""
        while self.step(dies_at if at_batch in (-1, len(self.checkpoint.offsets)) else ""):
            pass

    def step(self, dies_at: str = "") -> bool:
        """Do one micro-batch, a repeated one first; return whether there was one."""
        found = self.checkpoint
        if found.commits == len(found.offsets):
            start = found.offsets[-1] if found.offsets else self._initial()
            end = through_json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
            if end == start:
                return False
            self._reach(CLAIMED, dies_at)
            found.offsets.append(end)
        self._reach(LOGGED, dies_at)
        start = found.offsets[-2] if len(found.offsets) > 1 else self._initial()
        written = self.tasks(start, found.offsets[-1])
        self._reach(WORKED, dies_at)
        try:
            answer = commit_ends(self.ends, written)
        except Exception:
            abort_ends(self.ends, written)
            raise
        self.answers.append(None if answer is None else answer.fields)
        self._reach(COMMITTED, dies_at)
        found.commits += 1
        return True

    def tasks(self, start: Any, end: Any) -> list[Any]:
        """Run the tasks of a batch as far as the commit; each pickled as Spark does it."""
        written = []
        self.read.append([])
        for part, partition in enumerate(self.reader.partitions(start, end)):
            copy = sent(self.reader)
            rows = list(copy.read(sent(partition)))
            worked = [work_on(self.calls, one) for one in rows]
            for one in rows:
                self.read[-1] += one.column("seq").to_pylist()
            txn = f"{self.checkpoint.query}:{end['n']}"
            written.append(sent(write_ends(self.ends, txn, part, iter(worked))))
        return written

    def report(self) -> Any:
        return through_json(self.reader.reportLatestOffset())

    def stop(self) -> None:
        self.reader.stop()

    def _initial(self) -> Any:
        return through_json(self.reader.initialOffset())

    def _reach(self, point: str, dies_at: str) -> None:
        if point == dies_at:
            self.stop()
            raise DriverDied(point)


def work_on(calls: Calls, jobs: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows for the sink."""
    found = [
        each if isinstance(each, pa.RecordBatch) else as_columns([each])
        for each in calls.outcomes(jobs, lambda _: None)
    ]
    assert all(isinstance(each, JobOutcome | pa.RecordBatch) for each in found)
    whole = pa.Table.from_batches(found).combine_chunks().to_batches()[0]
    kept = jobs.select(list(IDENTITY))
    return pa.RecordBatch.from_arrays(
        [*kept.columns, *whole.columns], names=[*IDENTITY, *whole.schema.names]
    )


def through_json(form: Any) -> Any:
    """Return what a checkpoint keeps."""
    return json.loads(json.dumps(form))


def make_queue(topics: Topics, queue: str, count: int, **config: Any) -> None:
    """Make a queue with jobs whose data are the numbers from 0."""
    assert topics.ask("PUT", f"/v0/topics/{queue}", {"type": "queue", **config})[0] in (200, 201)
    put(topics, queue, count)


def put(topics: Topics, queue: str, count: int) -> None:
    """Put jobs whose data are the numbers from 0."""
    if count:
        records = [{"data": at} for at in range(count)]
        assert topics.ask("POST", f"/v0/topics/{queue}", {"records": records})[0] == 200


def counts(topics: Topics, queue: str) -> tuple[int, int, int]:
    """Return how many jobs are ready, leased, and delayed."""
    found = topics.ask("GET", f"/v0/topics/{queue}")[1]["queue"]
    return found["ready"], found["in_flight"], found["delayed"]


def ledger(yard: HttpYard, queue: str) -> dict[int, list[str]]:
    """Return how the runs of each job ended, by its number, as the server's history tells it."""
    names = "event queue queue_seq"
    found: dict[int, list[str]] = {}
    rows: list[Row] = read_batch(yard.url, names, topic="_events")
    for row in rows:
        if row["queue"] == queue and row["event"] not in ("enqueued", "claimed"):
            found.setdefault(row["queue_seq"], []).append(row["event"])
    return found


def all_done_once(yard: HttpYard, queue: str, count: int) -> None:
    """Check that each of the jobs was done, exactly once."""
    found = ledger(yard, queue)
    done = {seq: ends.count("completed") for seq, ends in found.items()}
    assert done == dict.fromkeys(range(1, count + 1), 1)
