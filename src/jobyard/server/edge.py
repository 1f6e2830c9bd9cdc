"""Unexpected errors close one connection if nothing was changed, else they stop the process.

If a session fails before it has changed anything, its connection is closed, the error is counted
and logged, and all others are still served. Once a record was appended or a job was moved, memory
and journal may disagree, and only a restart, which reads the journal, makes them consistent. Disk
failures always stop the process.
"""

import traceback
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, StorageFailed

# How many of the innermost frames are logged.
FRAMES_LOGGED: Final = 5


def place_of(error: BaseException) -> str:
    """Return where an error was raised, for the log.

    Without its message, which may quote client data.
    """
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_LOGGED:]
    return " < ".join(f"{frame.name} {frame.lineno}" for frame in reversed(frames))


@final
class ErrorBoundary:
    """Decides whether the server survives an unexpected error."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        # Called with what was being done and the error.
        self.log_error: Callable[[str, Exception], None] | None = None

    def survives(self, error: Exception, changes_before: i64, doing: str) -> bool:
        """Count and report an error that changed nothing; return False if the process must end."""
        if isinstance(error, (StorageFailed, JournalDamaged)):
            return False
        if self._yard.changes() != changes_before:
            return False
        self._yard.errors.survived_count += 1
        if self.log_error is not None:
            self.log_error(doing, error)
        return True
