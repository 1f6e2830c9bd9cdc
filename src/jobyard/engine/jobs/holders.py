"""What becomes of the jobs of a holder that leaves: all are given back, many over turns."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import REMOVAL_UNITS
from jobyard.engine.jobs.finish import give_back, hand_over
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.model.queue import NOBODY, TOKEN, Book, Lease

# Jobs that are given back at once, whatever else a turn has done: nearly every holder has fewer.
FEW_LEASES: Final = 1000


def drop_holder(yard: Yard, book: Book, orphans: Book | None, now_ms: i64) -> None:
    """Give back every job of a holder that left; nothing is counted against them.

    Leases that were renewed by someone else who knows the token go over to `orphans`, if given.
    """
    yard.disarm(book)
    # A book that knows its holder and is known to it would keep both until a collection.
    book.holder = NOBODY
    leaving = Leaving(yard, book, orphans)
    most: i64 = FEW_LEASES * REMOVAL_UNITS
    if leaving.step(most, now_ms) >= most:
        # What a full disk keeps from being given back comes back when its time is over.
        yard.arm(book, book.soonest_ms())
        yard.tasks.follow(leaving)


@final
class Leaving(Task):
    """Gives back what is left in the book of a holder that has left, the first to end first."""

    def __init__(self, yard: Yard, book: Book, orphans: Book | None) -> None:
        super().__init__()
        self._yard = yard
        self._book = book
        self._orphans: Book | None = orphans

    def step(self, most: i64, now_ms: i64) -> i64:
        """Give back some."""
        leases = self._book.leases.items
        orphans = self._orphans
        done: i64 = 0
        while leases and done < most:
            lease = leases[0]
            assert isinstance(lease, Lease)
            if orphans is not None and lease.is_renewed and lease.terms.proof == TOKEN:
                hand_over(self._yard, lease, orphans)
            else:
                give_back(self._yard, lease.job, now_ms)
            done += REMOVAL_UNITS
        return done
