"""Bulk enqueue: the rows of a DataFrame become jobs of a queue, each once.

The name of a run is its transaction: the same run again does nothing and returns the first result,
as long as the server remembers it (`--txn-days`). Keys make rows count once over different runs, as
long as their window lasts.
"""

import difflib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as f

from jobyard.client.errors import bad_option
from jobyard.client.txns import Transactions
from jobyard.spark.options import take_token
from jobyard.spark.raising import rows_raised_short
from jobyard.spark.write.bad_files import check_folder
from jobyard.spark.write.committing import (
    Committed,
    abort_tasks,
    commit_tasks,
    find_committed,
)
from jobyard.spark.write.options import (
    DRAWN,
    RUN_PREFIX,
    STAGED,
    TXN_NAME,
    TXN_NAME_MAX,
    WriteOptions,
    check_columns,
    check_key,
    check_known,
    write_options,
)
from jobyard.spark.write.probe import check_writable
from jobyard.spark.write.tasks import TaskWriter, TaskWritten, decode_written, encode_written

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Columns that are no part of the value, if there is a column value.
_WRITTEN: Final = (
    *("value", "key", "tag", "headers", "priority", "delay_ms"),
    *("job_id", "name", "max_attempts", "node"),
)


@dataclass(frozen=True)
class EnqueueResult:
    """What an enqueue has done; of a run that was found done, what that did.

    The number of rejected rows is then read in `bad_rows_path`, so it must be given again.
    """

    enqueued: int
    duplicate: int
    rejected: int
    txn: str


def enqueue(
    df: "DataFrame",
    queue: str,
    *,
    key_cols: str | Sequence[str] | None = None,
    run_id: str | None = None,
    bad_rows_path: str | None = None,
    commit: str = STAGED,
    **options: object,
) -> EnqueueResult:
    """Put a job for each row.

    A DataFrame without a column `value` is sent as JSON, an object for each row. `key_cols` are the
    columns that identify a row: its key is the one text column, or the SHA-256 of all of them; the
    name of one column may be given as it is.
    `options` are those of the format: `url`, `token` and so on.
    """
    if run_id is not None:
        _check_run(run_id, commit)
    rest, token = take_token({name: str(value) for name, value in options.items()})
    rest |= {"queue": queue, "commit": commit}
    if bad_rows_path is not None:
        rest["badRowsPath"] = bad_rows_path
    checked = write_options(rest, token)
    keys = [key_cols] if isinstance(key_cols, str) else list(key_cols or ())
    shaped = _shaped(df, keys, checked)
    check_columns(shaped.schema, checked)
    check_writable(checked, shaped.columns)
    if checked.bad_rows_path:
        check_folder(checked.bad_rows_path)
    txn = f"{RUN_PREFIX}{run_id}" if run_id is not None else f"{DRAWN}{uuid.uuid4()}"
    known = _known(checked, txn) if run_id is not None else None
    return _result(known or _run(shaped, checked, txn, is_named=run_id is not None))


def _check_run(run_id: str, commit: str) -> None:
    if commit != STAGED:
        raise bad_option("run_id", "only a staged run has a name", "Leave out commit or run_id.")
    if not TXN_NAME.fullmatch(RUN_PREFIX + run_id) or not run_id:
        most = TXN_NAME_MAX - len(RUN_PREFIX)
        raise bad_option(
            "run_id",
            f"{run_id[:300]!r} is not the name of a run",
            f"Write 1 to {most} letters, digits and . _ : ~ -",
        )


def _run(df: "DataFrame", options: WriteOptions, txn: str, *, is_named: bool) -> Committed:
    """Write all rows; whatever ends it early, nothing stays staged."""
    written: list[TaskWritten] = []
    is_done = False
    try:
        rows = df.mapInArrow(_Task(options, txn), "written string").collect()
        written += [decode_written(row.written) for row in rows]
        done = commit_tasks(options, written, txn, is_named=is_named)
        is_done = True
    finally:
        if not is_done:
            abort_tasks(options, written, txn)
    return done


def _result(done: Committed) -> EnqueueResult:
    return EnqueueResult(done.written, done.duplicates, done.rejected, done.txn)


class _Task:
    """Writes the rows of one task, and yields what it has done as one row."""

    def __init__(self, options: WriteOptions, txn: str) -> None:
        self._options = options
        self._txn = txn

    @rows_raised_short
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        writer = TaskWriter(self._options, self._txn, context.partitionId())
        written = encode_written(writer.write(batches))
        yield pa.RecordBatch.from_pydict({"written": pa.array([written], pa.string())})


def _known(options: WriteOptions, txn: str) -> Committed | None:
    """Return the result of a run that was committed before."""
    with options.connecting.client() as client:
        return find_committed(options, Transactions(client), txn, is_named=True)


def _shaped(df: "DataFrame", key_cols: list[str], options: WriteOptions) -> "DataFrame":
    """Return the columns that are written."""
    for name in key_cols:
        if name not in df.columns:
            near = difflib.get_close_matches(name, df.columns, n=1)
            raise bad_option(
                "key_cols",
                f"there is no column {name}; columns are {', '.join(df.columns)}",
                f"Did you mean {near[0]}?" if near else "Name columns of these rows.",
            )
    if key_cols and "key" in df.columns and key_cols != ["key"]:
        raise bad_option(
            "key_cols",
            "the rows have a column key already",
            "Leave out key_cols, or drop the column key.",
        )
    if "value" in df.columns:
        # What is left out below must not be a misspelt column, nor a key of something else.
        for name in df.columns:
            if name not in (*key_cols, "topic", "queue"):
                check_known(name)
        if not key_cols:
            check_key(df.columns, options)
        chosen = [f.col(name) for name in _WRITTEN if name in df.columns and name != "key"]
        if not key_cols and "key" in df.columns:
            chosen.append(f.col("key"))
    else:
        chosen = [f.to_json(_struct(df.columns)).alias("value")]
    if key_cols:
        chosen.append(_key(df, key_cols).alias("key"))
    return df.select(*chosen)


def _key(df: "DataFrame", names: Sequence[str]) -> "Column":
    if len(names) == 1 and dict(df.dtypes)[names[0]] == "string":
        return f.col(_quoted(names[0]))
    # As JSON, so that no two rows with different columns have the same text.
    row = f.to_json(_struct(names), {"ignoreNullFields": "false"})
    return f.sha2(row, 256)


def _struct(names: Sequence[str]) -> "Column":
    return f.struct(*[f.col(_quoted(name)) for name in names])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
