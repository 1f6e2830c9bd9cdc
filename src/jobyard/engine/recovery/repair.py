"""Repairs a damaged journal so that a server can start on it, and reports what was lost.

A damaged file is kept under another name, and its readable part takes its place
(`journal/repair`). Jobs whose queue or policy record is lost get a replacement for it, and so do
logs whose names are lost. A repair can be interrupted anywhere and run again.
"""

from typing import TYPE_CHECKING, Final, TextIO, final

from mypy_extensions import i64

from jobyard.engine.recovery.gaps import Gaps
from jobyard.engine.recovery.losses import (
    UNKNOWN_JOBS,
    default_options,
    first_of,
    hole_text,
    log_losses,
    lost_bodies,
    stopped_routers,
)
from jobyard.engine.recovery.open_yard import open_yard, replay_all
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, JournalNewer
from jobyard.journal.batches import FIRST_SEGMENT_SIZE
from jobyard.journal.bodies import Bodies
from jobyard.journal.format import newest_segment
from jobyard.journal.format.segment import SEAL_MAGIC, Segment, segment_number
from jobyard.journal.journal import Journal
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.recovery.scan import Recovery, newest_durable
from jobyard.journal.repair.lost_segment import LostRange, NeighbouringBatches
from jobyard.journal.repair.salvage import (
    clear_unfinished,
    finish_repair,
    next_aside,
    repair_segment,
)
from jobyard.journal.storage import Storage

if TYPE_CHECKING:
    from jobyard.journal.repair.damaged_batch import Salvage

# How many ids a line lists.
IDS_SHOWN: Final = 50
_NO_BODIES: Final = 0


def read_back(
    storage: Storage, now_ms: i64, *, fills_gaps: bool = False
) -> tuple[Yard, Recovery, Gaps]:
    """Replay the journal into a yard, changing nothing on disk."""
    yard = new_yard(storage)
    replay, recovery = replay_all(yard, storage, now_ms, fills_gaps=fills_gaps)
    return yard, recovery, replay.gaps


def new_yard(storage: Storage) -> Yard:
    """Return an empty yard that uses a storage and keeps no bodies in memory."""
    journal = Journal(storage, FIRST_SEGMENT_SIZE, ids_ahead=False)
    return Yard(journal, Bodies(journal, _NO_BODIES))


def segments_of(storage: Storage) -> list[Segment]:
    """Return the existing segments, with only their numbers and sizes set."""
    names = sorted(name for name in storage.names() if segment_number(name) > 0)
    return [Segment(segment_number(name), 0, storage.size(name)) for name in names]


def damaged_long_bodies(storage: Storage, segment: Segment) -> list[int]:
    """Return the offsets of batches with damaged long bodies, which a start does not read."""
    damaged: list[int] = []
    reader = Reader(storage, segment)
    while True:
        offset = reader.offset
        head = reader.next()
        if head is None:
            # A torn tail, or damage that a start detects anyway.
            return damaged
        if head.magic == SEAL_MAGIC:
            return damaged
        if not reader.is_part2_whole(head, offset):
            damaged.append(int(offset))


def repair_storage(storage: Storage, where: str, now_ms: i64, out: TextIO) -> bool:
    """Repair the journal in a storage; return True if a start will succeed.

    `where` is the directory to show in messages. Raises StorageFull or StorageFailed if the repair
    cannot continue; nothing is lost by that.
    """
    clear_unfinished(storage)
    work = _Repair(storage, where, now_ms, out)
    # A segment may be replaced twice: for its damage, and for a batch that others expect in it.
    for _ in range(2 * len(storage.names()) + 2):
        try:
            work.recover()
        except JournalNewer as error:
            out.write(f"not repaired: {error}\n")
            return False
        except JournalDamaged as error:
            out.write(f"damaged: {error}\n")
            if not work.mend(error.name):
                break
            continue
        return True
    out.write("the damage could not be repaired\n")
    return False


@final
class _Repair:
    """One run over a directory, and what is lost so far."""

    def __init__(self, storage: Storage, where: str, now_ms: i64, out: TextIO) -> None:
        self._storage = storage
        self._where = where
        self._now_ms: i64 = now_ms
        self._out = out
        self._salvages: dict[str, Salvage] = {}

    def mend(self, name: str) -> bool:
        """Replace a damaged file; return False if it is not a file that can be replaced."""
        if name == newest_segment.NEWEST_FILE:
            self._set_aside(name)
            return True
        if segment_number(name) == 0:
            return False
        # Still damaged after a replacement: others refer to a batch that it does not hold.
        missed: i64 = newest_durable(self._storage) if name in self._salvages else 0
        self._replace(name, missed)
        return True

    def _set_aside(self, name: str) -> None:
        aside = next_aside(self._storage.names(), name)
        self._storage.rename(name, aside)
        self._storage.sync_directory()
        self._out.write(f"kept the damaged file as {self._where}/{aside}\n")

    def _replace(self, name: str, missed: i64 = 0, *, loses_records: bool = True) -> None:
        salvage = repair_segment(self._storage, name, missed, loses_records=loses_records)
        known = self._salvages.get(name)
        if known is not None:
            salvage.add(known)
        self._salvages[name] = salvage
        if salvage.kept:
            self._out.write(f"kept the damaged file as {self._where}/{salvage.kept}\n")
        elif salvage.source:
            source = f"{self._where}/{salvage.source}"
            self._out.write(f"read {source}: an earlier repair was interrupted\n")
        written = f"{self._where}/{name}"
        self._out.write(f"wrote {written} with {salvage.batches_count} readable batches\n")

    def recover(self) -> None:
        """Replay everything as a start would, and replace lost records that jobs refer to."""
        storage = self._storage
        yard, recovery, gaps = read_back(storage, self._now_ms, fills_gaps=True)
        torn = [segment.name for segment in recovery.torn()]
        for segment in segments_of(storage):
            if segment.name not in torn:
                damaged = damaged_long_bodies(storage, segment)
                for offset in damaged:
                    self._out.write(f"{segment.name} at offset {offset}: a long body is damaged\n")
                if damaged:
                    self._replace(segment.name, loses_records=False)
        # Before anything is appended: new batches would take the numbers of those that are lost.
        lost_ranges = self._lost_ranges(yard, gaps)
        if gaps.are_any():
            yard = new_yard(storage)
            open_yard(yard, storage, self._now_ms, fills_gaps=True)
            yard.journal.close()
        finish_repair(storage)
        self._report(yard, gaps, lost_ranges)

    def _report(self, yard: Yard, gaps: Gaps, lost_ranges: list[str]) -> None:
        """Report what was lost, which jobs may be back, and how many there are."""
        out = self._out
        salvages = self._salvages.values()
        bits = sum(len(one.corrected) for one in salvages)
        if bits:
            out.write(f"corrected {bits} flipped bit{'s' if bits > 1 else ''}\n")
        named = [f"renamed a queue to {queue.name}: its own name is lost" for queue in gaps.queues]
        lines = first_of(named, "queues whose names are lost")
        lines += log_losses(gaps) + stopped_routers(yard, gaps) + default_options(yard, gaps)
        out.writelines([f"{line}\n" for line in lines])
        lost_bytes = sum(one.lost_bytes for one in salvages)
        if lost_bytes:
            out.write(f"{lost_bytes} bytes of records could not be read\n")
        out.writelines([f"{line}\n" for line in lost_ranges])
        out.write(self._losses(yard, gaps))
        back = {job_id for one in salvages for job_id in one.back_jobs}
        back = {job_id for job_id in back if yard.jobs.get(job_id) is not None}
        if back:
            ids = _listed(sorted(back))
            out.write(f"{len(back)} finished jobs are back and may run again: {ids}\n")
        back_max = sum(one.back_max for one in salvages)
        if back_max:
            out.write(
                f"up to {back_max} finished jobs may be back and run again: "
                f"the records of their end are lost\n"
            )
        out.write(self._older(yard))
        out.writelines([f"{line}\n" for line in lost_bodies(yard)])
        out.write(f"{yard.jobs.count} jobs can be served\n")

    def _older(self, yard: Yard) -> str:
        """Return which jobs may have an older body because the record of the new one is lost."""
        salvages = self._salvages.values()
        older = {job_id for one in salvages for job_id in one.older_jobs}
        older = {job_id for job_id in older if yard.jobs.get(job_id) is not None}
        text = ""
        if older:
            jobs = "job" if len(older) == 1 else "jobs"
            text += f"{len(older)} {jobs} may have an older body: {_listed(sorted(older))}\n"
        older_max = sum(one.older_max for one in salvages)
        if older_max:
            text += f"up to {older_max} jobs may have an older body: the newer one is lost\n"
        return text

    def _lost_ranges(self, yard: Yard, gaps: Gaps) -> list[str]:
        """Return how much may be lost with files that are missing or cut short."""
        short = [one for one in self._salvages.values() if one.is_missing or one.is_cut]
        if not short:
            return []
        lines: list[str] = []
        around = NeighbouringBatches(self._storage)
        newest_batch = newest_durable(self._storage)
        for one in sorted(short, key=_name_of):
            lost_range = around.lost_range(one.name, newest_batch, is_missing=one.is_missing)
            what = f"{one.name} is {'missing' if one.is_missing else 'cut short'}"
            if lost_range is not None:
                known = around.put_ids(lost_range) | gaps.killed
                one.bound_end(_touched_max(yard, lost_range))
                lines.append(f"{what}: {hole_text(yard, lost_range, known)}")
            elif one.is_missing:
                one.bound_end(yard.jobs.count)
                lines.append(f"{what}: all of its contents are lost; {UNKNOWN_JOBS}")
        return lines

    def _losses(self, yard: Yard, gaps: Gaps) -> str:
        """Return the lost jobs, by queue where the queue is known."""
        names = {queue.number: name for name, queue in yard.queues.items()}
        lost: dict[str, list[int]] = {}
        for one in self._salvages.values():
            for job_id, number in sorted(one.lost_jobs.items()):
                if yard.jobs.get(job_id) is None and job_id not in gaps.killed:
                    lost.setdefault(names.get(number, ""), []).append(job_id)
        text = ""
        for name, ids in sorted(lost.items()):
            where = f" of queue {name}" if name else ""
            text += f"lost {len(ids)} job{'s' if len(ids) > 1 else ''}{where}: {_listed(ids)}\n"
        return text


def _touched_max(yard: Yard, lost_range: LostRange) -> i64:
    """Return how many existing jobs may have lost their end or a new body in a lost range."""
    jobs_count: i64 = yard.jobs.count
    return jobs_count if lost_range.records_max < 0 else min(jobs_count, lost_range.records_max)


def _name_of(salvage: "Salvage") -> str:
    return salvage.name


def _listed(ids: list[int]) -> str:
    shown = ", ".join(str(number) for number in ids[:IDS_SHOWN])
    more = len(ids) - IDS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
