"""Command runners: bunqueue sessions without a connection that run commands for HTTP requests.

A runner executes one command at a time, as the frame a TCP client would send, so that each command
is implemented once for both transports. A runner whose command waits stays with its call; all
others return to the pool. Jobs pulled here belong to no connection.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task, TaskOwner
from jobyard.model.job import MSGPACK
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.http.long_json import JsonTask
from jobyard.protocols.bunqueue.session import FRAME_SIZE_MAX, STORAGE_FULL, BunqueueSession
from jobyard.protocols.http.call import HttpCall, HttpRefused, PendingCall
from jobyard.protocols.session import NO_PEER, Peer
from jobyard.wire.msgpack.forms import Malformed
from jobyard.wire.msgpack.read import MapFields, read_fields
from jobyard.wire.msgpack.write import encode, framed
from jobyard.wire.payload import NO_JSON, parse_request, to_json

# More than are ever busy at once, apart from those whose command waits.
POOL_MAX: Final = 16
# A longer answer is converted to JSON in slices.
JSON_AT_ONCE: Final = 64 << 10
# The first field of every answer that is not a refusal.
_OK: Final = b"\xa2ok\xc3"
SHUTTING_DOWN: Final = "Server is shutting down"

# Converts an answer to the shape that HTTP clients expect.
Show = Callable[[MapFields], object]


def read_object(body: bytes) -> dict[str, object]:
    """Return the fields of a JSON body."""
    value = parse_request(body)
    if value is NO_JSON or not isinstance(value, dict):
        raise HttpRefused(400, "invalid_request", "Invalid JSON body")
    return value


def json_of(value: object) -> bytes:
    """Return a value as JSON; parts of it may already be encoded as MessagePack."""
    return to_json(MSGPACK, encode(value))


def refusal_status(error: str, otherwise: i64) -> i64:
    """Return the status of a refusal: 5xx if the server lacks something, else `otherwise`."""
    if error.startswith(STORAGE_FULL):
        return 507
    return 503 if error == SHUTTING_DOWN else otherwise


@final
class PendingCommand(PendingCall, TaskOwner):
    """An HTTP call and its command, which may have to wait."""

    def __init__(
        self,
        runners: "CommandRunners",
        runner: "CommandRunner",
        call: HttpCall,
        refused: i64,
        show: Show | None,
    ) -> None:
        self._runners = runners
        self._runner = runner
        self._call = call
        self._refused = refused
        self._show = show
        # Converts a long answer to JSON.
        self._making: JsonTask | None = None

    def settle(self) -> bool:
        """Answer the call if the command has an answer; False if it still waits."""
        runner = self._runner
        pieces = runner.take_long() if self._show is None else None
        answer = runner.take_answer() if pieces is None else b""
        if answer is None:
            return False
        self._call.await_batch(runner.session.awaits)
        self._call.session.await_synced(runner.session.take_synced())
        runner.pending_command = None
        self._runners.give_back(runner)
        if pieces is not None:
            self._make(pieces)
        else:
            self._reply(answer)
        return True

    def _reply(self, answer: bytes) -> None:
        call = self._call
        if len(answer) > JSON_AT_ONCE and self._show is None and answer[1:5] == _OK:
            # Parsing a long answer at once would block the turn.
            self._make([answer])
            return
        fields = read_fields(answer, 0, len(answer))
        assert fields is not None
        if not fields.is_true(b"ok"):
            status = refusal_status(fields.text(b"error") or "", self._refused)
            call.answer(status, to_json(MSGPACK, answer))
        elif self._show is None:
            call.answer(200, to_json(MSGPACK, answer))
        else:
            shown = encode(self._show(fields))
            if len(shown) > JSON_AT_ONCE:
                self._make([shown])
            else:
                call.answer(200, to_json(MSGPACK, shown))

    def _make(self, pieces: list[bytes]) -> None:
        """Convert a long answer to JSON, over turns if necessary, and send it."""
        task = JsonTask(pieces)
        call = self._call
        if self._runners.door.yard.tasks.begin(task, self, call.now_ms):
            call.answer_long(task.pieces())
        else:
            self._making = task
            call.wait(self)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:  # noqa: ARG002
        """Send the converted answer, or the error of the conversion."""
        assert isinstance(task, JsonTask)
        self._making = None
        if refusal is None:
            self._call.answer_long(task.pieces())
        else:
            self._call.answer_refusal(HttpRefused(500, "internal_error", str(refusal)))

    def stop_waiting(self, now_ms: i64) -> None:
        """Make the command answer now with what it has."""
        if self._making is None:
            self._runner.session.half_close(now_ms)

    def gone(self, now_ms: i64) -> None:
        """Cancel the command: the client has left."""
        if self._making is not None:
            self._runners.door.yard.tasks.leave(self._making)
            return
        self._runner.pending_command = None
        self._runner.leave(now_ms)

    def drained(self, now_ms: i64) -> None:
        """Do nothing: an answer is sent whole."""


@final
class CommandRunner(Peer):
    """A session and its pending command."""

    def __init__(self, door: BunqueueDoor, worker_ids: list[str]) -> None:
        self.session = BunqueueSession(door, self)
        # The HTTP area has authenticated and rate limited the client already.
        self.session.is_known = True
        self.session.is_limited = False
        self.session.worker_ids = worker_ids
        self.pending_command: PendingCommand | None = None
        # The connection of the call that is served.
        self._caller: Peer = NO_PEER

    def addresses(self) -> tuple[str, str]:
        """Return the addresses of the connection whose call is served."""
        return self._caller.addresses()

    def wake(self) -> None:
        """Deliver the answer of a command that waited."""
        pending_command = self.pending_command
        if pending_command is not None:
            pending_command.settle()

    def send(self, command: dict[str, object], caller: Peer, now_ms: i64) -> None:
        """Start a command of a caller."""
        try:
            frame = framed(command)
        except Malformed:
            raise HttpRefused(400, "invalid_request", "Invalid JSON body") from None
        if len(frame) > FRAME_SIZE_MAX:
            raise HttpRefused(413, "too_large", "Request body too large")
        self.session.awaits = 0
        # Who takes jobs differs from call to call.
        self._caller = caller
        self.session.lease_set.worker = None
        self.session.receive(frame, now_ms)

    def take_answer(self) -> bytes | None:
        """Return the answer of the command, or None if it still waits."""
        if len(self.session.out) == 0:
            return None
        return self.session.take_output()[4:]

    def take_long(self) -> list[bytes] | None:
        """Return a long answer in pieces, or None; a long answer is never a refusal."""
        if not self.session.has_long():
            return None
        pieces = self.session.take_pieces()
        pieces[0] = pieces[0][4:]
        return pieces

    def free(self) -> None:
        """Forget the caller."""
        self._caller = NO_PEER

    def leave(self, now_ms: i64) -> None:
        """Close the session. Workers that registered over HTTP stay registered."""
        self.session.worker_ids = []
        self.session.closed(now_ms)


@final
class CommandRunners:
    """The pool of command runners of a door."""

    def __init__(self, door: BunqueueDoor) -> None:
        self.door = door
        self._free: list[CommandRunner] = []
        # Workers without a connection: they are dropped when their heartbeats stop.
        self._worker_ids: list[str] = []

    def _take(self) -> CommandRunner:
        return self._free.pop() if self._free else CommandRunner(self.door, self._worker_ids)

    def give_back(self, runner: CommandRunner) -> None:
        """Return an idle runner to the pool."""
        runner.free()
        if len(self._free) < POOL_MAX:
            self._free.append(runner)

    def serve(
        self, call: HttpCall, command: dict[str, object], refused: i64, show: Show | None
    ) -> None:
        """Run a command and answer the call with its answer, now or later."""
        runner = self._take()
        runner.send(command, call.session.peer, call.now_ms)
        pending_command = PendingCommand(self, runner, call, refused, show)
        if not pending_command.settle():
            runner.pending_command = pending_command
            call.wait(pending_command)

    def ask(self, command: dict[str, object], now_ms: i64) -> tuple[MapFields, i64]:
        """Return the answer of a command that never waits, and the batch it must wait for."""
        runner = self._take()
        runner.send(command, NO_PEER, now_ms)
        answer = runner.take_answer()
        assert answer is not None
        fields = read_fields(answer, 0, len(answer))
        assert fields is not None
        self.give_back(runner)
        return fields, runner.session.awaits
