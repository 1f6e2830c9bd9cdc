"""Makes MessagePack of a long JSON text, some of it at a time and without objects of its parts.

Gone through twice: first it is checked and the values of each array and object are counted, since
MessagePack says the count first; then it is written. What comes of it is what `parse_request` and
`encode` make of a short one, but for keys that stand twice in one object: both are written, and
whoever reads them takes the last.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i64, u8

from jobyard.wire.json_read import is_plain_integer, text_of
from jobyard.wire.json_scan import (
    NUMBER_SIZE_MAX,
    escape_end,
    number_end,
    plain_end,
    scalar_end,
    skip_blanks,
)
from jobyard.wire.msgpack import DEPTH_MAX, KIND_MAP, decode, kind_of
from jobyard.wire.msgpack_write import (
    Part,
    end_frame,
    write_array,
    write_ascii,
    write_int,
    write_map,
    write_value,
)
from jobyard.wire.payload import parse_exact, parse_finite

# How many parts a unit of work is, and how many bytes of blanks and texts.
_CHECKED_PER_UNIT: Final = 32
_WRITTEN_PER_UNIT: Final = 8
_BYTES_PER_UNIT: Final = 1024
# Of a text or of blanks, gone through at once.
_WINDOW: Final = 64 << 10

# What is due next.
_TEXT: Final = 0
_VALUE: Final = 1
_KEY: Final = 2
_COLON: Final = 3
_BEHIND: Final = 4
_WRITE: Final = 5
_DONE: Final = 6

_NONE: Final = b""


@final
class JsonPack:
    """One JSON text on its way."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end: i64 = len(data)
        self._at: i64 = 0
        self._state: i64 = _TEXT
        self.is_bad: bool = False
        # Whether a text has begun whose end has not come, and whether that is a key.
        self._is_in_text: bool = False
        self._is_key: bool = False
        # How many values each array and object holds, as i32 in the order in which they begin.
        self._counts = BytesWriter()
        # Of those that are open: where their count stands, how many values came, what closes them.
        self._places: list[i64] = []
        self._values: list[i64] = []
        self._closers = BytesWriter()
        # While it is written.
        self._found: bytes = _NONE
        self._count_at: i64 = 0
        self._depth: i64 = 0
        self._out = BytesWriter()
        # Where the text begins in the output that is written piece by piece; -1 for none.
        self._text_at: i64 = -1
        # Where the keys and values of the outermost object begin in the output.
        self._tops: list[i64] = []
        self._packed: bytes = _NONE

    def is_done(self) -> bool:
        """Tell whether all is written, or can never be."""
        return self._state == _DONE

    def packed(self) -> bytes:
        """Return the value; only once all is written and nothing was bad."""
        return self._packed

    def go_on(self, most: i64) -> i64:
        """Do up to about so many units; return how many."""
        done: i64 = 0
        while done < most and self._state != _DONE:
            if self._state == _TEXT:
                done += self._check_text()
            elif self._state == _WRITE:
                done += self._write(most - done)
            else:
                done += self._check(most - done)
        return done

    def _refuse(self) -> None:
        self.is_bad = True
        self._state = _DONE

    # -- the first time ------------------------------------------------------------------------

    def _check_text(self) -> i64:
        """Check that the next bytes are UTF-8."""
        data = self._data
        stop = min(self._at + _WINDOW, self._end)
        while self._at < stop < self._end and data[stop] & 0xC0 == 0x80:
            stop -= 1
        if stop == self._at and stop < self._end:
            self._refuse()
            return 1
        piece = data[self._at : stop]
        if not piece.isascii():
            try:
                piece.decode()
            except UnicodeDecodeError:
                self._refuse()
                return 1
        self._at = stop
        if stop == self._end:
            self._at = 0
            self._state = _VALUE
        return 1 + _WINDOW // _BYTES_PER_UNIT

    def _check(self, most: i64) -> i64:
        """Pass over some of it; return the units of work that this was."""
        parts: i64 = 0
        long: i64 = 0
        while parts // _CHECKED_PER_UNIT + long // _BYTES_PER_UNIT < most:
            parts += 1
            start = self._at
            if self._is_in_text:
                if start == self._end:
                    self._refuse()
                else:
                    self._pass_text()
            else:
                self._at = skip_blanks(self._data, start, min(self._end, start + _WINDOW))
                if self._at == self._end:
                    if self._state == _BEHIND and not self._places:
                        self._begin_writing()
                    else:
                        self._refuse()
                elif self._at - start < _WINDOW:
                    self._pass_one()
            long += self._at - start
            if self._state >= _WRITE:
                break
        return 1 + parts // _CHECKED_PER_UNIT + long // _BYTES_PER_UNIT

    def _pass_one(self) -> None:
        byte: i64 = self._data[self._at]
        state = self._state
        if state == _BEHIND:
            self._pass_behind(byte)
        elif state == _COLON:
            self._at += 1
            self._state = _VALUE
            if byte != 58:
                self._refuse()
        elif byte == 34:
            self._at += 1
            self._is_in_text = True
            self._is_key = state == _KEY
        elif state == _KEY:
            # An object may end where its first key could stand; behind a comma none may.
            if byte == 125 and self._values[-1] == 0:
                self._close()
            else:
                self._refuse()
        elif byte in (123, 91):
            self._open(byte)
        elif byte == 93 and self._places and self._is_empty_array():
            self._close()
        else:
            self._pass_scalar()

    def _is_empty_array(self) -> bool:
        return self._closers[len(self._closers) - 1] == 93 and self._values[-1] == 0

    def _open(self, byte: i64) -> None:
        if len(self._places) >= DEPTH_MAX:
            self._refuse()
            return
        self._places.append(len(self._counts))
        self._values.append(0)
        self._closers.append(u8(byte + 2))
        write_i32_le(self._counts, 0)
        self._at += 1
        self._state = _KEY if byte == 123 else _VALUE

    def _close(self) -> None:
        place = self._places.pop()
        count = self._values.pop()
        self._closers.truncate(len(self._closers) - 1)
        counts = self._counts
        counts[place] = u8(count & 0xFF)
        counts[place + 1] = u8(count >> 8 & 0xFF)
        counts[place + 2] = u8(count >> 16 & 0xFF)
        counts[place + 3] = u8(count >> 24)
        self._at += 1
        self._state = _BEHIND

    def _pass_behind(self, byte: i64) -> None:
        """Pass what follows a value: a comma, or the end of what it is in."""
        if not self._places:
            self._refuse()
            return
        closer = self._closers[len(self._closers) - 1]
        self._values[-1] += 1
        if byte == closer:
            self._close()
        elif byte == 44:
            self._at += 1
            self._state = _KEY if closer == 125 else _VALUE
        else:
            self._refuse()

    def _pass_scalar(self) -> None:
        # Longer numbers are no numbers, and words are shorter.
        stop = min(self._end, self._at + NUMBER_SIZE_MAX + 1)
        after = scalar_end(self._data, self._at, stop)
        if after < 0:
            self._refuse()
            return
        self._at = after
        self._state = _BEHIND

    def _pass_text(self) -> None:
        """Pass over some of a text."""
        data = self._data
        at = self._at
        stop = min(self._end, at + _WINDOW)
        while at < stop:
            at = plain_end(data, at, stop)
            byte: i64 = data[at]
            at += 1
            if byte == 34:
                self._is_in_text = False
                self._state = _COLON if self._is_key else _BEHIND
                break
            if byte < 32:
                self._refuse()
                break
            if byte == 92:
                at = escape_end(data, at, self._end)
                if at < 0:
                    self._refuse()
                    return
        self._at = at

    # -- the second time -----------------------------------------------------------------------

    def _begin_writing(self) -> None:
        self._found = self._counts.getvalue()
        self._counts = BytesWriter()
        self._at = 0
        self._state = _WRITE

    def _write(self, most: i64) -> i64:
        """Write some of it; it is known to be well-formed."""
        parts: i64 = 0
        long: i64 = 0
        while parts // _WRITTEN_PER_UNIT + long // _BYTES_PER_UNIT < most:
            start = self._at
            if self._text_at >= 0:
                self._write_piece()
            else:
                self._at = skip_blanks(self._data, start, min(self._end, start + _WINDOW))
                if self._at == self._end:
                    self._packed = self._out.getvalue()
                    self._out = BytesWriter()
                    self._state = _DONE
                elif self._at - start < _WINDOW:
                    self._write_one(self._data[self._at])
            parts += 1
            long += self._at - start
            if self._state == _DONE:
                break
        return 1 + parts // _WRITTEN_PER_UNIT + long // _BYTES_PER_UNIT

    def _write_one(self, byte: i64) -> None:
        if byte in (44, 58):
            self._at += 1
            return
        if byte in (125, 93):
            self._depth -= 1
            self._at += 1
            return
        if self._depth == 1:
            self._tops.append(len(self._out))
        if byte in (123, 91):
            count = i64(read_i32_le(self._found, self._count_at))
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
        content = data[start:quote]
        if b"\\" not in content:
            write_ascii(self._out, content)
            self._at = quote + 1
            return
        if quote - start < _WINDOW:
            end = _text_end(data, start, start + _WINDOW)
            if end >= 0:
                write_ascii(self._out, text_of(data[start:end]).encode())
                self._at = end + 1
                return
        # How long it is is filled in at its end.
        self._out.append(0xDB)
        self._text_at = len(self._out)
        write_i32_le(self._out, 0)
        self._at = start

    def _write_piece(self) -> None:
        """Write some of a long text with escapes."""
        data = self._data
        start = self._at
        at = start
        while data[at] != 34 and (at < start + _WINDOW or data[at] & 0xC0 == 0x80):
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

    # -- what the outermost object holds -------------------------------------------------------

    def pairs(self, most: i64) -> dict[str, object] | None:
        """Return the outermost object, its values as parts; None for no object or too large a one.

        What is null is None.
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
            found[key] = None if is_null else Part(packed, tops[each + 1], end)
        return found


def _text_end(data: bytes, at: i64, stop: i64) -> i64:
    """Return where the quote stands that ends a well-formed text; -1 if it is not before `stop`."""
    while at < stop:
        byte: i64 = data[at]
        if byte == 34:
            return at
        at += 2 if byte == 92 else 1
    return -1


def _past_character(data: bytes, at: i64) -> i64:
    """Return the end of the character or escape at `at`; halves of a pair stay together."""
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
