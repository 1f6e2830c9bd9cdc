"""Reads ahead of Spark, so that a server is read at its own pace and not at that of what follows.

Spark takes batches whenever the next stage has time for them, which may be once a minute, and a
server closes a reader that pauses for ten seconds. A thread fetches up to a bound of bytes; when
Spark pauses for longer it closes the stream by itself and continues later behind the last seq.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol, final

import pyarrow as pa

from jobyard.client import JobyardError

ROOM_BYTES: Final = 64 << 20
# Shorter than the server's patience, which is ten seconds.
PARK_S: Final = 5.0


class BatchSource(Protocol):
    """Where batches come from."""

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end."""

    def park(self) -> None:
        """Free what is held while nothing is wanted."""


@final
class Prefetch:
    """Batches of one source, fetched by a thread until the end, an error, or `close`."""

    def __init__(
        self,
        source: BatchSource,
        interrupt: Callable[[], None],
        closed: threading.Event,
        *,
        room_bytes: int = ROOM_BYTES,
        park_s: float = PARK_S,
    ) -> None:
        self._source = source
        # Ends a read that the thread waits in.
        self._interrupt = interrupt
        self._room_bytes = room_bytes
        self._park_s = park_s
        self._changed = threading.Condition()
        self._batches: deque[pa.RecordBatch] = deque()
        self._size = 0
        # Also what the source waits for between two attempts.
        self._closed = closed
        self._is_ended = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._fetch, name="jobyard-prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._batches or self._is_ended)
                if not self._batches:
                    break
                batch = self._batches.popleft()
                self._size -= batch.nbytes
                self._changed.notify_all()
            yield batch
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread, wherever it is."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._interrupt()

    def _fetch(self) -> None:
        # Stays if the thread ends unexpectedly: this must not look like the end of the records.
        error: Exception | None = RuntimeError("reading ahead ended unexpectedly")
        try:
            error = self._fetched()
        finally:
            self._source.park()
            with self._changed:
                self._error = error
                self._is_ended = True
                self._changed.notify_all()

    def _fetched(self) -> Exception | None:
        """Fetch until the end; return the error that ended it sooner."""
        try:
            while not self._closed.is_set():
                batch = self._source.next_batch()
                if batch is None or not self._put(batch):
                    break
        except (JobyardError, OSError, ValueError, pa.ArrowException) as fault:
            return fault
        return None

    def _put(self, batch: pa.RecordBatch) -> bool:
        """Add a batch when there is room; return whether it is still wanted."""
        with self._changed:
            has_room = self._changed.wait_for(self._has_room, self._park_s)
        if not has_room:
            self._source.park()
        with self._changed:
            self._changed.wait_for(self._has_room)
            if self._closed.is_set():
                return False
            self._batches.append(batch)
            self._size += batch.nbytes
            self._changed.notify_all()
        return True

    def _has_room(self) -> bool:
        return self._closed.is_set() or self._size < self._room_bytes
