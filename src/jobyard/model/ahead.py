"""Bodies and rare fields of jobs that will enter together, encoded before their puts.

They are stored one after the other, so writing them touches no other part of the jobs. Jobs get
their ids when they enter, so the ids of other jobs are left out here and filled in while writing.

Each job is its weight (i32) followed by pieces: size i32, index i32 of the job whose id follows the
piece (-1 for the last piece), bytes.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from jobyard.model.details_codec import Tag
from jobyard.model.members import TAG_SIZE

_ID_SIZE: Final = 8
# What a parent field weighs.
PARENT_SIZE: Final = TAG_SIZE + _ID_SIZE
_LAST: Final = -1
# Jobs are collected in chunks of this size, so that collected bytes are never moved.
_CHUNK: Final = 1 << 16


@final
class EncodedAhead:
    """The encoded fields of jobs, except what they get when they enter."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._out = BytesWriter()
        # Of the job that is being encoded.
        self._pieces = BytesWriter()
        self._piece = BytesWriter()
        self._weight: i64 = 0
        # Position of the next job to write.
        self._chunk: i64 = 0
        self._at: i64 = 0

    # -- encoding -----------------------------------------------------------------------------

    def begin(self, body: bytes, fields: bytes) -> None:
        """Begin a job with its body, if that is written with it, and its fields without ids."""
        self._piece.write(body)
        self._piece.write(fields)
        self._weight = len(fields)

    def add_parent(self, place: i64) -> None:
        """Add the parent of the job."""
        self._begin_field(Tag.PARENT, _ID_SIZE, place)

    def add_member(self, place: i64, label: str) -> None:
        """Add a job that this one waits for."""
        name = label.encode()
        self._begin_field(Tag.MEMBER, 3 * _ID_SIZE + len(name), place)
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
        """End a job; return the weight of its rare fields."""
        self._end_piece(_LAST)
        out = self._out
        write_i32_le(out, i32(self._weight))
        out.write(self._pieces.getvalue())
        self._pieces.truncate(0)
        if len(out) >= _CHUNK:
            self.end_all()
        return self._weight

    def end_all(self) -> None:
        """End the encoding: no job follows."""
        self._chunks.append(self._out.getvalue())
        self._out = BytesWriter()

    # -- writing ------------------------------------------------------------------------------

    def rewind(self) -> None:
        """Start writing at the first job."""
        self._chunk = 0
        self._at = 0

    def next_weight(self) -> i64:
        """Go to the next job; return the weight of its rare fields."""
        if self._at == len(self._chunks[self._chunk]):
            self._chunk += 1
            self._at = 0
        weight = i64(read_i32_le(self._chunks[self._chunk], self._at))
        self._at += 4
        return weight

    def write(self, out: BytesWriter, first_id: i64) -> None:
        """Write that job; `first_id` is the id of the first job of all."""
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
