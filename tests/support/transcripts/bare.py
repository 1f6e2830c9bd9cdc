"""The stage without a socket: sessions over a yard in memory, on a clock that only `tick` moves.

A session that is finished is closed once its output was taken, as a connection of a server does.
"""

from typing import Final

from jobyard.model.limits import JOB_SIZE_DEFAULT
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from tests.support.site.connection import FullyRead
from tests.support.site.site import Site
from tests.support.transcripts.play import Mismatch

BODY_BUDGET: Final = 1 << 30
SEGMENT_SIZE: Final = 1 << 20

# Larger sends are cut into pieces of this size: byte by byte they would take too long.
PIECE_SIZE: Final = 997
BYTEWISE_SIZE_MAX: Final = 4096


class BarePeer(FullyRead):
    """A client's end of a session."""

    def __init__(self, stage: "BareStage") -> None:
        super().__init__(stage, BeanstalkEntrance(stage.beanstalk_door))
        self._cut = stage.cut

    def send(self, data: bytes) -> None:
        """Pass bytes to the session, whole or in pieces."""
        for piece in self._cut(data):
            if self.is_open:
                self.feed(piece)

    def read_line(self) -> bytes:
        """Take bytes up to and including the next CRLF."""
        end = self.unread.find(b"\r\n")
        if end < 0:
            raise Mismatch(f"no answer; unread: {self.unread[:500]!r}")
        return self._take(end + 2)

    def read(self, size: int) -> bytes:
        """Take exactly `size` bytes."""
        if len(self.unread) < size:
            raise Mismatch(f"no answer; unread: {self.unread[:500]!r}")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        data, self.unread = self.unread[:size], self.unread[size:]
        return data

    def await_end(self) -> bytes:
        """Check that the session is finished; return its last output."""
        if self.is_open:
            raise Mismatch(f"still open; unread: {self.unread!r}")
        return self._take(len(self.unread))

    def reset(self) -> None:
        """Close the connection; a session does not see a reset."""
        self.close()


class BareStage(Site):
    """One yard in memory and its beanstalk door."""

    is_quoting = True

    def __init__(self, settings: dict[str, str], *, is_bytewise: bool) -> None:
        super().__init__(
            segment_size=SEGMENT_SIZE,
            budget=BODY_BUDGET,
            job_size_max=int(settings.get("max-job-size", JOB_SIZE_DEFAULT)),
        )
        self._is_bytewise = is_bytewise

    def cut(self, data: bytes) -> list[bytes]:
        """Return the pieces in which a send arrives."""
        if not self._is_bytewise:
            return [data]
        size = 1 if len(data) <= BYTEWISE_SIZE_MAX else PIECE_SIZE
        return [data[at : at + size] for at in range(0, len(data), size)]

    def connect(self) -> BarePeer:
        """Open a session."""
        return BarePeer(self)

    def drain(self) -> None:
        """Put the server into drain mode."""
        self.beanstalk_door.is_draining = True
