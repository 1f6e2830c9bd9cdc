"""Commands that register, list and remove workers and webhooks."""

from typing import Final

from mypy_extensions import i64

from jobyard.errors import Refused
from jobyard.model.lease import WorkerName
from jobyard.model.webhook_url import check_url
from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.push_options import NAME_MAX
from jobyard.protocols.bunqueue.door import Answer, BunqueueDoor
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.protocols.bunqueue.webhooks import WEBHOOK_EVENTS, Webhook
from jobyard.protocols.bunqueue.workers import Worker
from jobyard.wire.msgpack.read import MapFields

SECRET_MAX: Final = 4096
QUEUES_MAX: Final = 1000
# Workers of one connection; more come from a client that registers in a loop.
WORKERS_MAX: Final = 1000
WORKER_COUNT_MAX: Final = 1 << 52

_EVENT_NAMES: Final = tuple(WEBHOOK_EVENTS.values())


def new_uuid(door: BunqueueDoor, now_ms: i64) -> str:
    """Return a unique id made of the time, the boot and a number that is unique in the boot."""
    time_ms = int(door.wall_ms(now_ms))
    number = int(door.yard.new_number())
    boot = int(door.yard.journal.epoch)
    return (
        f"{time_ms >> 16 & 0xFFFFFFFF:08x}-{time_ms & 0xFFFF:04x}-7{boot & 0xFFF:03x}"
        f"-{0x8000 | boot >> 12 & 0x3FFF:04x}-{number & 0xFFFFFFFFFFFF:012x}"
    )


def _short_text(fields: MapFields, key: bytes, most: int) -> str:
    text = push_options.text(fields, key)
    if len(text) > most:
        raise Refused(f"{key.decode()} must be at most {most} characters")
    return text


# -- workers -----------------------------------------------------------------------------------


def register_worker(session: BunqueueSession, request: Request) -> Answer:
    """RegisterWorker: register a worker; a known worker keeps its counts."""
    fields = request.fields
    door = session.door
    now_ms = request.now_ms
    name = _short_text(fields, b"name", NAME_MAX)
    if not name:
        raise Refused("name is required")
    queues = fields.texts(b"queues")
    if queues is None:
        raise Refused("queues must be an array of strings")
    if len(queues) > QUEUES_MAX:
        raise Refused(f"queues must have at most {QUEUES_MAX} entries")
    concurrency = push_options.number(fields, b"concurrency", 1, 0, WORKER_COUNT_MAX)
    worker_id = _short_text(fields, b"workerId", NAME_MAX) or new_uuid(door, now_ms)
    if len(session.worker_ids) >= WORKERS_MAX:
        # Workers registered over HTTP may leave without unregistering.
        door.workers.drop_lost(now_ms)
    if len(session.worker_ids) >= WORKERS_MAX and worker_id not in session.worker_ids:
        raise Refused(f"Too many workers on one connection (max {WORKERS_MAX})")
    worker = Worker(worker_id, name, queues, now_ms)
    worker.concurrency = concurrency
    worker.hostname = _short_text(fields, b"hostname", NAME_MAX)
    worker.pid = push_options.number(fields, b"pid", 0, 0, WORKER_COUNT_MAX)
    worker = door.workers.enter(worker, session.worker_ids)
    # Jobs that this connection takes without an owner are shown under the worker's id.
    session.lease_set.worker = WorkerName(worker.id)
    row = worker_value(door, worker, now_ms)
    row["workerId"] = worker.id
    return {"data": row}


def worker_value(door: BunqueueDoor, worker: Worker, now_ms: i64) -> dict[str, object]:
    """Return a worker as clients see it."""
    return {
        "id": worker.id,
        "name": worker.name,
        "queues": worker.queues,
        "concurrency": int(worker.concurrency),
        "hostname": worker.hostname or "unknown",
        "pid": int(worker.pid),
        "status": "active" if worker.is_active(now_ms) else "stale",
        "registeredAt": float(door.wall_ms(worker.registered_ms)),
        "lastSeen": float(door.wall_ms(worker.seen_ms)),
        "activeJobs": int(worker.active),
        "processedJobs": int(worker.processed),
        "failedJobs": int(worker.failed),
        "currentJob": None,
        "uptime": int(now_ms - worker.registered_ms),
    }


def unregister_worker(session: BunqueueSession, request: Request) -> Answer:
    """UnregisterWorker: remove a worker."""
    if not session.door.workers.dismiss(push_options.text(request.fields, b"workerId")):
        raise Refused("Worker not found")
    session.lease_set.worker = None
    return {"data": {"removed": True}}


def heartbeat(session: BunqueueSession, request: Request) -> Answer:
    """Heartbeat: record that a worker is alive, and its job counts."""
    fields = request.fields
    workers = session.door.workers
    worker = workers.by_id.get(push_options.text(fields, b"id"))
    if worker is None:
        raise Refused("Worker not found")
    counts = (
        push_options.number(fields, b"activeJobs", -1, 0, WORKER_COUNT_MAX),
        push_options.number(fields, b"processed", -1, 0, WORKER_COUNT_MAX),
        push_options.number(fields, b"failed", -1, 0, WORKER_COUNT_MAX),
    )
    workers.beat(worker, counts, request.now_ms)
    return {"data": {"ok": True}}


def list_workers(session: BunqueueSession, request: Request) -> Answer:
    """ListWorkers: list all workers, with totals."""
    door = session.door
    now_ms = request.now_ms
    door.workers.drop_lost(now_ms)
    rows: list[object] = [worker_value(door, one, now_ms) for one in door.workers.by_id.values()]
    return {"data": {"workers": rows, "stats": worker_stats(door, now_ms)}}


def worker_stats(door: BunqueueDoor, now_ms: i64) -> dict[str, object]:
    """Return totals over all workers; processed and failed jobs include workers that left."""
    workers = door.workers
    active: i64 = 0
    slots: i64 = 0
    jobs: i64 = 0
    for worker in workers.by_id.values():
        jobs += worker.active
        if worker.is_active(now_ms):
            active += 1
            slots += worker.concurrency
    return {
        "total": len(workers.by_id),
        "active": int(active),
        "totalProcessed": int(workers.processed_total),
        "totalFailed": int(workers.failed_total),
        "activeJobs": int(jobs),
        "concurrencySlots": int(slots),
    }


# -- webhooks ----------------------------------------------------------------------------------


def add_webhook(session: BunqueueSession, request: Request) -> Answer:
    """AddWebhook: add a webhook if its URL is allowed."""
    fields = request.fields
    door = session.door
    url = push_options.text(fields, b"url")
    if not url:
        raise Refused("Webhook URL is required")
    check_url(url, allow_private=door.webhooks.allows_private)
    events = _asked_events(fields)
    queue = push_options.queue_name(fields) if push_options.text(fields, b"queue") else ""
    created_ms = door.wall_ms(request.now_ms)
    webhook = Webhook(new_uuid(door, request.now_ms), url, events, created_ms)
    webhook.queue = queue
    webhook.secret = _short_text(fields, b"secret", SECRET_MAX)
    door.webhooks.add(webhook, request.now_ms)
    return {
        "data": {
            "webhookId": webhook.id,
            "url": webhook.url,
            "events": events,
            "queue": queue or None,
            "createdAt": float(created_ms),
        }
    }


def _asked_events(fields: MapFields) -> list[str]:
    asked = fields.texts(b"events")
    if asked is None:
        raise Refused("events must be an array of strings")
    if not asked:
        raise Refused(f"events must not be empty. Valid: {', '.join(_EVENT_NAMES)}")
    unknown = [event for event in asked if event not in _EVENT_NAMES]
    if unknown:
        shown = ", ".join(event[:NAME_MAX] for event in unknown[:10])
        raise Refused(f"Invalid webhook event(s): {shown}. Valid: {', '.join(_EVENT_NAMES)}")
    return list(dict.fromkeys(asked))


def _named_webhook(session: BunqueueSession, fields: MapFields) -> Webhook:
    name = push_options.text(fields, b"webhookId") or push_options.text(fields, b"id")
    webhook = session.door.webhooks.by_id.get(name)
    if webhook is None:
        raise Refused("Webhook not found")
    return webhook


def remove_webhook(session: BunqueueSession, request: Request) -> Answer:
    """RemoveWebhook: remove a webhook."""
    webhook = _named_webhook(session, request.fields)
    session.door.webhooks.remove(webhook, request.now_ms)
    return {"data": {"removed": True}}


def set_webhook_enabled(session: BunqueueSession, request: Request) -> Answer:
    """SetWebhookEnabled: enable or disable a webhook."""
    fields = request.fields
    webhook = _named_webhook(session, fields)
    is_enabled = fields.is_true(b"enabled")
    if not is_enabled and not fields.is_false(b"enabled"):
        raise Refused("enabled must be a boolean")
    session.door.webhooks.enable(webhook, request.now_ms, is_enabled=is_enabled)
    return {}


def list_webhooks(session: BunqueueSession, request: Request) -> Answer:
    """ListWebhooks: list all webhooks without their secrets."""
    webhooks = session.door.webhooks
    webhooks.collect(request.now_ms)
    rows: list[object] = [
        {
            "id": one.id,
            "url": one.url,
            "events": one.events,
            "queue": one.queue or None,
            "createdAt": float(one.created_ms),
            "lastTriggered": float(one.triggered_ms) if one.triggered_ms else None,
            "successCount": int(one.successes),
            "failureCount": int(one.failures),
            "enabled": one.is_enabled,
        }
        for one in webhooks.by_id.values()
    ]
    stats: dict[str, object] = {"total": len(rows), "enabled": int(webhooks.enabled_count())}
    return {"data": {"webhooks": rows, "stats": stats}}


REGISTRY_COMMANDS: Final[dict[bytes, Command]] = {
    b"RegisterWorker": register_worker,
    b"UnregisterWorker": unregister_worker,
    b"Heartbeat": heartbeat,
    b"ListWorkers": list_workers,
    b"AddWebhook": add_webhook,
    b"RemoveWebhook": remove_webhook,
    b"SetWebhookEnabled": set_webhook_enabled,
    b"ListWebhooks": list_webhooks,
}
