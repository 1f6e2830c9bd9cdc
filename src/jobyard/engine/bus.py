"""Tells what happens in the yard to those who asked: event streams, webhooks.

Nobody listening costs one test a verb. A listener is told at once, before anything is on disk; what
it sends to a client must wait for the journal like any answer.
"""

from typing import Final, final

from mypy_extensions import i64, trait

from jobyard.model.extra import UNKNOWN
from jobyard.model.job import Job
from jobyard.model.queue import Queue

PUSHED: Final = "pushed"
PULLED: Final = "pulled"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
RETRIED: Final = "retried"
STALLED: Final = "stalled"
REMOVED: Final = "removed"
DELAYED: Final = "delayed"
DUPLICATED: Final = "duplicated"
PROGRESS: Final = "progress"
WAITING: Final = "waiting"
WAITING_CHILDREN: Final = "waiting-children"
PAUSED: Final = "paused"
RESUMED: Final = "resumed"

# What happens by itself and to no one job.
CRON_FIRED: Final = "cron:fired"
CRON_SKIPPED: Final = "cron:skipped"
CRON_MISSED: Final = "cron:missed"
DEAD_RETRIED: Final = "dlq:auto-retried"
DEAD_EXPIRED: Final = "dlq:expired"


@final
class Event:
    """One thing that happened, to a job or to a whole queue."""

    def __init__(self, kind: str, queue: Queue, job: Job | None, at_ms: i64) -> None:
        self.kind: str = kind
        self.queue: Queue = queue
        self.job: Job | None = job
        self.at_ms: i64 = at_ms
        # Only what the kind has: the state before; the error, why it came to it, whether it was
        # the last attempt, and whether the job stays with the dead.
        self.before: str = ""
        self.error: str = ""
        self.reason: i64 = UNKNOWN
        self.is_final: bool = False
        self.is_dead: bool = False
        self.delay_ms: i64 = 0
        self.result: bytes = b""


@trait
class Listener:
    """Someone who wants to know."""

    def happened(self, event: Event) -> None:
        """Take note of one event."""

    def noted(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Take note of something that is no event of a job; most do not care."""


@final
class Bus:
    """All listeners."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self.is_on: bool = False

    def add(self, listener: Listener) -> None:
        """Tell `listener` everything from now on."""
        self._listeners.append(listener)
        self.is_on = True

    def remove(self, listener: Listener) -> None:
        """Tell it no more."""
        self._listeners.remove(listener)
        self.is_on = len(self._listeners) > 0

    def tell(self, event: Event) -> None:
        """Tell everyone."""
        for listener in list(self._listeners):
            listener.happened(event)

    def note(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Tell everyone of something that is no event of a job."""
        for listener in list(self._listeners):
            listener.noted(name, fields, at_ms)
