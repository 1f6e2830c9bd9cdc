"""Transactions: paths, and the calls that commit, abort and look."""

from collections.abc import Mapping
from typing import final
from urllib.parse import quote

from jobyard.client.answer import Answer
from jobyard.client.calls import YardClient


def txn_path(txn: str) -> str:
    """Return the path of a transaction."""
    return f"/v0/txns/{quote(txn, safe='')}"


def stage_path(txn: str) -> str:
    """Return the path that stages records for a transaction."""
    return txn_path(txn) + "/stage"


@final
class Transactions:
    """The transactions of a yard. Every call may be repeated: its effect is the same."""

    def __init__(self, client: YardClient) -> None:
        self._client = client

    def commit(self, txn: str, body: Mapping[str, object]) -> Answer:
        """Commit a transaction; the same commit again returns the first answer."""
        return self._client.ask(
            "POST", txn_path(txn) + "/commit", {**body, "strict": True}, is_repeatable=True
        )

    def send_commit(self, txn: str, body: bytes) -> Answer:
        """Commit with a body that is made already."""
        return self._client.send("POST", txn_path(txn) + "/commit", body, is_repeatable=True)

    def abort(self, txn: str) -> Answer:
        """Drop what was staged; refused with `committed` if it was."""
        return self._client.ask("DELETE", txn_path(txn), is_repeatable=True)

    def look(self, txn: str) -> Answer:
        """Return the state of a transaction."""
        return self._client.get(txn_path(txn))
