"""Works on batches of jobs in a child process, and finds the job that ends it.

A function that ends its process, by `os._exit`, a fault in a library, or a lack of memory, must not
end the work on other jobs. What was with the child is run again in a new one, at most
`replays_max` times; then it is halved, until it is one job, which is given up. If it is known which
job it was, that job is run by itself at once. The count is in memory of the process that does not
die, and outcomes that came before the end are kept: a job is worked on again only if its own
outcome was lost.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, final

import pyarrow as pa

from jobyard.spark.fleet.calls import JobOutcome, as_columns
from jobyard.spark.fleet.child import Child, ChildDied
from jobyard.spark.fleet.ends import BURY

# Tells it from an exception of the function, whose class stands in its place.
CRASHED: Final = "ProcessCrashed"


class _Piece(NamedTuple):
    """A part of a batch, and how often a process ended with it."""

    start: int
    size: int
    crashes: int = 0
    # How the last one ended.
    why: str = ""


@final
class IsolatedWork:
    """The work of one task."""

    def __init__(self, begin: Callable[[], Child], replays_max: int) -> None:
        self._begin = begin
        self._replays_max = replays_max
        self._child: Child | None = None

    def outcomes(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield what is to become of each job, in their order."""
        pieces = deque([_Piece(0, batch.num_rows)])
        while pieces:
            piece = pieces.popleft()
            if piece.size == 0:
                continue
            if piece.size == 1 and piece.crashes > self._replays_max:
                yield as_columns([_given_up(piece)])
                continue
            done = 0
            try:
                for found in self._run(batch.slice(piece.start, piece.size)):
                    done += found.num_rows
                    yield found
            except ChildDied as died:
                self._child = None
                pieces.extendleft(reversed(self._left(piece, done, died)))

    def close(self) -> None:
        """End the child when its work is done."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def kill(self) -> None:
        """End the child wherever it is."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._child is None:
            self._child = self._begin()
        return self._child.run(batch)

    def _left(self, piece: _Piece, done: int, died: ChildDied) -> list[_Piece]:
        """Return the pieces that are left, in their order; the one to blame has its count."""
        start, stop = piece.start + done, piece.start + piece.size
        if died.place >= done:
            # What comes before it has lost its outcomes, and is not to blame.
            blamed = piece.start + died.place
            crashes = piece.crashes + 1 if piece.size == 1 else 1
            return [
                _Piece(start, blamed - start),
                _Piece(blamed, 1, crashes, died.why),
                _Piece(blamed + 1, stop - blamed - 1),
            ]
        crashes = piece.crashes + 1
        if crashes <= self._replays_max or stop - start <= 1:
            return [_Piece(start, stop - start, crashes, died.why)]
        middle = (start + stop) // 2
        # Each is to be halved at once if it ends a process as well.
        return [
            _Piece(start, middle - start, self._replays_max, died.why),
            _Piece(middle, stop - middle, self._replays_max, died.why),
        ]


def _given_up(piece: _Piece) -> JobOutcome:
    times = "once" if piece.crashes == 1 else f"{piece.crashes} times"
    text = f"{CRASHED}: the process that ran the job {piece.why}; that happened {times}"
    return JobOutcome(BURY, None, text)
