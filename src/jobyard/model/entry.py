"""A value that is stored whole under a key and replaced whole: settings, schedules, webhooks.

Only the code that sets a value knows its meaning. A dropped entry is remembered for as long as a
file could still hold an older value of it.
"""

from typing import Final, final

from mypy_extensions import i32, i64


@final
class EntryKind:
    """The kinds of journal entries."""

    POLICY: Final = 1
    SETTINGS: Final = 2
    GROUP: Final = 3
    CRON: Final = 4
    WEBHOOK: Final = 5
    WORKER: Final = 6
    # The configuration of a topic, by the topic's name.
    CONFIG: Final = 7
    # The outcome of a write with an idempotency key, by the queue number and the key.
    WRITE: Final = 8
    # The seq below which jobs of a queue were evicted, and its dead-letter count, by queue name.
    FLOORS: Final = 9
    # A router between topics, by the router's name.
    ROUTER: Final = 10
    # A part of a stored value, by its key and the part.
    STORED_VALUE: Final = 11
    # Marks a queue whose seqs continue when it is empty, by queue name.
    COUNTED: Final = 12
    # A part of the state of a queue's subscriptions, by queue name and the part.
    SUBSCRIPTIONS: Final = 13
    # All jobs of a queue are gone, by queue number, though the record of each is still to come.
    CONDEMNED: Final = 14
    # A cursor of a reader, by topic and name.
    CURSOR: Final = 15
    # The number under which the keys of a topic's records are stored, by the topic's name.
    RECORD_KEY: Final = 16
    # The outcome of a transaction, by its name.
    TXN: Final = 17
    # The jobs of a claim with an id, by queue name and id.
    CLAIM_SET: Final = 19
    # The newest epoch of a worker, by the worker's name.
    FENCE: Final = 20
    # The id of the data directory, drawn by the first start; its key is empty.
    YARD_ID: Final = 21


@final
class Entry:
    """The newest value of a key."""

    def __init__(self, kind: i64, key: bytes) -> None:
        self.kind: i64 = kind
        self.key: bytes = key
        self.value: bytes = b""
        self.is_gone: bool = False
        # Older values of a dropped entry are in segments below this number.
        self.up_to: i64 = 0
        # The segment that holds the record of its value.
        self.segment: i32 = 0
