"""Answers with many items: written item by item, in pieces that are never joined.

A piece ends where an item does, so that the conversion to JSON can go piece by piece. A list that
stays short is written as an ordinary answer.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.model.job import Job
from jobyard.protocols.bunqueue.ids import id_bytes
from jobyard.protocols.session import PIECE_SIZE
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

# Less than a frame, which holds more than a page of jobs. A page ends early at this size.
PAGE_BYTES_MAX: Final = 48 << 20
# Writing this many bytes costs one unit of work.
WRITTEN_PER_UNIT: Final = 512


@final
class LongList:
    """A list that encodes each item when it is added: there may be a million."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._pieces: list[bytes] = []
        self._pieces_size: i64 = 0
        self._items = BytesWriter()

    def size(self) -> i64:
        """Return the encoded size of the items."""
        return self._pieces_size + len(self._items)

    def add(self, value: bytes) -> None:
        """Add a value encoded as MessagePack."""
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
        """Start a new piece."""
        if len(self._items) > 0:
            self._pieces.append(self._items.getvalue())
            self._pieces_size += len(self._items)
            self._items = BytesWriter()

    def add_pair(self, key: str, value: bytes) -> None:
        """Add a key and its value, encoded as MessagePack, for `map_value`."""
        write_text(self._items, key)
        self.add(value)

    def value(self) -> Raw | LongRaw:
        """Return the encoded list, in pieces if it is long."""
        out = BytesWriter()
        write_array(out, self.count)
        return self._behind(out)

    def map_value(self) -> Raw | LongRaw:
        """Return the pairs as an encoded map, in pieces if it is long."""
        out = BytesWriter()
        write_map(out, self.count)
        return self._behind(out)

    def map_under(self, key: str) -> Raw | LongRaw:
        """Return an encoded map whose only value is the map of the pairs."""
        out = BytesWriter()
        write_map(out, 1)
        write_text(out, key)
        write_map(out, self.count)
        return self._behind(out)

    def _behind(self, out: BytesWriter) -> Raw | LongRaw:
        if not self._pieces:
            out.write(self._items.getvalue())
            return Raw(out.getvalue())
        self._cut()
        return LongRaw([out.getvalue(), *self._pieces])


def is_long(answer: dict[str, object]) -> bool:
    """Return whether an answer must be written in pieces."""
    for value in answer.values():  # noqa: SIM110  a generator costs more than most answers
        if isinstance(value, LongRaw):
            return True
    return False


def frame_of(req_id: bytes, answer: dict[str, object]) -> list[bytes]:
    """Return the frame of a successful answer, in pieces."""
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
