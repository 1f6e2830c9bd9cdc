"""What is in a frame: looked through at once, or in slices if it is long; and what waits for it."""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.request import Request
from jobyard.wire.long_input import LongInput
from jobyard.wire.msgpack.forms import KIND_TEXT, is_deeper, skip
from jobyard.wire.msgpack.read import Fields, read_fields, read_known
from jobyard.wire.msgpack.scan import UNKNOWN, WHOLE, Scan

# A longer frame is looked through in slices, so many values for a unit of work.
LONG_FRAME: Final = 256 << 10
VALUES_PER_UNIT: Final = 100
# A longer one was put together in the turn in which it came; what is in it is copied in another.
COPIED_AT_ONCE: Final = 4 << 20
# Deeper than any document, and as deep as clients can read.
DEPTH_MAX: Final = 512

_NIL: Final = 0xC0


def read_frame(data: bytes, at: i64, end: i64) -> Fields | None:
    """Return the fields of the command in a frame; None if there is none."""
    if end - at > DEPTH_MAX and is_deeper(data, at, end, DEPTH_MAX):
        return None
    return read_fields(data, at, end)


def is_message(data: bytes, at: i64, end: i64) -> bool:
    """Tell whether what is no command is a whole value; nothing at all is none."""
    if skip(data, at, end) != end or data[at] == _NIL:
        return False
    return end - at <= DEPTH_MAX or not is_deeper(data, at, end, DEPTH_MAX)


def text_req_id(fields: Fields) -> bytes:
    """Return the request id if it is text: before a command is believed no other is echoed."""
    return (fields.raw_at(fields.req_id) or b"") if fields.kind(b"reqId") == KIND_TEXT else b""


@final
class Unread:
    """Input that was not run: part of a frame, or frames that must wait."""

    def __init__(self) -> None:
        self.have: i64 = 0
        # Less than this is no use.
        self._need: i64 = 4
        # One piece, or many.
        self._piece: bytes = b""
        self._pieces = LongInput()

    def is_whole(self) -> bool:
        """Tell whether there is enough to go on."""
        return self.have >= self._need

    def keep(self, data: bytes, at: i64, need: i64) -> bool:
        """Keep what follows `at`; tell whether a frame has begun and is not whole."""
        piece = data[at:] if at > 0 else data
        self.have = len(piece)
        self._need = need
        self._piece = piece
        return 0 < self.have < need

    def is_enough_with(self, data: bytes) -> bool:
        """Count one more piece, and keep it if there is too little even with it."""
        self.have += len(data)
        if self.have >= self._need:
            return True
        if self._piece:
            self._pieces.append(self._piece)
            self._piece = b""
        self._pieces.append(data)
        return False

    def take(self, data: bytes) -> bytes:
        """Return what was kept with the last piece behind it."""
        piece = self._piece
        if piece:
            self._piece = b""
            return piece + data
        self._pieces.append(data)
        return self._pieces.take()


@final
class Long:
    """A command whose work goes on over turns, and what makes its answer at the end."""

    def __init__(self, request: Request, task: Task, tell: Callable[[], Answer]) -> None:
        self.request = request
        self.task = task
        self.tell: Callable[[], Answer] = tell


@final
class Looking(Task):
    """Looks through a long frame before its command is run."""

    def __init__(self, data: bytes, start: i64, end: i64) -> None:
        super().__init__()
        self.is_reading = True
        self.scan = Scan(data, start, end, DEPTH_MAX)

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Look at some values."""
        if self.scan.verdict != UNKNOWN:
            return 0
        done = self.scan.go_on(most * VALUES_PER_UNIT)
        if self.scan.verdict == UNKNOWN or self.scan.end - self.scan.start > COPIED_AT_ONCE:
            return most
        return min(done // VALUES_PER_UNIT, most - 1)

    def is_whole(self) -> bool:
        """Tell whether the frame holds one value and nothing else."""
        return self.scan.verdict == WHOLE

    def fields(self) -> Fields | None:
        """Return the fields of the command; None if it is none."""
        scan = self.scan
        if scan.verdict != WHOLE:
            return None
        return read_known(scan.data, scan.start, scan.end, scan.ends)
