"""bunqueue's WebSocket: commands as JSON messages, and events as they happen.

Every message is a command of the bunqueue door. The socket has its own session, which releases its
leases when the socket closes. A long answer becomes JSON in slices; later output of the session
waits behind it, and so do further commands. A client that never subscribed receives all engine
events in the engine's form; one that did receives the events it subscribed to. Events are dropped
while the output of a slow socket is full.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task, TaskOwner
from jobyard.model.job import MSGPACK
from jobyard.protocols.bunqueue.http.command_events import PATTERNS
from jobyard.protocols.bunqueue.http.hub import EventListeners, Hub, HubEvent
from jobyard.protocols.bunqueue.http.long_json import BODY_AT_ONCE, JsonTask, PackTask
from jobyard.protocols.bunqueue.http.runner import JSON_AT_ONCE, json_of
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.http.session import HttpSession
from jobyard.protocols.http.websocket import MessageReceiver, WebSocket, handshake
from jobyard.protocols.session import Peer
from jobyard.wire.http.websocket import CLOSE_INTERNAL_ERROR, MESSAGE_SIZE_MAX
from jobyard.wire.msgpack.forms import KIND_MAP, Malformed, kind_of
from jobyard.wire.msgpack.write import encode
from jobyard.wire.payload import NO_JSON, parse_request, to_json

SOCKETS_MAX: Final = 1000


@final
class CommandSocket(Peer, MessageReceiver, EventListeners, TaskOwner):
    """One WebSocket, and the peer of its session."""

    def __init__(self, hub: Hub, http: HttpSession, queue: str, now_ms: i64) -> None:
        self._hub = hub
        self._http = http
        # Send only events of this queue; empty for all queues.
        self._queue = queue
        self.line = WebSocket(http, self, MESSAGE_SIZE_MAX, now_ms)
        self._session = BunqueueSession(hub.door, self)
        # The upgrade request was authenticated already.
        self._session.is_known = True
        # A long message that is being read, and how long it is.
        self._reading: PackTask | None = None
        self._reading_size: i64 = 0
        # Output of the session that was not sent yet: frames in pieces, the offset in the first
        # piece, and the total size.
        self._unsaid: list[bytes] = []
        self._cut: i64 = 0
        self._unsaid_size: i64 = 0
        # Converts a long answer to JSON.
        self._making: JsonTask | None = None
        # The subscribed patterns; None before the first Subscribe.
        self._wanted: dict[str, None] | None = None
        hub.door.sockets_count += 1
        hub.join(self, now_ms)

    # -- input ---------------------------------------------------------------------------------

    def resume(self, now_ms: i64) -> None:
        """Run commands that were held back."""
        self._session.resume(now_ms)
        self._flush()

    def unread_size(self) -> i64:
        """Return the size of commands and answers that wait for others."""
        return self._reading_size + self._session.unread_size() + self._unsaid_size

    def heard(self, content: bytes, now_ms: i64, *, is_text: bool) -> None:
        """Run a command; text and binary messages are treated alike."""
        del is_text
        if len(content) > BODY_AT_ONCE:
            self._read_long(content, now_ms)
            return
        value = parse_request(content)
        if value is NO_JSON:
            self._answer({"ok": False, "error": "Invalid JSON"})
        elif not isinstance(value, dict):
            self._answer({"ok": False, "error": "Invalid command"})
        elif value.get("cmd") == "Subscribe":
            self._subscribe(value)
        elif value.get("cmd") == "Unsubscribe":
            self._unsubscribe(value)
        else:
            try:
                frame = encode(value)
            except Malformed:
                self._answer({"ok": False, "error": "Invalid command format"})
                return
            self._session.receive(len(frame).to_bytes(4, "big") + frame, now_ms)
            self._flush()

    def _read_long(self, content: bytes, now_ms: i64) -> None:
        """Parse a long message over several turns; later messages wait."""
        task = PackTask(content)
        if self._hub.door.yard.tasks.begin(task, self, now_ms):
            self._run_long(task, now_ms)
        else:
            self._reading = task
            self._reading_size = len(content)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:
        """Continue after a long message was parsed or a long answer was converted."""
        if isinstance(task, PackTask):
            self._message_read(task, now_ms)
        else:
            self._answer_made(refusal)

    def _message_read(self, task: PackTask, now_ms: i64) -> None:
        """Run the command of a long message, then read the messages behind it."""
        self._reading = None
        self._reading_size = 0
        self.line.is_running = True
        self._run_long(task, now_ms)
        self._http.await_synced(self._http.journal.take_command_sync_batch())
        self.line.is_running = False
        self._http.is_stalled = True
        self._http.peer.wake()

    def _run_long(self, task: PackTask, now_ms: i64) -> None:
        packed = task.packed()
        if packed is None:
            self._answer({"ok": False, "error": "Invalid JSON"})
        elif kind_of(packed, 0) != KIND_MAP:
            self._answer({"ok": False, "error": "Invalid command"})
        else:
            self._session.receive(len(packed).to_bytes(4, "big") + packed, now_ms)
            self._flush()

    # -- subscriptions -------------------------------------------------------------------------

    def _subscribe(self, command: dict[str, object]) -> None:
        events = command.get("events")
        if not isinstance(events, list) or not events:
            self._refuse(command, "events must be a non-empty array")
            return
        unknown = [one for one in events if not isinstance(one, str) or one not in PATTERNS]
        if unknown:
            self._refuse(command, f"Invalid: {', '.join(str(one) for one in unknown)}")
            return
        wanted = self._wanted
        if wanted is None:
            wanted = {}
            self._wanted = wanted
        wanted.update(dict.fromkeys(events))
        self._answer_wanted(command)

    def _unsubscribe(self, command: dict[str, object]) -> None:
        wanted = self._wanted
        if wanted is not None:
            events = command.get("events")
            if not isinstance(events, list) or not events:
                wanted.clear()
            else:
                for one in events:
                    if isinstance(one, str):
                        wanted.pop(one, None)
        self._answer_wanted(command)

    def _answer_wanted(self, command: dict[str, object]) -> None:
        answer: dict[str, object] = {"ok": True, "subscribed": list(self._wanted or {})}
        self._echo(command, answer)

    def _refuse(self, command: dict[str, object], error: str) -> None:
        self._echo(command, {"ok": False, "error": error})

    def _echo(self, command: dict[str, object], answer: dict[str, object]) -> None:
        if "reqId" in command:
            answer["reqId"] = command["reqId"]
        self._answer(answer)

    def host(self) -> str:
        """Return the client's address, to which limits apply."""
        return self._http.peer.host()

    # -- output --------------------------------------------------------------------------------

    def wake(self) -> None:
        """Send output that the session wrote outside its commands, and continue reading."""
        if self.line.is_running:
            return
        self._flush()
        self._read_on()

    def _read_on(self) -> None:
        if self._making is None and self._reading is None and self.line.has_unread():
            # In a later turn: the code that woke this session may be in the middle of a change.
            self._http.is_stalled = True
            self._http.peer.wake()

    def _flush(self) -> None:
        session = self._session
        if len(session.out) == 0:
            return
        for piece in session.take_pieces():
            self._unsaid.append(piece)
            self._unsaid_size += len(piece)
        self._http.await_synced(session.take_synced())
        self._say_frames()

    def _say_frames(self) -> None:
        """Send the frames of the session, up to a long one whose conversion takes more turns."""
        session = self._session
        while self._unsaid and self._making is None:
            frame = self._next_frame()
            size = sum([len(piece) for piece in frame])
            if size > JSON_AT_ONCE:
                task = JsonTask(frame)
                if self._hub.door.yard.tasks.begin(task, self, self._hub.door.yard.now_ms):
                    self.line.say_long(task.pieces())
                else:
                    self._making = task
                    # Counted as unsent, so that commands wait for it.
                    self._unsaid_size += size
                continue
            if session.events_of is None:
                # The record behind an event may not be appended yet.
                self._http.enough = session.awaits
            self.line.say(to_json(MSGPACK, b"".join(frame)))

    def _next_frame(self) -> list[bytes]:
        """Remove the first frame and return its pieces, without the length prefix."""
        unsaid = self._unsaid
        at = self._cut + 4
        left: i64 = int.from_bytes(unsaid[0][self._cut : at], "big")
        self._unsaid_size -= 4 + left
        frame: list[bytes] = []
        while True:
            data = unsaid[0]
            end = min(at + left, len(data))
            # Slicing copies, even if the slice is everything.
            frame.append(data[at:end] if at > 0 or end < len(data) else data)
            left -= end - at
            at = end
            if at == len(data):
                unsaid.pop(0)
                at = 0
            if left == 0:
                break
        self._cut = at
        return frame

    def _answer_made(self, refusal: Exception | None) -> None:
        """Send a long answer and the frames behind it."""
        making = self._making
        assert making is not None
        self._making = None
        self._unsaid_size -= making.size
        if refusal is None:
            self.line.say_long(making.pieces())
        else:
            self.line.end(CLOSE_INTERNAL_ERROR, str(refusal))
        self._say_frames()
        self._read_on()

    def _answer(self, answer: dict[str, object]) -> None:
        self.line.say(json_of(answer))

    def hear(self, hub_event: HubEvent) -> None:
        """Send an event if the client subscribed to it and there is room."""
        queue = self._queue
        if queue and hub_event.queue and hub_event.queue != queue:
            return
        wanted = self._wanted
        if wanted is None:
            message = hub_event.raw()
        elif "*" in wanted or hub_event.name in wanted or hub_event.group() in wanted:
            message = hub_event.message()
        else:
            return
        if message and self.line.has_room():
            self.line.say(message)

    def beat(self, now_ms: i64) -> None:
        """Send a ping, or close a connection that has been silent for too long."""
        self.line.look(now_ms)

    # -- closing -------------------------------------------------------------------------------

    def stop_waiting(self, now_ms: i64) -> None:
        """Answer all waiting commands."""
        self._session.half_close(now_ms)
        self._flush()

    def gone(self, now_ms: i64) -> None:
        """Close the session, which releases its leases."""
        if self._reading is not None:
            self._hub.door.yard.tasks.leave(self._reading)
            self._reading = None
        self._hub.leave(self, now_ms)
        self._hub.door.sockets_count -= 1
        if self._making is not None:
            self._hub.door.yard.tasks.leave(self._making)
            self._making = None
        self._unsaid = []
        self._session.closed(now_ms)


@final
class SocketEndpoint:
    """Serves /ws."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def serve(self, call: HttpCall) -> None:
        """Turn the connection into a WebSocket, for one queue if the path names it."""
        hub = self._hub
        if hub.door.sockets_count >= SOCKETS_MAX:
            raise HttpRefused(503, "too_many", "Too many WebSocket connections")
        request = call.request
        if not request.is_upgrade or request.method != "GET":
            raise HttpRefused(400, "invalid_request", "WebSocket upgrade failed")
        lines = handshake(call)
        queue = call.params[0] if call.params else ""
        call.take_over(101, lines, CommandSocket(hub, call.session, queue, call.now_ms).line)
