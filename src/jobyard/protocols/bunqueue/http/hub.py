"""The hub, which sends events of the yard to HTTP listeners, and the /events endpoint.

The hub subscribes to the yard only while it has listeners, and for a while after the last one left,
so that a client that reconnects gets the events it missed: the newest events are numbered and kept
in a ring. Periodic events (counts, health, storage) have no number and are not kept.
Nothing is sent before it is on disk.
"""

from itertools import islice
from typing import Final, final

from mypy_extensions import i64, trait

from jobyard.engine.jobs.schedule import crons_of
from jobyard.engine.state.bus import Event, EventName, Listener
from jobyard.engine.state.tasks import Task
from jobyard.model.queue import Queue
from jobyard.protocols.bunqueue.commands.monitor import DASHBOARD_QUEUES, QueueRows, queue_row
from jobyard.protocols.bunqueue.commands.registry import new_uuid
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.http.command_events import command_event_of, event_name
from jobyard.protocols.bunqueue.http.derived_events import DashboardEvent, derived_events_of
from jobyard.protocols.bunqueue.http.pages import memory_of, part
from jobyard.protocols.bunqueue.http.routes import data_of
from jobyard.protocols.bunqueue.http.runner import CommandRunners, json_of
from jobyard.protocols.bunqueue.http.watchdog import Watchdog, WatchdogCheck
from jobyard.protocols.bunqueue.job_fields import event_fields
from jobyard.protocols.bunqueue.observer import CommandObserver
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.http.call import EVENT_STREAM, HttpCall, HttpRefused, PendingCall
from jobyard.protocols.timeout import Timeout
from jobyard.wire.http import sse
from jobyard.wire.json.write import quoted

RING_SIZE: Final = 1000
COUNTS_MS: Final = 10
# Each changed queue is counted. One more millisecond passes before the next counts per this many
# queues, so that counting takes a small share of the time; COUNTS_MAX are counted at once.
QUEUES_PER_MS: Final = 5
COUNTS_MAX: Final = 100
# The cost of sending one event, in units of work.
EVENT_UNITS: Final = 10
# Statistics are sent with every beat, health with every second, storage with every sixth.
BEAT_MS: Final = 5000
HEALTH_BEATS: Final = 2
STORAGE_BEATS: Final = 6
# How long events are kept for a client that may reconnect.
STREAM_LINGER_MS: Final = 300_000
RECONNECT_MS: Final = 3000
EVENT_STREAMS_MAX: Final = 1000

# The low bits of a number count the events of one boot; the bits above hold the boot.
_BOOT_SHIFT: Final = 32

_STREAM_HEADERS: Final = b"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"

# As the original spells it, without a space.
_HEARTBEAT: Final = b":heartbeat\n\n"

_COUNTED: Final = ("waiting", "prioritized", "active", "completed", "failed", "delayed")
_SHOWN: Final = ("waiting", "active", "delayed", "dlq", "paused")


@final
class HubEvent:
    """One event, encoded on demand for each kind of listener."""

    def __init__(self, number: i64, name: str, queue: str, wall_ms: i64, data: bytes) -> None:
        # 0 for an event that is not kept.
        self.number: i64 = number
        self.name = name
        # Empty for an event of the whole server.
        self.queue = queue
        self._wall_ms: i64 = wall_ms
        self._data = data
        # All fields of an engine event, for WebSockets that never subscribed.
        self.fields: dict[str, object] | None = None
        self._raw: bytes = b""
        self._block: bytes = b""
        self._message: bytes = b""

    def group(self) -> str:
        """Return the pattern that matches all events of its topic."""
        return self.name.partition(":")[0] + ":*"

    def block(self) -> bytes:
        """Return the event as a block of an event stream."""
        if not self._block:
            number = b"%d" % self.number if self.number > 0 else b""
            self._block = sse.event(number, self.name.encode(), self._data)
        return self._block

    def raw(self) -> bytes:
        """Return the JSON of the engine event; empty if it is not one."""
        if not self._raw and self.fields is not None:
            self._raw = json_of(self.fields)
        return self._raw

    def heard(self) -> None:
        """Drop what only current listeners need: results and data may be long."""
        self.fields = None
        self._raw = b""
        self._message = b""

    def message(self) -> bytes:
        """Return the event as a WebSocket message."""
        if not self._message:
            head = f'{{"event":"{self.name}","ts":{int(self._wall_ms)},"data":'
            self._message = head.encode() + self._data + b"}"
        return self._message


@trait
class EventListeners:
    """A listener of the hub."""

    def hear(self, hub_event: HubEvent) -> None:
        """Receive an event."""

    def beat(self, now_ms: i64) -> None:
        """Send or check a sign of life; called twice a minute."""


@final
class Hub(Listener, CommandObserver):
    """All listeners, and the newest events."""

    def __init__(self, runners: CommandRunners) -> None:
        self._runners = runners
        self.door = runners.door
        self._yard = runners.door.yard
        self._subscriptions: list[EventListeners] = []
        self._is_listening: bool = False
        # The number of the last event; those of other boots are all smaller or all larger.
        self.number: i64 = i64(self._yard.journal.epoch) << _BOOT_SHIFT
        self._ring: list[HubEvent] = []
        self._crons: set[str] = set()
        self._watchdog = Watchdog(self.door)
        self._uncounted: dict[str, None] = {}
        self._counts_ms: i64 = COUNTS_MS
        self._beats: i64 = 0
        self._is_beating: bool = False
        self._counting = Timeout(self._publish_counts)
        self._beating = Timeout(self._beat)
        self._lingering = Timeout(self._stop_listening)

    # -- listeners -----------------------------------------------------------------------------

    def join(self, one: EventListeners, now_ms: i64) -> None:
        """Add a listener; it receives every event from now on."""
        self._subscriptions.append(one)
        self._yard.disarm(self._lingering)
        if len(self._subscriptions) == 1:
            self._beats = 0
            self._yard.arm(self._beating, now_ms + BEAT_MS)
        if not self._is_listening:
            self._is_listening = True
            self._yard.bus.add(self)
            self.door.watch_by(self)
            self._watchdog.begin(now_ms)
            self._crons = set(crons_of(self._yard).by_name)

    def leave(self, one: EventListeners, now_ms: i64) -> None:
        """Remove a listener."""
        self._subscriptions.remove(one)
        if not self._subscriptions:
            self._yard.disarm(self._beating)
            self._yard.arm(self._lingering, now_ms + STREAM_LINGER_MS)

    def _stop_listening(self, _now_ms: int) -> None:
        self._is_listening = False
        self._yard.bus.remove(self)
        self.door.watch_by(None)
        # The ring would have a gap: events from now on are missed.
        self._ring = []

    def after(self, number: i64) -> list[HubEvent]:
        """Return the kept events after the given number."""
        ring = self._ring
        if not ring:
            return ring
        # Events beyond RING_SIZE are about to be dropped.
        oldest: i64 = max(0, len(ring) - RING_SIZE)
        return ring[int(max(oldest, number + 1 - ring[0].number)) :]

    # -- events --------------------------------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Send a transition of a job or a queue."""
        if event.kind == EventName.PUSHED and self._watchdog.is_new(event.queue.name):
            self._spread(self._keep("queue:created", {"queue": event.queue.name}, event.at_ms))
        whole = event_fields(self.door, event)
        fields = {key: value for key, value in whole.items() if key not in ("eventType", "data")}
        if event.job is None:
            del fields["jobId"]
        hub_event = self._keep(event_name(event.kind), fields, event.at_ms)
        hub_event.fields = whole
        self._spread(hub_event)
        for name, aside in derived_events_of(event):
            self._spread(self._keep(name, aside, event.at_ms))
        if self._subscriptions:
            self._uncounted[event.queue.name] = None
            self._yard.arm(self._counting, event.at_ms + self._counts_ms)

    def noted(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Send an event of the yard's own background work."""
        self._spread(self._keep(name, fields, at_ms))

    def did(self, request: Request, answer: Answer) -> None:
        """Send the event of a command, if it causes one."""
        found = command_event_of(request, answer)
        if found is None:
            return
        name, fields = found
        if name.startswith("cron:"):
            cron = str(fields["name"])
            if name == "cron:deleted":
                self._crons.discard(cron)
            elif cron not in self._crons:
                self._crons.add(cron)
                name = "cron:created"
        self._spread(self._keep(name, fields, request.now_ms))
        if name == "queue:obliterated" and self._watchdog.was_known(str(fields["queue"])):
            self._spread(self._keep("queue:removed", {"queue": fields["queue"]}, request.now_ms))

    def publish(self, name: str, fields: dict[str, object]) -> None:
        """Send an event that no command caused."""
        self._spread(self._keep(name, fields, self._yard.now_ms))

    def _keep(self, name: str, fields: dict[str, object], at_ms: i64) -> HubEvent:
        self.number += 1
        hub_event = self._make(self.number, name, fields, at_ms)
        self._ring.append(hub_event)
        if len(self._ring) >= 2 * RING_SIZE:
            # Half at a time: the list moves once in a thousand events.
            self._ring = self._ring[RING_SIZE:]
        return hub_event

    def _make(self, number: i64, name: str, fields: dict[str, object], at_ms: i64) -> HubEvent:
        queue = fields.get("queue")
        named = queue if isinstance(queue, str) else ""
        return HubEvent(number, name, named, self.door.wall_ms(at_ms), json_of(fields))

    def _spread(self, hub_event: HubEvent) -> None:
        for one in list(self._subscriptions):
            one.hear(hub_event)
        hub_event.heard()

    def _publish_once(self, name: str, fields: dict[str, object], now_ms: i64) -> None:
        self._spread(self._make(0, name, fields, now_ms))

    # -- periodic events -----------------------------------------------------------------------

    def _publish_counts(self, now_ms: int) -> None:
        names = list(islice(self._uncounted, COUNTS_MAX))
        for name in names:
            del self._uncounted[name]
        for name in names:
            answer, _batch = self._runners.ask({"cmd": "GetJobCounts", "queue": name}, now_ms)
            if not answer.is_true(b"ok"):
                # Other doors allow queue names that the commands of this door refuse.
                continue
            counts = part(answer, b"counts")
            fields: dict[str, object] = {"queue": name}
            fields.update((word, counts[word]) for word in _COUNTED)
            self._publish_once("queue:counts", fields, now_ms)
        self._counts_ms = max(COUNTS_MS, len(names) // QUEUES_PER_MS)
        if self._uncounted:
            self._yard.arm(self._counting, now_ms + self._counts_ms)

    def _beat(self, now_ms: int) -> None:
        self._yard.arm(self._beating, now_ms + BEAT_MS)
        if self._is_beating:
            # With very many queues a beat may take longer than the interval.
            return
        self._beats += 1
        self._is_beating = True
        begin_check = (
            self._watchdog.begin_check(now_ms) if self._beats % HEALTH_BEATS == 0 else None
        )
        beat = HubHeartbeat(
            self, QueueRows(self._yard, 0, DASHBOARD_QUEUES, _shown_row), begin_check
        )
        self._yard.tasks.begin(beat, None, now_ms)

    def end_beat(self) -> None:
        """Allow the next beat."""
        self._is_beating = False

    def publish_beat(self, queues: list[bytes], now_ms: i64, *, has_health: bool) -> None:
        """Send the periodic events: the rows of all queues are ready."""
        if not self._subscriptions:
            return
        overview = data_of(self._runners.ask({"cmd": "DashboardOverview"}, now_ms)[0])
        snapshot = b"".join(
            [json_of(_statistics(overview))[:-1], b',"queues":{', b",".join(queues), b"}}"]
        )
        wall_ms = self.door.wall_ms(now_ms)
        self._spread(HubEvent(0, "stats:snapshot", "", wall_ms, snapshot))
        if has_health:
            self._publish_once("health:status", self._health(overview, now_ms), now_ms)
        if self._beats % STORAGE_BEATS == 0:
            storage = overview["storage"]
            assert isinstance(storage, dict)
            fields: dict[str, object] = {"collections": overview["collections"]}
            fields["diskFull"] = storage["diskFull"]
            self._publish_once("storage:status", fields, now_ms)
            for one in list(self._subscriptions):
                one.beat(now_ms)

    def _health(self, overview: dict[str, object], now_ms: i64) -> dict[str, object]:
        door = self.door
        storage = overview["storage"]
        assert isinstance(storage, dict)
        return {
            "ok": not storage["diskFull"] and not storage["error"],
            "uptime": int((now_ms - door.started_ms) // 1000),
            "memory": memory_of(self._runners),
            "connections": {"ws": int(door.sockets_count), "sse": int(door.streams_count)},
        }


def _statistics(overview: dict[str, object]) -> dict[str, object]:
    """Return the statistics of the whole server."""
    fields: dict[str, object] = {}
    for key in ("stats", "throughput"):
        values = overview[key]
        assert isinstance(values, dict)
        fields.update(values)
    workers = overview["workers"]
    assert isinstance(workers, dict)
    fields["workers"] = {"total": workers["total"], "active": workers["active"]}
    crons = overview["crons"]
    assert isinstance(crons, list)
    fields["cronJobs"] = len(crons)
    return fields


def _shown_row(queue: Queue, now_ms: int) -> bytes:
    """Return a queue as a member of a JSON object, keyed by its name."""
    row = queue_row(queue, now_ms)
    return quoted(queue.name) + b":" + json_of({word: row[word] for word in _SHOWN})


@final
class HubHeartbeat(Task):
    """One beat: collects the rows of all queues in slices, then sends the periodic events."""

    def __init__(self, hub: Hub, queues: QueueRows, begin_check: WatchdogCheck | None) -> None:
        super().__init__()
        self._hub = hub
        self._queues: QueueRows | None = queues
        self._glance: WatchdogCheck | None = begin_check
        self._has_health: bool = begin_check is not None
        self._events: list[DashboardEvent] = []

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some queues, or send some events."""
        done: i64 = 0
        queues = self._queues
        if queues is not None:
            done = queues.step(most, now_ms)
            if done >= most:
                return done
            self._queues = None
            self._hub.publish_beat(queues.rows, now_ms, has_health=self._has_health)
        begin_check = self._glance
        if begin_check is not None:
            left = most - done
            looked = begin_check.step(left, now_ms)
            done += looked
            if looked >= left:
                return done
            self._glance = None
            self._events = begin_check.events()
            self._events.reverse()
        while self._events and done < most:
            name, fields = self._events.pop()
            self._hub.noted(name, fields, now_ms)
            done += EVENT_UNITS
        if done < most:
            self._hub.end_beat()
        return done


# -- /events -----------------------------------------------------------------------------------


@final
class EventStream(PendingCall, EventListeners):
    """One client of /events."""

    def __init__(self, hub: Hub, call: HttpCall, queue: str) -> None:
        self._hub = hub
        self._call = call
        # Send only events of this queue; empty for all queues.
        self._queue = queue
        self._seen: i64 = hub.number
        self._is_behind: bool = False

    def begin(self) -> None:
        """Send the greeting and the missed events, then join the hub."""
        call = self._call
        hub = self._hub
        call.begin_stream(self, EVENT_STREAM, _STREAM_HEADERS)
        if call.is_answered:
            # A HEAD request.
            return
        hub.door.streams_count += 1
        client_id = new_uuid(hub.door, call.now_ms)
        hello = f'retry: {RECONNECT_MS}\ndata: {{"connected":true,"clientId":"{client_id}"}}\n\n'
        call.send(hello.encode())
        last = call.header("last-event-id")
        if last.isascii() and last.isdigit() and len(last) < 19:
            self._seen = min(self._seen, i64(int(last)))
        hub.join(self, call.now_ms)
        self._catch_up()

    def hear(self, hub_event: HubEvent) -> None:
        """Send an event, or note that the client is behind."""
        if self._is_behind:
            return
        if not self._call.has_room():
            # A periodic event is sent again soon; all others wait in the ring.
            self._is_behind = hub_event.number > 0
            return
        if hub_event.number > 0:
            self._seen = hub_event.number
        self._send(hub_event)

    def _send(self, hub_event: HubEvent) -> None:
        if not self._queue or not hub_event.queue or hub_event.queue == self._queue:
            # Not narrowed: its record may not be appended yet.
            self._call.send(hub_event.block())

    def _catch_up(self) -> None:
        self._is_behind = False
        for hub_event in self._hub.after(self._seen):
            self.hear(hub_event)

    def beat(self, now_ms: i64) -> None:
        """Send a heartbeat comment."""
        del now_ms
        if self._call.has_room():
            self._call.await_batch(0)
            self._call.send(_HEARTBEAT)

    def drained(self, now_ms: i64) -> None:
        """Send the events that wait in the ring."""
        del now_ms
        self._catch_up()

    def stop_waiting(self, now_ms: i64) -> None:
        """End the stream cleanly."""
        self.gone(now_ms)
        self._call.end_stream()

    def gone(self, now_ms: i64) -> None:
        """Leave the hub."""
        self._hub.leave(self, now_ms)
        self._hub.door.streams_count -= 1


@final
class EventsEndpoint:
    """Serves /events."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def serve(self, call: HttpCall) -> None:
        """Start a stream, limited to one queue if the path names it."""
        if self._hub.door.streams_count >= EVENT_STREAMS_MAX:
            raise HttpRefused(503, "too_many", "Too many SSE connections")
        EventStream(self._hub, call, call.params[0] if call.params else "").begin()
