"""Columns of values of one kind, in the memory layout that data tools read.

    numbers   8 bytes each, little-endian
    texts     all of them joined, and `count + 1` offsets of 4 bytes: where each begins and ends
    validity  one bit each, lowest first; 1 where there is a value; empty if all have one

This is the layout of Arrow, which has more kinds. Knows neither messages nor what the values mean.
Invariant: every column of a page has the same `count`.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

# Offsets of texts are signed.
COLUMN_SIZE_MAX: Final = 0x7FFFFFFF


class Column:
    """The base of all columns."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.nulls: i64 = 0
        self._values = BytesWriter()
        # A byte for each value or null, after the first null.
        self._flags = BytesWriter()

    def buffers(self) -> list[bytes]:
        """Return the buffers of the column that a reader maps, validity first."""
        raise NotImplementedError

    def validity(self) -> bytes:
        """Return a bit for each value; empty if there is no null."""
        if self.nulls == 0:
            return b""
        if self.nulls == self.count:
            return bytes((int(self.count) + 7) // 8)
        flags = self._flags.getvalue() + bytes(7)
        bits = BytesWriter()
        at: i64 = 0
        while at < self.count:
            # Eight bytes of one bit each are folded into one byte: pairs, then fours, then all.
            eight = read_i64_le(flags, at)
            eight |= eight >> 7
            eight |= eight >> 14
            eight |= eight >> 28
            bits.append(eight & 0xFF)
            at += 8
        return bits.getvalue()

    def _note_value(self) -> None:
        if self.nulls > 0:
            self._flags.append(1)
        self.count += 1

    def _note_nulls(self, count: i64) -> None:
        if self.nulls == 0:
            self._flags.write(b"\1" * int(self.count))
        if count == 1:
            self._flags.append(0)
        else:
            self._flags.write(bytes(int(count)))
        self.count += count
        self.nulls += count


@final
class NumberColumn(Column):
    """A column of whole numbers, or of times."""

    def add(self, number: i64) -> None:
        """Append a number."""
        write_i64_le(self._values, number)
        self._note_value()

    def add_known(self, number: i64) -> None:
        """Append a number; 0 becomes a null."""
        if number == 0:
            self.add_nulls(1)
        else:
            self.add(number)

    def add_nulls(self, count: i64) -> None:
        """Append `count` nulls."""
        if count == 1:
            write_i64_le(self._values, 0)
        else:
            self._values.write(bytes(8 * int(count)))
        self._note_nulls(count)

    def buffers(self) -> list[bytes]:
        """Return validity and numbers."""
        return [self.validity(), self._values.getvalue()]


@final
class TextColumn(Column):
    """A column of texts, or of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._places = BytesWriter()
        write_i32_le(self._places, 0)

    def size(self) -> i64:
        """Return the total size of all texts."""
        return len(self._values)

    def add(self, text: bytes) -> None:
        """Append a text; the total size must not exceed COLUMN_SIZE_MAX."""
        self._values.write(text)
        size: i64 = len(self._values)
        assert size <= COLUMN_SIZE_MAX
        write_i32_le(self._places, i32(size))
        self._note_value()

    def add_known(self, text: bytes) -> None:
        """Append a text; an empty one becomes a null."""
        if len(text) > 0:
            self.add(text)
        else:
            self.add_nulls(1)

    def add_nulls(self, count: i64) -> None:
        """Append `count` nulls."""
        size = i32(len(self._values))
        left = count
        while left > 0:
            write_i32_le(self._places, size)
            left -= 1
        self._note_nulls(count)

    def buffers(self) -> list[bytes]:
        """Return validity, offsets and texts."""
        return [self.validity(), self._places.getvalue(), self._values.getvalue()]
