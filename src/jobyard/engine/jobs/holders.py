"""Release the jobs of a holder that leaves: all are given back, many of them over turns."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import REMOVAL_UNITS
from jobyard.engine.jobs.finish import give_back, hand_over
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.model.lease import NOBODY, Lease, LeaseSet, Proof

# Jobs that are given back at once, whatever else the turn has done; nearly every holder has fewer.
FEW_LEASES: Final = 1000


def drop_holder(yard: Yard, lease_set: LeaseSet, orphans: LeaseSet | None, now_ms: i64) -> None:
    """Give back every job of a holder that left; no attempt or stall is counted for them.

    Leases that another client with the token has renewed move to `orphans`, if given.
    """
    yard.disarm(lease_set)
    # Break the reference cycle of lease set and holder, which only a collection would free.
    lease_set.holder = NOBODY
    leaving = HolderExit(yard, lease_set, orphans)
    most: i64 = FEW_LEASES * REMOVAL_UNITS
    if leaving.step(most, now_ms) >= most:
        # Jobs that a full disk keeps from being given back return when their leases end.
        yard.arm(lease_set, lease_set.soonest_ms())
        yard.tasks.follow(leaving)


@final
class HolderExit(Task):
    """Gives back the remaining leases of a holder that left, in the order of their deadlines."""

    def __init__(self, yard: Yard, lease_set: LeaseSet, orphans: LeaseSet | None) -> None:
        super().__init__()
        self._yard = yard
        self._lease_set = lease_set
        self._orphans: LeaseSet | None = orphans

    def step(self, most: i64, now_ms: i64) -> i64:
        """Give back some."""
        leases = self._lease_set.leases.items
        orphans = self._orphans
        done: i64 = 0
        while leases and done < most:
            lease = leases[0]
            assert isinstance(lease, Lease)
            if orphans is not None and lease.is_renewed and lease.terms.proof == Proof.TOKEN:
                hand_over(self._yard, lease, orphans)
            else:
                give_back(self._yard, lease.job, now_ms)
            done += REMOVAL_UNITS
        return done
