"""`jobyard check`: a data directory looked at while no server uses it.

It reads everything, long bodies too, and changes nothing.
"""

from pathlib import Path
from typing import Final, TextIO

from jobyard.engine.gaps import Gaps
from jobyard.engine.replay import replay_all
from jobyard.engine.yard import Yard
from jobyard.errors import JournalDamaged, StorageFailed
from jobyard.journal.batches import FIRST_SEGMENT_SIZE
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.reader import Reader
from jobyard.journal.recovery import Recovery
from jobyard.journal.segment import SEAL_MAGIC, Segment, segment_number
from jobyard.journal.storage import Storage
from jobyard.server.disk import FileStorage
from jobyard.server.loop import Clock

EXIT_DAMAGED: Final = 3
_NO_BODIES: Final = 0


def check(directory: Path, out: TextIO) -> int:
    """Tell what is in a data directory and what is damaged; return 0 if nothing is."""
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
    """Replay the journal as a start would, and tell what it holds."""
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
        out.write(f"{recovery.cut_bytes} bytes of a torn tail will be cut at the next start\n")
    return _long_body_damage(storage, recovery)


def read_back(
    storage: Storage, now_ms: int, *, fills_gaps: bool = False
) -> tuple[Yard, Recovery, Gaps]:
    """Replay the journal into a yard, changing nothing on disk."""
    yard = new_yard(storage)
    replay, recovery = replay_all(yard, storage, now_ms, fills_gaps=fills_gaps)
    return yard, recovery, replay.gaps


def new_yard(storage: Storage) -> Yard:
    """Return an empty yard over a storage, which keeps no bodies in memory."""
    journal = Journal(storage, FIRST_SEGMENT_SIZE, ids_ahead=False)
    return Yard(journal, Bodies(journal, _NO_BODIES))


def segments_of(storage: Storage) -> list[Segment]:
    """Return the segments that are there, with nothing known of them but number and size."""
    names = sorted(name for name in storage.names() if segment_number(name) > 0)
    return [Segment(segment_number(name), 0, storage.size(name)) for name in names]


def damaged_long_bodies(storage: Storage, segment: Segment) -> list[int]:
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
        for segment in segments_of(storage)
        if segment.name not in cut_names
        for offset in damaged_long_bodies(storage, segment)
    ]
