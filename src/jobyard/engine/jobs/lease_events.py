"""Tells holders that leases have ended; a verb that ends many tells them when it is done."""

from mypy_extensions import i64

from jobyard.engine.jobs.take import tell_holder
from jobyard.engine.state.yard import Yard


def hold_tidings(yard: Yard) -> None:
    """Tell no holder of the end of a lease before `send_tidings`: a verb of many ends begins."""
    assert yard.ended is None
    yard.ended = []


def send_tidings(yard: Yard, now_ms: i64) -> None:
    """Tell the holders which of their leases have ended meanwhile."""
    leases = yard.ended
    yard.ended = None
    assert leases is not None
    for lease in leases:
        tell_holder(yard, lease, now_ms)
