"""Trials on a copy of the disk: repeatedly interrupted starts and repairs, and bad sectors.

They are not part of the run, and use a separate random generator. The copy is the disk that a
start found. Interrupted starts must end in the same yard as an uninterrupted one; damage in one
place must be refused or cost only bodies; and a repair, however often it is interrupted, must lead
to a start with all jobs except those that were hit.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from jobyard.engine.recovery.repair import repair_storage
from jobyard.errors import JournalDamaged, StorageFailed
from jobyard.journal.format.segment import HOT
from sim import checkers
from sim.state import Violation
from sim.storage import NEVER, SECTOR, Stopped

if TYPE_CHECKING:
    from random import Random

    from jobyard.engine.state.yard import Yard
    from sim.storage import VirtualDisk
    from sim.workload import Swarm

# A yard as plain values; the third of each job is its body.
Dump = Sequence[tuple[object, ...]]
STARTS_MAX: Final = 4
CALLS_MAX: Final = 45
REPAIR_CALLS_MAX: Final = 90
FLIP: Final = "flip"
NOISE: Final = "noise"
UNREADABLE: Final = "unreadable"
# An interrupted repair may have replaced a file without reporting what that cost.
UNTOLD: Final = "(cut short)\n"
OLDER: Final = re.compile(r"^\d+ jobs? may have an older body: (.*)$", re.MULTILINE)
OLDER_MAX: Final = re.compile(r"^up to (\d+) jobs may have an older body", re.MULTILINE)


class Trial:
    """One copy of a disk on which a start was made, and what an uninterrupted start finds on it."""

    def __init__(
        self,
        before: VirtualDisk,
        swarm: Swarm,
        now_ms: int,
        rng: Random,
        dump: Callable[[Yard], Dump],
    ) -> None:
        self._before = before
        self._swarm = swarm
        self._now_ms = now_ms
        self._rng = rng
        self._dump = dump

    def _open(self, disk: VirtualDisk) -> Yard:
        return checkers.open_copy(disk, self._swarm, self._now_ms)

    def interrupt_starts(self) -> str:
        """Start again and again, each time interrupted by a kill; the last must find the same."""
        disk = self._before.clone(self._rng)
        if self._rng.random() < 0.5:
            # As left by a process that ends at a roll: the next segment is begun and empty.
            self._open(disk).journal.open_segment(HOT, self._swarm.segment_size)
        whole = disk.clone(self._rng)
        wanted = self._dump(self._open(whole))
        calls_count = NEVER - whole.stop_in
        for _ in range(1 + int(self._rng.random() * STARTS_MAX)):
            disk.stop_in = int(self._rng.random() * CALLS_MAX)
            if self._rng.random() < 0.5:
                # Near its end a start has begun a new segment.
                disk.stop_in = max(0, calls_count - disk.stop_in // 3)
            try:
                self._open(disk)
            except Stopped:
                disk.disarm()
        disk.disarm()
        found = self._dump(self._open(disk))
        if found != wanted:
            raise Violation("recovery twice", "interrupted starts lead to another yard")
        return "starts interrupted in a row"

    def damage_and_repair(self) -> str:
        """Damage one place of a sealed journal; it must be refused, and repaired in the end."""
        disk = self._before.clone(self._rng)
        yard = self._open(disk)
        yard.journal.close()
        wanted = self._dump(self._open(disk.clone(self._rng)))
        ranges = checkers.known_ranges(disk)
        name, start, end = ranges[int(self._rng.random() * len(ranges))]
        at = start + int(self._rng.random() * (end - start))
        what = self._rng.choice((FLIP, NOISE, UNREADABLE))
        self._damage(disk, what, name, at)
        story = f"{what} at {at} of {name}"
        self._check_start(disk.clone(self._rng), wanted, story)
        text = self._repair(disk, story)
        disk.disarm()
        found = self._dump(self._open(disk))
        if what == FLIP and not _is_same(found, wanted):
            raise Violation("repair", f"a flipped bit cost more than a body: {story}\n{text}")
        self._check_bodies(_changed_bodies(found, wanted), text, story)
        return f"{what} repaired"

    def _damage(self, disk: VirtualDisk, what: str, name: str, at: int) -> None:
        view = disk.files[name].view
        if what == FLIP:
            view[at] ^= 1 << int(self._rng.random() * 8)
        else:
            start = at // SECTOR * SECTOR
            stop = min(start + SECTOR, len(view))
            if what == NOISE:
                view[start:stop] = self._rng.randbytes(stop - start)
            else:
                disk.spoil(name, at)
        disk.files[name].durable = bytearray(view)

    def _check_start(self, disk: VirtualDisk, wanted: Dump, story: str) -> None:
        """Check that a start on damage is refused, or finds everything except some bodies."""
        try:
            found = self._dump(self._open(disk))
        except JournalDamaged:
            return
        except StorageFailed as error:
            raise Violation("read error", f"{story} ends the server: {error}") from error
        if not _is_same(found, wanted):
            raise Violation("silent damage", story)

    def _repair(self, disk: VirtualDisk, story: str) -> str:
        """Repair, interrupted several times by a kill or a power cut; return the messages."""
        text = ""
        whole = disk.clone(self._rng)
        self._run_repair(whole, story)
        for _ in range(int(self._rng.random() * 4)):
            disk.stop_in = int(self._rng.random() * REPAIR_CALLS_MAX)
            if whole.renames_at and self._rng.random() < 0.5:
                # Before or after a rename, in a state of the directory no finished repair leaves.
                disk.stop_in = self._rng.choice(whole.renames_at) - int(self._rng.random() * 2)
            try:
                text += self._run_repair(disk, story)
            except Stopped:
                text += UNTOLD
                disk.disarm()
                if self._rng.random() < 0.5:
                    disk.cut_power()
            disk.disarm()
        return text + self._run_repair(disk, story)

    def _check_bodies(self, changed: list[tuple[object, object]], text: str, story: str) -> None:
        """Check that a job whose new body was hit has an older one, and that this is reported."""
        ids = {each for line in OLDER.findall(text) for each in line.split(", ")}
        untold = [job for job, _ in changed if str(job) not in ids]
        told_max = sum(int(number) for number in OLDER_MAX.findall(text))
        if len(untold) > told_max and UNTOLD not in text:
            raise Violation("silent damage", f"{story}: {untold} have older bodies\n{text}")
        for job, body in changed:
            assert isinstance(body, bytes)
            if not any(body in file.view for file in self._before.files.values()):
                raise Violation("silent damage", f"{story}: {job} has another body\n{text}")

    def _run_repair(self, disk: VirtualDisk, story: str) -> str:
        out = io.StringIO()
        try:
            is_repaired = repair_storage(disk, "data", self._now_ms, out)
        except StorageFailed as error:
            raise Violation("repair", f"{story} ends a repair: {error}") from error
        if not is_repaired:
            raise Violation("repair", f"{story} was not repaired: {out.getvalue()}")
        return out.getvalue()


def _is_same(found: Dump, wanted: Dump) -> bool:
    """Return whether nothing but unreadable bodies differs."""
    if len(found) != len(wanted):
        return False
    return all(
        one == other or (one[:2] == other[:2] and one[2] is None)
        for one, other in zip(found, wanted, strict=True)
    )


def _changed_bodies(found: Dump, wanted: Dump) -> list[tuple[object, object]]:
    """Return the jobs that have another body than they should, and that body."""
    bodies = {repr(one[0]): one[2] for one in wanted if len(one) > 2}
    changed: list[tuple[object, object]] = []
    for one in found:
        known = bodies.get(repr(one[0]))
        if len(one) > 2 and known is not None and one[2] is not None and one[2] != known:
            changed.append((one[0], one[2]))
    return changed
