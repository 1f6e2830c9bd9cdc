"""Dashboard events that commands cause, and the names of all dashboard events.

The engine reports job transitions. Most other events come from commands: a row gives the event of
a command and which fields of the request and of the answer it carries.
"""

from typing import Final, final

from jobyard.engine.state import bus
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.request import Request

# Engine events with names of their own; all others become job:KIND.
EVENT_NAMES: Final = {
    bus.EventName.PULLED: "job:active",
    bus.EventName.PAUSED: "queue:paused",
    bus.EventName.RESUMED: "queue:resumed",
}

# Every event a client can subscribe to, by the word before the colon.
_TOPICS: Final = {
    "job": "pushed active completed failed removed promoted progress delayed stalled retried"
    " discarded priority-changed data-updated delay-changed timeout lock-expired deduplicated"
    " duplicated waiting waiting-children dependencies-resolved moved-to-delayed expired",
    "queue": "created removed paused resumed drained cleaned obliterated counts idle threshold",
    "dlq": "added retried retry-all purged auto-retried expired",
    "flow": "completed failed",
    "cron": "created updated deleted fired missed skipped",
    "worker": "connected disconnected heartbeat idle removed-stale overloaded error",
    "ratelimit": "set cleared hit rejected",
    "concurrency": "set cleared rejected",
    "webhook": "added removed fired failed enabled disabled",
    "batch": "pushed pulled",
    "client": "connected disconnected",
    "auth": "failed",
    "cleanup": "orphans-removed stale-deps-removed",
    "health": "status",
    "stats": "snapshot",
    "storage": "status backup-started backup-completed backup-failed size-warning",
    "server": "started shutdown recovered memory-warning",
    "memory": "compacted",
    "config": "stall-changed dlq-changed",
}
PATTERNS: Final = frozenset(
    f"{topic}:{word}" for topic, words in _TOPICS.items() for word in ("*", *words.split(" "))
) | {"*"}


def event_name(kind: str) -> str:
    """Return the dashboard name of an engine event."""
    return EVENT_NAMES.get(kind) or f"job:{kind}"


@final
class CommandEvents:
    """The event of one command: its name, and which request and answer fields it carries."""

    def __init__(
        self, name: str, asked: str = "", answered: str = "", *, counts: bool = False
    ) -> None:
        self.name = name
        self.asked = _pairs(asked)
        self.answered = _pairs(answered)
        # No event if the answer's count is 0.
        self.counts = counts


def _pairs(text: str) -> list[tuple[str, str]]:
    """Parse words of the form `name` or `old=new` into (old name, new name)."""
    pairs: list[tuple[str, str]] = []
    for word in text.split():
        old, _, new = word.partition("=")
        pairs.append((old, new or old))
    return pairs


_WORKER: Final = "workerId name queues hostname pid"

COMMAND_EVENTS: Final[dict[bytes, CommandEvents]] = {
    b"Drain": CommandEvents("queue:drained", "queue", "count", counts=True),
    b"Clean": CommandEvents("queue:cleaned", "queue state", "count", counts=True),
    b"Obliterate": CommandEvents("queue:obliterated", "queue"),
    b"RetryDlq": CommandEvents("dlq:retry-all", "queue jobId", "count", counts=True),
    b"PurgeDlq": CommandEvents("dlq:purged", "queue", "count", counts=True),
    b"RateLimit": CommandEvents("ratelimit:set", "queue limit=max duration ttl"),
    b"RateLimitClear": CommandEvents("ratelimit:cleared", "queue"),
    b"SetConcurrency": CommandEvents("concurrency:set", "queue limit=concurrency"),
    b"ClearConcurrency": CommandEvents("concurrency:cleared", "queue"),
    b"SetStallConfig": CommandEvents("config:stall-changed", "queue config"),
    b"SetDlqConfig": CommandEvents("config:dlq-changed", "queue config"),
    b"Update": CommandEvents("job:data-updated", "id=jobId"),
    b"ChangePriority": CommandEvents("job:priority-changed", "id=jobId priority=newPriority"),
    b"ChangeDelay": CommandEvents("job:delay-changed", "id=jobId delay=newDelay"),
    b"Promote": CommandEvents("job:promoted", "id=jobId"),
    b"MoveToDelayed": CommandEvents("job:moved-to-delayed", "id=jobId delay"),
    b"Discard": CommandEvents("job:discarded", "id=jobId"),
    b"Cron": CommandEvents(
        "cron:updated", "name queue schedule=pattern repeatEvery=every", "nextRun"
    ),
    b"CronDelete": CommandEvents("cron:deleted", "name"),
    b"AddWebhook": CommandEvents("webhook:added", "", "webhookId=id url events"),
    b"RemoveWebhook": CommandEvents("webhook:removed", "webhookId=id id"),
    b"SetWebhookEnabled": CommandEvents("webhook:enabled", "id=webhookId"),
    b"RegisterWorker": CommandEvents("worker:connected", "", _WORKER),
    b"UnregisterWorker": CommandEvents("worker:disconnected", "workerId"),
    b"Heartbeat": CommandEvents("worker:heartbeat", "id=workerId"),
    b"CompactMemory": CommandEvents("memory:compacted"),
}


def command_event_of(request: Request, answer: Answer) -> tuple[str, dict[str, object]] | None:
    """Return the name and the fields of the event that a command causes, or None."""
    command_event = COMMAND_EVENTS.get(request.name)
    if command_event is None or (command_event.counts and answer.get("count") == 0):
        return None
    event_fields: dict[str, object] = {}
    for old, new in command_event.asked:
        key = old.encode()
        if request.fields.has(key) and not request.fields.is_nil(key):
            event_fields[new] = request.fields.value(key)
    data = answer.get("data") or answer.get("cron")
    answered = data if isinstance(data, dict) else answer
    for old, new in command_event.answered:
        event_fields[new] = answered.get(old)
    name = command_event.name
    if request.name == b"RetryDlq" and "jobId" in event_fields:
        name = "dlq:retried"
    elif request.name == b"SetWebhookEnabled" and request.fields.is_false(b"enabled"):
        name = "webhook:disabled"
    return name, event_fields
