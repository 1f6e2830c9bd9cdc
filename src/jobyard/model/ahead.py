"""Bodies and rare parts of jobs that are to enter together, made before as their puts need them.

They lie one behind the other: who writes them touches nothing else of the jobs. Jobs get their ids
when they enter, so those that they tell of each other are left out here and written in between.

Each job is its weight i32, and pieces: size i32, place i32 of the job whose id comes behind it, or
-1 for the last, bytes.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from jobyard.model.details import MEMBER, PARENT, TAG_SIZE

_ID_SIZE: Final = 8
# What it weighs to have a parent.
PARENT_SIZE: Final = TAG_SIZE + _ID_SIZE
_LAST: Final = -1
# Jobs are gathered up to this size, so that what is gathered is never moved.
_CHUNK: Final = 1 << 16


@final
class Ahead:
    """What is written of jobs, but for what they get when they enter."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._out = BytesWriter()
        # Of the job that is being made.
        self._pieces = BytesWriter()
        self._piece = BytesWriter()
        self._weight: i64 = 0
        # Where the next job to be written is.
        self._chunk: i64 = 0
        self._at: i64 = 0

    # -- making -------------------------------------------------------------------------------

    def begin(self, body: bytes, fields: bytes) -> None:
        """Begin a job by its body, if that is written with it, and its fields without ids."""
        self._piece.write(body)
        self._piece.write(fields)
        self._weight = len(fields)

    def add_parent(self, place: i64) -> None:
        """Add whose child it is."""
        self._begin_field(PARENT, _ID_SIZE, place)

    def add_member(self, place: i64, label: str) -> None:
        """Add one that it waits for."""
        name = label.encode()
        self._begin_field(MEMBER, 3 * _ID_SIZE + len(name), place)
        write_i64_le(self._piece, 0)
        write_i64_le(self._piece, len(name))
        self._piece.write(name)

    def _begin_field(self, tag: i64, size: i64, place: i64) -> None:
        self._piece.append(u8(tag))
        write_i32_le(self._piece, i32(size))
        self._weight += TAG_SIZE + size
        self._end_piece(place)

    def _end_piece(self, place: i64) -> None:
        piece = self._piece
        write_i32_le(self._pieces, i32(len(piece)))
        write_i32_le(self._pieces, i32(place))
        self._pieces.write(piece.getvalue())
        piece.truncate(0)

    def end(self) -> i64:
        """End a job; return what its rare parts weigh."""
        self._end_piece(_LAST)
        out = self._out
        write_i32_le(out, i32(self._weight))
        out.write(self._pieces.getvalue())
        self._pieces.truncate(0)
        if len(out) >= _CHUNK:
            self.end_all()
        return self._weight

    def end_all(self) -> None:
        """Make no more jobs."""
        self._chunks.append(self._out.getvalue())
        self._out = BytesWriter()

    # -- writing ------------------------------------------------------------------------------

    def rewind(self) -> None:
        """Begin to write with the first job."""
        self._chunk = 0
        self._at = 0

    def next_weight(self) -> i64:
        """Go to the next job; return what its rare parts weigh."""
        if self._at == len(self._chunks[self._chunk]):
            self._chunk += 1
            self._at = 0
        weight = i64(read_i32_le(self._chunks[self._chunk], self._at))
        self._at += 4
        return weight

    def write(self, out: BytesWriter, first_id: i64) -> None:
        """Write that job; the first of all has this id."""
        data = self._chunks[self._chunk]
        at = self._at
        while True:
            end = at + 8 + i64(read_i32_le(data, at))
            place = i64(read_i32_le(data, at + 4))
            out.write(data[at + 8 : end])
            at = end
            if place < 0:
                break
            write_i64_le(out, first_id + place)
        self._at = at
