"""`jobyard check` and `jobyard repair`: examine or repair a data directory not in use.

`check` reads everything, including long bodies, and changes nothing. `engine/recovery/repair.py`
does the repair; this module reports its failures.
"""

from pathlib import Path
from typing import TextIO

from jobyard.config import EXIT_DAMAGED, EXIT_FAILED
from jobyard.engine.recovery.losses import lost_bodies
from jobyard.engine.recovery.repair import (
    damaged_long_bodies,
    read_back,
    repair_storage,
    segments_of,
)
from jobyard.errors import JournalDamaged, StorageFailed, StorageFull
from jobyard.journal.recovery.scan import Recovery
from jobyard.journal.storage import Storage
from jobyard.server.disk import FileStorage
from jobyard.server.loop import Clock


def check(directory: Path, out: TextIO) -> int:
    """Report the contents of a data directory and its damage; return 0 if there is none."""
    storage = FileStorage(directory, is_read_only=True)
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
    """Replay the journal as a start would, and report its contents; return the damage."""
    try:
        yard, recovery, _ = read_back(storage, Clock().now_ms())
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
        out.write(f"{recovery.cut_bytes} bytes of a torn tail are cut at the next start\n")
    return _long_body_damage(storage, recovery) + lost_bodies(yard)


def _long_body_damage(storage: Storage, recovery: Recovery) -> list[str]:
    cut_names = [segment.name for segment in recovery.torn()]
    return [
        f"{segment.name} at offset {offset}: a long body is damaged"
        for segment in segments_of(storage)
        if segment.name not in cut_names
        for offset in damaged_long_bodies(storage, segment)
    ]


def repair(directory: Path, out: TextIO) -> int:
    """Set damaged files aside and keep what is readable; return 0 if a start will succeed."""
    storage = FileStorage(directory)
    try:
        is_repaired = repair_storage(storage, str(directory), Clock().now_ms(), out)
    except StorageFull as error:
        out.write(
            f"not repaired: no space in {directory} for {error}; nothing is lost: "
            f"free some space and run repair again\n"
        )
    except StorageFailed as error:
        out.write(f"not repaired: {error}; nothing is lost; run repair again\n")
    else:
        return 0 if is_repaired else EXIT_DAMAGED
    finally:
        storage.close()
    return EXIT_FAILED
