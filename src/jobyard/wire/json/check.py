"""Checks a long JSON text in slices.

Accepts exactly what `wire.json.read` accepts for a short text at once. Also counts the values of
each array and object, which a MessagePack writer needs first, and notes where long ones near the
top end, so that they are not scanned again.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i32_le
from mypy_extensions import i64, u8

from jobyard.wire.json.scan import (
    NUMBER_SIZE_MAX,
    end_of,
    escape_end,
    plain_end,
    scalar_end,
    skip_blanks,
)

# Parts per unit of work, and bytes of white space and text per unit.
_PARTS_PER_UNIT: Final = 32
CHECKED_PER_UNIT: Final = 2048
# Bytes per unit that are only checked to be UTF-8.
_UTF8_PER_UNIT: Final = 4096
# Bytes of text or white space scanned at once.
CHECK_WINDOW: Final = 64 << 10
# The ends of shorter arrays and objects are not noted: they are scanned again.
_NOTED_SIZE_MIN: Final = 4096
# Down to which depth ends are noted: data in a record in a list of records.
_NOTED_DEPTH: Final = 4

# What is expected next.
_TEXT: Final = 0
_VALUE: Final = 1
_KEY: Final = 2
_COLON: Final = 3
_BEHIND: Final = 4
_DONE: Final = 5


@final
class JsonCheck:
    """The check of one JSON text."""

    def __init__(self, data: bytes, depth_max: i64) -> None:
        self.data = data
        self.is_bad: bool = False
        self._end: i64 = len(data)
        self._depth_max: i64 = depth_max
        self._at: i64 = 0
        self._state: i64 = _TEXT
        # Whether the position is inside a text, and whether that text is a key.
        self._is_in_text: bool = False
        self._is_key: bool = False
        # The number of values of each array and object, as i32 in the order in which they begin.
        self._counts = BytesWriter()
        # Of the open ones: where they begin, where their count is stored, how many values came
        # before the next one began, their closing bracket.
        self._starts: list[i64] = []
        self._places: list[i64] = []
        self._values: list[i64] = []
        # Values so far of the innermost one.
        self._count: i64 = 0
        self._closers = BytesWriter()
        self._ends: dict[int, int] = {}

    def is_done(self) -> bool:
        """Return whether everything was checked, or an error was found."""
        return self._state == _DONE

    def count_at(self, place: i64) -> i64:
        """Return the number of values of an array or object, the first at 0, the next at 4."""
        counts = self._counts
        low = i64(counts[place]) | i64(counts[place + 1]) << 8
        return low | i64(counts[place + 2]) << 16 | i64(counts[place + 3]) << 24

    def after(self, at: i64) -> i64:
        """Return where the value at `at` ends."""
        known = self._ends.get(int(at))
        return end_of(self.data, at, self._end, self._depth_max) if known is None else i64(known)

    def proceed(self, most: i64) -> i64:
        """Do up to about `most` units of work; return how many."""
        done: i64 = 0
        while done < most and self._state != _DONE:
            done += self._check_text() if self._state == _TEXT else self._check(most - done)
        return done

    def _refuse(self) -> None:
        self.is_bad = True
        self._state = _DONE

    def _check_text(self) -> i64:
        """Check that the next bytes are UTF-8."""
        data = self.data
        start = self._at
        stop = min(start + CHECK_WINDOW, self._end)
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
        return 1 + (stop - start) // _UTF8_PER_UNIT

    def _check(self, most: i64) -> i64:
        """Check some of the text; return the units of work done."""
        parts: i64 = 0
        long: i64 = 0
        while parts // _PARTS_PER_UNIT + long // CHECKED_PER_UNIT < most:
            parts += 1
            start = self._at
            if self._is_in_text:
                if start == self._end:
                    self._refuse()
                else:
                    parts += self._pass_text()
            else:
                self._at = skip_blanks(self.data, start, min(self._end, start + CHECK_WINDOW))
                if self._at == self._end:
                    self.is_bad = self._state != _BEHIND or len(self._places) > 0
                    self._state = _DONE
                elif self._at - start < CHECK_WINDOW:
                    self._pass_one()
            long += self._at - start
            if self._state == _DONE:
                break
        return 1 + parts // _PARTS_PER_UNIT + long // CHECKED_PER_UNIT

    def _pass_one(self) -> None:
        byte: i64 = self.data[self._at]
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
            # An object may end where its first key could be, but not after a comma.
            if byte == 125 and self._count == 0:
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
        return self._closers[len(self._closers) - 1] == 93 and self._count == 0

    def _open(self, byte: i64) -> None:
        if len(self._places) >= self._depth_max:
            self._refuse()
            return
        self._starts.append(self._at)
        self._places.append(len(self._counts))
        self._values.append(self._count)
        self._count = 0
        self._closers.append(u8(byte + 2))
        write_i32_le(self._counts, 0)
        self._at += 1
        self._state = _KEY if byte == 123 else _VALUE

    def _close(self) -> None:
        start = self._starts.pop()
        if self._at - start >= _NOTED_SIZE_MIN and len(self._places) <= _NOTED_DEPTH:
            self._ends[int(start)] = int(self._at + 1)
        place = self._places.pop()
        count = self._count
        self._count = self._values.pop()
        self._closers.truncate(len(self._closers) - 1)
        counts = self._counts
        counts[place] = u8(count & 0xFF)
        counts[place + 1] = u8(count >> 8 & 0xFF)
        counts[place + 2] = u8(count >> 16 & 0xFF)
        counts[place + 3] = u8(count >> 24)
        self._at += 1
        self._state = _BEHIND

    def _pass_behind(self, byte: i64) -> None:
        """Check what follows a value: a comma, or the end of its container."""
        if not self._places:
            self._refuse()
            return
        closer = self._closers[len(self._closers) - 1]
        self._count += 1
        if byte == closer:
            self._close()
        elif byte == 44:
            self._at += 1
            self._state = _KEY if closer == 125 else _VALUE
        else:
            self._refuse()

    def _pass_scalar(self) -> None:
        # Longer numbers are invalid, and words are shorter.
        stop = min(self._end, self._at + NUMBER_SIZE_MAX + 1)
        after = scalar_end(self.data, self._at, stop)
        if after < 0:
            self._refuse()
            return
        self._at = after
        self._state = _BEHIND

    def _pass_text(self) -> i64:
        """Check some of a text; return the number of escapes in it."""
        escapes: i64 = 0
        data = self.data
        at = self._at
        stop = min(self._end, at + CHECK_WINDOW)
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
                escapes += 1
                at = escape_end(data, at, self._end)
                if at < 0:
                    self._refuse()
                    return escapes
        self._at = at
        return escapes
