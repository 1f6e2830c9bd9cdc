"""The head of an answer, whole or not at all.

The library takes the end of a connection for the end of the headers: half a name of a type would
count as a type, and a missing length as a body without end. Here such a head is an OSError.
"""

import io
import socket
from http.client import HTTPResponse
from typing import Final, final

_BEGIN: Final = b"HTTP/"


@final
class WholeResponse(HTTPResponse):
    """An answer whose lines are complete."""

    def __init__(
        self,
        sock: socket.socket,
        debuglevel: int = 0,
        method: str | None = None,
        url: str | None = None,
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp = _Lines(self.fp.detach())


@final
class _Lines(io.BufferedReader):
    """What a server sends; a line without its end is an error, if it is HTTP at all."""

    _has_begun = False

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(-1 if size is None else size)
        is_whole = line.endswith(b"\n") or (size is not None and len(line) == size)
        # The first line of another protocol is left to the library, which says what it is.
        if not is_whole and (self._has_begun or _BEGIN.startswith(line[: len(_BEGIN)])):
            raise ConnectionError("the connection was closed")
        self._has_begun = True
        return line
