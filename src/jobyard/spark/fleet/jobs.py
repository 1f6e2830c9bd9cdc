"""What a function that works on jobs gets and gives: a job, and what is to become of it.

Knows neither Spark nor the server, so that such a function can be tested by itself.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DELAY_FIRST_MS: Final = 1000
_DELAY_MAX_MS: Final = 300_000


@final
class Job:
    """One job of a claim set."""

    __slots__ = (
        *("queue", "worker", "epoch", "claim", "seq", "lease_id"),
        *("deliveries", "ts_us", "tag", "headers", "value"),
    )

    def __init__(  # noqa: PLR0913, PLR0917  the columns of a job, in their order
        self,
        queue: str,
        worker: str,
        epoch: int,
        claim: str,
        # Its number in the queue, and the proof of its lease.
        seq: int,
        lease_id: str,
        # How often it was delivered, this time included.
        deliveries: int,
        # When it was written, in microseconds since 1970.
        ts_us: int,
        tag: str | None,
        headers: dict[str, str],
        # JSON text, or the bytes that were written.
        value: bytes,
    ) -> None:
        self.queue = queue
        self.worker = worker
        self.epoch = epoch
        self.claim = claim
        self.seq = seq
        self.lease_id = lease_id
        self.deliveries = deliveries
        self.ts_us = ts_us
        self.tag = tag
        self.headers = headers
        self.value = value

    @property
    def ts(self) -> datetime:
        """Return when it was written."""
        return _EPOCH + timedelta(microseconds=self.ts_us)

    def json(self) -> object:
        """Return the value of its JSON; ValueError if it is none."""
        return json.loads(self.value)

    def __repr__(self) -> str:
        return f"Job({self.queue} {self.seq}, delivery {self.deliveries})"


@dataclass(frozen=True)
class Retry:
    """The job goes back to its queue, and can be claimed again after a delay.

    Without a delay, jobs of protocols that count attempts wait for their own backoff; others are
    ready at once.
    """

    delay_ms: int | None = None
    # Kept with the job.
    reason: str = ""


@dataclass(frozen=True)
class Bury:
    """The job is given up: it becomes a dead letter, or stays dead in its queue."""

    reason: str = ""


Verdict = Retry | Bury
# What becomes of a job that raised.
OnError = Verdict | Callable[[Exception, Job], Verdict]


@dataclass(frozen=True)
class Backoff:
    """A rule for jobs that raise: each delivery waits longer, and the last one is given up."""

    first_ms: int = _DELAY_FIRST_MS
    factor: float = 2.0
    max_ms: int = _DELAY_MAX_MS
    # 0: the `max_deliveries` of the queue decides alone.
    max_deliveries: int = 0

    def __call__(self, error: Exception, job: Job) -> Verdict:
        """Return what becomes of a job that raised."""
        if 0 < self.max_deliveries <= job.deliveries:
            return Bury(error_text(error))
        # The exponent is bounded, so that the power is a number.
        power = min(max(job.deliveries - 1, 0), 60)
        return Retry(int(min(self.first_ms * self.factor**power, self.max_ms)))


def error_text(error: BaseException) -> str:
    """Return the class and message of an error, as it is kept with the job."""
    message = str(error)
    name = type(error).__name__
    return f"{name}: {message}" if message else name
