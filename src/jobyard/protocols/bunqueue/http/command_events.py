"""Which commands are news to dashboards, and under which names they hear of what happens.

The life of jobs is told by the engine. Most of what else is done, is done by commands: a row says
how one is told, from the fields that came and the fields that were answered.
"""

from typing import Final, final

from jobyard.engine.state import bus
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.request import Request

# What the engine tells of; all else is told as job:KIND.
EVENT_NAMES: Final = {
    bus.PULLED: "job:active",
    bus.PAUSED: "queue:paused",
    bus.RESUMED: "queue:resumed",
}

# Everything that can be asked for, by the word before the colon.
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
    """Return the name of an event of the engine."""
    return EVENT_NAMES.get(kind) or f"job:{kind}"


@final
class News:
    """How one command is told: fields of the request and of the answer, under their new names."""

    def __init__(
        self, name: str, asked: str = "", answered: str = "", *, counts: bool = False
    ) -> None:
        self.name = name
        self.asked = _pairs(asked)
        self.answered = _pairs(answered)
        # No news if it did nothing.
        self.counts = counts


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return (old name, new name) of words that are `name` or `old=new`."""
    pairs: list[tuple[str, str]] = []
    for word in text.split():
        old, _, new = word.partition("=")
        pairs.append((old, new or old))
    return pairs


_WORKER: Final = "workerId name queues hostname pid"

NEWS: Final[dict[bytes, News]] = {
    b"Drain": News("queue:drained", "queue", "count", counts=True),
    b"Clean": News("queue:cleaned", "queue state", "count", counts=True),
    b"Obliterate": News("queue:obliterated", "queue"),
    b"RetryDlq": News("dlq:retry-all", "queue jobId", "count", counts=True),
    b"PurgeDlq": News("dlq:purged", "queue", "count", counts=True),
    b"RateLimit": News("ratelimit:set", "queue limit=max duration ttl"),
    b"RateLimitClear": News("ratelimit:cleared", "queue"),
    b"SetConcurrency": News("concurrency:set", "queue limit=concurrency"),
    b"ClearConcurrency": News("concurrency:cleared", "queue"),
    b"SetStallConfig": News("config:stall-changed", "queue config"),
    b"SetDlqConfig": News("config:dlq-changed", "queue config"),
    b"Update": News("job:data-updated", "id=jobId"),
    b"ChangePriority": News("job:priority-changed", "id=jobId priority=newPriority"),
    b"ChangeDelay": News("job:delay-changed", "id=jobId delay=newDelay"),
    b"Promote": News("job:promoted", "id=jobId"),
    b"MoveToDelayed": News("job:moved-to-delayed", "id=jobId delay"),
    b"Discard": News("job:discarded", "id=jobId"),
    b"Cron": News("cron:updated", "name queue schedule=pattern repeatEvery=every", "nextRun"),
    b"CronDelete": News("cron:deleted", "name"),
    b"AddWebhook": News("webhook:added", "", "webhookId=id url events"),
    b"RemoveWebhook": News("webhook:removed", "webhookId=id id"),
    b"SetWebhookEnabled": News("webhook:enabled", "id=webhookId"),
    b"RegisterWorker": News("worker:connected", "", _WORKER),
    b"UnregisterWorker": News("worker:disconnected", "workerId"),
    b"Heartbeat": News("worker:heartbeat", "id=workerId"),
    b"CompactMemory": News("memory:compacted"),
}


def news_of(request: Request, answer: Answer) -> tuple[str, dict[str, object]] | None:
    """Return the name and the fields under which a command is told, if it is."""
    news = NEWS.get(request.name)
    if news is None or (news.counts and answer.get("count") == 0):
        return None
    told: dict[str, object] = {}
    for old, new in news.asked:
        key = old.encode()
        if request.fields.has(key) and not request.fields.is_nil(key):
            told[new] = request.fields.value(key)
    data = answer.get("data") or answer.get("cron")
    answered = data if isinstance(data, dict) else answer
    for old, new in news.answered:
        told[new] = answered.get(old)
    name = news.name
    if request.name == b"RetryDlq" and "jobId" in told:
        name = "dlq:retried"
    elif request.name == b"SetWebhookEnabled" and request.fields.is_false(b"enabled"):
        name = "webhook:disabled"
    return name, told
