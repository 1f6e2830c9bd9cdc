"""Sends events of the yard to its listeners: event streams and webhooks.

Without a listener this costs one check per verb; with listeners to other queues only, one more on
hot paths. A listener is notified at once, before anything is on disk; what it sends to a client
must wait for the journal like any reply.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.model.details import FailureReason
from jobyard.model.job import JSON, Job
from jobyard.model.queue import Queue


@final
class EventName:
    """The names of events."""

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

    # Automatic events that do not belong to a single job.
    CRON_FIRED: Final = "cron:fired"
    CRON_SKIPPED: Final = "cron:skipped"
    CRON_MISSED: Final = "cron:missed"
    DEAD_RETRIED: Final = "dlq:auto-retried"
    DEAD_EXPIRED: Final = "dlq:expired"


@final
class Event:
    """An event of a job or of a whole queue."""

    def __init__(self, kind: str, queue: Queue, job: Job | None, at_ms: i64) -> None:
        self.kind: str = kind
        self.queue: Queue = queue
        self.job: Job | None = job
        self.at_ms: i64 = at_ms
        # Set if the kind has them: the state before; the error, its reason, whether it was the
        # last attempt, and whether the job is kept as a dead one.
        self.before: str = ""
        self.error: str = ""
        self.reason: i64 = FailureReason.UNKNOWN
        self.is_final: bool = False
        self.is_dead: bool = False
        self.delay_ms: i64 = 0
        # The result, and its codec.
        self.result: bytes = b""
        self.codec: i64 = JSON


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Listener:
    """An object that receives events."""

    def happened(self, event: Event) -> None:
        """Receive an event."""

    # Events of every job have methods of their own: a listener that ignores them saves the `Event`.

    def pushed(self, queue: Queue, job: Job, at_ms: i64) -> None:
        """Receive the event of a new job."""
        self.happened(Event(EventName.PUSHED, queue, job, at_ms))

    def completed(self, queue: Queue, job: Job, result: bytes, codec: i64, at_ms: i64) -> None:
        """Receive the event of a run that succeeded."""
        event = Event(EventName.COMPLETED, queue, job, at_ms)
        event.result = result
        event.codec = codec
        self.happened(event)

    def noted(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Receive an event that does not belong to a job; ignored by default."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenListener(Listener):
    """A listener that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class Bus:
    """All listeners, to everything or to one queue."""

    def __init__(self) -> None:
        # Lists are replaced, never changed: a listener may remove itself while it is notified.
        self._listeners: list[Listener] = []
        # By the name of their queue.
        self._near: dict[str, list[Listener]] = {}
        self.is_on: bool = False
        # Whether there are listeners to everything.
        self.is_wide: bool = False

    def add(self, listener: Listener) -> None:
        """Send all events to `listener` from now on."""
        self._listeners = [*self._listeners, listener]
        self._look()

    def remove(self, listener: Listener) -> None:
        """Stop sending all events to `listener`."""
        self._listeners = [one for one in self._listeners if one is not listener]
        self._look()

    def add_near(self, listener: Listener, name: str) -> None:
        """Send the events of a queue to `listener` from now on, except for jobs that are taken."""
        self._near[name] = [*self._near.get(name, []), listener]
        self._look()

    def remove_near(self, listener: Listener, name: str) -> None:
        """Stop sending the events of a queue to `listener`."""
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
        """Return whether a queue has listeners; for hot paths.

        Other code sends events whenever the bus is on.
        """
        return self.is_wide or queue.name in self._near

    def publish(self, event: Event) -> None:
        """Send an event to its listeners."""
        for listener in self._listeners:
            listener.happened(event)
        near = self._near.get(event.queue.name)
        if near is not None:
            for listener in near:
                listener.happened(event)

    def publish_pushed(self, queue: Queue, job: Job, at_ms: i64) -> None:
        """Send the event of a new job to its listeners."""
        for listener in self._listeners:
            listener.pushed(queue, job, at_ms)
        near = self._near.get(queue.name)
        if near is not None:
            for listener in near:
                listener.pushed(queue, job, at_ms)

    def publish_completed(
        self, queue: Queue, job: Job, result: bytes, codec: i64, at_ms: i64
    ) -> None:
        """Send the event of a run that succeeded, with its result, to its listeners."""
        for listener in self._listeners:
            listener.completed(queue, job, result, codec, at_ms)
        near = self._near.get(queue.name)
        if near is not None:
            for listener in near:
                listener.completed(queue, job, result, codec, at_ms)

    def note(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Send an event that does not belong to a job to the listeners to everything."""
        for listener in self._listeners:
            listener.noted(name, fields, at_ms)
