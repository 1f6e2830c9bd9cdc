"""`jobyard check` and `jobyard repair`: a data directory looked at while no server uses it.

`check` reads everything, long bodies too, and changes nothing. `repair` keeps a damaged file aside
under another name and puts in its place what can still be read of it (`journal/salvage.py`); jobs
whose queue or policy no record describes any more get stand-ins. It can be interrupted anywhere and
run again.
"""

from pathlib import Path
from typing import Final, TextIO

from jobyard.engine.gaps import Gaps
from jobyard.engine.replay import open_yard, replay_all
from jobyard.engine.yard import Yard
from jobyard.errors import JournalDamaged, JournalNewer, StorageFailed, StorageFull
from jobyard.journal import newest
from jobyard.journal.batches import FIRST_SEGMENT_SIZE
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.reader import Reader
from jobyard.journal.recovery import Recovery
from jobyard.journal.salvage import clear_unfinished, next_aside, repair_segment
from jobyard.journal.segment import SEAL_MAGIC, Segment, segment_number
from jobyard.journal.storage import Storage
from jobyard.server.disk import FileStorage
from jobyard.server.loop import Clock

EXIT_FAILED: Final = 1
EXIT_DAMAGED: Final = 3
_NO_BODIES: Final = 0


def check(directory: Path, out: TextIO) -> int:
    """Tell what is in a data directory and what is damaged; return 0 if nothing is."""
    storage = FileStorage(directory)
    try:
        damage = _damage(storage, out)
    except StorageFailed as error:
        damage = [str(error)]
    finally:
        storage.close()
    out.writelines(f"damaged: {line}\n" for line in damage)
    if not damage:
        out.write("everything can be read back\n")
    return EXIT_DAMAGED if damage else 0


def _damage(storage: Storage, out: TextIO) -> list[str]:
    """Replay the journal as a start would, and tell what it holds."""
    try:
        yard, recovery, _ = _replay(storage, Clock().now_ms())
    except JournalDamaged as error:
        return [str(error)]
    out.write(
        f"{yard.jobs.count} jobs ({yard.ready_count} ready, {yard.delayed_count} delayed, "
        f"{yard.dead_count} buried) in {len(yard.queues)} queues, "
        f"{len(recovery.segments)} segments\n"
    )
    if yard.logs:
        records_count = sum(log.count for log in yard.logs.values())
        out.write(f"{records_count} records in {len(yard.logs)} logs\n")
    if recovery.cut_bytes > 0:
        out.write(f"{recovery.cut_bytes} bytes of a torn tail will be cut at the next start\n")
    return _long_body_damage(storage, recovery)


def _replay(
    storage: Storage, now_ms: int, *, fills_gaps: bool = False
) -> tuple[Yard, Recovery, Gaps]:
    yard = _new_yard(storage)
    replay, recovery = replay_all(yard, storage, now_ms, fills_gaps=fills_gaps)
    return yard, recovery, replay.gaps


def _new_yard(storage: Storage) -> Yard:
    journal = Journal(storage, FIRST_SEGMENT_SIZE, ids_ahead=False)
    return Yard(journal, Bodies(journal, _NO_BODIES))


def _segments(storage: Storage) -> list[Segment]:
    names = sorted(name for name in storage.names() if segment_number(name) > 0)
    return [Segment(segment_number(name), 0, storage.size(name)) for name in names]


def _damaged_long_bodies(storage: Storage, segment: Segment) -> list[int]:
    """Return where the batches of a segment with damaged long bodies are; no start reads these."""
    damaged: list[int] = []
    reader = Reader(storage, segment)
    while True:
        offset = reader.offset
        head = reader.next()
        if head is None:
            # A torn tail, or a flaw that a start finds by itself.
            return damaged
        if head.magic == SEAL_MAGIC:
            return damaged
        if not reader.is_part2_whole(head, offset):
            damaged.append(offset)


def _long_body_damage(storage: Storage, recovery: Recovery) -> list[str]:
    cut_names = [segment.name for segment in recovery.torn()]
    return [
        f"{segment.name} at offset {offset}: a long body is damaged"
        for segment in _segments(storage)
        if segment.name not in cut_names
        for offset in _damaged_long_bodies(storage, segment)
    ]


def repair(directory: Path, out: TextIO) -> int:
    """Set damaged files aside and keep what can be read; return 0 once a start will succeed."""
    storage = FileStorage(directory)
    try:
        return repair_storage(storage, directory, Clock().now_ms(), out)
    except StorageFull as error:
        out.write(
            f"not repaired: {directory} has no room for {error}; nothing is lost: "
            f"make room and run repair again\n"
        )
    except StorageFailed as error:
        out.write(f"not repaired: {error}; nothing is lost, and repair can be run again\n")
    finally:
        storage.close()
    return EXIT_FAILED


def repair_storage(storage: Storage, directory: Path, now_ms: int, out: TextIO) -> int:
    """Repair what lies in a storage, the files of `directory`."""
    clear_unfinished(storage)
    for _ in range(len(storage.names()) + 1):
        try:
            _recover(storage, directory, now_ms, out)
        except JournalNewer as error:
            out.write(f"not repaired: {error}\n")
            return EXIT_DAMAGED
        except JournalDamaged as error:
            out.write(f"damaged: {error}\n")
            if error.name == newest.NAME:
                aside = next_aside(storage.names(), error.name)
                storage.rename(error.name, aside)
                storage.sync_directory()
                out.write(f"kept {directory / aside}\n")
                continue
            if segment_number(error.name) == 0:
                break
            _replace(storage, directory, error.name, out)
            continue
        return 0
    out.write("the damage could not be repaired\n")
    return EXIT_DAMAGED


def _recover(storage: Storage, directory: Path, now_ms: int, out: TextIO) -> None:
    """Read everything back as a start would; what jobs refer to and is lost is filled in."""
    yard, recovery, gaps = _replay(storage, now_ms, fills_gaps=True)
    torn = [segment.name for segment in recovery.torn()]
    for segment in _segments(storage):
        if segment.name not in torn:
            _repair_long_bodies(storage, directory, segment, out)
    if gaps.queues or gaps.policies:
        yard = _new_yard(storage)
        open_yard(yard, storage, now_ms, fills_gaps=True)
        yard.journal.close()
        out.writelines(f"named {queue.name}: its old name is lost\n" for queue in gaps.queues)
        out.writelines(
            f"{policy.jobs_count} jobs have default options now: theirs are lost\n"
            for policy in gaps.policies
        )
    out.write(f"{yard.jobs.count} jobs can be served\n")


def _repair_long_bodies(storage: Storage, directory: Path, segment: Segment, out: TextIO) -> None:
    """Let batches vouch for their bodies as they are; a job whose body is wrong will be buried."""
    damaged = _damaged_long_bodies(storage, segment)
    out.writelines(
        f"{segment.name} at offset {offset}: a long body is damaged; "
        f"its job will be buried when its turn comes\n"
        for offset in damaged
    )
    if damaged:
        _replace(storage, directory, segment.name, out)


def _replace(storage: Storage, directory: Path, name: str, out: TextIO) -> None:
    salvage = repair_segment(storage, name)
    if salvage.kept:
        out.write(f"kept {directory / salvage.kept}\n")
    elif salvage.source:
        out.write(f"read {directory / salvage.source}: a repair was interrupted\n")
    out.write(f"wrote {directory / name} with {len(salvage.batches)} readable batches\n")
