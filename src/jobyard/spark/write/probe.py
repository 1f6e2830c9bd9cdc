"""Asks before any task runs whether a server is there that may be written to, and has the topic.

None of these calls changes anything.
"""

import uuid
from collections.abc import Collection
from typing import Final

from jobyard.client import JobyardError, YardClient
from jobyard.client.answer import not_a_yard
from jobyard.client.calls import topic_path
from jobyard.client.txns import Transactions
from jobyard.spark.write.options import JOB_COLUMN_NAMES, WriteOptions
from jobyard.spark.write.refusals import NOT_A_QUEUE, TOPIC_NOT_FOUND, explained

# Such a path is there on every yard, and such a method.
_NO_SUCH_PLACE: Final = (404, 405)
_FORBIDDEN: Final = 403
_QUEUE: Final = "queue"


def check_writable(options: WriteOptions, columns: Collection[str] = ()) -> None:
    """Raise JobyardError if a write with these options and columns cannot succeed."""
    with options.connecting.client() as client:
        txns = Transactions(client)
        # Drawn, so that nothing is staged under it.
        txn = f"probe:{uuid.uuid4()}"
        try:
            txns.abort(txn).text("state")
        except JobyardError as error:
            if error.status in _NO_SUCH_PLACE:
                raise not_a_yard(error.url, error.status, "it has no transactions") from None
            raise
        if options.topic:
            _check_covered(txns, txn, options.topic)
            _check_kind(options, columns, _kind(client, options.topic))


def _check_covered(txns: Transactions, txn: str, topic: str) -> None:
    """Refuse a key that does not cover the topic."""
    # Refused as incomplete if nothing else is wrong.
    part = {"topic": topic, "part": 0, "attempt": 0, "chunks": 1, "rows": 1}
    try:
        txns.commit(txn, {"parts": [part]})
    except JobyardError as error:
        if error.code != "incomplete":
            raise explained(error, topic) from None


def _kind(client: YardClient, topic: str) -> str:
    """Return what a topic is; empty if the key may write only."""
    try:
        return client.get(topic_path(topic)).text("type")
    except JobyardError as error:
        if error.code == TOPIC_NOT_FOUND:
            raise explained(error, topic) from None
        # A key that may write need not be one that may read.
        if error.status != _FORBIDDEN:
            raise
        return ""


def _check_kind(options: WriteOptions, columns: Collection[str], kind: str) -> None:
    """Refuse jobs for a log, and columns that only jobs have: the server would drop them."""
    if kind in ("", _QUEUE):
        return
    topic = options.topic
    if options.wants_queue:
        raise JobyardError(
            NOT_A_QUEUE,
            f"{topic} is a log, so its records are no jobs",
            option="queue",
            remedy='Name a queue, or write records with format("jobyard") and the option topic.',
        ).within(topic=topic)
    dropped = [name for name in JOB_COLUMN_NAMES if name in columns]
    if dropped:
        raise JobyardError(
            NOT_A_QUEUE,
            f"{topic} is a log, and only jobs have {', '.join(dropped)}",
            option=dropped[0],
            remedy="Drop these columns, or write to a queue.",
        ).within(topic=topic)
