"""Converts a long JSON text to MessagePack, in slices and without objects for its parts.

There are two passes: the first checks the text and counts the values of each array and object,
since MessagePack writes the count first; the second writes. The result is the same as that of
`parse_request` and `encode` for a short text, except for repeated keys in one object: both are
written, and readers take the last.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i32_le
from mypy_extensions import i64

from jobyard.wire.json.check import CHECK_WINDOW, CHECKED_PER_UNIT, JsonCheck
from jobyard.wire.json.read import is_plain_integer, text_of
from jobyard.wire.json.scan import number_end, skip_blanks
from jobyard.wire.long_input import LongInput
from jobyard.wire.msgpack.forms import DECODED_DEPTH_MAX, KIND_MAP, decode, kind_of
from jobyard.wire.msgpack.write import (
    RawPart,
    end_frame,
    write_array,
    write_ascii,
    write_int,
    write_map,
    write_text_head,
    write_value,
)
from jobyard.wire.payload import parse_exact, parse_finite

# Parts per unit of work.
_WRITTEN_PER_UNIT: Final = 8
_FLOAT_PARTS: Final = 3
_BYTES_PER_ESCAPE: Final = 8
# Bytes of a long text without escapes that are copied at once.
PACKED_PIECE_SIZE: Final = 1 << 20

_NONE: Final = b""


@final
class JsonPack:
    """The conversion of one JSON text."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end: i64 = len(data)
        self._check = JsonCheck(data, DECODED_DEPTH_MAX)
        self._is_writing: bool = False
        self._is_done: bool = False
        self.is_bad: bool = False
        self._at: i64 = 0
        self._count_at: i64 = 0
        self._depth: i64 = 0
        # Numbers with a fraction in the current slice.
        self._floats: i64 = 0
        # The last piece of the output, and those before: copying all of it in the end takes long.
        self._out = BytesWriter()
        self._before = LongInput()
        # Where the output of the current long text begins; -1 for none.
        self._text_at: i64 = -1
        # Where the current long text without escapes ends; 0 for none.
        self._plain_end: i64 = 0
        # Where the keys and values of the outermost object begin in the output.
        self._tops: list[i64] = []
        self._packed: bytes = _NONE

    def is_done(self) -> bool:
        """Return whether everything is written, or an error was found."""
        return self._is_done

    def packed(self) -> bytes:
        """Return the value, once everything is written without an error."""
        return self._packed

    def proceed(self, most: i64) -> i64:
        """Do up to about `most` units of work; return how many."""
        done: i64 = 0
        while done < most and not self._is_done:
            if self._is_writing:
                done += self._write(most - done)
                continue
            done += self._check.proceed(most - done)
            if self._check.is_bad:
                self._refuse()
            elif self._check.is_done():
                self._is_writing = True
        return done

    def _refuse(self) -> None:
        self.is_bad = True
        self._is_done = True

    def _write(self, most: i64) -> i64:
        """Write some of the text, which is known to be well-formed."""
        parts: i64 = 0
        long: i64 = 0
        while (parts + self._floats * _FLOAT_PARTS) // _WRITTEN_PER_UNIT + (
            long // CHECKED_PER_UNIT
        ) < most:
            start = self._at
            if self._plain_end > 0:
                self._write_plain()
            elif self._text_at >= 0:
                self._write_piece()
                # Decoding an escape costs as much as writing a value.
                parts += (self._at - start) // _BYTES_PER_ESCAPE
            else:
                self._at = skip_blanks(self._data, start, min(self._end, start + CHECK_WINDOW))
                if self._at == self._end:
                    self._spill()
                    self._packed = self._before.take()
                    self._is_done = True
                elif self._at - start < CHECK_WINDOW:
                    self._write_one(self._data[self._at])
            parts += 1
            long += self._at - start
            if self._is_done:
                break
            if len(self._out) >= PACKED_PIECE_SIZE and self._text_at < 0:
                self._spill()
        # A number with a fraction costs as much as several other values.
        parts += self._floats * _FLOAT_PARTS
        self._floats = 0
        return 1 + parts // _WRITTEN_PER_UNIT + long // CHECKED_PER_UNIT

    def _spill(self) -> None:
        self._before.append(self._out.getvalue())
        self._out = BytesWriter()

    def _write_one(self, byte: i64) -> None:
        if byte in (44, 58):
            self._at += 1
            return
        if byte in (125, 93):
            self._depth -= 1
            self._at += 1
            return
        if self._depth == 1:
            self._tops.append(self._before.size + len(self._out))
        if byte in (123, 91):
            count = self._check.count_at(self._count_at)
            self._count_at += 4
            self._depth += 1
            self._at += 1
            if byte == 123:
                write_map(self._out, count)
            else:
                write_array(self._out, count)
        elif byte == 34:
            self._write_text()
        else:
            self._write_scalar(byte)

    def _write_text(self) -> None:
        data = self._data
        start = self._at + 1
        quote: i64 = data.find(b'"', start)
        if data.find(b"\\", start, quote) < 0:
            if quote - start <= PACKED_PIECE_SIZE:
                write_ascii(self._out, data[start:quote])
                self._at = quote + 1
            else:
                write_text_head(self._out, quote - start)
                self._at = start
                self._plain_end = quote
            return
        if quote - start < CHECK_WINDOW:
            end = _text_end(data, start, start + CHECK_WINDOW)
            if end >= 0:
                write_ascii(self._out, text_of(data[start:end]).encode())
                self._at = end + 1
                return
        # The length is filled in at the end of the text.
        self._out.append(0xDB)
        self._text_at = len(self._out)
        write_i32_le(self._out, 0)
        self._at = start

    def _write_plain(self) -> None:
        """Write some of a long text without escapes."""
        end = min(self._at + PACKED_PIECE_SIZE, self._plain_end)
        self._out.write(self._data[self._at : end])
        self._at = end
        if end == self._plain_end:
            self._plain_end = 0
            self._at = end + 1

    def _write_piece(self) -> None:
        """Write some of a long text with escapes."""
        data = self._data
        start = self._at
        at = start
        while data[at] != 34 and (at < start + CHECK_WINDOW or data[at] & 0xC0 == 0x80):
            at = _past_character(data, at)
        self._out.write(text_of(data[start:at]).encode())
        self._at = at
        if data[at] == 34:
            end_frame(self._out, self._text_at)
            self._text_at = -1
            self._at = at + 1

    def _write_scalar(self, byte: i64) -> None:
        out = self._out
        start = self._at
        if byte == 116:
            out.append(0xC3)
            self._at = start + 4
        elif byte == 102:
            out.append(0xC2)
            self._at = start + 5
        elif byte == 110:
            out.append(0xC0)
            self._at = start + 4
        else:
            self._at = number_end(self._data, start, self._end)
            self._write_number(start, self._at)

    def _write_number(self, start: i64, end: i64) -> None:
        data = self._data
        if not is_plain_integer(data, start, end):
            self._floats += 1
            try:
                write_value(self._out, parse_finite(data[start:end].decode()))
            except ValueError:
                self._refuse()
        elif end - start <= 10 and data[start] != 45:
            number: i64 = 0
            at = start
            while at < end:
                number = number * 10 + data[at] - 48
                at += 1
            write_int(self._out, number)
        else:
            try:
                write_value(self._out, parse_exact(data[start:end].decode()))
            except ValueError:
                self._refuse()

    # -- the outermost object -----------------------------------------------------------------

    def pairs(self, most: i64) -> dict[str, object] | None:
        """Return the outermost object with values as parts; None if not an object, or too large.

        A null value is None.
        """
        tops = self._tops
        packed = self._packed
        if kind_of(packed, 0) != KIND_MAP or len(tops) > 2 * most:
            return None
        found: dict[str, object] = {}
        for each in range(0, len(tops), 2):
            key = decode(packed, tops[each], tops[each + 1])
            assert isinstance(key, str)
            end = tops[each + 2] if each + 2 < len(tops) else len(packed)
            is_null = packed[tops[each + 1]] == 0xC0
            found[key] = None if is_null else RawPart(packed, tops[each + 1], end)
        return found


def _text_end(data: bytes, at: i64, stop: i64) -> i64:
    """Return the position of the quote that ends a well-formed text; -1 if not before `stop`."""
    while at < stop:
        byte: i64 = data[at]
        if byte == 34:
            return at
        at += 2 if byte == 92 else 1
    return -1


def _past_character(data: bytes, at: i64) -> i64:
    """Return the end of the character or escape at `at`; surrogate pairs are not split."""
    if data[at] != 92:
        return at + 1
    if data[at + 1] != 117:
        return at + 2
    if data[at + 2] | 32 != 100 or data[at + 3] | 32 not in b"89ab":
        return at + 6
    if data[at + 6] != 92 or data[at + 7] != 117:
        return at + 6
    is_pair = data[at + 8] | 32 == 100 and data[at + 9] | 32 in b"cdef"
    return at + 12 if is_pair else at + 6
