"""The sink that ends the runs of jobs: one transaction for each micro-batch.

Tasks stage results and tell the driver what became of each job; the driver commits all of it at
once, under the name of query and batch. So the runs of a batch end together with its results or not
at all, and a batch that Spark repeats after a crash ends nothing twice. A run whose lease was lost
is skipped, its result is not written, and the rest is committed.
"""

import logging
import secrets
from collections.abc import Iterator
from typing import Final, final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from jobyard.client import Answer, JobyardError
from jobyard.client.errors import bad_option
from jobyard.client.txns import Transactions
from jobyard.spark.fleet import outcomes
from jobyard.spark.fleet.claims import FENCED, fenced_out
from jobyard.spark.fleet.ends import (
    ACK,
    BODY_MAX,
    BURY,
    ERROR_LEAST,
    ERROR_MAX,
    Driver,
    Ends,
    EndsWritten,
    RunEnd,
    commit_body,
    encoded,
    plain_acks,
    read_ends,
)
from jobyard.spark.fleet.options import EndOptions
from jobyard.spark.fleet.outcomes import outcome_of
from jobyard.spark.fleet.results import ResultRecords
from jobyard.spark.raising import raised_short
from jobyard.spark.write.refusals import COMMITTED, TXN_DIFFERS, TXN_TOO_LARGE, explained
from jobyard.spark.write.sending import ChunkSender

_LOG: Final = logging.getLogger("jobyard.spark.fleet")


@final
class EndsWriter(DataSourceStreamArrowWriter):
    """The ends of a stream's runs. Made again for each batch; only tasks know the query."""

    def __init__(self, options: EndOptions) -> None:
        self.options = options

    @raised_short
    def write(self, iterator: Iterator[pa.RecordBatch]) -> EndsWritten:
        """Stage the results of one task, and return what became of its jobs."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return write_ends(self.options, f"{query}:{batch}", context.partitionId(), iterator)

    @raised_short
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  Spark's names
        """Commit a batch."""
        commit_ends(self.options, _own(messages))

    @raised_short
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  Spark's names
        """Drop what was staged, unless it was committed."""
        abort_ends(self.options, _own(messages))


def write_ends(
    options: EndOptions, txn: str, part: int, batches: Iterator[pa.RecordBatch]
) -> EndsWritten:
    """Stage the results of one attempt of a task; return what the driver must know."""
    written = EndsWritten(txn=txn)
    # Drawn, not counted: a driver that starts again counts attempts from the beginning.
    attempt = secrets.randbits(62)
    records = ResultRecords(options)
    with options.connecting.client() as client:
        sender = ChunkSender(client, txn, part, attempt)
        try:
            for batch in batches:
                acked = plain_acks(batch)
                if acked is not None:
                    queue, driver, claim, pairs = acked
                    _join(written, driver, claim)
                    written.ends.setdefault(queue, Ends()).acks += pairs
                    continue
                for queue, driver, claim, end in read_ends(batch):
                    _join(written, driver, claim)
                    kept = _with_result(end, queue, records, sender, options)
                    written.ends.setdefault(queue, Ends()).add(kept)
            written.parts = sender.finish()
        except JobyardError as error:
            if error.code != COMMITTED:
                raise explained(error, options.results) from None
            written.was_committed = True
    return written


def _join(written: EndsWritten, driver: Driver, claim: str) -> None:
    if driver != (written.driver or driver):
        raise two_drivers(driver, written.driver)
    written.driver = driver
    written.claims.add(claim)


def _with_result(
    end: RunEnd, queue: str, records: ResultRecords, sender: ChunkSender, options: EndOptions
) -> RunEnd:
    """Stage the result of a run that is acked; give up a job whose result cannot be written."""
    if end.result is None or end.status != ACK:
        return end._replace(result=None)
    if not options.results:
        raise bad_option(
            "results",
            f"job {end.seq} of {queue} has a _result, and there is no topic for it",
            "Name the topic with the option results, or leave out the column _result.",
        )
    found = records.read(end.result, queue, end.seq)
    if isinstance(found, str):
        # Its work is done, but nobody could see that: a person must look.
        return end._replace(status=BURY, error=f"ResultRefused: {found}", result=None)
    sender.add(found)
    return end._replace(result=None)


def commit_ends(options: EndOptions, written: list[EndsWritten]) -> Answer | None:
    """End the runs of a batch, and write its results; once, however often it is called.

    Returns the answer of the server; None if there was nothing to do.
    """
    done = [one for one in written if one.driver is not None]
    if not done:
        return None
    txn, driver = done[0].txn, done[0].driver
    assert driver is not None
    for one in done:
        if one.driver is not None and one.driver != driver:
            raise two_drivers(driver, one.driver)
    with options.connecting.client() as client:
        txns = Transactions(client)
        if any(one.was_committed for one in done):
            answer = txns.look(txn)
        else:
            try:
                answer = _commit(options, txns, done, driver)
            except JobyardError as error:
                if error.code == FENCED:
                    raise fenced_out(error, driver.worker) from None
                if error.code != TXN_DIFFERS:
                    raise explained(error, options.results) from None
                # Committed by an earlier run of the batch, of which Spark did not hear.
                answer = txns.look(txn)
    _tell(options, done, answer)
    return answer


def _commit(
    options: EndOptions, txns: Transactions, done: list[EndsWritten], driver: Driver
) -> Answer:
    """Commit with errors as long as they may be."""
    error_max = ERROR_MAX
    while True:
        body = encoded(commit_body(done, driver, error_max))
        if len(body) > BODY_MAX and error_max > ERROR_LEAST:
            error_max = max(error_max // 2, ERROR_LEAST)
            continue
        try:
            return txns.send_commit(done[0].txn, body)
        except JobyardError as error:
            if error.code != TXN_TOO_LARGE:
                raise
            if error_max == ERROR_LEAST:
                raise _too_large(error, options) from None
            # Refused before anything changed.
            error_max = max(error_max // 2, ERROR_LEAST)


def _too_large(error: JobyardError, options: EndOptions) -> JobyardError:
    found = JobyardError(
        TXN_TOO_LARGE,
        f"the batch is more than the server commits at once: {error.message}",
        url=error.url,
        status=error.status,
        option="batch",
        remedy="Set a smaller batch at the source, or start the server with a greater "
        "--txn-rows-max.",
    )
    return found.within(topic=options.results)


def _tell(options: EndOptions, done: list[EndsWritten], answer: Answer) -> None:
    """Tell the reader's progress, and the log, what became of the jobs."""
    outcome = outcome_of(answer)
    claims = set().union(*(one.claims for one in done))
    outcomes.leave(options.connecting.url, claims, outcome)
    if outcome.skipped:
        _LOG.warning(
            "runs of %s were skipped, their jobs are with others by now: %s",
            ", ".join(sorted(claims)), dict(outcome.skipped),
        )  # fmt: skip


def abort_ends(options: EndOptions, written: list[EndsWritten]) -> None:
    """Drop staged results, unless they were committed; out of reach, they expire by themselves."""
    txn = next((one.txn for one in written if one.parts), "")
    if not txn:
        return
    try:
        with options.connecting.client() as client:
            Transactions(client).abort(txn)
    except JobyardError as error:
        _LOG.info("transaction %s was not aborted: %s", txn, error.message)


def two_drivers(one: Driver, other: Driver | None) -> JobyardError:
    """Return the error for a batch with jobs of two streams of claims."""
    name = other.worker if other is not None else ""
    return bad_option(
        "worker",
        f"a batch has jobs of worker {one.worker} and of {name}, and one commit is of one worker",
        "Give each stream of claims a query of its own.",
    )


def _own(messages: list[WriterCommitMessage | None]) -> list[EndsWritten]:
    return [message for message in messages if isinstance(message, EndsWritten)]
