"""Writes flatbuffers from the root down: a pointer always precedes its target.

    table    its size table, then 4 bytes back to that, then its fields, the widest first
    vector   a count of 4 bytes, then the items
    text     a count of 4 bytes, then UTF-8, then a zero

A pointer is the distance to its target. A table begins 4 bytes after a multiple of 8, so its fields
are aligned without gaps. Knows no schema: a table is described by the sizes of its fields.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i16_le, write_i32_le
from mypy_extensions import i16, i32, i64, u8

POINTER: Final = 4
ROOT: Final = 0

_WIDTHS: Final = (8, 4, 2, 1)


@final
class FlatWriter:
    """A flatbuffer that is being written."""

    def __init__(self) -> None:
        self._out = BytesWriter()
        write_i32_le(self._out, 0)

    def getvalue(self) -> bytes:
        """Return the bytes written."""
        return self._out.getvalue()

    def table(self, pointer: i64, sizes: list[int]) -> list[int]:
        """Write an empty table for a pointer; return where its fields are, 0 for one left out."""
        out = self._out
        index_size: i64 = 4 + 2 * len(sizes)
        self._align(8, index_size + 4)
        places: list[int] = [0] * len(sizes)
        size: i64 = 4
        for width in _WIDTHS:
            for i in range(len(sizes)):
                if sizes[i] == width:
                    places[i] = size
                    size += width
        write_i16_le(out, i16(index_size))
        write_i16_le(out, i16(size))
        for place in places:
            write_i16_le(out, i16(place))
        start: i64 = len(out)
        self._point(pointer, start)
        write_i32_le(out, i32(index_size))
        out.write(bytes(int(size) - 4))
        return [int(start) + place if place > 0 else 0 for place in places]

    def pointers(self, pointer: i64, count: i64) -> i64:
        """Write a vector of pointers for a pointer; return where the first one is."""
        return self._vector(pointer, count, bytes(POINTER * int(count)), POINTER)

    def records(self, pointer: i64, count: i64, items: bytes) -> None:
        """Write a vector of records made of 8-byte numbers for a pointer."""
        self._vector(pointer, count, items, 8)

    def text(self, pointer: i64, text: str) -> None:
        """Write a text for a pointer."""
        encoded = text.encode()
        self._vector(pointer, len(encoded), encoded + b"\0", 1)

    def put(self, place: i64, size: i64, number: i64) -> None:
        """Set a field, or an item, to a number that is not negative."""
        out = self._out
        end = place + size
        while place < end:
            out[place] = u8(number & 0xFF)
            number >>= 8
            place += 1

    def _vector(self, pointer: i64, count: i64, items: bytes, alignment: i64) -> i64:
        self._align(max(alignment, 4), 4)
        out = self._out
        self._point(pointer, len(out))
        write_i32_le(out, i32(count))
        first: i64 = len(out)
        out.write(items)
        return first

    def _align(self, alignment: i64, ahead: i64) -> None:
        """Pad, so that what begins `ahead` bytes from here is aligned."""
        rest: i64 = (len(self._out) + ahead) % alignment
        if rest > 0:
            self._out.write(bytes(int(alignment - rest)))

    def _point(self, pointer: i64, target: i64) -> None:
        self.put(pointer, POINTER, target - pointer)
