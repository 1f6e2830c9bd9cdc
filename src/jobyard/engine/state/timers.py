"""Base classes for timers with an action of their own, and for observers of ended jobs."""

from mypy_extensions import i64

from jobyard.model.index.item import Item
from jobyard.model.job import Job


class Alarm(Item):
    """An item of the timer heap with an action; `sort_key` is when it fires."""

    def ring(self, now_ms: i64) -> None:
        """Do what is due. The alarm has left the timer heap."""
        raise NotImplementedError


class EndObserver:
    """Keeps ended jobs and counts ends; notified of every final end."""

    def rested(self, job: Job) -> None:
        """Handle a job that has just become dead or done."""
        raise NotImplementedError

    def left(self, job: Job, why: i64, now_ms: i64) -> None:
        """Handle a job that was removed at the end of its run."""
        raise NotImplementedError
