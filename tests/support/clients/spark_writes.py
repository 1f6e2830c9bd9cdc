"""Writes as Spark does them: tasks that fail and are tried again, a commit, an abort, a replay."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from jobyard.client import JobyardError
from jobyard.spark.write.committing import Committed, abort_tasks, commit_tasks
from jobyard.spark.write.options import WriteOptions, write_options
from jobyard.spark.write.tasks import TaskWriter, TaskWritten
from tests.support.values.pickled import sent

Batches = Sequence[pa.RecordBatch]
ATTEMPTS_MAX = 20


class TaskKilled(Exception):
    """A task ended in the middle."""


def options_of(url: str, **more: str) -> WriteOptions:
    """Return options of a write that have crossed to another process."""
    made: WriteOptions = sent(write_options({"url": url, **more}, None))
    return made


def batch_of(**columns: list[Any]) -> pa.RecordBatch:
    """Return rows."""
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


def run_task(
    options: WriteOptions, batches: Batches, txn: str, part: int = 0, dies_after: int = -1
) -> TaskWritten:
    """Run one attempt of a task; it may die after some batches."""

    def given() -> Iterator[pa.RecordBatch]:
        for at, batch in enumerate(batches):
            if at == dies_after:
                raise TaskKilled
            yield batch

    made: TaskWritten = sent(TaskWriter(options, txn, part).write(given()))
    return made


def run_write(
    options: WriteOptions,
    parts: Sequence[Batches],
    txn: str,
    *,
    dies: Callable[[], int] = lambda: -1,
    is_forgetful: Callable[[], bool] = lambda: False,
) -> Committed:
    """Write as a stream's batch is written: again and again until Spark knows that it is done.

    `dies` says after how many batches an attempt of a task ends, `is_forgetful` whether the driver
    dies between the commit and the note that Spark makes of it.
    """
    for _ in range(ATTEMPTS_MAX):
        messages = []
        for part, batches in enumerate(parts):
            messages.append(_until_done(options, batches, txn, part, dies))
        try:
            done = commit_tasks(options, list(messages))
        except JobyardError:
            abort_tasks(options, list(messages))
            continue
        if not is_forgetful():
            return done
    raise AssertionError(f"not committed in {ATTEMPTS_MAX} attempts")


def _until_done(
    options: WriteOptions, batches: Batches, txn: str, part: int, dies: Callable[[], int]
) -> TaskWritten:
    for _ in range(ATTEMPTS_MAX):
        try:
            return run_task(options, batches, txn, part, dies())
        except (TaskKilled, JobyardError):
            continue
    raise AssertionError(f"part {part} failed {ATTEMPTS_MAX} times")
