"""`jobyard check` and `jobyard repair`: a data directory looked at while no server uses it.

`check` reads everything, long bodies too, and changes nothing. `repair` keeps the damaged file
aside under another name and writes in its place what can still be read of it; a job is lost only
if its own bytes are.
"""

from pathlib import Path
from typing import Final, TextIO
from zlib import crc32

from jobyard.engine.replay import open_yard, replay_all
from jobyard.engine.yard import Yard
from jobyard.errors import JournalDamaged, JournalNewer, StorageFailed
from jobyard.journal.batches import FIRST_SEGMENT_SIZE
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.reader import Reader
from jobyard.journal.recovery import Recovery
from jobyard.journal.segment import (
    SEAL_MAGIC,
    SEAL_SIZE,
    SEGMENT_HEADER_SIZE,
    BatchHead,
    HeadFields,
    Segment,
    encode_seal,
    encode_segment_header,
    restamp_part2,
    segment_number,
)
from jobyard.model.queue import Queue
from jobyard.server.disk import FileStorage
from jobyard.server.loop import Clock

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


def _damage(storage: FileStorage, out: TextIO) -> list[str]:
    """Replay the journal as a start would, and tell what it holds."""
    try:
        yard, recovery, _ = _replay(storage)
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
    storage: FileStorage, *, names_lost: bool = False
) -> tuple[Yard, Recovery, list[Queue]]:
    yard = _new_yard(storage)
    replay, recovery = replay_all(yard, storage, Clock().now_ms(), names_lost=names_lost)
    return yard, recovery, replay.renamed


def _new_yard(storage: FileStorage) -> Yard:
    journal = Journal(storage, FIRST_SEGMENT_SIZE, ids_ahead=False)
    return Yard(journal, Bodies(journal, _NO_BODIES))


def _segments(storage: FileStorage) -> list[Segment]:
    names = sorted(name for name in storage.names() if segment_number(name) > 0)
    return [Segment(segment_number(name), 0, storage.size(name)) for name in names]


def _damaged_long_bodies(storage: FileStorage, segment: Segment) -> list[tuple[int, BatchHead]]:
    """Return the batches of a segment with damaged long bodies, which a start does not read."""
    damaged: list[tuple[int, BatchHead]] = []
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
            damaged.append((offset, head))


def _long_body_damage(storage: FileStorage, recovery: Recovery) -> list[str]:
    cut_names = [segment.name for segment in recovery.torn()]
    return [
        f"{segment.name} at offset {offset}: a long body is damaged"
        for segment in _segments(storage)
        if segment.name not in cut_names
        for offset, _head in _damaged_long_bodies(storage, segment)
    ]


def repair(directory: Path, out: TextIO) -> int:
    """Set damaged files aside and keep what can be read; return 0 once a start will succeed."""
    storage = FileStorage(directory)
    try:
        for _ in range(len(storage.names()) + 1):
            try:
                _recover(storage, out)
            except JournalNewer as error:
                out.write(f"not repaired: {error}\n")
                return EXIT_DAMAGED
            except JournalDamaged as error:
                out.write(f"damaged: {error}\n")
                _repair_segment(directory, storage, error.name, out)
                continue
            return 0
    finally:
        storage.close()
    out.write("the damage could not be repaired\n")
    return EXIT_DAMAGED


def _recover(storage: FileStorage, out: TextIO) -> None:
    """Read everything back as a start would; queues whose names are lost get new ones, for good."""
    yard, recovery, renamed = _replay(storage, names_lost=True)
    torn = recovery.torn()
    for segment in _segments(storage):
        if segment.name not in [one.name for one in torn]:
            _repair_long_bodies(storage, segment, out)
    if renamed:
        yard = _new_yard(storage)
        open_yard(yard, storage, Clock().now_ms(), names_lost=True)
        yard.journal.close()
        out.writelines(f"named {queue.name}: its old name is lost\n" for queue in renamed)
    out.write(f"{yard.jobs.count} jobs can be served\n")


def _repair_long_bodies(storage: FileStorage, segment: Segment, out: TextIO) -> None:
    """Let batches vouch for their bodies as they are; a job whose body is wrong will be buried."""
    for offset, head in _damaged_long_bodies(storage, segment):
        batch = storage.read(segment.name, offset, head.total_size())
        storage.write(segment.name, offset, restamp_part2(batch, head.part1_size))
        storage.sync(segment.name)
        out.write(
            f"{segment.name} at offset {offset}: a long body is damaged; "
            f"its job will be buried when its turn comes\n"
        )


def _repair_segment(directory: Path, storage: FileStorage, name: str, out: TextIO) -> None:
    """Replace a segment by what can be read of it; the damaged file stays beside it."""
    number = segment_number(name)
    whole: list[bytes] = []
    next_id = 1
    segment = Segment(number, 0, 0)
    if name in storage.names():
        segment = Segment(number, 0, storage.size(name))
        whole, next_id = _readable_batches(storage, segment)
        aside = f"{name}.damaged"
        while aside in storage.names():
            aside += "-again"
        storage.rename(name, aside)
        out.write(f"kept {directory / aside}\n")
    header = encode_segment_header(segment, 1, next_id, 0, 0)
    data = header + b"".join(whole)
    segment.end = len(data)
    data += encode_seal(segment, segment.last_batch, HeadFields(1, 0, next_id))
    storage.create(name, len(data))
    storage.write(name, 0, data)
    storage.sync(name)
    storage.sync_directory()
    out.write(f"wrote {directory / name} with {len(whole)} readable batches\n")


def _readable_batches(storage: FileStorage, segment: Segment) -> tuple[list[bytes], int]:
    """Return what can be read of a segment, and the id that must be issued next at the least."""
    header = storage.read(segment.name, 0, SEGMENT_HEADER_SIZE)
    next_id = 1
    if len(header) == SEGMENT_HEADER_SIZE:
        segment.temperature = header[20] & 1
        if crc32(header[:56]) == int.from_bytes(header[56:64], "little"):
            next_id = int.from_bytes(header[24:32], "little")
    batches: list[bytes] = []
    reader = Reader(storage, segment)
    while reader.offset + SEAL_SIZE <= segment.size:
        offset = reader.offset
        head = reader.next()
        if head is None:
            found = reader.find_batch(offset + 1)
            if found < 0:
                break
            reader.offset = found
        elif head.magic == SEAL_MAGIC:
            next_id = max(next_id, head.next_id)
            break
        else:
            next_id = max(next_id, head.next_id)
            batch = storage.read(segment.name, offset, head.total_size())
            is_whole = reader.is_part2_whole(head, offset)
            batches.append(batch if is_whole else restamp_part2(batch, head.part1_size))
            segment.last_batch = head.number
    return batches, next_id
