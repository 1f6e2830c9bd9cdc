"""What an unexpected error costs: one connection, if nothing was changed; else the process.

A session that fails before it has changed anything has harmed nobody else: its connection is
closed, the error is counted and logged, and everybody else is served on. Once a record was appended
or a job was moved, memory and journal may disagree, and only a restart, which reads the journal,
brings them back together. The disk's own failures are never survived.
"""

import traceback
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, StorageFailed

# Of the frames of an error, the innermost.
FRAMES_TOLD: Final = 5


def place_of(error: BaseException) -> str:
    """Return where an error was raised, for the log.

    Not what it says: that may quote what a client sent.
    """
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_TOLD:]
    return " < ".join(f"{frame.name} {frame.lineno}" for frame in reversed(frames))


@final
class Edge:
    """Decides about errors that nobody expected."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        # Told what was done and what went wrong.
        self.tell: Callable[[str, Exception], None] | None = None

    def survives(self, error: Exception, changes_before: i64, doing: str) -> bool:
        """Count and tell an error that changed nothing; False if it must end the process."""
        if isinstance(error, (StorageFailed, JournalDamaged)):
            return False
        if self._yard.changes() != changes_before:
            return False
        self._yard.errors.survived_count += 1
        if self.tell is not None:
            self.tell(doing, error)
        return True
