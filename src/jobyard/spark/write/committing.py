"""The driver's part of a write: commits what tasks have staged, all of it at once, or drops it.

Only what the winning attempt of each task has staged is named in the commit; everything else is
dropped by the server. A transaction that is found committed counts as done, with its first result.
An abort never undoes what may have been committed: the server refuses it then, and the files of
rejected rows are kept as well.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from jobyard.client import Answer, JobyardError
from jobyard.client.txns import Transactions
from jobyard.spark.write.bad_files import BadFiles, PartFields
from jobyard.spark.write.bad_rows import BadRows
from jobyard.spark.write.options import DRAWN, RUN_PREFIX, WriteOptions
from jobyard.spark.write.refusals import COMMITTED, TXN_DIFFERS, explained, too_large
from jobyard.spark.write.tasks import TaskWritten

Messages = Sequence[TaskWritten | None]


@dataclass(frozen=True)
class Committed:
    """What a write has done."""

    txn: str
    written: int
    duplicates: int
    rejected: int
    # Whether the transaction had been committed before.
    is_repeated: bool = False


def commit_tasks(
    options: WriteOptions, messages: Messages, txn: str = "", *, is_named: bool = False
) -> Committed:
    """Make what the tasks have staged visible, all at once; or refuse all of it.

    A named transaction belongs to its topic, and is refused for another one.
    """
    done = [message for message in messages if message is not None]
    txn = txn or next((message.txn for message in done if message.txn), "")
    bad = BadRows()
    for message in done:
        bad.join(message.bad)
    if options.is_staged and any(message.was_committed for message in done):
        return _repeated(options, txn, is_named=is_named)
    written = sum(message.counts.written for message in done)
    if bad.count() > 0 and not options.bad_rows_path:
        raise bad.error(None if options.is_staged else written)
    if not options.is_staged:
        if options.bad_rows_path and txn:
            BadFiles(options.bad_rows_path, txn).keep(bad.files)
        duplicates = sum(message.counts.duplicates for message in done)
        return Committed("", written, duplicates, bad.count())
    if not txn:
        # A batch of a stream without tasks.
        return Committed("", 0, 0, 0)
    _check_size(done)
    return _commit_staged(options, txn, done, bad, is_named=is_named)


def _check_size(done: list[TaskWritten]) -> None:
    size = sum(message.size for message in done)
    rows_max = max((message.rows_max for message in done), default=0)
    if 0 < rows_max < size:
        raise too_large(f"{size} records, two for each with a key", f"{rows_max}")
    staged = sum(message.staged_bytes for message in done)
    bytes_max = max((message.bytes_max for message in done), default=0)
    if 0 < bytes_max < staged:
        raise too_large(f"{staged} bytes of records", f"{bytes_max} bytes")


def _commit_staged(
    options: WriteOptions, txn: str, done: list[TaskWritten], bad: BadRows, *, is_named: bool
) -> Committed:
    parts = [part.fields() for message in done for part in message.parts]
    if options.topic and not parts:
        # Names the topic, and tells this commit from that of another driver.
        attempt = secrets.randbits(62)
        parts.append(
            {"topic": options.topic, "part": 0, "attempt": attempt, "chunks": 0, "rows": 0}
        )
    files = BadFiles(options.bad_rows_path, txn) if options.bad_rows_path else None
    note = files.note(parts, bad.files, bad.count()) if files is not None and bad.files else None
    try:
        with options.connecting.client() as client:
            answer = Transactions(client).commit(txn, {"parts": parts})
    except JobyardError as error:
        if error.code != TXN_DIFFERS:
            raise explained(error, options.topic) from None
        # Another driver was first, or a repeated batch had no rows whose chunks would be refused.
        if note is not None:
            note.path.unlink(missing_ok=True)
        return _repeated(options, txn, is_named=is_named)
    if files is not None:
        files.keep(bad.files)
    if note is not None and is_drawn(options, txn):
        # Nobody can commit it again, so nobody will look for what it did.
        note.path.unlink(missing_ok=True)
    written, duplicates = totals(answer)
    return Committed(txn, written, duplicates, bad.count())


def is_drawn(options: WriteOptions, txn: str) -> bool:
    """Return whether a transaction has a name of its own, which no later write has."""
    return not options.txn and txn.startswith(DRAWN)


def _repeated(options: WriteOptions, txn: str, *, is_named: bool) -> Committed:
    with options.connecting.client() as client:
        txns = Transactions(client)
        found = find_committed(options, txns, txn, is_named=is_named)
    if found is None:
        raise explained(JobyardError("incomplete", f"transaction {txn} is no longer committed"))
    return found


def find_committed(
    options: WriteOptions, txns: Transactions, txn: str, *, is_named: bool
) -> Committed | None:
    """Return what a transaction did that was committed before; None if it was not."""
    answer = txns.look(txn)
    if answer.text("state") != COMMITTED:
        return None
    if is_named:
        _check_same_topic(options, answer, txn)
    rejected = 0
    if options.bad_rows_path:
        files = BadFiles(options.bad_rows_path, txn)
        rejected = files.keep_committed(lambda parts: _is_committed(txns, txn, parts))
        if is_drawn(options, txn):
            for note in list(files.notes()):
                note.path.unlink(missing_ok=True)
    written, duplicates = totals(answer)
    return Committed(txn, written, duplicates, rejected, is_repeated=True)


def _is_committed(txns: Transactions, txn: str, parts: list[PartFields]) -> bool:
    """Return whether these parts are what was committed; the transaction is committed already."""
    try:
        txns.commit(txn, {"parts": parts})
    except JobyardError as error:
        if error.code != TXN_DIFFERS:
            raise
        return False
    return True


def _check_same_topic(options: WriteOptions, answer: Answer, txn: str) -> None:
    topics = answer.fields.get("topics")
    known = sorted(topics) if isinstance(topics, dict) else []
    if options.topic and known and options.topic not in known:
        is_run = txn.startswith(RUN_PREFIX)
        raise JobyardError(
            TXN_DIFFERS,
            f"{txn} was committed for {', '.join(known)}, and now is for {options.topic}",
            option="run_id" if is_run else "txn",
            remedy="Use another name for another topic: what a name did is done once.",
        )


def totals(answer: Answer) -> tuple[int, int]:
    """Return how many records a commit has written, and how many were duplicates."""
    topics = answer.fields.get("topics")
    each = topics.values() if isinstance(topics, dict) else ()
    found = [one for one in each if isinstance(one, dict)]
    return (
        sum(int(one.get("written", 0)) for one in found),
        sum(int(one.get("duplicates", 0)) for one in found),
    )


def abort_tasks(options: WriteOptions, messages: Messages, txn: str = "") -> None:
    """Drop what was staged, unless it was committed."""
    done = [message for message in messages if message is not None]
    txn = txn or next((message.txn for message in done if message.txn), "")
    files = [file for message in done for file in message.bad.files]
    if not txn:
        return
    if not options.is_staged:
        if options.bad_rows_path:
            BadFiles(options.bad_rows_path, txn).drop(files)
        return
    try:
        with options.connecting.client() as client:
            _abort_staged(options, Transactions(client), txn, files)
    except JobyardError:
        # Out of reach, so it may have been committed: what is staged expires by itself, and the
        # files stay hidden until the transaction is found committed.
        return


def _abort_staged(options: WriteOptions, txns: Transactions, txn: str, files: list[str]) -> None:
    try:
        txns.abort(txn)
    except JobyardError as error:
        if error.code != COMMITTED:
            raise
        find_committed(options, txns, txn, is_named=False)
        return
    if options.bad_rows_path:
        BadFiles(options.bad_rows_path, txn).drop(files)
