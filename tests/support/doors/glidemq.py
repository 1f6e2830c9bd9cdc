"""The glide-mq door without a socket: sessions over a yard in memory, on a clock tests move.

`BareGlidemq` is the door of one boot, on a storage in memory if a next boot reads its records
back.
"""

from typing import Final, Self

from jobyard.journal.storage import Storage
from jobyard.model.secrets import digest_of
from jobyard.protocols.glidemq.door import GlidemqDoor
from jobyard.protocols.glidemq.entrance import GlidemqEntrance
from tests.support.clients.glidemq import GlideClient
from tests.support.site.facts import GlidemqMachine
from tests.support.site.site import NOW_MS, Site
from tests.support.site.storage import MemoryStorage

SEGMENT_SIZE: Final = 1 << 20
BUDGET: Final = 1 << 30


class GlidemqStand:
    """The door on a site that may have others."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.door = GlidemqDoor(site.yard, GlidemqMachine(), site.now_ms)
        self.entrance = GlidemqEntrance(self.door)

    def connect(self) -> GlideClient:
        """Open a connection."""
        return GlideClient(self._site, self.entrance)


class BareGlidemq(Site):
    """Yard and door of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        password: bytes = b"",
        segment_size: int = SEGMENT_SIZE,
        budget: int = BUDGET,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(storage, now_ms, segment_size=segment_size, budget=budget, window=window)
        self._window = window
        stand = GlidemqStand(self)
        self.door = stand.door
        self.door.password = digest_of(password) if password else b""
        self.entrance = stand.entrance

    def connect(self) -> GlideClient:
        """Open a connection."""
        return GlideClient(self, self.entrance)

    def next_boot(self, storage: MemoryStorage, now_ms: int) -> Self:
        return type(self)(storage, now_ms, window=self._window)
