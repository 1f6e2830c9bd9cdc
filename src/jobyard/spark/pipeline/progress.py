"""What a run tells while it goes on, as values: a terminal makes a bar of them, others lines.

A callback gets each as it happens, in the thread of the run. What it raises ends the run, as an
interrupt would: the batch that was begun is undone or ended by the next run.
"""

from collections.abc import Callable
from typing import NamedTuple


class Started(NamedTuple):
    """A run has found something to do."""

    yard: str
    # Events after the first number and up to the second are taken in.
    from_seq: int
    to_seq: int
    batches: int


class BatchDone(NamedTuple):
    """A batch is in the tables."""

    yard: str
    # Its number, from 1, and how many there are.
    number: int
    batches: int
    to_seq: int
    # Events in it, and per second of the run so far.
    rows: int
    rows_per_s: float
    # Numbers that are left; not every number is an event.
    left: int
    elapsed_s: float


class Lost(NamedTuple):
    """Events are gone that were not taken in, and the run goes on without them."""

    yard: str
    from_seq: int
    to_seq: int


Event = Started | BatchDone | Lost
Listener = Callable[[Event], None]
