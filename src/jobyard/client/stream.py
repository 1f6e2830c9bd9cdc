"""The bytes of an answer as they arrive, with proof that it came to its proper end.

An answer in chunks ends with an empty chunk and trailers; one that ends otherwise was cut off, and
reading it raises JobyardError instead of returning less. Knows nothing of what the bytes mean.
"""

from collections.abc import Callable
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Final, final

from jobyard.client.errors import Code, JobyardError

if TYPE_CHECKING:
    from io import BufferedIOBase

_LINE_MAX: Final = 64 << 10
_TRAILERS_MAX: Final = 100


@final
class ByteStream:
    """The body of one answer: a file to read once."""

    def __init__(
        self, answer: HTTPResponse, url: str, topic: str, release: Callable[[bool], None]
    ) -> None:
        self._answer = answer
        self._file: BufferedIOBase = answer.fp
        self._url = url
        self._topic = topic
        # Called once, with whether the connection can be used again.
        self._release = release
        self._left = 0 if answer.chunked else (answer.length or 0)
        self._is_chunked = answer.chunked
        self._is_at_end = not answer.chunked and answer.length == 0
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.trailers: dict[str, str] = {}
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or fewer at the proper end; all the rest if negative."""
        parts: list[bytes] = []
        missing = size
        while missing != 0 and self._has_more():
            data = self._file_read(self._left if missing < 0 else min(missing, self._left))
            parts.append(data)
            self._left -= len(data)
            if missing > 0:
                missing -= len(data)
            if self._left == 0:
                self._end_chunk()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def finish(self) -> dict[str, str]:
        """Read to the proper end, pass over what is left, and return the trailers."""
        while self._has_more():
            self.read(1 << 20)
        self._end(is_usable=not self._answer.will_close)
        return self.trailers

    def close(self) -> None:
        """Leave the stream; its connection is closed unless it is at its end."""
        self._end(is_usable=self._is_at_end and not self._answer.will_close)

    def _end(self, *, is_usable: bool) -> None:
        if not self.closed:
            self.closed = True
            self._answer.close()
            self._release(is_usable)

    def _has_more(self) -> bool:
        if self.closed or self._is_at_end:
            return False
        if self._left > 0 or not self._is_chunked:
            return True
        line = self._line()
        try:
            self._left = int(line.partition(b";")[0], 16)
        except ValueError:
            raise self._cut("a chunk without a size") from None
        if self._left == 0:
            self._read_trailers()
            self._is_at_end = True
        return not self._is_at_end

    def _end_chunk(self) -> None:
        if not self._is_chunked:
            self._is_at_end = True
        elif self._line():
            raise self._cut("a chunk of another size than announced")

    def _read_trailers(self) -> None:
        for _ in range(_TRAILERS_MAX):
            line = self._line()
            if not line:
                return
            name, _, value = line.decode("latin-1").partition(":")
            self.trailers[name.strip().lower()] = value.strip()
        raise self._cut("too many trailers")

    def _line(self) -> bytes:
        try:
            line = self._file.readline(_LINE_MAX)
        except (OSError, ValueError) as fault:
            raise self._cut(str(fault) or type(fault).__name__) from None
        if not line.endswith(b"\n"):
            raise self._cut("the connection was closed")
        return line.rstrip(b"\r\n")

    def _file_read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except (OSError, ValueError) as fault:
            raise self._cut(str(fault) or type(fault).__name__) from None
        if not data:
            raise self._cut("the connection was closed")
        return data

    def _cut(self, why: str) -> JobyardError:
        self._end(is_usable=False)
        return JobyardError(
            Code.CUT_OFF,
            f"the answer was cut off before its end: {why}",
            url=self._url,
            status=self._answer.status,
            option="maxRetries",
            remedy="Look for a proxy with a time limit in between, or raise maxRetries.",
        ).within(topic=self._topic)
