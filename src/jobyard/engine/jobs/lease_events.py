"""Notify holders that leases have ended; a batch operation notifies them when it is done."""

from mypy_extensions import i64

from jobyard.engine.jobs.take import notify_holder
from jobyard.engine.state.yard import Yard


def defer_lease_events(yard: Yard) -> None:
    """Buffer lease ends until `send_lease_events`: a batch operation starts."""
    assert yard.ended is None
    yard.ended = []


def send_lease_events(yard: Yard, now_ms: i64) -> None:
    """Notify the holders of the leases that ended since `defer_lease_events`."""
    leases = yard.ended
    yard.ended = None
    assert leases is not None
    for lease in leases:
        notify_holder(yard, lease, now_ms)
