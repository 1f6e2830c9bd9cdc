"""Questions to a server that speaks RESP: one at a time, each with its answer or a BenchError.

As much of RESP2 as a benchmark needs to set a server up and to look at what a load has left in it.
Knows no queue, no load and no figures.
"""

import socket
from types import TracebackType
from typing import Final

from bench.load import BenchError

__all__ = ["Resp", "RespValue"]

ANSWER_SECONDS_MAX: Final = 120.0

RespValue = str | int | None | list["RespValue"]


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
        """Send one command; an answer that is an error is a BenchError."""
        return self.ask_together(1, *words)

    def ask_together(self, times: int, *words: str) -> RespValue:
        """Send one command several times at once; return the last answer."""
        self._send(times, *words)
        try:
            for _ in range(times - 1):
                self._read()
            return self._read()
        except ValueError as error:
            raise BenchError(f"{words[0]} is answered with something else: {error}") from error

    def hear_begin(self, *words: str) -> None:
        """Send one command; return with the first byte of the answer."""
        self._send(1, *words)
        self._answers.peek(1)

    def number(self, *words: str) -> int:
        """Send one command that is answered with a number."""
        answer = self.ask(*words)
        if not isinstance(answer, int):
            raise BenchError(f"{' '.join(words)} is answered with {answer!r}")
        return answer

    def _send(self, times: int, *words: str) -> None:
        encoded = [word.encode() for word in words]
        parts = [b"*%d\r\n" % len(encoded)]
        parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
        self._peer.sendall(b"".join(parts) * times)

    def _read(self) -> RespValue:
        line = self._answers.readline()
        if not line.endswith(b"\r\n"):
            raise BenchError(f"the server hung up: {line!r}")
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
