"""Recognizes requests that differ from an earlier one only in some arguments, by comparing bytes.

A producer repeats the same request with different data and times; a worker repeats the same request
for the next job. A `RequestTemplate` holds what such requests share: the bytes between the
arguments that may differ. It finds those arguments in a request of 24 in 0.2 us; parsing the whole
request takes 1.4 us.

Knows nothing of what a request means. Input that does not fit may still be a request: parse it.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.wire.resp.read import Command

# Longer arguments are parsed normally, where they are checked against the limits.
GIVEN_SIZE_MAX: Final = 1 << 20
_DIGITS_MAX: Final = 7


@final
class RequestTemplate:
    """The fixed parts of a request, and the variable arguments of the last one that fitted."""

    def __init__(self, command: Command, free: list[int]) -> None:
        """Take the fixed parts from a command that was sent as an array; `free` is ascending."""
        pieces: list[bytes] = []
        start: i64 = 0
        for at in free:
            # Up to the `$` before its length; the next piece begins after the argument.
            pieces.append(command.raw(start, command.end(at - 1) + 3))
            start = command.end(at)
        pieces.append(command.raw(start, command.end(command.count() - 1) + 2))
        self.pieces = pieces
        self.given: list[bytes] = [b""] * len(free)
        # Where the last fitting request ends.
        self.end: i64 = 0

    def equals(self, other: "RequestTemplate") -> bool:
        """Return whether the same requests fit both."""
        return self.pieces == other.pieces

    def fits(self, data: bytes, at: i64) -> bool:
        """Return whether a complete request of this template is at `at`; store its arguments."""
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
    """Return whether a command was sent as an array, with a length before every argument."""
    return command.raw(0, 1) == b"*"
