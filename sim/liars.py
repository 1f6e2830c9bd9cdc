"""Worlds in which one part outside the yard is wrong: the disk lies, or the server has a bug.

These are planted bugs that need no change to the yard itself. Each is a World with one part
replaced; the simulator must find every one of them.
"""

from jobyard.errors import StorageFailed
from sim.boot import Boot
from sim.storage import VirtualDisk
from sim.world import World


class HastyBoot(Boot):
    """Answers after the write, before the sync."""

    def write(self) -> None:
        """Write, and release answers at once."""
        super().write()
        self.gate.release(self.journal.written)


class HastyWorld(World):
    """A server that answers too early."""

    boot_kind = HastyBoot


class StubbornBoot(Boot):
    """Retries a failed sync and trusts the second result."""

    def finish_sync(self) -> None:
        """Sync, and once more if that failed."""
        try:
            super().finish_sync()
        except StorageFailed:
            super().finish_sync()


class StubbornWorld(World):
    """A server that retries a sync."""

    boot_kind = StubbornBoot


class LazyDisk(VirtualDisk):
    """Reports bytes as durable when they are not."""

    def sync_until(self, name: str, mark: int) -> None:
        """Skip the sync, now and then."""
        if self._rng.random() < 0.9:
            super().sync_until(name, mark)


class LazyWorld(World):
    """A disk that lies about syncs."""

    disk_kind = LazyDisk


class NamelessDisk(VirtualDisk):
    """Never makes a name durable on request."""

    def sync_directory(self) -> None:
        """Do nothing."""


class NamelessWorld(World):
    """A server that does not sync its directory."""

    disk_kind = NamelessDisk


class WallWorld(World):
    """A server that uses the wall clock as its steady clock."""

    def now_ms(self) -> int:
        """Return the wall clock."""
        return self.now + self.wall_offset


class RecklessBoot(Boot):
    """Releases answers of class os before its ids are safe."""

    def are_ids_at_risk(self) -> bool:
        """Report no risk."""
        return False


class RecklessWorld(World):
    """A server that may issue ids twice."""

    boot_kind = RecklessBoot
