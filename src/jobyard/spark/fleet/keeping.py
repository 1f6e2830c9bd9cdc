"""Keeps the leases of a claim set from ending while executors work on its jobs.

A thread of the driver's reader, which extends the whole set at a third of its lease. It is a daemon
and has no other life: when the driver ends, however that happens, nobody extends, and the jobs go
to others after one lease. A server that cannot be reached is asked again until it answers.
"""

import logging
import threading
import time
from typing import Final, final

from jobyard.client import JobyardError
from jobyard.spark.fleet.claims import FENCED, WorkerClaims
from jobyard.spark.fleet.offsets import ClaimOffset
from jobyard.spark.fleet.options import ClaimOptions

LOG: Final = logging.getLogger("jobyard.spark.fleet")
# After an extension that failed; less if the lease is short.
_AGAIN_S: Final = 1.0


@final
class LeaseKeeper:
    """Extends one claim set until it is stopped, fenced, or nothing is left of the set."""

    def __init__(self, options: ClaimOptions, epoch: int, at: ClaimOffset, begun_s: float) -> None:
        self._lease_s = options.lease_ms / 1000
        self._at = at
        self._stopped = threading.Event()
        # An extension must not wait for longer than the lease has left.
        self._client = options.connecting.client(self._stopped.wait)
        self._claims = WorkerClaims(self._client, options)
        self._claims.epoch = epoch
        self._until_s = begun_s + self._lease_s
        # Why the set is not extended any more, if that ends the query.
        self.fault: JobyardError | None = None
        self._thread = threading.Thread(target=self._keep, name="jobyard-leases", daemon=True)

    def start(self) -> None:
        """Begin to extend; the first time is after a third of the lease."""
        self._thread.start()

    def stop(self) -> None:
        """Extend no more."""
        self._stopped.set()
        self._client.interrupt()

    def left_ms(self) -> int:
        """Return how long the leases last from now on, as far as is known; 0 if they are over."""
        return max(int((self._until_s - time.monotonic()) * 1000), 0)

    def _keep(self) -> None:
        pause_s = self._lease_s / 3
        while not self._stopped.wait(pause_s):
            # Counted from before the call: the server counts from when it gets it.
            begun_s = time.monotonic()
            try:
                left = self._claims.extend(self._at)
            except JobyardError as error:
                if self._stopped.is_set():
                    break
                if error.code == FENCED:
                    self.fault = error
                    break
                LOG.warning("claim %s was not extended: %s", self._at.claim_id, error.message)
                pause_s = min(_AGAIN_S, self._lease_s / 10)
                continue
            if left == 0:
                break
            self._until_s = begun_s + self._lease_s
            pause_s = self._lease_s / 3
        self._client.close()
