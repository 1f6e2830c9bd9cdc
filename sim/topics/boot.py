"""A server process with the HTTP port beside the other doors."""

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
        """Tell whether class os owes the disk a sync, or an answer asks for one."""
        journal = self.journal
        is_asked = journal.durable < journal.written and self.gate.sync_asked > journal.durable
        return is_asked or super().is_sync_due(now_ms)

    def synced(self) -> None:
        """Let the answers go that asked for the disk."""
        self.release()

    def release(self) -> None:
        """Let answers of class os go that may, also those that asked for the disk."""
        self.gate.release_up_to(self.journal.written, self.journal.durable)
