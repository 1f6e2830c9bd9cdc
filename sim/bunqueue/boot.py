"""A server process with a bunqueue door in addition to the beanstalk one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.protocols.bunqueue.door import BunqueueDoor, Environment
from jobyard.protocols.bunqueue.entrance import BunqueueEntrance
from sim.boot import Boot

if TYPE_CHECKING:
    from sim.storage import VirtualDisk
    from sim.workload import Swarm


class Stillness(Environment):
    """The environment of a process that never changes and sends nothing out."""

    def memory_mb(self) -> float:
        """Return a size."""
        return 1.0

    def cpu_s(self) -> float:
        """Return a time."""
        return 1.0

    def disk_error(self) -> str:
        """Return that there is no error."""
        return ""

    def disk_error_since_ms(self) -> int:
        """Return no time."""
        return 0

    def post(self, webhook_id: str, url: str, secret: str, event: str, body: bytes) -> None:
        """Send nothing."""

    def forget(self, webhook_id: str) -> None:
        """Do nothing."""

    def take_outcomes(self) -> list[tuple[str, bool, int]]:
        """Return nothing."""
        return []


class BunBoot(Boot):
    """A server process for both protocols."""

    def __init__(self, swarm: Swarm, disk: VirtualDisk, now_ms: int) -> None:
        super().__init__(swarm, disk, now_ms)
        self.bunqueue = BunqueueDoor(self.yard, Stillness(), now_ms)
        self.entrance = BunqueueEntrance(self.bunqueue)
