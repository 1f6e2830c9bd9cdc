"""Worlds in which one part outside the yard is wrong: the disk lies, or the server errs.

Planted bugs of the kind that needs no change to the yard itself. Each is a World with one part
replaced; the simulator must find every one of them.
"""

from jobyard.errors import StorageFailed
from sim.boot import Boot
from sim.storage import VirtualDisk
from sim.world import World


class HastyBoot(Boot):
    """Answers after the write, before the sync."""

    def write(self) -> None:
        """Write, and let answers go at once."""
        super().write()
        self.gate.release(self.journal.written)


class HastyWorld(World):
    """A server that answers too early."""

    boot_kind = HastyBoot


class StubbornBoot(Boot):
    """Tries a failed sync again and believes the second answer."""

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
    """Says that bytes are durable when they are not."""

    def sync_until(self, name: str, mark: int) -> None:
        """Forget to sync, now and then."""
        if self._rng.random() < 0.9:
            super().sync_until(name, mark)


class LazyWorld(World):
    """A disk that lies about syncs."""

    disk_kind = LazyDisk


class NamelessDisk(VirtualDisk):
    """Never makes a name durable by itself."""

    def sync_directory(self) -> None:
        """Do nothing."""


class NamelessWorld(World):
    """A server that does not sync its directory."""

    disk_kind = NamelessDisk


class WallWorld(World):
    """A server that takes the wall clock for a steady one."""

    def now_ms(self) -> int:
        """Return the wall clock."""
        return self.now + self.wall_offset


class RecklessBoot(Boot):
    """Releases answers of class os before its ids are safe."""

    def are_ids_at_risk(self) -> bool:
        """See no risk."""
        return False


class RecklessWorld(World):
    """A server that lets ids be issued twice."""

    boot_kind = RecklessBoot
