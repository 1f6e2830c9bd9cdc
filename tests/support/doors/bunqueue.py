"""The bunqueue door without a socket: sessions over a yard in memory, on a clock tests move.

`BareBunqueue` is the door of one boot, on a storage in memory if a next boot reads its records
back. Its clients send whole commands; a later answer is fetched with `hear`.
"""

from typing import Final, Self

from jobyard.journal.storage import Storage
from jobyard.model.job import Job
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.entrance import BunqueueEntrance
from jobyard.protocols.bunqueue.ids import find_job
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.site.facts import StillLife
from tests.support.site.site import BUDGET, NOW_MS, Site
from tests.support.site.storage import MemoryStorage

SEGMENT_SIZE: Final = 1 << 20


class BunqueueStand:
    """The door on a site that may have others."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.life = StillLife()
        self.door = BunqueueDoor(site.yard, self.life, site.now_ms)
        self.entrance = BunqueueEntrance(self.door)

    def connect(self) -> BunqueueClient:
        """Open a connection."""
        return BunqueueClient(self._site, self.entrance)


class BareBunqueue(Site):
    """Yard and door of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        window: tuple[int, int] = (0, 0),
        *,
        ids_ahead: bool = False,
        budget: int = BUDGET,
    ) -> None:
        super().__init__(
            storage,
            now_ms,
            segment_size=SEGMENT_SIZE,
            budget=budget,
            ids_ahead=ids_ahead,
            window=window,
        )
        self._budget = budget
        stand = BunqueueStand(self)
        self.life = stand.life
        self.door = stand.door
        self.entrance = stand.entrance

    def job(self, job_id: str) -> Job:
        """Return a job of the engine, which must exist."""
        job = find_job(self.yard, job_id.encode())
        assert job is not None, f"no job {job_id}"
        return job

    def connect(self) -> BunqueueClient:
        """Open a connection."""
        return BunqueueClient(self, self.entrance)

    def next_boot(self, storage: MemoryStorage, now_ms: int) -> Self:
        return type(self)(storage, now_ms, budget=self._budget)
