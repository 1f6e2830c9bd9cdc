"""Rows with a `_status` as ends of runs: what a commit acks, nacks and gives up.

Makes the body of a commit, in which texts of errors are cut to what the server takes at once: a
shorter reason is better than a batch that can never be ended.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from jobyard.client import JobyardError
from jobyard.client.errors import bad_option
from jobyard.spark.fleet.columns import FIXED, IDENTITY
from jobyard.spark.fleet.options import STATUS
from jobyard.spark.write.sending import Part

ACK: Final = "ack"
NACK: Final = "nack"
BURY: Final = "bury"
STATUSES: Final = (ACK, NACK, BURY)
DELAY_MS_MAX: Final = 365 * 86_400_000
# Of an error, in bytes.
ERROR_MAX: Final = 4096
# An error of fewer characters counts nothing in a commit.
ERROR_LEAST: Final = 63
# A little less than the server reads.
BODY_MAX: Final = 15 << 20
BAD_ROWS: Final = "bad_rows"

_TEXTS: Final = (StringType,)
_WHOLES: Final = (IntegerType, LongType)
_NEEDED: Final[dict[str, tuple[type[DataType], ...]]] = {
    **dict.fromkeys(IDENTITY, _TEXTS),
    "epoch": _WHOLES,
    "seq": _WHOLES,
    STATUS: _TEXTS,
}
_ALLOWED: Final[dict[str, tuple[type[DataType], ...]]] = {
    "_delay_ms": _WHOLES,
    "_error": _TEXTS,
    "_result": (StringType, BinaryType),
}


class Driver(NamedTuple):
    """Who claimed: a worker of a query's run."""

    worker: str
    epoch: int


class RunEnd(NamedTuple):
    """The end of one run."""

    seq: int
    lease_id: str
    status: str
    delay_ms: int | None = None
    error: str = ""
    result: str | bytes | None = None


@dataclass
class Ends:
    """The ends of runs of one queue, as a commit lists them."""

    acks: list[tuple[int, str]] = field(default_factory=list)
    nacks: list[tuple[int, str, int | None, str]] = field(default_factory=list)
    buries: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, end: RunEnd) -> None:
        """Add one end."""
        if end.status == ACK:
            self.acks.append((end.seq, end.lease_id))
        elif end.status == NACK:
            self.nacks.append((end.seq, end.lease_id, end.delay_ms, end.error))
        else:
            self.buries.append((end.seq, end.lease_id, end.error))

    def lists(self, error_max: int) -> dict[str, list[list[object]]]:
        """Return the lists of a commit, with errors of at most `error_max` bytes."""
        return {
            "acks": [list(one) for one in self.acks],
            "nacks": [[*one[:3], cut_error(one[3], error_max) or None] for one in self.nacks],
            "dead_letters": [
                [*one[:2], cut_error(one[2], error_max) or None] for one in self.buries
            ],
        }


@dataclass
class EndsWritten(WriterCommitMessage):
    """What one task has for the commit."""

    txn: str = ""
    driver: Driver | None = None
    claims: set[str] = field(default_factory=set)
    # By queue. Results are staged by now.
    ends: dict[str, Ends] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    # The transaction was found committed; this is a repeated batch.
    was_committed: bool = False


def check_columns(schema: StructType) -> None:
    """Refuse rows that cannot end runs, with what is missing."""
    kinds = {one.name: one.dataType for one in schema.fields}
    for name, wanted in {**_NEEDED, **_ALLOWED}.items():
        kind = kinds.get(name)
        if kind is None and name in _ALLOWED:
            continue
        if not isinstance(kind, wanted):
            is_there = f"is {kind.simpleString()}" if kind is not None else "is missing"
            words = " or ".join(one().simpleString() for one in wanted)
            raise bad_option(
                name,
                f"the column {name} {is_there}, and must be {words}",
                f"Rows that end runs keep {', '.join(IDENTITY)} of their jobs, and have {STATUS}.",
            )


def plain_acks(batch: pa.RecordBatch) -> tuple[str, Driver, str, list[tuple[int, str]]] | None:
    """Return the acks of a batch that has nothing else, of one claim; None for any other batch.

    The same as `read_ends` says of such batches, which are most, in a tenth of the time.
    """
    count = batch.num_rows
    if not count or any(batch.column(name).null_count for name in _NEEDED):
        return None
    values = {name: pc.unique(batch.column(name)) for name in (*FIXED, STATUS)}
    if any(len(each) > 1 for each in values.values()) or values[STATUS][0].as_py() != ACK:
        return None
    place = batch.schema.get_field_index("_result")
    if place >= 0 and batch.column(place).null_count < count:
        return None
    queue, worker, epoch, claim = (values[name][0].as_py() for name in FIXED)
    pairs = zip(_column(batch, "seq", count), _column(batch, "lease_id", count), strict=True)
    return queue, Driver(worker, epoch), claim, list(pairs)


def read_ends(batch: pa.RecordBatch) -> Iterator[tuple[str, Driver, str, RunEnd]]:
    """Yield the queue, driver, claim and end of each row."""
    count = batch.num_rows
    columns = {name: _column(batch, name, count) for name in (*_NEEDED, *_ALLOWED)}
    for queue, worker, epoch, claim, seq, lease_id, status, delay_ms, error, result in zip(
        *(columns[name] for name in IDENTITY),
        *(columns[name] for name in (STATUS, *_ALLOWED)),
        strict=True,
    ):
        is_whole = None not in (queue, worker, epoch, claim, seq, lease_id)
        if not is_whole or status not in STATUSES:
            raise _bad(f"{STATUS} is {status!r} for job {seq} of {queue}")
        if delay_ms is not None and not 0 <= delay_ms <= DELAY_MS_MAX:
            raise _bad(f"_delay_ms is {delay_ms} for job {seq} of {queue}")
        end = RunEnd(seq, lease_id, status, delay_ms, cut_error(error or ""), result)
        yield queue, Driver(worker, epoch), claim, end


def cut_error(text: str, most: int = ERROR_MAX) -> str:
    """Return the beginning of a text that the server takes as an error."""
    data = text[:most].encode("utf-8", "replace")[:most]
    return data.decode("utf-8", "ignore")


def commit_body(
    written: list[EndsWritten], driver: Driver, error_max: int = ERROR_MAX
) -> dict[str, object]:
    """Return the body of a commit with errors of at most `error_max` bytes."""
    lists: dict[str, list[dict[str, object]]] = {"acks": [], "nacks": [], "dead_letters": []}
    for one in written:
        for queue, ends in one.ends.items():
            for name, items in ends.lists(error_max).items():
                if items:
                    lists[name].append({"queue": queue, "node": driver.worker, "items": items})
    parts = [part.fields() for one in written for part in one.parts]
    return {"parts": parts, **lists, **driver._asdict(), "strict": True}


def encoded(body: dict[str, object]) -> bytes:
    """Return a body as it is sent."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _column(batch: pa.RecordBatch, name: str, count: int) -> list[Any]:
    place = batch.schema.get_field_index(name)
    if place < 0:
        return [None] * count
    column = batch.column(place)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            return list(column.to_pylist())
        except UnicodeDecodeError:
            # Spark does not check its strings.
            raw = column.cast(pa.large_binary()).to_pylist()
            return [None if one is None else one.decode("utf-8", "replace") for one in raw]
    return list(column.to_pylist())


def _bad(why: str) -> JobyardError:
    return JobyardError(
        BAD_ROWS,
        f"a row ends no run: {why}",
        option=STATUS,
        remedy=f"{STATUS} is {', '.join(STATUSES)}; keep the other columns of the job as they are.",
    )
