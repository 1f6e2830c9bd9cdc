"""What is kept for the case that Jobyard itself is wrong: what has changed, and how often."""

from typing import final

from mypy_extensions import i64


@final
class Errors:
    """Counts that tell what an unexpected error may cost, and what such errors have cost."""

    def __init__(self) -> None:
        # Times a job came to stand somewhere or left, whether or not a record tells of it.
        self.moves_count: i64 = 0
        # `Yard.changes` before a timer rang; below zero where an error must end the process.
        self.changes_before_ring: i64 = -1
        # Errors that were survived since this process began: each cost a connection, or a timer.
        self.survived_count: i64 = 0
