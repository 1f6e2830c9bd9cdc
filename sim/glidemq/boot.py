"""A server process with the glide-mq door in addition to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.protocols.glidemq.door import GlidemqDoor, GlidemqFacts
from jobyard.protocols.glidemq.entrance import GlidemqEntrance
from sim.bunqueue.boot import BunBoot

if TYPE_CHECKING:
    from jobyard.protocols.glidemq.session import GlidemqSession
    from sim.storage import VirtualDisk
    from sim.workload import Swarm


class Standstill(GlidemqFacts):
    """A process that never changes."""

    def pid(self) -> int:
        """Return a process id."""
        return 1

    def port(self) -> int:
        """Return a port."""
        return 6379

    def memory_bytes(self) -> int:
        """Return a size."""
        return 1

    def cpu_times(self) -> tuple[float, float]:
        """Return times."""
        return 1.0, 1.0

    def machine(self) -> tuple[str, str, str]:
        """Return a host."""
        return "yard", "#1", "virtual"

    def run_id(self) -> str:
        """Return an id."""
        return "0" * 40


class GlideBoot(BunBoot):
    """A server process for glide-mq and the other protocols."""

    def __init__(self, swarm: Swarm, disk: VirtualDisk, now_ms: int) -> None:
        super().__init__(swarm, disk, now_ms)
        self.glidemq = GlidemqEntrance(GlidemqDoor(self.yard, Standstill(), now_ms))

    def finish_work(self, session: GlidemqSession, now_ms: int) -> None:
        """Run a long command to the end of its work, and of its answer."""
        while session.is_at_work():
            self.finish_tasks(now_ms)
            session.resume(now_ms)
