"""Process and disk facts for the bunqueue door, and its webhook delivery.

Delivery threads put outcomes into one queue, which the loop empties when it needs them. No thread
is started before the first delivery.
"""

import queue
import resource
import time
from pathlib import Path
from typing import Final, final

from mypy_extensions import i64

from jobyard.journal.journal import Journal
from jobyard.protocols.bunqueue.environment import Environment
from jobyard.server.log import Log
from jobyard.server.outbound import Outbound
from jobyard.server.webhooks import WebhookDeliveries, WebhookDelivery

_PAGE_MB: Final = resource.getpagesize() / (1 << 20)
# How long a stop waits for queued notices to be sent, and then for attempts in progress.
DRAIN_WAIT_S: Final = 1.0
CLOSE_WAIT_S: Final = 2.0
_NAP_S: Final = 0.005


@final
class ServerEnvironment(Environment):
    """The environment of a running server."""

    def __init__(
        self, journal: Journal, log: Log, webhook_tries: int, *, allow_private: bool
    ) -> None:
        self._journal = journal
        self._full_since_ms: i64 = 0
        self._outcomes: queue.SimpleQueue[tuple[str, bool, int]] = queue.SimpleQueue()
        self._deliveries: Final = WebhookDeliveries(
            log,
            self._on_outcome,
            Outbound(allow_private=allow_private),
            tries_max=webhook_tries,
        )

    def memory_mb(self) -> float:
        """Return the resident memory of the process in MiB."""
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return round(pages * _PAGE_MB, 2)

    def cpu_s(self) -> float:
        """Return the processor time used by the process so far, in seconds."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    def disk_error(self) -> str:
        """Return the disk error, or an empty text."""
        return "the disk is full" if self._journal.is_full else ""

    def disk_error_since_ms(self) -> i64:
        """Return the steady time at which the disk error began, or 0."""
        return self._full_since_ms

    def look_at_disk(self, now_ms: i64) -> None:
        """Record when the disk became full; called once a second."""
        if not self._journal.is_full:
            self._full_since_ms = 0
        elif self._full_since_ms == 0:
            self._full_since_ms = now_ms

    # -- webhooks ------------------------------------------------------------------------------

    def post(self, webhook_id: str, url: str, secret: str, event: str, body: bytes) -> None:
        """Queue a webhook delivery without blocking."""
        self._deliveries.send(WebhookDelivery(webhook_id, url, secret or None, event, body))

    def forget(self, webhook_id: str) -> None:
        """Drop all queued deliveries of a webhook."""
        self._deliveries.forget(webhook_id)

    def _on_outcome(self, webhook_id: str, ok: bool, at_ms: int) -> None:  # noqa: FBT001
        """Queue an outcome for the loop; called in the delivery thread."""
        self._outcomes.put((webhook_id, ok, at_ms))

    def take_outcomes(self) -> list[tuple[str, bool, int]]:
        """Return the webhook outcomes since the last call."""
        taken: list[tuple[str, bool, int]] = []
        while not self._outcomes.empty():
            taken.append(self._outcomes.get())
        return taken

    def close(self) -> None:
        """Send queued deliveries for a short time, then drop the rest and stop the threads."""
        end_s = time.monotonic() + DRAIN_WAIT_S
        while self._deliveries.waiting_count > 0 and time.monotonic() < end_s:
            time.sleep(_NAP_S)
        self._deliveries.close(CLOSE_WAIT_S)
