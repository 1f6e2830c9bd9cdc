"""Counters for unexpected errors, that is, bugs in Jobyard: what changed, and how many happened."""

from typing import final

from mypy_extensions import i64


@final
class UnexpectedErrors:
    """Counters that show whether an error left changes behind, and how many were survived."""

    def __init__(self) -> None:
        # How often a job entered or left an index, whether there is a record of it or not.
        self.moves_count: i64 = 0
        # `Yard.changes` before a timer fired; negative where an error must end the process.
        self.changes_before_ring: i64 = -1
        # Errors survived since this process started: each cost a connection or a timer.
        self.survived_count: i64 = 0
