"""Requests that are like an earlier one but for some arguments, told by comparing bytes.

A producer sends the same request over and over, with other data and another time; a worker asks in
the same words for the next job. A `Mould` is what such a request has in common with the one it was
made of: the bytes between the arguments that may differ. Finding those arguments in a request of 24
takes 0.2 us so, and 1.4 us by reading all of it.

Knows nothing of what a request means. What does not fit may still be a request: it is to be read.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.wire.resp.read import Command

# Longer arguments are read, where they are held against the limits.
GIVEN_SIZE_MAX: Final = 1 << 20
_DIGITS_MAX: Final = 7


@final
class Mould:
    """The fixed parts of a request, and the arguments that the last fitting one had between."""

    def __init__(self, command: Command, free: list[int]) -> None:
        """Take what is fixed from a command that came as an array; `free` rises."""
        pieces: list[bytes] = []
        start: i64 = 0
        for at in free:
            # Up to the `$` before its length; the next piece begins with the end of its line.
            pieces.append(command.raw(start, command.end(at - 1) + 3))
            start = command.end(at)
        pieces.append(command.raw(start, command.end(command.count() - 1) + 2))
        self.pieces = pieces
        self.given: list[bytes] = [b""] * len(free)
        # Where the request that fitted last ends.
        self.end: i64 = 0

    def equals(self, other: "Mould") -> bool:
        """Tell whether the same requests fit both."""
        return self.pieces == other.pieces

    def fits(self, data: bytes, at: i64) -> bool:
        """Tell whether a whole request of this mould stands at `at`; if so, take its arguments."""
        size: i64 = len(data)
        pieces = self.pieces
        last: i64 = len(pieces) - 1
        each: i64 = 0
        while True:
            piece = pieces[each]
            end = at + len(piece)
            if end > size or data[at:end] != piece:
                return False
            if each == last:
                self.end = end
                return True
            at = end
            length: i64 = 0
            while at < size:
                digit: i64 = data[at] - 48
                if digit < 0 or digit > 9:
                    break
                length = length * 10 + digit
                at += 1
                if at - end > _DIGITS_MAX:
                    return False
            start: i64 = at + 2
            if at == end or length > GIVEN_SIZE_MAX or start + length > size:
                return False
            if data[at] != 13 or data[at + 1] != 10 or (data[end] == 48 and at - end > 1):
                return False
            at = start + length
            self.given[each] = data[start:at]
            each += 1


def is_array(command: Command) -> bool:
    """Tell whether a command came as an array, with a length before every argument."""
    return command.raw(0, 1) == b"*"
