"""Clerks: bunqueue sessions without a connection, that run commands for whoever asks over HTTP.

A clerk does one command at a time, as the frame a client would send, so that a command exists once
whichever way it came. One whose command waits stays with its call; all others go back to the pool.
Jobs that are pulled here belong to no connection.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Starter, Task
from jobyard.model.job import MSGPACK
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.http.long_json import JsonTask
from jobyard.protocols.bunqueue.session import FRAME_SIZE_MAX, STORAGE_FULL, BunqueueSession
from jobyard.protocols.http.call import Call, HttpRefused, Pending
from jobyard.protocols.session import Peer
from jobyard.wire.msgpack.forms import Malformed
from jobyard.wire.msgpack.read import Fields, read_fields
from jobyard.wire.msgpack.write import encode, framed
from jobyard.wire.payload import NO_JSON, parse_request, to_json

# More than are ever busy at once without waiting.
POOL_MAX: Final = 16
# A longer answer is shown in slices.
JSON_AT_ONCE: Final = 64 << 10
# How an answer begins that is no refusal.
_OK: Final = b"\xa2ok\xc3"
SHUTTING_DOWN: Final = "Server is shutting down"

# Makes an answer that HTTP gives in another shape.
Show = Callable[[Fields], object]


def read_object(body: bytes) -> dict[str, object]:
    """Return the fields of a JSON body."""
    value = parse_request(body)
    if value is NO_JSON or not isinstance(value, dict):
        raise HttpRefused(400, "invalid_request", "Invalid JSON body")
    return value


def json_of(value: object) -> bytes:
    """Return a value as JSON; parts of it may be MessagePack already."""
    return to_json(MSGPACK, encode(value))


def refusal_status(error: str, otherwise: i64) -> i64:
    """Return the status of a refusal: what the server lacks is no fault of the client's."""
    if error.startswith(STORAGE_FULL):
        return 507
    return 503 if error == SHUTTING_DOWN else otherwise


@final
class Errand(Pending, Starter):
    """A call whose command may wait."""

    def __init__(
        self, clerks: "Clerks", clerk: "Clerk", call: Call, refused: i64, show: Show | None
    ) -> None:
        self._clerks = clerks
        self._clerk = clerk
        self._call = call
        self._refused = refused
        self._show = show
        # The answer on its way to JSON, if it is long.
        self._making: JsonTask | None = None

    def settle(self) -> bool:
        """Answer the call if the command is answered; False if it waits."""
        clerk = self._clerk
        pieces = clerk.take_long() if self._show is None else None
        answer = clerk.take_answer() if pieces is None else b""
        if answer is None:
            return False
        self._call.await_batch(clerk.session.awaits)
        self._call.session.await_synced(clerk.session.take_synced())
        clerk.errand = None
        self._clerks.give_back(clerk)
        if pieces is not None:
            self._make(pieces)
        else:
            self._reply(answer)
        return True

    def _reply(self, answer: bytes) -> None:
        call = self._call
        if len(answer) > JSON_AT_ONCE and self._show is None and answer[1:5] == _OK:
            # Nobody reads through a long answer at once.
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
        """Answer once a long answer is JSON."""
        task = JsonTask(pieces)
        call = self._call
        if self._clerks.door.yard.tasks.begin(task, self, call.now_ms):
            call.answer_long(task.pieces())
        else:
            self._making = task
            call.wait(self)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:  # noqa: ARG002
        """Answer: it is JSON now, or cannot be."""
        assert isinstance(task, JsonTask)
        self._making = None
        if refusal is None:
            self._call.answer_long(task.pieces())
        else:
            self._call.answer_refusal(HttpRefused(500, "internal_error", str(refusal)))

    def hurry(self, now_ms: i64) -> None:
        """Let the command answer with what there is."""
        if self._making is None:
            self._clerk.session.half_close(now_ms)

    def gone(self, now_ms: i64) -> None:
        """Let nothing wait for somebody who left."""
        if self._making is not None:
            self._clerks.door.yard.tasks.leave(self._making)
            return
        self._clerk.errand = None
        self._clerk.leave(now_ms)

    def drained(self, now_ms: i64) -> None:
        """There is nothing to go on with."""


@final
class Clerk(Peer):
    """A session and the errand it is on."""

    def __init__(self, door: BunqueueDoor, worker_ids: list[str]) -> None:
        self.session = BunqueueSession(door, self)
        # Whoever asks was let in already, and is counted where they were.
        self.session.is_known = True
        self.session.is_limited = False
        self.session.worker_ids = worker_ids
        self.errand: Errand | None = None

    def stirred(self) -> None:
        """Bring the answer of a command that waited."""
        errand = self.errand
        if errand is not None:
            errand.settle()

    def send(self, command: dict[str, object], now_ms: i64) -> None:
        """Begin a command."""
        try:
            frame = framed(command)
        except Malformed:
            raise HttpRefused(400, "invalid_request", "Invalid JSON body") from None
        if len(frame) > FRAME_SIZE_MAX:
            raise HttpRefused(413, "too_large", "Request body too large")
        self.session.awaits = 0
        self.session.receive(frame, now_ms)

    def take_answer(self) -> bytes | None:
        """Return the answer of the command, if it is there."""
        if len(self.session.out) == 0:
            return None
        return self.session.take_output()[4:]

    def take_long(self) -> list[bytes] | None:
        """Return the answer in pieces, if it is there and long; such an answer is no refusal."""
        if not self.session.has_long():
            return None
        pieces = self.session.take_pieces()
        pieces[0] = pieces[0][4:]
        return pieces

    def leave(self, now_ms: i64) -> None:
        """Stop waiting, for good. Workers that registered over HTTP stay."""
        self.session.worker_ids = []
        self.session.closed(now_ms)


@final
class Clerks:
    """All clerks of a door."""

    def __init__(self, door: BunqueueDoor) -> None:
        self.door = door
        self._free: list[Clerk] = []
        # Workers that no connection stands for: they leave when they are not heard of.
        self._worker_ids: list[str] = []

    def _take(self) -> Clerk:
        return self._free.pop() if self._free else Clerk(self.door, self._worker_ids)

    def give_back(self, clerk: Clerk) -> None:
        """Let a clerk rest who has nothing to wait for."""
        if len(self._free) < POOL_MAX:
            self._free.append(clerk)

    def serve(
        self, call: Call, command: dict[str, object], refused: i64, show: Show | None
    ) -> None:
        """Answer a call with what a command answers, now or later."""
        clerk = self._take()
        clerk.send(command, call.now_ms)
        errand = Errand(self, clerk, call, refused, show)
        if not errand.settle():
            clerk.errand = errand
            call.wait(errand)

    def ask(self, command: dict[str, object], now_ms: i64) -> tuple[Fields, i64]:
        """Return the answer to a command that never waits, and the batch it discloses."""
        clerk = self._take()
        clerk.send(command, now_ms)
        answer = clerk.take_answer()
        assert answer is not None
        fields = read_fields(answer, 0, len(answer))
        assert fields is not None
        self.give_back(clerk)
        return fields, clerk.session.awaits
