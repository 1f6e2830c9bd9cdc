"""Reads the command in a frame, at once or in slices if it is long, and buffers unread frames."""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.request import Request
from jobyard.wire.long_input import LongInput
from jobyard.wire.msgpack.forms import KIND_TEXT, is_deeper, skip
from jobyard.wire.msgpack.read import MapFields, read_fields, read_known
from jobyard.wire.msgpack.scan import UNKNOWN, WHOLE, MsgpackScan

# A longer frame is scanned in slices, VALUES_PER_UNIT values per unit of work.
LONG_FRAME: Final = 256 << 10
VALUES_PER_UNIT: Final = 100
# A longer frame was assembled in the turn in which it arrived; its parts are copied in another.
FRAME_COPIED_AT_ONCE: Final = 4 << 20
# Deeper than real documents, and as deep as clients can read.
FRAME_DEPTH_MAX: Final = 512

_NIL: Final = 0xC0


def read_frame(data: bytes, at: i64, end: i64) -> MapFields | None:
    """Return the fields of the command in a frame; None if it is not a valid map."""
    if end - at > FRAME_DEPTH_MAX and is_deeper(data, at, end, FRAME_DEPTH_MAX):
        return None
    return read_fields(data, at, end)


def is_message(data: bytes, at: i64, end: i64) -> bool:
    """Return whether a frame that is not a command holds one valid value other than nil."""
    if skip(data, at, end) != end or data[at] == _NIL:
        return False
    return end - at <= FRAME_DEPTH_MAX or not is_deeper(data, at, end, FRAME_DEPTH_MAX)


def text_req_id(fields: MapFields) -> bytes:
    """Return the request id if it is text: for a command not yet accepted no other is echoed."""
    return (fields.raw_at(fields.req_id) or b"") if fields.kind(b"reqId") == KIND_TEXT else b""


@final
class UnreadFrames:
    """Input that has not been run: part of a frame, or frames that must wait."""

    def __init__(self) -> None:
        self.have: i64 = 0
        # The size at which the first frame, or its length, is complete.
        self._need: i64 = 4
        # One piece, or many.
        self._piece: bytes = b""
        self._pieces = LongInput()

    def is_whole(self) -> bool:
        """Return whether there is enough input to continue."""
        return self.have >= self._need

    def keep(self, data: bytes, at: i64, need: i64) -> bool:
        """Keep the input from `at` on; return whether it is an incomplete frame."""
        piece = data[at:] if at > 0 else data
        self.have = len(piece)
        self._need = need
        self._piece = piece
        return 0 < self.have < need

    def is_enough_with(self, data: bytes) -> bool:
        """Add a piece; return False and keep it if the frame is still incomplete."""
        self.have += len(data)
        if self.have >= self._need:
            return True
        if self._piece:
            self._pieces.append(self._piece)
            self._piece = b""
        self._pieces.append(data)
        return False

    def take(self, data: bytes) -> bytes:
        """Return the kept input followed by the last piece."""
        piece = self._piece
        if piece:
            self._piece = b""
            return piece + data
        self._pieces.append(data)
        return self._pieces.take()


@final
class LongCommand:
    """A command whose task runs over several turns, and the function that makes its answer."""

    def __init__(self, request: Request, task: Task, make_answer: Callable[[], Answer]) -> None:
        self.request = request
        self.task = task
        self.make_answer: Callable[[], Answer] = make_answer


@final
class FrameScan(Task):
    """Validates a long frame in slices before its command runs."""

    def __init__(self, data: bytes, start: i64, end: i64) -> None:
        super().__init__()
        self.is_reading = True
        self.scan = MsgpackScan(data, start, end, FRAME_DEPTH_MAX)

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Scan some values."""
        if self.scan.verdict != UNKNOWN:
            return 0
        done = self.scan.proceed(most * VALUES_PER_UNIT)
        if self.scan.verdict == UNKNOWN or self.scan.end - self.scan.start > FRAME_COPIED_AT_ONCE:
            return most
        return min(done // VALUES_PER_UNIT, most - 1)

    def is_whole(self) -> bool:
        """Return whether the frame holds exactly one value."""
        return self.scan.verdict == WHOLE

    def fields(self) -> MapFields | None:
        """Return the fields of the command; None if the frame is not a valid map."""
        scan = self.scan
        if scan.verdict != WHOLE:
            return None
        return read_known(scan.data, scan.start, scan.end, scan.ends)
