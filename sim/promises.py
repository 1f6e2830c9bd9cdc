"""What the yard guarantees: how far back a restart may go, and which records an answer depends on.

Tracked from outside, by what was delivered and by what the disk itself shows; the journal's own
marks are checked against the disk before they are used.
"""

from collections import deque

from sim.network import Connection
from sim.state import Violation
from sim.storage import VirtualDisk


class Promises:
    """Records that must come back after the end of a process, and after a power cut."""

    def __init__(self, disk: VirtualDisk, *, is_os: bool) -> None:
        self._disk = disk
        self._is_os = is_os
        self.written = 0
        self.synced = 0
        # The greatest id that was disclosed to any client.
        self.disclosed_max = 0
        # (last record, the batch it is in or an earlier one).
        self._batches: deque[tuple[int, int]] = deque()
        # (batch, the last record in it).
        self._writes: deque[tuple[int, int]] = deque()

    def restart(self, count: int) -> None:
        """Begin a new process: what was recovered stays."""
        self.written = self.synced = count
        self._batches.clear()
        self._writes.clear()

    def note_records(self, count: int, opened: int) -> None:
        """Note that records up to `count` were appended to batch `opened` or later ones."""
        self._batches.append((count, opened))

    def note_write(self, batch: int, count: int) -> None:
        """Note that records up to `count` were written, the last in `batch`."""
        self.written = count
        self._writes.append((batch, count))

    def note_durable(self, batch: int) -> None:
        """Check that what the journal calls durable is durable."""
        if not self._disk.is_safe(batch):
            raise Violation("durable mark", f"batch {batch} or one before it is not on disk")
        while self._writes and self._writes[0][0] <= batch:
            self.synced = max(self.synced, self._writes.popleft()[1])

    def on_delivered(self, connection: Connection) -> None:
        """Check that delivered answers depend only on safe records."""
        promises = connection.client.promises
        while promises and promises[0][0] <= connection.received_size:
            _, record, disclosed = promises.pop(0)
            self.disclosed_max = max(self.disclosed_max, disclosed)
            if record > (self.written if self._is_os else self.synced):
                self._check_safe(record)
                self.written = max(self.written, record)
                if not self._is_os:
                    self.synced = max(self.synced, record)

    def _check_safe(self, record: int) -> None:
        """Check on the disk itself that the batch of a record is safe."""
        while self._batches[0][0] < record:
            self._batches.popleft()
        batch = self._batches[0][1]
        disk = self._disk
        is_safe = batch <= disk.written_batch if self._is_os else disk.is_safe(batch)
        if not is_safe:
            raise Violation("answer before its record", f"record {record}, batch {batch}")
