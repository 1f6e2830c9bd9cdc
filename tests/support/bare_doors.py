"""All four doors over one yard, without a socket, on a clock tests move."""

from jobyard.journal.storage import Storage
from tests.support.bare_glidemq import BareGlidemq
from tests.support.bare_topics import BareTopics
from tests.support.glidemq_calls import Library
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import NOW_MS


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
        self.glidemq = BareGlidemq(now_ms=now_ms, site=self.others.site)

    def library(self, queue: str = "q") -> Library:
        """Open a connection to the glide-mq door, for one queue."""
        self.glidemq.now_ms = self.now_ms
        return Library(self.glidemq, queue)

    def settle(self) -> None:
        """Resume woken sessions until none is left."""
        self.glidemq.now_ms = self.now_ms
        super().settle()
        while self.glidemq.woken:
            self.glidemq.settle()
            super().settle()

    def after_a_crash(self, ms: int = 0) -> "BareDoors":
        """Cut the power, and start again on what the disk holds."""
        self.check()
        self.others.site.commit()
        assert isinstance(self.storage, MemoryStorage)
        after = BareDoors(self.storage.cut_off(), self.now_ms + ms)
        after.check()
        return after
