"""Calls a user's function with jobs, and says of each job what is to become of it.

Runs in the process in which the function may do harm. Every exception of the function becomes the
end of a run; nothing else is caught.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, final

import pyarrow as pa

from jobyard.spark.fleet.columns import COLUMNS, FIXED
from jobyard.spark.fleet.ends import ACK, BURY, DELAY_MS_MAX, NACK, STATUSES, cut_error
from jobyard.spark.fleet.jobs import Bury, Job, OnError, Retry, error_text
from jobyard.spark.write.records import VALUE_MAX

OUTCOMES: Final = pa.schema(
    [
        ("_status", pa.string()),
        ("_delay_ms", pa.int64()),
        ("_error", pa.string()),
        ("_result", pa.binary()),
    ]
)


class JobOutcome(NamedTuple):
    """What is to become of one job."""

    status: str
    delay_ms: int | None = None
    error: str | None = None
    result: bytes | None = None


class Calls(Protocol):
    """One way to call a function with the jobs of a batch."""

    def outcomes(
        self, batch: pa.RecordBatch, begin: Callable[[int], None]
    ) -> Iterator[JobOutcome | pa.RecordBatch]:
        """Yield outcomes, one by one or as columns, in the order of the jobs.

        `begin` is called with the place of a job before its function is.
        """


class _Raised:
    """Takes what a user's function raises.

    Whatever class it is of: a job must not end the work on others. What is no Exception, such as
    SystemExit, ends the process.
    """

    error: Exception | None = None

    def __enter__(self) -> "_Raised":
        self.error = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False


@final
class RowCalls:
    """Calls the function with one job at a time."""

    def __init__(
        self, function: Callable[[Job], object], on_error: OnError, *, has_results: bool
    ) -> None:
        self._function = function
        self._rule = _Rule(on_error)
        self._has_results = has_results

    def outcomes(
        self, batch: pa.RecordBatch, begin: Callable[[int], None]
    ) -> Iterator[JobOutcome | pa.RecordBatch]:
        """Yield the outcome of each job."""
        raised = _Raised()
        for place, job in enumerate(jobs_of(batch)):
            begin(place)
            with raised:
                outcome = meant(self._function(job), has_results=self._has_results)
            yield outcome if raised.error is None else self._rule.outcome(raised.error, job)


@final
class BatchCalls:
    """Calls the function with a whole batch."""

    def __init__(
        self, function: Callable[[pa.RecordBatch], object], on_error: OnError, *, has_results: bool
    ) -> None:
        self._function = function
        self._rule = _Rule(on_error)
        self._has_results = has_results

    def outcomes(
        self, batch: pa.RecordBatch, begin: Callable[[int], None]
    ) -> Iterator[JobOutcome | pa.RecordBatch]:
        """Yield what the function says of all jobs; if it raises, all have raised."""
        raised = _Raised()
        if batch.num_rows == 1:
            # Nobody else can be meant, if the process ends.
            begin(0)
        with raised:
            found = list(self._each(self._function(batch), batch.num_rows))
        if raised.error is not None:
            found = [self._rule.outcome(raised.error, job) for job in jobs_of(batch)]
        yield from found

    def _each(self, said: object, count: int) -> Iterator[JobOutcome | pa.RecordBatch]:
        if said is None or isinstance(said, Retry | Bury):
            yield from [meant(said, has_results=False)] * count
        elif isinstance(said, pa.RecordBatch | pa.Table):
            yield _columns(said, count)
        elif isinstance(said, Sequence) and not isinstance(said, str | bytes):
            if len(said) != count:
                raise ValueError(f"the function returned {len(said)} results for {count} jobs")
            for one in said:
                yield meant(one, has_results=self._has_results)
        else:
            raise TypeError(
                f"the function returned {type(said).__name__}; for a batch it returns None, Retry, "
                "Bury, a list with one result for each job, or a RecordBatch with _status"
            )


def meant(said: object, *, has_results: bool) -> JobOutcome:
    """Return the outcome that a result of a function means."""
    if isinstance(said, Retry):
        _check_delay(said)
        delay_ms = None if said.delay_ms is None else int(said.delay_ms)
        return JobOutcome(NACK, delay_ms, cut_error(said.reason) or None)
    if isinstance(said, Bury):
        return JobOutcome(BURY, None, cut_error(said.reason) or None)
    if said is None or not has_results:
        return JobOutcome(ACK)
    data = said if isinstance(said, bytes) else json.dumps(said, allow_nan=False).encode()
    if len(data) > VALUE_MAX:
        raise ValueError(f"the result is {len(data)} bytes long, and must be at most {VALUE_MAX}")
    return JobOutcome(ACK, result=data)


def as_columns(found: list[JobOutcome]) -> pa.RecordBatch:
    """Return outcomes as columns."""
    arrays = [
        pa.array(values, kind.type)
        for values, kind in zip(zip(*found, strict=True), OUTCOMES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTCOMES)


def jobs_of(batch: pa.RecordBatch) -> Iterator[Job]:
    """Yield the rows of a batch as jobs."""
    columns: list[list[Any]] = []
    for name in COLUMNS:
        column = batch.column(name)
        if name == "ts":
            # As numbers: a time is made where one is asked for.
            columns.append(column.cast(pa.int64()).to_pylist())
        elif name == "headers":
            columns.append([dict(one) if one else {} for one in column.to_pylist()])
        elif name in FIXED:
            # The same in all jobs of a claim.
            columns.append([column[0].as_py()] * len(column) if len(column) else [])
        else:
            columns.append(column.to_pylist())
    return map(Job, *columns)


@final
class _Rule:
    """What becomes of jobs that raise."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error

    def outcome(self, error: Exception, job: Job) -> JobOutcome:
        """Return the outcome of a job that raised."""
        verdict: object = self._on_error
        if callable(verdict):
            raised = _Raised()
            with raised:
                verdict = verdict(error, job)
            if raised.error is not None:
                # The rule itself is wrong: say so, and lose nothing.
                error, verdict = raised.error, Retry()
        if not isinstance(verdict, Retry | Bury):
            error = TypeError(f"on_error returned {type(verdict).__name__}, not Retry or Bury")
            verdict = Retry()
        text = cut_error(verdict.reason or error_text(error))
        if isinstance(verdict, Bury):
            return JobOutcome(BURY, None, text)
        delay_ms = verdict.delay_ms
        return JobOutcome(NACK, None if delay_ms is None else _bounded(delay_ms), text)


def _bounded(delay_ms: int) -> int:
    return max(0, min(int(delay_ms), DELAY_MS_MAX))


def _check_delay(said: Retry) -> None:
    if said.delay_ms is not None and not 0 <= said.delay_ms <= DELAY_MS_MAX:
        raise ValueError(f"Retry({said.delay_ms}): a delay is from 0 to {DELAY_MS_MAX} ms")


def _columns(said: pa.RecordBatch | pa.Table, count: int) -> pa.RecordBatch:
    """Return columns that a function made, with those that it left out."""
    if said.num_rows != count:
        raise ValueError(f"the function returned {said.num_rows} rows for {count} jobs")
    given = said.combine_chunks() if isinstance(said, pa.Table) else said
    unknown = [name for name in given.schema.names if name.startswith("_")]
    unknown = [name for name in unknown if name not in OUTCOMES.names]
    if "_status" not in given.schema.names or unknown:
        raise ValueError(f"the function returned columns {given.schema.names}, of {OUTCOMES.names}")
    arrays = []
    for field in OUTCOMES:
        place = given.schema.get_field_index(field.name)
        column = pa.nulls(count, field.type) if place < 0 else given.column(place)
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
        arrays.append(column.cast(field.type))
    made = pa.RecordBatch.from_arrays(arrays, schema=OUTCOMES)
    wrong = set(made.column("_status").to_pylist()) - set(STATUSES)
    if wrong:
        raise ValueError(f"the function returned _status {sorted(map(str, wrong))}")
    delays = [one for one in made.column("_delay_ms").to_pylist() if one is not None]
    if delays and not 0 <= min(delays) <= max(delays) <= DELAY_MS_MAX:
        raise ValueError(f"the function returned a _delay_ms that is not 0 to {DELAY_MS_MAX}")
    return made
