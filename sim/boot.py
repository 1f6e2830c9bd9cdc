"""One server process: the yard over a disk, its door, and a small committer.

Does what the real server does around the core, in the same order of calls, one call at a time so
that a crash can come between any two. A late sync stands for the sync thread: it does not cover
what is written while it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.engine.recovery.compaction import Compactor
from jobyard.engine.recovery.open_yard import open_yard
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.reply_gate import Gate
from jobyard.protocols.beanstalk.door import BeanstalkDoor, BeanstalkFacts
from sim.beanstalk.statistics import INSTANCE, PID
from sim.workload import JOB_SIZE_MAX, Swarm

if TYPE_CHECKING:
    from jobyard.protocols.session import Peer
    from sim.storage import VirtualDisk

# Class os: written data is synced after at most this time.
SYNC_INTERVAL_MS: Final = 50
# If little work already counts as long, batches with more to sum than this are closed as long ones.
SUMMED_AT_ONCE: Final = 700


class FixedFacts(BeanstalkFacts):
    """Facts about a machine that never changes."""

    def pid(self) -> int:
        """Return a process id."""
        return PID

    def cpu_times(self) -> tuple[float, float]:
        """Return seconds of processor time."""
        return 1.0, 0.5

    def machine(self) -> tuple[str, str, str]:
        """Return host name, operating system and platform."""
        return "yard", "#1", "virtual"

    def instance_id(self) -> str:
        """Return an id."""
        return INSTANCE


class LateSync:
    """A sync in progress: what it covers, and what it will make durable."""

    def __init__(self, names: list[str], mark: int, batch: int, id_limit: int) -> None:
        self.names = names
        self.mark = mark
        self.batch = batch
        self.id_limit = id_limit


class Boot:
    """A server process, from its start to its end."""

    def __init__(self, swarm: Swarm, disk: VirtualDisk, now_ms: int) -> None:
        self.swarm = swarm
        self.disk = disk
        self.journal = Journal(disk, swarm.segment_size, ids_ahead=swarm.is_os)
        self.journal.history.keep(swarm.events_ms, swarm.events_bytes)
        self.bodies = Bodies(self.journal, swarm.body_budget)
        self.yard = Yard(self.journal, self.bodies)
        if swarm.units_per_turn:
            # Little work already counts as long then, and few records as a long batch.
            self.journal.summed_at_once = SUMMED_AT_ONCE
            self.yard.tasks.units_per_turn = swarm.units_per_turn
            self.yard.tasks.first_units = 1
            self.yard.tasks.proceed(now_ms)
        # Every start draws another; only that of the first counts.
        self.recovered = open_yard(self.yard, disk, now_ms, yard_id=f"yard-{now_ms}")
        disk.restart(self.journal.durable)
        self.door = BeanstalkDoor(self.yard, FixedFacts(), JOB_SIZE_MAX, now_ms)
        self.compactor = Compactor(self.yard, self.recovered.superseded)
        if swarm.units_per_turn:
            self.compactor.slice_records = swarm.units_per_turn
        self.gate = Gate()
        self.gate.release(self.journal.durable)
        self.wake: list[Peer] = []
        self.late: LateSync | None = None
        self._synced_ms = now_ms

    def finish_tasks(self, now_ms: int) -> bool:
        """Run tasks to their end, as turns without other work would; return whether there were any.

        The freeing of removed jobs, which no client can see, continues a slice at a time.
        """
        yard = self.yard
        has_any = yard.tasks.count() > len(yard.condemned)
        while yard.tasks.proceed(now_ms) and yard.tasks.count() > len(yard.condemned):
            pass
        return has_any

    def is_sync_due(self, now_ms: int) -> bool:
        """Return whether class os must sync now."""
        journal = self.journal
        is_behind = journal.durable < journal.written
        return is_behind and now_ms - self._synced_ms >= SYNC_INTERVAL_MS

    def write(self) -> None:
        """Write everything appended to the kernel."""
        self.journal.seal_batch()
        self.journal.write_pending()
        self.bodies.cool()

    def commit(self, now_ms: int, *, is_late: bool) -> None:
        """Commit according to the durability class; a late sync is left in progress."""
        if not self.swarm.is_os:
            if self.late is not None:
                self.finish_sync()
            self.write()
            self.begin_sync()
            if not is_late:
                self.finish_sync()
            return
        self.write()
        if self.are_ids_at_risk():
            self.sync_now()
        elif self.late is None and self.is_sync_due(now_ms):
            self._synced_ms = now_ms
            self.begin_sync()
            if not is_late:
                self.finish_sync()
        self.release()

    def release(self) -> None:
        """Release the answers of class os whose records are written."""
        self.gate.release(self.journal.written)

    def are_ids_at_risk(self) -> bool:
        """Return whether ids were issued past the limit that is on disk."""
        journal = self.journal
        return journal.ids_at_risk() and journal.durable < journal.written

    def sync_now(self) -> None:
        """Sync everything written, at once."""
        journal = self.journal
        for name in journal.take_unsynced():
            self.disk.sync(name)
        journal.mark_durable(journal.written, journal.id_limit_written())

    def begin_sync(self) -> None:
        """Begin to sync everything written so far."""
        journal = self.journal
        names = journal.take_unsynced()
        self.late = LateSync(names, self.disk.mark(), journal.written, journal.id_limit_written())

    def finish_sync(self) -> None:
        """Finish the sync in progress, then release the answers that waited for it."""
        late = self.late
        if late is None:
            return
        for name in late.names:
            self.disk.sync_until(name, late.mark)
        self.late = None
        self.journal.mark_durable(late.batch, late.id_limit)
        if not self.swarm.is_os:
            self.gate.release(self.journal.durable)
        else:
            self.synced()

    def synced(self) -> None:
        """Note that a sync of class os is complete, which only explicit requests wait for."""

    def add_spare(self) -> None:
        """Create a spare file ahead of need, as an idle server does."""
        journal = self.journal
        if journal.is_full or journal.spares_wanted() == 0:
            return
        name = journal.new_spare_name()
        try:
            self.disk.create(name, journal.segment_size)
        except StorageFull:
            journal.note_full()
        else:
            journal.add_spare(name)

    def stop(self) -> None:
        """Stop cleanly."""
        self.finish_sync()
        self.journal.append_clean()
        self.journal.close()
        self.gate.release(self.journal.durable)
