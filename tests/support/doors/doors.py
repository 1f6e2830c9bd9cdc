"""All four doors over one yard, without a socket, on a clock tests move."""

from jobyard.journal.storage import Storage
from tests.support.clients.library import GlideCalls
from tests.support.doors.glidemq import GlidemqStand
from tests.support.doors.topics import BareTopics
from tests.support.site.site import NOW_MS


class BareDoors(BareTopics):
    """Yard and doors of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(storage, now_ms, window=window)
        self.glidemq = GlidemqStand(self)

    def library(self, queue: str = "q") -> GlideCalls:
        """Open a connection to the glide-mq door, for one queue."""
        return GlideCalls(self.glidemq.connect(), queue)
