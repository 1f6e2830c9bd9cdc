"""What happens in the yard, told to those who listen over HTTP: the hub, and /events.

The hub listens to the yard only while somebody listens to the hub, and for a while after, so that
who comes back finds what was missed: the newest events are numbered and kept in a ring. Counts and
states of the server are told as they are at the moment, have no number and are kept for nobody.
Nothing is sent before it is on disk.
"""

from itertools import islice
from typing import Final, final

from mypy_extensions import i64, trait

from jobyard.engine.jobs.schedule import crons_of
from jobyard.engine.state.bus import PUSHED, Event, Listener
from jobyard.engine.state.tasks import Task
from jobyard.model.queue import Queue
from jobyard.protocols.bunqueue.commands.monitor import DASHBOARD_QUEUES, QueueRows, queue_row
from jobyard.protocols.bunqueue.commands.registry import new_uuid
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.http.command_events import event_name, news_of
from jobyard.protocols.bunqueue.http.derived_events import Told, asides_of
from jobyard.protocols.bunqueue.http.pages import memory_of, part
from jobyard.protocols.bunqueue.http.routes import data_of
from jobyard.protocols.bunqueue.http.runner import Clerks, json_of
from jobyard.protocols.bunqueue.http.watchdog import Glance, Lookout
from jobyard.protocols.bunqueue.job_fields import event_fields
from jobyard.protocols.bunqueue.observer import Onlooker
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.http.call import EVENT_STREAM, Call, HttpRefused, Pending
from jobyard.protocols.timeout import Timeout
from jobyard.wire.http import sse
from jobyard.wire.json.write import quoted

RING_SIZE: Final = 1000
COUNTS_MS: Final = 10
# Every queue is asked: so many of them are worth another millisecond of rest, that counting takes a
# small part of all time; and no more are asked at once.
QUEUES_PER_MS: Final = 5
COUNTS_MAX: Final = 100
# What it takes to tell of something, in jobs looked at.
TELL_UNITS: Final = 10
# Statistics are told with every beat, health with every second, all else with every sixth.
BEAT_MS: Final = 5000
HEALTH_BEATS: Final = 2
STORAGE_BEATS: Final = 6
# How long events are kept for somebody who may come back.
LINGER_MS: Final = 300_000
RETRY_MS: Final = 3000
STREAMS_MAX: Final = 1000

# Bits of a number that tell events of one boot apart; above them stands the boot.
_BOOT_SHIFT: Final = 32

_STREAM_HEADERS: Final = b"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"

# As the original spells it, without a blank.
_HEARTBEAT: Final = b":heartbeat\n\n"

_COUNTED: Final = ("waiting", "prioritized", "active", "completed", "failed", "delayed")
_SHOWN: Final = ("waiting", "active", "delayed", "dlq", "paused")


@final
class Happening:
    """One thing to tell, in the words of every kind of listener."""

    def __init__(self, number: i64, name: str, queue: str, wall_ms: i64, data: bytes) -> None:
        # 0 for what is told once and not kept.
        self.number: i64 = number
        self.name = name
        # Empty for what concerns the whole server.
        self.queue = queue
        self._wall_ms: i64 = wall_ms
        self._data = data
        # An event of the engine with all it holds, for those who never said what they want.
        self.fields: dict[str, object] | None = None
        self._raw: bytes = b""
        self._block: bytes = b""
        self._message: bytes = b""

    def group(self) -> str:
        """Return the pattern that means it and its like."""
        return self.name.partition(":")[0] + ":*"

    def block(self) -> bytes:
        """Return it as a block of an event stream."""
        if not self._block:
            number = b"%d" % self.number if self.number > 0 else b""
            self._block = sse.event(number, self.name.encode(), self._data)
        return self._block

    def raw(self) -> bytes:
        """Return it as the engine told it, or nothing."""
        if not self._raw and self.fields is not None:
            self._raw = json_of(self.fields)
        return self._raw

    def heard(self) -> None:
        """Let go of what only those need who listen now: results and data may be long."""
        self.fields = None
        self._raw = b""
        self._message = b""

    def message(self) -> bytes:
        """Return it as a message of a WebSocket."""
        if not self._message:
            head = f'{{"event":"{self.name}","ts":{int(self._wall_ms)},"data":'
            self._message = head.encode() + self._data + b"}"
        return self._message


@trait
class Audience:
    """Somebody who listens."""

    def hear(self, happening: Happening) -> None:
        """Take note of something."""

    def beat(self, now_ms: i64) -> None:
        """Show that the connection lives; called twice a minute."""


@final
class Hub(Listener, Onlooker):
    """All who listen, and what was told last."""

    def __init__(self, clerks: Clerks) -> None:
        self._clerks = clerks
        self.door = clerks.door
        self._yard = clerks.door.yard
        self._audience: list[Audience] = []
        self._is_listening: bool = False
        # The first one has the number after this; numbers of other boots are all smaller or larger.
        self.number: i64 = i64(self._yard.journal.epoch) << _BOOT_SHIFT
        self._ring: list[Happening] = []
        self._crons: set[str] = set()
        self._lookout = Lookout(self.door)
        self._uncounted: dict[str, None] = {}
        self._counts_ms: i64 = COUNTS_MS
        self._beats: i64 = 0
        self._is_beating: bool = False
        self._counting = Timeout(self._tell_counts)
        self._beating = Timeout(self._beat)
        self._lingering = Timeout(self._stop_listening)

    # -- who listens ---------------------------------------------------------------------------

    def join(self, one: Audience, now_ms: i64) -> None:
        """Tell somebody everything from now on."""
        self._audience.append(one)
        self._yard.disarm(self._lingering)
        if len(self._audience) == 1:
            self._beats = 0
            self._yard.arm(self._beating, now_ms + BEAT_MS)
        if not self._is_listening:
            self._is_listening = True
            self._yard.bus.add(self)
            self.door.watch_by(self)
            self._lookout.begin(now_ms)
            self._crons = set(crons_of(self._yard).by_name)

    def leave(self, one: Audience, now_ms: i64) -> None:
        """Tell somebody no more."""
        self._audience.remove(one)
        if not self._audience:
            self._yard.disarm(self._beating)
            self._yard.arm(self._lingering, now_ms + LINGER_MS)

    def _stop_listening(self, _now_ms: int) -> None:
        self._is_listening = False
        self._yard.bus.remove(self)
        self.door.watch_by(None)
        # What happens from now on is missed, so what was before is no help.
        self._ring = []

    def after(self, number: i64) -> list[Happening]:
        """Return what is still known of all that happened after one event."""
        ring = self._ring
        if not ring:
            return ring
        # Those the ring holds beyond its size only wait to be let go.
        oldest: i64 = max(0, len(ring) - RING_SIZE)
        return ring[int(max(oldest, number + 1 - ring[0].number)) :]

    # -- what is told --------------------------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Tell of a step in the life of a job or a queue."""
        if event.kind == PUSHED and self._lookout.is_new(event.queue.name):
            self._spread(self._keep("queue:created", {"queue": event.queue.name}, event.at_ms))
        whole = event_fields(self.door, event)
        fields = {key: value for key, value in whole.items() if key not in ("eventType", "data")}
        if event.job is None:
            del fields["jobId"]
        happening = self._keep(event_name(event.kind), fields, event.at_ms)
        happening.fields = whole
        self._spread(happening)
        for name, aside in asides_of(event):
            self._spread(self._keep(name, aside, event.at_ms))
        if self._audience:
            self._uncounted[event.queue.name] = None
            self._yard.arm(self._counting, event.at_ms + self._counts_ms)

    def noted(self, name: str, fields: dict[str, object], at_ms: i64) -> None:
        """Tell of what the yard did by itself."""
        self._spread(self._keep(name, fields, at_ms))

    def did(self, request: Request, answer: Answer) -> None:
        """Tell of a command that is news."""
        news = news_of(request, answer)
        if news is None:
            return
        name, fields = news
        if name.startswith("cron:"):
            cron = str(fields["name"])
            if name == "cron:deleted":
                self._crons.discard(cron)
            elif cron not in self._crons:
                self._crons.add(cron)
                name = "cron:created"
        self._spread(self._keep(name, fields, request.now_ms))
        if name == "queue:obliterated" and self._lookout.was_known(str(fields["queue"])):
            self._spread(self._keep("queue:removed", {"queue": fields["queue"]}, request.now_ms))

    def tell(self, name: str, fields: dict[str, object]) -> None:
        """Tell of something that no command did."""
        self._spread(self._keep(name, fields, self._yard.now_ms))

    def _keep(self, name: str, fields: dict[str, object], at_ms: i64) -> Happening:
        self.number += 1
        happening = self._make(self.number, name, fields, at_ms)
        self._ring.append(happening)
        if len(self._ring) >= 2 * RING_SIZE:
            # Half at a time: the list moves once in a thousand events.
            self._ring = self._ring[RING_SIZE:]
        return happening

    def _make(self, number: i64, name: str, fields: dict[str, object], at_ms: i64) -> Happening:
        queue = fields.get("queue")
        named = queue if isinstance(queue, str) else ""
        return Happening(number, name, named, self.door.wall_ms(at_ms), json_of(fields))

    def _spread(self, happening: Happening) -> None:
        for one in list(self._audience):
            one.hear(happening)
        happening.heard()

    def _tell_once(self, name: str, fields: dict[str, object], now_ms: i64) -> None:
        self._spread(self._make(0, name, fields, now_ms))

    # -- what is told from time to time --------------------------------------------------------

    def _tell_counts(self, now_ms: int) -> None:
        names = list(islice(self._uncounted, COUNTS_MAX))
        for name in names:
            del self._uncounted[name]
        for name in names:
            answer, _batch = self._clerks.ask({"cmd": "GetJobCounts", "queue": name}, now_ms)
            if not answer.is_true(b"ok"):
                # Other doors have names for queues that no command of this one can say.
                continue
            counts = part(answer, b"counts")
            told: dict[str, object] = {"queue": name}
            told.update((word, counts[word]) for word in _COUNTED)
            self._tell_once("queue:counts", told, now_ms)
        self._counts_ms = max(COUNTS_MS, len(names) // QUEUES_PER_MS)
        if self._uncounted:
            self._yard.arm(self._counting, now_ms + self._counts_ms)

    def _beat(self, now_ms: int) -> None:
        self._yard.arm(self._beating, now_ms + BEAT_MS)
        if self._is_beating:
            # With very many queues one takes longer than the time between two.
            return
        self._beats += 1
        self._is_beating = True
        glance = self._lookout.glance(now_ms) if self._beats % HEALTH_BEATS == 0 else None
        beat = Beat(self, QueueRows(self._yard, 0, DASHBOARD_QUEUES, _shown_row), glance)
        self._yard.tasks.begin(beat, None, now_ms)

    def end_beat(self) -> None:
        """Let the next one come."""
        self._is_beating = False

    def tell_beat(self, queues: list[bytes], now_ms: i64, *, is_health_told: bool) -> None:
        """Tell how everything is: all queues were looked at."""
        if not self._audience:
            return
        overview = data_of(self._clerks.ask({"cmd": "DashboardOverview"}, now_ms)[0])
        snapshot = b"".join(
            [json_of(_statistics(overview))[:-1], b',"queues":{', b",".join(queues), b"}}"]
        )
        wall_ms = self.door.wall_ms(now_ms)
        self._spread(Happening(0, "stats:snapshot", "", wall_ms, snapshot))
        if is_health_told:
            self._tell_once("health:status", self._health(overview, now_ms), now_ms)
        if self._beats % STORAGE_BEATS == 0:
            storage = overview["storage"]
            assert isinstance(storage, dict)
            told: dict[str, object] = {"collections": overview["collections"]}
            told["diskFull"] = storage["diskFull"]
            self._tell_once("storage:status", told, now_ms)
            for one in list(self._audience):
                one.beat(now_ms)

    def _health(self, overview: dict[str, object], now_ms: i64) -> dict[str, object]:
        door = self.door
        storage = overview["storage"]
        assert isinstance(storage, dict)
        return {
            "ok": not storage["diskFull"] and not storage["error"],
            "uptime": int((now_ms - door.started_ms) // 1000),
            "memory": memory_of(self._clerks),
            "connections": {"ws": int(door.sockets_count), "sse": int(door.streams_count)},
        }


def _statistics(overview: dict[str, object]) -> dict[str, object]:
    """Return what is told of the whole server."""
    told: dict[str, object] = {}
    for key in ("stats", "throughput"):
        values = overview[key]
        assert isinstance(values, dict)
        told.update(values)
    workers = overview["workers"]
    assert isinstance(workers, dict)
    told["workers"] = {"total": workers["total"], "active": workers["active"]}
    crons = overview["crons"]
    assert isinstance(crons, list)
    told["cronJobs"] = len(crons)
    return told


def _shown_row(queue: Queue, now_ms: int) -> bytes:
    """Return a queue as a member of a JSON object."""
    row = queue_row(queue, now_ms)
    return quoted(queue.name) + b":" + json_of({word: row[word] for word in _SHOWN})


@final
class Beat(Task):
    """What is told from time to time, of however many queues."""

    def __init__(self, hub: Hub, queues: QueueRows, glance: Glance | None) -> None:
        super().__init__()
        self._hub = hub
        self._queues: QueueRows | None = queues
        self._glance: Glance | None = glance
        self._is_health_told: bool = glance is not None
        self._told: list[Told] = []

    def step(self, most: i64, now_ms: i64) -> i64:
        """Look at some queues, or tell of some."""
        done: i64 = 0
        queues = self._queues
        if queues is not None:
            done = queues.step(most, now_ms)
            if done >= most:
                return done
            self._queues = None
            self._hub.tell_beat(queues.rows, now_ms, is_health_told=self._is_health_told)
        glance = self._glance
        if glance is not None:
            left = most - done
            looked = glance.step(left, now_ms)
            done += looked
            if looked >= left:
                return done
            self._glance = None
            self._told = glance.tell()
            self._told.reverse()
        while self._told and done < most:
            name, fields = self._told.pop()
            self._hub.noted(name, fields, now_ms)
            done += TELL_UNITS
        if done < most:
            self._hub.end_beat()
        return done


# -- /events -----------------------------------------------------------------------------------


@final
class EventStream(Pending, Audience):
    """One caller of /events."""

    def __init__(self, hub: Hub, call: Call, queue: str) -> None:
        self._hub = hub
        self._call = call
        # The queue of which alone is told; empty for all.
        self._queue = queue
        self._seen: i64 = hub.number
        self._is_behind: bool = False

    def begin(self) -> None:
        """Greet, tell what was missed, and go on with what happens."""
        call = self._call
        hub = self._hub
        call.begin_stream(self, EVENT_STREAM, _STREAM_HEADERS)
        if call.is_answered:
            # Somebody asked for the head alone.
            return
        hub.door.streams_count += 1
        client_id = new_uuid(hub.door, call.now_ms)
        hello = f'retry: {RETRY_MS}\ndata: {{"connected":true,"clientId":"{client_id}"}}\n\n'
        call.send(hello.encode())
        last = call.header("last-event-id")
        if last.isascii() and last.isdigit() and len(last) < 19:
            self._seen = min(self._seen, i64(int(last)))
        hub.join(self, call.now_ms)
        self._catch_up()

    def hear(self, happening: Happening) -> None:
        """Send it, or remember that there is more to send."""
        if self._is_behind:
            return
        if not self._call.has_room():
            # What is told once is told again soon enough; the rest waits in the ring.
            self._is_behind = happening.number > 0
            return
        if happening.number > 0:
            self._seen = happening.number
        self._send(happening)

    def _send(self, happening: Happening) -> None:
        if not self._queue or not happening.queue or happening.queue == self._queue:
            # Not narrowed: its record may not be appended yet.
            self._call.send(happening.block())

    def _catch_up(self) -> None:
        self._is_behind = False
        for happening in self._hub.after(self._seen):
            self.hear(happening)

    def beat(self, now_ms: i64) -> None:
        """Show that the stream lives."""
        del now_ms
        if self._call.has_room():
            self._call.await_batch(0)
            self._call.send(_HEARTBEAT)

    def drained(self, now_ms: i64) -> None:
        """Go on with what waits in the ring."""
        del now_ms
        self._catch_up()

    def hurry(self, now_ms: i64) -> None:
        """End in good order."""
        self.gone(now_ms)
        self._call.end_stream()

    def gone(self, now_ms: i64) -> None:
        """Tell nobody any more."""
        self._hub.leave(self, now_ms)
        self._hub.door.streams_count -= 1


@final
class EventCounter:
    """Serves /events."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def serve(self, call: Call) -> None:
        """Begin a stream, of one queue if the path names it."""
        if self._hub.door.streams_count >= STREAMS_MAX:
            raise HttpRefused(503, "too_many", "Too many SSE connections")
        EventStream(self._hub, call, call.params[0] if call.params else "").begin()
