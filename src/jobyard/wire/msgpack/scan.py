"""Scans a long MessagePack value in slices.

The result is the same as that of `skip` and `is_deeper` for a short value. Also notes where the
long lists and maps near the top end, so that they are not scanned again.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.wire.msgpack.forms import past_head, skip

# The ends of shorter lists and maps are not noted: they are scanned again.
NOTED_SIZE_MIN: Final = 4096
# Down to which depth ends are noted: the data of a job in a list of jobs, and its content.
_NOTED_DEPTH: Final = 5

# The result so far.
UNKNOWN: Final = 0
WHOLE: Final = 1
# Not MessagePack, incomplete, or followed by more bytes.
MALFORMED: Final = 2
TOO_DEEP: Final = 3


@final
class Ends:
    """Where the long lists and maps of one value end."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def after(self, data: bytes, at: i64, end: i64) -> i64:
        """Return where the well-formed value at `at` ends."""
        known = self.known.get(int(at))
        return skip(data, at, end) if known is None else i64(known)


@final
class MsgpackScan:
    """The scan of the value that must fill the bytes from `start` to `end`."""

    def __init__(self, data: bytes, start: i64, end: i64, depth_max: i64) -> None:
        self.data = data
        self.start: i64 = start
        self.end: i64 = end
        self.verdict: i64 = UNKNOWN
        self.ends = Ends()
        self._depth_max: i64 = depth_max
        self._at: i64 = start
        # How many values are still expected in the innermost list or map, and in those around it.
        self._left: i64 = 1
        self._around: list[i64] = []
        self._starts: list[i64] = []

    def proceed(self, most: i64) -> i64:
        """Scan up to `most` values; return how many."""
        data = self.data
        end = self.end
        at = self._at
        left = self._left
        done: i64 = 0
        while done < most:
            while left == 0:
                if not self._around:
                    self.verdict = WHOLE if at == end else MALFORMED
                    return done
                left = self._close(at)
            if at >= end:
                self.verdict = MALFORMED
                return done
            done += 1
            left -= 1
            start = at
            form: i64 = data[at]
            at += 1
            if form < 0x80 or form >= 0xE0:
                continue
            at, more = past_head(data, at, end, form)
            if more > 0:
                if len(self._around) >= self._depth_max:
                    self.verdict = TOO_DEEP
                    return done
                self._open(start, left)
                left = more
        self._at = at
        self._left = left
        return done

    def _open(self, start: i64, left: i64) -> None:
        """Enter a list or map."""
        self._around.append(left)
        if len(self._around) <= _NOTED_DEPTH:
            self._starts.append(start)

    def _close(self, at: i64) -> i64:
        """Leave the innermost list or map; return how many values follow it in the outer one."""
        if len(self._around) <= _NOTED_DEPTH:
            start = self._starts.pop()
            if at - start >= NOTED_SIZE_MIN:
                self.ends.known[int(start)] = int(at)
        return self._around.pop()
