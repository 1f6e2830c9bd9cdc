"""The answer to `list-tubes`, made in slices because there may be very many tubes."""

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.protocols.beanstalk.commands import INTERNAL_ERROR
from jobyard.protocols.session import PIECE_SIZE
from jobyard.wire.beanstalk import is_tube_name


@final
class TubeList(Task):
    """Lists tubes in creation order; tubes removed meanwhile are left out."""

    def __init__(self, yard: Yard) -> None:
        super().__init__()
        self.is_reading = True
        self._yard = yard
        self._names: list[str] = list(yard.queues)
        self._names.reverse()
        self._out = BytesWriter()
        self._out.write(b"---\n")
        self._pieces: list[bytes] = []
        self._size: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """List some tubes."""
        done: i64 = 0
        out = self._out
        while done < most and self._names:
            name = self._names.pop()
            data = name.encode()
            done += 1
            if name in self._yard.queues and is_tube_name(data):
                out.write(b"- ")
                out.write(data)
                out.append(10)
        if len(out) >= PIECE_SIZE:
            self._cut()
        return done

    def _cut(self) -> None:
        self._size += len(self._out)
        self._pieces.append(self._out.getvalue())
        self._out.truncate(0)

    def answer(self) -> list[bytes]:
        """Return the answer in pieces."""
        if self._names:
            # The task failed before its end.
            return [INTERNAL_ERROR]
        self._cut()
        return [b"OK %d\r\n" % self._size, *self._pieces, b"\r\n"]
