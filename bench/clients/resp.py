"""A client for servers that speak RESP: one command at a time, with its answer or a BenchError.

It supports as much of RESP2 as a benchmark needs to set up a server and to check what a load left
in it. Knows no queue, no load and no figures.
"""

import socket
from types import TracebackType
from typing import Final

from bench.load import BenchError

__all__ = ["Resp", "RespValue"]

ANSWER_SECONDS_MAX: Final = 120.0

RespValue = str | int | None | list["RespValue"]


def _encode(words: tuple[str, ...]) -> bytes:
    encoded = [word.encode() for word in words]
    parts = [b"*%d\r\n" % len(encoded)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
    return b"".join(parts)


class Resp:
    """One connection to a server on this machine."""

    def __init__(self, port: int) -> None:
        self._peer = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX)
        self._answers = self._peer.makefile("rb")

    def __enter__(self) -> "Resp":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answers.close()
        self._peer.close()

    def ask(self, *words: str) -> RespValue:
        """Send one command; an error answer is a BenchError."""
        return self.ask_together(1, *words)

    def ask_together(self, times: int, *words: str) -> RespValue:
        """Send one command several times at once; return the last answer."""
        self._send(times, *words)
        try:
            for _ in range(times - 1):
                self._read()
            return self._read()
        except ValueError as error:
            raise BenchError(f"unexpected answer to {words[0]}: {error}") from error

    def ask_all(self, commands: list[tuple[str, ...]]) -> None:
        """Send commands at once and read all answers; an error answer is a BenchError."""
        self._peer.sendall(b"".join(_encode(command) for command in commands))
        for _ in commands:
            self._read()

    def hear_begin(self, *words: str) -> None:
        """Send one command; return when the first byte of the answer arrives."""
        self._send(1, *words)
        self._answers.peek(1)

    def number(self, *words: str) -> int:
        """Send one command whose answer is a number."""
        answer = self.ask(*words)
        if not isinstance(answer, int):
            raise BenchError(f"unexpected answer to {' '.join(words)}: {answer!r}")
        return answer

    def _send(self, times: int, *words: str) -> None:
        self._peer.sendall(_encode(words) * times)

    def _read(self) -> RespValue:
        line = self._answers.readline()
        if not line.endswith(b"\r\n"):
            raise BenchError(f"the server closed the connection: {line!r}")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return self._answers.read(size + 2)[:-2].decode() if size >= 0 else None
        if kind == b"*":
            count = int(rest)
            return [self._read() for _ in range(count)] if count >= 0 else None
        raise BenchError(f"refused: {line[:-2].decode(errors='replace')}")
