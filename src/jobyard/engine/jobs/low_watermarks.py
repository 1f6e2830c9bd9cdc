"""Store what the jobs of a topic cannot show: which were lost, and how many became dead letters.

All of it is one entry of the journal, rewritten whenever one of these numbers changes.
"""

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import EntryKind
from jobyard.model.queue import Queue


def floors_room(queue: Queue) -> i64:
    """Return the size of the record."""
    return ENTRY_SIZE + 4 * len(queue.name) + 24


def remember_floors(yard: Yard, queue: Queue) -> None:
    """Write the current floors of a queue; skipped if the disk is full."""
    topic_state = queue.topic_state
    assert topic_state is not None
    journal = yard.journal
    if journal.is_on and journal.has_room(floors_room(queue)):
        journal.set_entry(EntryKind.FLOORS, queue.name.encode(), topic_state.encode_floors())
