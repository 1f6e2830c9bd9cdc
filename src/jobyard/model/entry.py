"""A thing that is remembered under a key, whole, and replaced whole: settings, schedules, hooks.

What the value means is known to whoever set it. An entry that was dropped is remembered for as long
as a file could still hold an older value of it.
"""

from typing import Final, final

from mypy_extensions import i32, i64

POLICY: Final = 1
SETTINGS: Final = 2
GROUP: Final = 3
CRON: Final = 4
WEBHOOK: Final = 5
WORKER: Final = 6
# The configuration of a topic, by its name.
CONFIG: Final = 7
# What a write with a key came to, by the number of the queue and the key.
WRITE: Final = 8
# Up to which seq jobs of a queue were evicted, and how many became letters, by its name.
FLOORS: Final = 9
# A router between topics, by its own name.
ROUTER: Final = 10
# Part of a key that is kept as it was set, by the key and which part.
SIDE: Final = 11
# That the seqs of a queue go on when it is empty, by its name.
COUNTED: Final = 12
# What is remembered of those who read all jobs of a queue, by its name and which part.
AUDIENCE: Final = 13
# That all jobs of a queue are gone, by its number, though a record of each is still to come.
CONDEMNED: Final = 14


@final
class Entry:
    """The newest value under a key."""

    def __init__(self, kind: i64, key: bytes) -> None:
        self.kind: i64 = kind
        self.key: bytes = key
        self.value: bytes = b""
        self.is_gone: bool = False
        # Older values of an entry that is gone lie in segments below this number.
        self.up_to: i64 = 0
        # Segment that holds the record of its value.
        self.segment: i32 = 0
