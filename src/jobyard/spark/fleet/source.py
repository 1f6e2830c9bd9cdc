"""A stream of claims: each micro-batch is one claim set of a worker.

The driver's part lives in one process for the whole query. It claims when Spark asks how far the
stream goes, and keeps the leases until Spark asks again, which it does when the batch is done. The
number of a set follows from the one before, so a driver that was killed after a claim and begins
again finds the same jobs under the same leases. Tasks read the set from the server, each its range
of seqs; what has ended or was lost meanwhile is not in it.
"""

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from jobyard.client import JobyardError
from jobyard.spark.fleet import outcomes
from jobyard.spark.fleet.claims import ClaimedSet, WorkerClaims, read_set
from jobyard.spark.fleet.columns import job_rows
from jobyard.spark.fleet.keeping import LOG, LeaseKeeper
from jobyard.spark.fleet.offsets import ClaimOffset, Form, parse_offset
from jobyard.spark.fleet.options import ClaimOptions
from jobyard.spark.fleet.outcomes import Outcome
from jobyard.spark.raising import raised_short, rows_raised_short

# How long the server keeps a claim for a job, and how far apart claims without one begin. A query
# that is stopped ends with that call at the latest.
IDLE_MS: Final = 1000
# Sets in a row of which no job is left; a driver that was killed leaves one at most.
_LOST_SETS_MAX: Final = 1000


class SetRange(NamedTuple):
    """The jobs of one task: those of a set within a range of seqs, both included."""

    at: ClaimOffset
    epoch: int
    first_seq: int
    last_seq: int


@final
class SetPartition(InputPartition):
    """A range of a claim set, for one task."""

    def __init__(self, wanted: SetRange) -> None:
        super().__init__(None)
        self.wanted = wanted


class ClaimStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query: the driver's part, and how tasks read."""

    def __init__(self, options: ClaimOptions, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema
        self._driver: ClaimDriver | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_driver": None}

    @raised_short
    def initialOffset(self) -> Form:  # noqa: N802  Spark's names, here and below
        """Return the place before all claims, which is the same for every query."""
        return ClaimOffset(self.options.queue, self.options.worker).form()

    @raised_short
    def latestOffset(self, start: Form, limit: ReadLimit) -> Form:  # noqa: N802, ARG002
        """Claim the next set; the start itself if there is no job."""
        # First of all: a query that cannot go on must not shut out another one.
        begin = self._parsed(start)
        return self._drive().claim_next(begin).form()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit of Spark's: a claim has its own."""
        return ReadAllAvailable()

    @raised_short
    def reportLatestOffset(self) -> Form | None:  # noqa: N802
        """Return what was claimed and what became of it, for the progress of the query."""
        return None if self._driver is None else self._driver.report()

    @raised_short
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember how many jobs are ready now: this run claims no more."""
        self._drive().set_target()

    @raised_short
    def partitions(self, start: Form, end: Form) -> list[InputPartition]:  # noqa: ARG002  the end says it all
        """Return what the tasks of a batch read."""
        wanted = self._parsed(end)
        return [SetPartition(each) for each in self._drive().ranges(wanted)]

    @rows_raised_short
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the jobs of one partition."""
        assert isinstance(partition, SetPartition)
        wanted = partition.wanted
        connecting = self.options.connecting
        with connecting.client() as client:
            found = read_set(client, wanted.at, connecting.retries_max)
        rows = within(found, wanted)
        if rows.num_rows > 0:
            yield job_rows(rows, wanted.at, wanted.epoch, self.schema)

    @raised_short
    def commit(self, end: Form) -> None:
        """Do nothing: the sink has ended the runs of the batch, and Spark calls this later."""

    def stop(self) -> None:
        """Extend no more, and close the connection."""
        if self._driver is not None:
            self._driver.close()

    def _parsed(self, form: Form) -> ClaimOffset:
        return parse_offset(form, self.options.queue, self.options.worker)

    def _drive(self) -> "ClaimDriver":
        if self._driver is None:
            self._driver = ClaimDriver(self.options)
        return self._driver


@final
class ClaimDriver:
    """The claims of one query, from its begin to its end."""

    def __init__(self, options: ClaimOptions) -> None:
        self._options = options
        self._client = options.connecting.client()
        self._claims = WorkerClaims(self._client, options)
        try:
            # Everything that can be known before work begins.
            self._ready = self._claims.ready()
            self._claims.check_size()
            self._epoch = self._claims.begin()
        except JobyardError:
            self._client.close()
            raise
        outcomes.clean()
        # The set of the present batch, while its leases are kept.
        self._at: ClaimOffset | None = None
        self._seqs: list[int] = []
        self._keeper: LeaseKeeper | None = None
        # When a claim without a job began last.
        self._idle_s = -1e9
        # How many jobs a run with the trigger availableNow may still claim; -1 for any number.
        self._target = -1
        self._claimed = 0
        self._outcome = Outcome()
        # When the last batch was done.
        self._left_ms = options.lease_ms

    def close(self) -> None:
        """Extend no more, and close the connection."""
        try:
            self._release()
        finally:
            self._client.close()

    def set_target(self) -> None:
        """Remember how many jobs are ready now."""
        self._target = self._ready = self._claims.ready()

    def claim_next(self, start: ClaimOffset) -> ClaimOffset:
        """Return the set after `start`, or `start` if there is no job; `start` is done."""
        if start.series == 0:
            # In a batch without jobs, so that the checkpoint has the series before the first claim:
            # a driver that is killed after that claim finds it again.
            return start._replace(series=self._epoch)
        self._release()
        at = start
        for _ in range(_LOST_SETS_MAX):
            at = at._replace(number=at.number + 1)
            found = self._claim(at)
            if found.seqs:
                self._keep(at, found.seqs)
                return at._replace(jobs=len(found.seqs))
            if not found.is_known:
                return start
            # A driver before this one claimed it and came no further; its leases have ended.
        return start

    def _claim(self, at: ClaimOffset) -> ClaimedSet:
        most = self._options.batch
        # A set of a driver before this one is not among the jobs that are ready.
        is_earlier = self._target >= 0 and self._claimed == 0 and self._claims.extend(at) > 0
        if self._target >= 0 and not is_earlier:
            most = min(most, self._target)
            if most == 0:
                return ClaimedSet([], is_known=False, left_out=0, ready=self._ready)
        left_s = self._idle_s + IDLE_MS / 1000 - time.monotonic()
        if left_s > 0 and self._target < 0:
            # The server answered sooner than asked: a paused queue, or a job that another got.
            time.sleep(left_s)
        begun_s = time.monotonic()
        found = self._claims.claim(at, most, IDLE_MS if self._target < 0 else 0)
        self._ready = found.ready
        if not found.seqs:
            self._idle_s = begun_s
        if found.is_known:
            self._lose(at, found.left_out)
            if found.seqs:
                self._claims.extend(at)
        if self._target >= 0 and not found.is_known:
            self._target -= min(self._target, len(found.seqs))
        return found

    def ranges(self, end: ClaimOffset) -> list[SetRange]:
        """Return the parts of a set, one for each task."""
        if end.jobs == 0:
            return []
        if self._at is None or self._at.claim_id != end.claim_id:
            self._take_up(end)
        seqs = self._seqs
        if not seqs:
            return []
        count = min(self._options.partitions, len(seqs))
        cuts = [len(seqs) * each // count for each in range(count + 1)]
        return [
            SetRange(end, self._epoch, seqs[begin], seqs[stop - 1])
            for begin, stop in pairwise(cuts)
        ]

    def _take_up(self, end: ClaimOffset) -> None:
        """Take up the set of a batch that an earlier driver began: what is left of it."""
        self._release()
        # First of all: from here on nobody else gets these jobs.
        left = self._claims.extend(end)
        seqs: list[int] = []
        if left > 0:
            found = read_set(self._client, end, self._options.connecting.retries_max)
            seqs = found.column("seq").to_pylist()
        self._lose(end, end.jobs - len(seqs))
        self._keep(end, seqs)

    def report(self) -> Form:
        """Return what was claimed since the query began, and what became of it.

        Spark asks before a batch runs, so it shows what became of the batches before.
        """
        self._look()
        return {
            "claim": "" if self._at is None else self._at.claim_id,
            "claimed": self._claimed,
            **self._outcome.form(),
            "ready": self._ready,
            "lease_left_ms": self._left_ms,
        }

    def _keep(self, at: ClaimOffset, seqs: list[int]) -> None:
        self._at = at
        self._seqs = sorted(seqs)
        self._claimed += len(seqs)
        if seqs:
            self._keeper = LeaseKeeper(self._options, self._epoch, at, time.monotonic())
            self._keeper.start()

    def _release(self) -> None:
        """Extend the last set no more; raise what ended its extension, if that ends the query."""
        self._look()
        if self._seqs:
            # No row of it reached the sink, or what the sink left cannot be read.
            self._outcome.skipped["not_told"] += len(self._seqs)
        keeper, self._keeper = self._keeper, None
        self._at, self._seqs = None, []
        if keeper is not None:
            self._left_ms = keeper.left_ms()
            keeper.stop()
            if keeper.fault is not None:
                raise keeper.fault

    def _look(self) -> None:
        """Count what became of the last set, once that is known."""
        if self._at is not None:
            found = outcomes.take(self._options.connecting.url, self._at.claim_id)
            if found is not None:
                self._outcome.add(found)
                told = found.ended.total() + found.skipped.total()
                # They ended or were lost after the claim and before a task read them.
                if len(self._seqs) > told:
                    self._outcome.skipped["not_read"] += len(self._seqs) - told
                self._seqs = []

    def _lose(self, at: ClaimOffset, count: int) -> None:
        """Count jobs of a set that ended, or went to others, before this driver could begin."""
        if count > 0:
            LOG.warning("%d jobs of claim %s have ended or were lost", count, at.claim_id)
            self._outcome.skipped["gone_before"] += count


def within(found: pa.RecordBatch, wanted: SetRange) -> pa.RecordBatch:
    """Return the jobs of a set within a range; the set is in rising order of seqs."""
    seqs = found.column("seq").to_pylist()
    begin = next((at for at, seq in enumerate(seqs) if seq >= wanted.first_seq), len(seqs))
    stop = next((at for at, seq in enumerate(seqs) if seq > wanted.last_seq), len(seqs))
    return found.slice(begin, stop - begin)
