"""Answers of many parts: written as the parts are found, in pieces that are never put together.

A piece ends where a part does, so that whoever shows an answer in other words can go through it
piece by piece. An answer that is not long after all is one like any other.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.model.job import Job
from jobyard.protocols.bunqueue.ids import id_bytes
from jobyard.wire.msgpack.write import (
    FRAME_HEADER_SIZE,
    LongRaw,
    Raw,
    write_array,
    write_ascii,
    write_map,
    write_text,
    write_value,
)

# A piece is longer than this by less than a part.
PIECE_SIZE: Final = 256 << 10
# What it takes to write so many bytes, in jobs looked at.
BYTES_PER_UNIT: Final = 512


@final
class LongList:
    """A list whose items are written as they come: there may be a million."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._pieces: list[bytes] = []
        self._pieces_size: i64 = 0
        self._items = BytesWriter()

    def size(self) -> i64:
        """Return what the items weigh."""
        return self._pieces_size + len(self._items)

    def add(self, value: bytes) -> None:
        """Add a value that is MessagePack already."""
        self.count += 1
        if len(value) < PIECE_SIZE:
            self._items.write(value)
            if len(self._items) >= PIECE_SIZE:
                self._cut()
            return
        self._cut()
        self._pieces.append(value)
        self._pieces_size += len(value)

    def add_id(self, job: Job) -> None:
        """Add the id of a job."""
        self.count += 1
        write_ascii(self._items, id_bytes(job))
        if len(self._items) >= PIECE_SIZE:
            self._cut()

    def _cut(self) -> None:
        """Begin a new piece."""
        if len(self._items) > 0:
            self._pieces.append(self._items.getvalue())
            self._pieces_size += len(self._items)
            self._items = BytesWriter()

    def value(self) -> Raw | LongRaw:
        """Return the list."""
        out = BytesWriter()
        write_array(out, self.count)
        if not self._pieces:
            out.write(self._items.getvalue())
            return Raw(out.getvalue())
        self._cut()
        return LongRaw([out.getvalue(), *self._pieces])


def is_long(answer: dict[str, object]) -> bool:
    """Tell whether an answer is to be written in pieces."""
    for value in answer.values():  # noqa: SIM110  a generator costs more than most answers
        if isinstance(value, LongRaw):
            return True
    return False


def frame_of(req_id: bytes, answer: dict[str, object]) -> list[bytes]:
    """Return the pieces of the frame that says `ok` and holds an answer."""
    pieces: list[bytes] = []
    out = BytesWriter()
    write_map(out, len(answer) + (2 if req_id else 1))
    out.write(b"\xa2ok\xc3")
    for key, value in answer.items():
        write_text(out, key)
        if isinstance(value, LongRaw):
            pieces.append(out.getvalue())
            pieces += value.pieces
            out = BytesWriter()
        else:
            write_value(out, value)
    if req_id:
        out.write(b"\xa5reqId")
        out.write(req_id)
    if len(out) > 0:
        pieces.append(out.getvalue())
    size = 0
    for piece in pieces:
        size += len(piece)
    pieces[0] = size.to_bytes(FRAME_HEADER_SIZE, "big") + pieces[0]
    return pieces
