"""What the doors are told of the process and the disk around them, and their way out for webhooks.

Threads that deliver webhooks pass outcomes to the loop through one queue, from which the loop takes
them when it wants to know. No thread is started before the first delivery.
"""

import queue
import resource
import time
from pathlib import Path
from typing import Final, final

from mypy_extensions import i64

from jobyard.journal.journal import Journal
from jobyard.protocols.bunqueue.environment import Surroundings
from jobyard.server.log import Log
from jobyard.server.outbound import Outbound
from jobyard.server.webhooks import Deliveries, Delivery

_PAGE_MB: Final = resource.getpagesize() / (1 << 20)
# What a stop waits for notices to be taken up, and then for tries that are under way.
DRAIN_WAIT_S: Final = 1.0
CLOSE_WAIT_S: Final = 2.0
_NAP_S: Final = 0.005


@final
class ServerSurroundings(Surroundings):
    """The surroundings of a running server."""

    def __init__(
        self, journal: Journal, log: Log, webhook_tries: int, *, allow_private: bool
    ) -> None:
        self._journal = journal
        self._full_since_ms: i64 = 0
        self._outcomes: queue.SimpleQueue[tuple[str, bool, int]] = queue.SimpleQueue()
        self._deliveries: Final = Deliveries(
            log,
            self._on_outcome,
            Outbound(allow_private=allow_private),
            tries_max=webhook_tries,
        )

    def memory_mb(self) -> float:
        """Return the resident memory of the process."""
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return round(pages * _PAGE_MB, 2)

    def cpu_s(self) -> float:
        """Return the processor time of the process so far."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    def disk_error(self) -> str:
        """Return what is wrong with the disk, or nothing."""
        return "the disk is full" if self._journal.is_full else ""

    def disk_error_since_ms(self) -> i64:
        """Return the steady time since when the disk has been wrong."""
        return self._full_since_ms

    def look_at_disk(self, now_ms: i64) -> None:
        """Note when the disk became full; called once a second."""
        if not self._journal.is_full:
            self._full_since_ms = 0
        elif self._full_since_ms == 0:
            self._full_since_ms = now_ms

    # -- webhooks ------------------------------------------------------------------------------

    def post(self, webhook_id: str, url: str, secret: str, event: str, body: bytes) -> None:
        """Send a webhook, at once and without waiting."""
        self._deliveries.send(Delivery(webhook_id, url, secret or None, event, body))

    def forget(self, webhook_id: str) -> None:
        """Let fall what still waits to be sent to a webhook."""
        self._deliveries.forget(webhook_id)

    def _on_outcome(self, webhook_id: str, ok: bool, at_ms: int) -> None:  # noqa: FBT001
        """Keep an outcome for the loop; called in the thread that saw it."""
        self._outcomes.put((webhook_id, ok, at_ms))

    def take_outcomes(self) -> list[tuple[str, bool, int]]:
        """Return what became of webhooks since the last call."""
        taken: list[tuple[str, bool, int]] = []
        while not self._outcomes.empty():
            taken.append(self._outcomes.get())
        return taken

    def close(self) -> None:
        """Send what is left in a moment, and then no more: what waits longer is given up."""
        end_s = time.monotonic() + DRAIN_WAIT_S
        while self._deliveries.waiting_count > 0 and time.monotonic() < end_s:
            time.sleep(_NAP_S)
        self._deliveries.close(CLOSE_WAIT_S)
