"""Webhooks: who wants to be told of what, and the notices on their way out.

Listens to the yard only while a webhook is switched on. An event becomes a notice at once, but no
notice leaves before everything that had been appended after its verb is on disk: notices wait for
an alarm, which marks them with the newest batch, and for a later one that finds the batch durable.

Webhooks are remembered under their ids. What became of the notices is counted with them, and
written down at most once a minute.
"""

import json
from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.state.bus import COMPLETED, FAILED, PROGRESS, PULLED, PUSHED, Event, Listener
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused, YardFull
from jobyard.model.entry import WEBHOOK
from jobyard.model.family import GLIDE
from jobyard.model.job import MSGPACK, RAW
from jobyard.protocols.bunqueue.environment import Surroundings
from jobyard.protocols.bunqueue.ids import id_text
from jobyard.protocols.bunqueue.progress import progress_number
from jobyard.protocols.timeout import Timeout
from jobyard.wire.msgpack.read import Fields, read_fields
from jobyard.wire.msgpack.write import encode
from jobyard.wire.payload import to_json

if TYPE_CHECKING:
    from jobyard.protocols.bunqueue.observer import Onlooker

EVENTS: Final = {
    PUSHED: "job.pushed",
    PULLED: "job.started",
    COMPLETED: "job.completed",
    FAILED: "job.failed",
    PROGRESS: "job.progress",
}
# More is a mistake of a client in a loop.
WEBHOOKS_MAX: Final = 1000
# What it takes to send a notice, in jobs looked at.
POST_UNITS: Final = 4
# Notices are looked at so long after their event, and again until their batch is durable.
LOOK_MS: Final = 5
# What may wait for a slow disk, in bytes of notices; beyond it new ones are let fall.
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
        """Tell whether it is to be told."""
        return self.is_enabled and event in self.events and (not self.queue or self.queue == queue)

    def encode(self) -> bytes:
        """Return all of it, for the journal."""
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
    """Return what `encode` wrote down."""
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


def _text(fields: Fields, key: bytes) -> str:
    return fields.text(key) or ""


@final
class Notice:
    """What is told of one event, and those there were to be told."""

    def __init__(self, webhooks: list[Webhook], event: str, queue: str, body: bytes) -> None:
        self.webhooks = webhooks
        self.event = event
        self.queue = queue
        self.body = body

    def size(self) -> i64:
        """Return about how much memory it takes."""
        return len(self.body) + NOTICE_SIZE


@final
class _Posting(Task):
    """Sends notices, each to all who want it."""

    def __init__(self, webhooks: "Webhooks") -> None:
        super().__init__()
        self._webhooks = webhooks
        self._notice: Notice | None = None
        self._at: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it is told what it tells
        """Send some."""
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

    def __init__(self, yard: Yard, surroundings: Surroundings) -> None:
        self._yard = yard
        self._surroundings = surroundings
        self.by_id: dict[str, Webhook] = {}
        # For tests, and for networks in which everybody is trusted.
        self.allows_private: bool = False
        self._is_listening: bool = False
        self._look = Timeout(self.look)
        self._webhooks: list[Webhook] = []
        # Of which queues anybody wants to be told an event; without a name: of all.
        self._wanted: dict[str, set[str]] = {}
        self._fresh: list[Notice] = []
        # May go, and go as the yard has time: there may be a thousand to tell of each.
        self._leaving: deque[Notice] = deque()
        self._is_posting: bool = False
        self._held: list[tuple[i64, list[Notice]]] = []
        self._held_bytes: i64 = 0
        self.dropped_count: i64 = 0
        # None while nobody listens.
        self.onlooker: Onlooker | None = None
        self._load()

    # -- the commands' side --------------------------------------------------------------------

    def add(self, webhook: Webhook, now_ms: i64) -> None:
        """Remember a webhook and serve it from now on."""
        if len(self.by_id) >= WEBHOOKS_MAX:
            raise Refused(f"Too many webhooks (max {WEBHOOKS_MAX})")
        self._write(webhook, now_ms)
        self.by_id[webhook.id] = webhook
        self._listen()

    def remove(self, webhook: Webhook, now_ms: i64) -> None:
        """Forget a webhook."""
        journal = self._yard.journal
        if journal.is_on:
            if not journal.admit(256, now_ms):
                raise YardFull
            journal.drop_entry(WEBHOOK, webhook.id.encode())
        del self.by_id[webhook.id]
        # Notices that are held back look at this before they go.
        webhook.is_enabled = False
        self._surroundings.forget(webhook.id)
        self._listen()

    def enable(self, webhook: Webhook, now_ms: i64, *, is_enabled: bool) -> None:
        """Switch a webhook on or off; what has not left yet does not leave."""
        was_enabled = webhook.is_enabled
        webhook.is_enabled = is_enabled
        try:
            self._write(webhook, now_ms)
        except YardFull:
            webhook.is_enabled = was_enabled
            raise
        if not is_enabled:
            self._surroundings.forget(webhook.id)
        self._listen()

    def enabled_count(self) -> i64:
        """Return how many are switched on."""
        count: i64 = 0
        for webhook in self.by_id.values():
            if webhook.is_enabled:
                count += 1
        return count

    def collect(self, now_ms: i64) -> None:
        """Count what became of notices since the last call."""
        for webhook_id, is_done, at_ms in self._surroundings.take_outcomes():
            webhook = self.by_id.get(webhook_id)
            if webhook is None:
                continue
            webhook.triggered_ms = max(webhook.triggered_ms, i64(at_ms))
            if is_done:
                webhook.successes += 1
            else:
                webhook.failures += 1
            webhook.is_changed = True
            if self.onlooker is not None:
                told: dict[str, object] = {"webhookId": webhook.id, "url": webhook.url}
                self.onlooker.tell("webhook:fired" if is_done else "webhook:failed", told)
        for webhook in self.by_id.values():
            if webhook.is_changed and now_ms - webhook.written_ms >= WRITE_MS:
                self._write_lazily(webhook, now_ms)

    # -- the yard's side -----------------------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Make a notice for everyone who wants to be told."""
        name = EVENTS.get(event.kind)
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
        """Let the notices go whose records are durable."""
        journal = self._yard.journal
        if self._fresh:
            # An event may be told before its record is appended; by now it has been.
            self._held.append((journal.newest() if journal.is_on else 0, self._fresh))
            self._fresh = []
        self.release()
        if self._held:
            self._yard.arm(self._look, now_ms + LOOK_MS)

    def release(self) -> None:
        """Send what is held and durable."""
        journal = self._yard.journal
        while self._held and (not journal.is_on or self._held[0][0] <= journal.durable):
            _number, notices = self._held.pop(0)
            self._leaving.extend(notices)
        if self._leaving and not self._is_posting:
            self._is_posting = True
            self._yard.tasks.begin(_Posting(self), None, self._yard.now_ms)

    def next_notice(self) -> Notice | None:
        """Return the next notice that may go, if there is one."""
        if not self._leaving:
            self._is_posting = False
            return None
        return self._leaving.popleft()

    def post(self, webhook: Webhook, notice: Notice) -> bool:
        """Send a notice to one who wants it still."""
        if not webhook.wants(notice.event, notice.queue):
            return False
        self._surroundings.post(webhook.id, webhook.url, webhook.secret, notice.event, notice.body)
        return True

    def forget(self, notice: Notice) -> None:
        """Hold a notice no longer: everybody was told."""
        self._held_bytes -= notice.size()

    def _listen(self) -> None:
        # A new list each time: notices on their way have the one there was.
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

    # -- what is remembered --------------------------------------------------------------------

    def _write(self, webhook: Webhook, now_ms: i64) -> None:
        journal = self._yard.journal
        if journal.is_on:
            value = webhook.encode()
            if not journal.admit(len(value) + 256, now_ms):
                raise YardFull
            journal.set_entry(WEBHOOK, webhook.id.encode(), value)
        webhook.written_ms = now_ms
        webhook.is_changed = False

    def _write_lazily(self, webhook: Webhook, now_ms: i64) -> None:
        try:
            self._write(webhook, now_ms)
        except YardFull:
            # Only counters: they can wait for room.
            webhook.written_ms = now_ms

    def _load(self) -> None:
        found: list[Webhook] = []
        for entry in self._yard.journal.entries.values():
            if entry.kind == WEBHOOK and not entry.is_gone:
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
    """Return the JSON a receiver gets; what an event does not have is left out."""
    job = event.job
    job_id = "" if job is None else id_text(job)
    parts = [
        f'{{"event":"{name}","timestamp":{event.at_ms + wall_offset_ms}'
        f',"jobId":{json.dumps(job_id)},"queue":{json.dumps(event.queue.name)}'.encode()
    ]
    if event.kind == COMPLETED and job is not None and event.result:
        codec = RAW if job.family == GLIDE else MSGPACK
        parts += [b',"data":', to_json(codec, event.result)]
    elif event.kind == FAILED:
        parts.append(f',"error":{json.dumps(event.error)}'.encode())
    elif event.kind == PROGRESS and job is not None and job.extra is not None:
        progress = json.dumps(progress_number(job.extra))
        parts.append(f',"progress":{progress}'.encode())
    parts.append(b"}")
    return b"".join(parts)
