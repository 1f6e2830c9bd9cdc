"""A server process with the HTTP port in addition to the other doors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.protocols.bunqueue.http.api import BunqueueArea
from jobyard.protocols.bunqueue.http.api import install as install_bunqueue
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.http.routes import Routes
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.routes import install as install_topics
from sim.bunqueue.boot import BunBoot

if TYPE_CHECKING:
    from sim.storage import VirtualDisk
    from sim.workload import Swarm


class TopicsBoot(BunBoot):
    """A server process for all protocols."""

    def __init__(self, swarm: Swarm, disk: VirtualDisk, now_ms: int) -> None:
        super().__init__(swarm, disk, now_ms)
        area = BunqueueArea(self.bunqueue)
        routes = Routes(area)
        install_bunqueue(routes, area)
        install_topics(routes, TopicsDoor(self.yard, now_ms))
        self.http = HttpEntrance(HttpDoor(self.yard, routes, Stopwatch()))

    def is_sync_due(self, now_ms: int) -> bool:
        """Return whether class os must sync now, or an answer requires it."""
        journal = self.journal
        is_asked = journal.durable < journal.written and self.gate.held_sync_batch > journal.durable
        return is_asked or super().is_sync_due(now_ms)

    def synced(self) -> None:
        """Release the answers that required a sync."""
        self.release()

    def release(self) -> None:
        """Release the answers of class os that may leave, including those that required a sync."""
        self.gate.release_up_to(self.journal.written, self.journal.durable)
