"""Tells what happens in the yard to those who asked: event streams, webhooks.

Nobody listening costs one test a verb, others listening to other queues one more where it is hot. A
listener is told at once, before anything is on disk; what it sends to a client must wait for the
journal like any answer.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.model.details import UNKNOWN
from jobyard.model.job import JSON, Job
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
        # What it came to, and how that is written.
        self.result: bytes = b""
        self.codec: i64 = JSON


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Listener:
    """Someone who wants to know."""

    def happened(self, event: Event) -> None:
        """Take note of one event."""

    # What happens to every job is told apart, so that who wants little of it is told cheaply.

    def pushed(self, queue: Queue, job: Job, at_ms: i64) -> None:
        """Take note of a new job."""
        self.happened(Event(PUSHED, queue, job, at_ms))

    def completed(self, queue: Queue, job: Job, result: bytes, codec: i64, at_ms: i64) -> None:
        """Take note of a run that ended well."""
        event = Event(COMPLETED, queue, job, at_ms)
        event.result = result
        event.codec = codec
        self.happened(event)

    def noted(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Take note of something that is no event of a job; most do not care."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenListener(Listener):
    """A listener that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class Bus:
    """All listeners: to everything, or to what happens in one queue."""

    def __init__(self) -> None:
        # Lists are replaced, never changed: who is told may leave.
        self._listeners: list[Listener] = []
        # By the name of the queue they care for.
        self._near: dict[str, list[Listener]] = {}
        self.is_on: bool = False
        # Whether anybody listens to everything.
        self.is_wide: bool = False

    def add(self, listener: Listener) -> None:
        """Tell `listener` everything from now on."""
        self._listeners = [*self._listeners, listener]
        self._look()

    def remove(self, listener: Listener) -> None:
        """Tell it no more."""
        self._listeners = [one for one in self._listeners if one is not listener]
        self._look()

    def add_near(self, listener: Listener, name: str) -> None:
        """Tell `listener` what happens in a queue from now on, but for jobs that are taken."""
        self._near[name] = [*self._near.get(name, []), listener]
        self._look()

    def remove_near(self, listener: Listener, name: str) -> None:
        """Tell it no more of that queue."""
        left = [one for one in self._near[name] if one is not listener]
        if left:
            self._near[name] = left
        else:
            del self._near[name]
        self._look()

    def _look(self) -> None:
        self.is_wide = len(self._listeners) > 0
        self.is_on = self.is_wide or len(self._near) > 0

    def hears(self, queue: Queue) -> bool:
        """Tell whether anybody wants to know what happens in a queue; to be asked where it is hot.

        Others tell whenever the bus is on.
        """
        return self.is_wide or queue.name in self._near

    def tell(self, event: Event) -> None:
        """Tell everyone who cares."""
        for listener in self._listeners:
            listener.happened(event)
        near = self._near.get(event.queue.name)
        if near is not None:
            for listener in near:
                listener.happened(event)

    def tell_pushed(self, queue: Queue, job: Job, at_ms: i64) -> None:
        """Tell everyone who cares of a new job."""
        for listener in self._listeners:
            listener.pushed(queue, job, at_ms)
        near = self._near.get(queue.name)
        if near is not None:
            for listener in near:
                listener.pushed(queue, job, at_ms)

    def tell_completed(self, queue: Queue, job: Job, result: bytes, codec: i64, at_ms: i64) -> None:
        """Tell everyone who cares of a run that ended well, with a result written so."""
        for listener in self._listeners:
            listener.completed(queue, job, result, codec, at_ms)
        near = self._near.get(queue.name)
        if near is not None:
            for listener in near:
                listener.completed(queue, job, result, codec, at_ms)

    def note(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Tell everyone of something that is no event of a job."""
        for listener in self._listeners:
            listener.noted(name, fields, at_ms)
