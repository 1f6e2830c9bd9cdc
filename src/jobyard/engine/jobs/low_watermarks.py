"""Writes down what no job of a topic can tell: which were lost, and how many became letters.

All of it is one entry of the journal, written again whenever one of these numbers changes.
"""

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import FLOORS
from jobyard.model.queue import Queue


def floors_room(queue: Queue) -> i64:
    """Return what the record takes."""
    return ENTRY_SIZE + 4 * len(queue.name) + 24


def remember_floors(yard: Yard, queue: Queue) -> None:
    """Write down the floors of a queue as they are now; a full disk goes without it."""
    stock = queue.stock
    assert stock is not None
    journal = yard.journal
    if journal.is_on and journal.has_room(floors_room(queue)):
        journal.set_entry(FLOORS, queue.name.encode(), stock.encode_floors())
