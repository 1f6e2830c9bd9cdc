"""A timer of the yard that does something of its own when it rings."""

from mypy_extensions import i64

from jobyard.model.index.item import Item
from jobyard.model.job import Job


class Alarm(Item):
    """Stands among the timers; `sort_key` is when it rings."""

    def ring(self, now_ms: i64) -> None:
        """Do what is due. It stands among the timers no more."""
        raise NotImplementedError


class Keeper:
    """Looks after jobs at rest, and counts ends; told of every end that is one for good."""

    def rested(self, job: Job) -> None:
        """Take note of a job that has just become dead or done."""
        raise NotImplementedError

    def left(self, job: Job, why: i64, now_ms: i64) -> None:
        """Take note of a job that went with the end of its run."""
        raise NotImplementedError
