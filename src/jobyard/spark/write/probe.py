"""Asks before any task runs whether a server is there that may be written to, and has the topic.

None of these calls changes anything.
"""

import uuid
from typing import Final

from jobyard.client import JobyardError, YardClient
from jobyard.client.answer import not_a_yard
from jobyard.client.calls import topic_path
from jobyard.client.txns import Transactions
from jobyard.spark.write.options import WriteOptions
from jobyard.spark.write.refusals import TOPIC_NOT_FOUND, explained

# Such a path is there on every yard, and such a method.
_NO_SUCH_PLACE: Final = (404, 405)
_FORBIDDEN: Final = 403


def check_writable(options: WriteOptions) -> None:
    """Raise JobyardError if a write with these options cannot succeed."""
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
            _check_there(client, options.topic)


def _check_covered(txns: Transactions, txn: str, topic: str) -> None:
    """Refuse a key that does not cover the topic."""
    # Refused as incomplete if nothing else is wrong.
    part = {"topic": topic, "part": 0, "attempt": 0, "chunks": 1, "rows": 1}
    try:
        txns.commit(txn, {"parts": [part]})
    except JobyardError as error:
        if error.code != "incomplete":
            raise explained(error, topic) from None


def _check_there(client: YardClient, topic: str) -> None:
    try:
        client.get(topic_path(topic))
    except JobyardError as error:
        if error.code == TOPIC_NOT_FOUND:
            raise explained(error, topic) from None
        # A key that may write need not be one that may read.
        if error.status != _FORBIDDEN:
            raise
