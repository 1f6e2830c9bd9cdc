"""Webhooks: their subscriptions to events, and the notices that wait to be sent.

Listens to the yard only while a webhook is enabled. An event becomes a notice at once, but no
notice is sent before the records of its verb are on disk: a timer marks new notices with the newest
batch, and a later one sends them when that batch is durable.

Webhooks are stored in the journal by id, together with their delivery counts, which are written at
most once a minute.
"""

import json
from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.state.bus import Event, EventName, Listener
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused, YardFull
from jobyard.model.entry import EntryKind
from jobyard.model.family import GLIDE
from jobyard.model.job import MSGPACK, RAW
from jobyard.protocols.bunqueue.environment import Environment
from jobyard.protocols.bunqueue.ids import id_text
from jobyard.protocols.bunqueue.progress import progress_number
from jobyard.protocols.timeout import Timeout
from jobyard.wire.msgpack.read import MapFields, read_fields
from jobyard.wire.msgpack.write import encode
from jobyard.wire.payload import to_json

if TYPE_CHECKING:
    from jobyard.protocols.bunqueue.observer import CommandObserver

WEBHOOK_EVENTS: Final = {
    EventName.PUSHED: "job.pushed",
    EventName.PULLED: "job.started",
    EventName.COMPLETED: "job.completed",
    EventName.FAILED: "job.failed",
    EventName.PROGRESS: "job.progress",
}
# More than this comes from a client that adds webhooks in a loop.
WEBHOOKS_MAX: Final = 1000
# The cost of sending a notice, in units of work.
POST_UNITS: Final = 4
# Notices are checked this long after their event, and again until their batch is durable.
LOOK_MS: Final = 5
# Bytes of notices that may wait for a slow disk; beyond that new notices are dropped.
HELD_BYTES_MAX: Final = 64 << 20
NOTICE_SIZE: Final = 128
WRITE_MS: Final = 60_000


@final
class Webhook:
    """One webhook. Its times are wall times."""

    def __init__(self, webhook_id: str, url: str, events: list[str], created_ms: i64) -> None:
        self.id: str = webhook_id
        self.url: str = url
        self.events: list[str] = events
        self.queue: str = ""
        self.secret: str = ""
        self.created_ms: i64 = created_ms
        self.triggered_ms: i64 = 0
        self.successes: i64 = 0
        self.failures: i64 = 0
        self.is_enabled: bool = True
        self.is_changed: bool = False
        self.written_ms: i64 = 0

    def wants(self, event: str, queue: str) -> bool:
        """Return whether this webhook receives an event of a queue."""
        return self.is_enabled and event in self.events and (not self.queue or self.queue == queue)

    def encode(self) -> bytes:
        """Encode the webhook for the journal."""
        return encode(
            {
                "url": self.url,
                "events": self.events,
                "queue": self.queue,
                "secret": self.secret,
                "created": float(self.created_ms),
                "triggered": float(self.triggered_ms),
                "successes": float(self.successes),
                "failures": float(self.failures),
                "enabled": self.is_enabled,
            }
        )


def decode_webhook(webhook_id: str, value: bytes) -> Webhook | None:
    """Decode what `Webhook.encode` wrote; None if it is malformed."""
    fields = read_fields(value, 0, len(value))
    if fields is None:
        return None
    created_ms = fields.integer(b"created", 0)
    webhook = Webhook(webhook_id, _text(fields, b"url"), fields.texts(b"events") or [], created_ms)
    webhook.queue = _text(fields, b"queue")
    webhook.secret = _text(fields, b"secret")
    webhook.triggered_ms = fields.integer(b"triggered", 0)
    webhook.successes = fields.integer(b"successes", 0)
    webhook.failures = fields.integer(b"failures", 0)
    webhook.is_enabled = fields.is_true(b"enabled")
    return webhook


def _text(fields: MapFields, key: bytes) -> str:
    return fields.text(key) or ""


@final
class Notice:
    """The body for one event, and the webhooks that were enabled when it happened."""

    def __init__(self, webhooks: list[Webhook], event: str, queue: str, body: bytes) -> None:
        self.webhooks = webhooks
        self.event = event
        self.queue = queue
        self.body = body

    def size(self) -> i64:
        """Return the approximate memory of the notice."""
        return len(self.body) + NOTICE_SIZE


@final
class _Posting(Task):
    """Sends each notice to all webhooks that want it, in slices."""

    def __init__(self, webhooks: "Webhooks") -> None:
        super().__init__()
        self._webhooks = webhooks
        self._notice: Notice | None = None
        self._at: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  bodies have their own time
        """Send some notices."""
        done: i64 = 0
        while done < most:
            notice = self._notice
            if notice is None:
                notice = self._webhooks.next_notice()
                if notice is None:
                    break
                self._notice = notice
                self._at = 0
            done += 1
            if self._at == len(notice.webhooks):
                self._webhooks.forget(notice)
                self._notice = None
                continue
            if self._webhooks.post(notice.webhooks[self._at], notice):
                done += POST_UNITS
            self._at += 1
        return done


@final
class Webhooks(Listener):
    """All webhooks by id, in the order they were added."""

    def __init__(self, yard: Yard, environment: Environment) -> None:
        self._yard = yard
        self._environment = environment
        self.by_id: dict[str, Webhook] = {}
        # Allows private addresses: for tests and trusted networks.
        self.allows_private: bool = False
        self._is_listening: bool = False
        self._look = Timeout(self.look)
        self._webhooks: list[Webhook] = []
        # The queues for which each event is wanted; the empty name means all queues.
        self._wanted: dict[str, set[str]] = {}
        self._fresh: list[Notice] = []
        # Durable notices, sent by a task: each may go to a thousand webhooks.
        self._leaving: deque[Notice] = deque()
        self._is_posting: bool = False
        self._held: list[tuple[i64, list[Notice]]] = []
        self._held_bytes: i64 = 0
        self.dropped_count: i64 = 0
        # None while there are no listeners.
        self.observer: CommandObserver | None = None
        self._load()

    # -- for commands --------------------------------------------------------------------------

    def add(self, webhook: Webhook, now_ms: i64) -> None:
        """Store a webhook and enable it."""
        if len(self.by_id) >= WEBHOOKS_MAX:
            raise Refused(f"Too many webhooks (max {WEBHOOKS_MAX})")
        self._write(webhook, now_ms)
        self.by_id[webhook.id] = webhook
        self._listen()

    def remove(self, webhook: Webhook, now_ms: i64) -> None:
        """Delete a webhook."""
        journal = self._yard.journal
        if journal.is_on:
            if not journal.admit(256, now_ms):
                raise YardFull
            journal.drop_entry(EntryKind.WEBHOOK, webhook.id.encode())
        del self.by_id[webhook.id]
        # Checked before each notice that is still held is sent.
        webhook.is_enabled = False
        self._environment.forget(webhook.id)
        self._listen()

    def enable(self, webhook: Webhook, now_ms: i64, *, is_enabled: bool) -> None:
        """Enable or disable a webhook; disabling drops notices that were not sent yet."""
        was_enabled = webhook.is_enabled
        webhook.is_enabled = is_enabled
        try:
            self._write(webhook, now_ms)
        except YardFull:
            webhook.is_enabled = was_enabled
            raise
        if not is_enabled:
            self._environment.forget(webhook.id)
        self._listen()

    def enabled_count(self) -> i64:
        """Return the number of enabled webhooks."""
        count: i64 = 0
        for webhook in self.by_id.values():
            if webhook.is_enabled:
                count += 1
        return count

    def collect(self, now_ms: i64) -> None:
        """Count the deliveries since the last call."""
        for webhook_id, is_done, at_ms in self._environment.take_outcomes():
            webhook = self.by_id.get(webhook_id)
            if webhook is None:
                continue
            webhook.triggered_ms = max(webhook.triggered_ms, i64(at_ms))
            if is_done:
                webhook.successes += 1
            else:
                webhook.failures += 1
            webhook.is_changed = True
            if self.observer is not None:
                fields: dict[str, object] = {"webhookId": webhook.id, "url": webhook.url}
                self.observer.publish("webhook:fired" if is_done else "webhook:failed", fields)
        for webhook in self.by_id.values():
            if webhook.is_changed and now_ms - webhook.written_ms >= WRITE_MS:
                self._write_lazily(webhook, now_ms)

    # -- for the yard --------------------------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Make a notice of an event that a webhook wants."""
        name = WEBHOOK_EVENTS.get(event.kind)
        if name is None:
            return
        queues = self._wanted.get(name)
        if queues is None or ("" not in queues and event.queue.name not in queues):
            return
        body = notice_body(event, name, self._yard.journal.wall_offset_ms)
        self._keep(Notice(self._webhooks, name, event.queue.name, body))
        if self._fresh:
            self._yard.arm(self._look, event.at_ms + LOOK_MS)

    def _keep(self, notice: Notice) -> None:
        size = notice.size()
        if self._held_bytes + size > HELD_BYTES_MAX:
            self.dropped_count += 1
            return
        self._held_bytes += size
        self._fresh.append(notice)

    def look(self, now_ms: i64) -> None:
        """Mark new notices with the newest batch, and send those whose batch is durable."""
        journal = self._yard.journal
        if self._fresh:
            # An event may come before its record is appended; by now the record has been.
            self._held.append((journal.newest() if journal.is_on else 0, self._fresh))
            self._fresh = []
        self.release()
        if self._held:
            self._yard.arm(self._look, now_ms + LOOK_MS)

    def release(self) -> None:
        """Send the held notices whose batch is durable."""
        journal = self._yard.journal
        while self._held and (not journal.is_on or self._held[0][0] <= journal.durable):
            _number, notices = self._held.pop(0)
            self._leaving.extend(notices)
        if self._leaving and not self._is_posting:
            self._is_posting = True
            self._yard.tasks.begin(_Posting(self), None, self._yard.now_ms)

    def next_notice(self) -> Notice | None:
        """Return the next notice to send, or None."""
        if not self._leaving:
            self._is_posting = False
            return None
        return self._leaving.popleft()

    def post(self, webhook: Webhook, notice: Notice) -> bool:
        """Send a notice to a webhook that still wants it."""
        if not webhook.wants(notice.event, notice.queue):
            return False
        self._environment.post(webhook.id, webhook.url, webhook.secret, notice.event, notice.body)
        return True

    def forget(self, notice: Notice) -> None:
        """Release the memory of a notice that was sent to all webhooks."""
        self._held_bytes -= notice.size()

    def _listen(self) -> None:
        # A new list each time: pending notices keep the previous one.
        self._webhooks = [one for one in self.by_id.values() if one.is_enabled]
        self._wanted = {}
        for webhook in self._webhooks:
            for event in webhook.events:
                self._wanted.setdefault(event, set()).add(webhook.queue)
        is_wanted = len(self._webhooks) > 0
        if is_wanted and not self._is_listening:
            self._yard.bus.add(self)
        elif self._is_listening and not is_wanted:
            self._yard.bus.remove(self)
        self._is_listening = is_wanted

    # -- journal -------------------------------------------------------------------------------

    def _write(self, webhook: Webhook, now_ms: i64) -> None:
        journal = self._yard.journal
        if journal.is_on:
            value = webhook.encode()
            if not journal.admit(len(value) + 256, now_ms):
                raise YardFull
            journal.set_entry(EntryKind.WEBHOOK, webhook.id.encode(), value)
        webhook.written_ms = now_ms
        webhook.is_changed = False

    def _write_lazily(self, webhook: Webhook, now_ms: i64) -> None:
        try:
            self._write(webhook, now_ms)
        except YardFull:
            # Only counters: they can wait until the disk has room.
            webhook.written_ms = now_ms

    def _load(self) -> None:
        found: list[Webhook] = []
        for entry in self._yard.journal.entries.values():
            if entry.kind == EntryKind.WEBHOOK and not entry.is_gone:
                webhook = decode_webhook(entry.key.decode(), entry.value)
                if webhook is not None:
                    found.append(webhook)
        found.sort(key=_age)
        for webhook in found:
            self.by_id[webhook.id] = webhook
        self._listen()


def _age(webhook: Webhook) -> tuple[int, str]:
    return int(webhook.created_ms), webhook.id


def notice_body(event: Event, name: str, wall_offset_ms: i64) -> bytes:
    """Return the JSON body of a notice; fields that the event lacks are omitted."""
    job = event.job
    job_id = "" if job is None else id_text(job)
    parts = [
        f'{{"event":"{name}","timestamp":{event.at_ms + wall_offset_ms}'
        f',"jobId":{json.dumps(job_id)},"queue":{json.dumps(event.queue.name)}'.encode()
    ]
    if event.kind == EventName.COMPLETED and job is not None and event.result:
        codec = RAW if job.family == GLIDE else MSGPACK
        parts += [b',"data":', to_json(codec, event.result)]
    elif event.kind == EventName.FAILED:
        parts.append(f',"error":{json.dumps(event.error)}'.encode())
    elif event.kind == EventName.PROGRESS and job is not None and job.details is not None:
        progress = json.dumps(progress_number(job.details))
        parts.append(f',"progress":{progress}'.encode())
    parts.append(b"}")
    return b"".join(parts)
