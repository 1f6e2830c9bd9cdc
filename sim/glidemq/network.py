"""The connection of one glide-mq client: commands in transit to a session, answers back.

Reads both versions of RESP; a map is read as alternating fields and values, as in version 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.network import Line
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.faulty.world import FaultyBoot
    from sim.glidemq.boot import GlideBoot
    from sim.glidemq.nouns import Ask


class Error:
    """An error answer."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"-{self.text}"


Answer = None | int | bytes | Error | list["Answer"]


def pack(words: list[bytes]) -> bytes:
    """Return a command as clients send it."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class Reader:
    """Reads complete answers."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def is_done(self) -> bool:
        """Return whether everything was read."""
        return self.at == len(self._data)

    def read(self) -> Answer:
        """Read the next answer."""
        end = self._data.index(b"\r\n", self.at)
        mark = self._data[self.at : self.at + 1]
        text = self._data[self.at + 1 : end]
        self.at = end + 2
        if mark in b"+,":
            return text
        if mark == b"-":
            return Error(text.decode())
        if mark == b":":
            return int(text)
        if mark == b"_" or (mark in b"$*" and text == b"-1"):
            return None
        if mark == b"$":
            value = self._data[self.at : self.at + int(text)]
            self.at += int(text) + 2
            return value
        if mark not in b"*%~":
            raise Violation("reply", f"no answer begins with {mark!r}")
        count = int(text) * (2 if mark == b"%" else 1)
        return [self.read() for _ in range(count)]


class RespLine(Line[int]):
    """A session, and its pending commands; an answer depends on a batch."""

    def __init__(
        self, boot: GlideBoot | FaultyBoot, number: int, delivered: Callable[[int], None]
    ) -> None:
        super().__init__(boot, boot.glidemq, number, delivered)
        # Unanswered commands, oldest first.
        self.asked: list[Ask] = []
        # How many of those have arrived.
        self.arrived_count = 0
        self.unsent = bytearray()
        # The length of `unsent` up to the end of each command that has not arrived.
        self._ends: list[int] = []

    def write(self, ask: Ask, data: bytes) -> None:
        """Queue a command for sending."""
        self.unsent += data
        self.asked.append(ask)
        self._ends.append(len(self.unsent))

    def next_size(self) -> int:
        """Return how many bytes are missing from the next command."""
        return self._ends[0]

    def take(self, size: int) -> tuple[bytes, list[Ask]]:
        """Take this many bytes off the line, and return the commands that arrived with them."""
        data = bytes(self.unsent[:size])
        del self.unsent[:size]
        self._ends = [end - len(data) for end in self._ends]
        count = sum(end <= 0 for end in self._ends)
        del self._ends[:count]
        arrived = self.asked[self.arrived_count : self.arrived_count + count]
        self.arrived_count += count
        return data, arrived

    def is_waiting(self) -> bool:
        """Return whether a command has arrived that is not answered."""
        return self.arrived_count > 0

    def answered(self) -> Ask | None:
        """Return the command that an answer is for."""
        if self.arrived_count == 0:
            return None
        self.arrived_count -= 1
        return self.asked.pop(0)

    def collect(self) -> list[tuple[Answer, bytes]]:
        """Take what the session wrote, answer by answer."""
        data = self.session.take_output()
        reader = Reader(data)
        answers: list[tuple[Answer, bytes]] = []
        while not reader.is_done():
            start = reader.at
            answer = reader.read()
            answers.append((answer, data[start : reader.at]))
        return answers
