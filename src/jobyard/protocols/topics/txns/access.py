"""Which callers may name a transaction: those whose keys cover all topics that it touches.

A key that covers only some names could otherwise commit, drop or see what others have staged under
a name that it guessed. Knows nothing of what the calls do.
"""

import json

from jobyard.engine.state.yard import Yard
from jobyard.model.topic.txn import OpenTxn
from jobyard.protocols.http.call import HttpCall
from jobyard.protocols.topics.api import check_name
from jobyard.protocols.topics.api_keys import ApiKey


def check_open_txn(call: HttpCall, txn: OpenTxn | None) -> None:
    """Refuse a caller whose key does not cover a topic for which something is staged."""
    if txn is None or not isinstance(call.identity, ApiKey):
        return
    for topic in txn.topics:
        check_name(call, topic)


def check_txn(yard: Yard, call: HttpCall, name: str) -> None:
    """Refuse a caller whose key does not cover what is staged, or what was committed."""
    identity = call.identity
    # A stored answer may name 33,000 runs: it is read only for keys that may not see all of it.
    if not isinstance(identity, ApiKey) or not identity.prefixes:
        return
    check_open_txn(call, yard.txns.open.get(name))
    decided = yard.txns.decided.get(name)
    if decided is not None and decided.answer:
        outcome = json.loads("{" + decided.answer + "}")
        names: set[str] = set(outcome["topics"])
        # Its answer names the queues of runs that were skipped.
        names.update(skipped[0] for skipped in outcome["skipped"])
        for named in names:
            check_name(call, named)
