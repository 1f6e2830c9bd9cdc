"""Puts what can be read of a damaged segment in its place; the damaged file is kept beside it.

The replacement is written under a name of its own and synced. Only then is the damaged file renamed
aside and the replacement in, so a repair can be interrupted anywhere: run again, it begins from the
same bytes. Between the two renames the segment is missing; its damaged file then lies beside, and
is read instead.
"""

from typing import Final, final
from zlib import crc32

from mypy_extensions import i64

from jobyard.journal.reader import Reader
from jobyard.journal.segment import (
    SEAL_MAGIC,
    SEAL_SIZE,
    SEGMENT_HEADER_SIZE,
    HeadFields,
    Segment,
    encode_seal,
    encode_segment_header,
    restamp_part2,
    segment_number,
)
from jobyard.journal.storage import Storage, read_around

DAMAGED_TAIL: Final = ".damaged"
REPAIRED_TAIL: Final = ".repaired"
# Of a file that is damaged again after it was repaired.
_AGAIN: Final = "-again"


@final
class Salvage:
    """What was read of one segment, and what became of its files."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The file that was read; empty if there was none.
        self.source: str = ""
        # Where the damaged file is now, if this repair moved it.
        self.kept: str = ""
        self.batches: list[bytes] = []
        self.next_id: i64 = 1


def clear_unfinished(storage: Storage) -> None:
    """Remove replacements that an interrupted repair did not come to use."""
    for name in storage.names():
        stem = name.removesuffix(REPAIRED_TAIL)
        if stem != name and segment_number(stem) > 0:
            storage.unlink(name)


def repair_segment(storage: Storage, name: str) -> Salvage:
    """Replace a segment by what can be read of it; an empty one if nothing can."""
    salvage = Salvage(name)
    names = storage.names()
    number = segment_number(name)
    segment = Segment(number, 0, 0)
    salvage.source = name if name in names else _last_aside(names, name)
    if salvage.source:
        segment.size = storage.size(salvage.source)
        _read(storage, segment, salvage)
    header = encode_segment_header(segment, 1, salvage.next_id, 0, 0)
    data = header + b"".join(salvage.batches)
    segment.end = len(data)
    data += encode_seal(segment, segment.last_batch, HeadFields(1, 0, salvage.next_id))
    fresh = name + REPAIRED_TAIL
    storage.create(fresh, len(data))
    storage.write(fresh, 0, data)
    storage.sync(fresh)
    # Its name must be safe before the damaged file loses its own.
    storage.sync_directory()
    if salvage.source == name:
        salvage.kept = next_aside(names, name)
        storage.rename(name, salvage.kept)
    storage.rename(fresh, name)
    storage.sync_directory()
    return salvage


def _last_aside(names: list[str], name: str) -> str:
    """Return the newest damaged file of a segment, or nothing."""
    last = ""
    aside = name + DAMAGED_TAIL
    while aside in names:
        last = aside
        aside += _AGAIN
    return last


def next_aside(names: list[str], name: str) -> str:
    """Return a free name for a file that is kept aside."""
    aside = name + DAMAGED_TAIL
    while aside in names:
        aside += _AGAIN
    return aside


def _read(storage: Storage, segment: Segment, salvage: Salvage) -> None:
    """Read the whole batches of a segment, and the id that must be issued next at the least."""
    segment.name = salvage.source
    header = read_around(storage, segment.name, 0, SEGMENT_HEADER_SIZE)
    if len(header) == SEGMENT_HEADER_SIZE:
        segment.temperature = header[20] & 1
        if crc32(header[:56]) == int.from_bytes(header[56:64], "little"):
            salvage.next_id = int.from_bytes(header[24:32], "little")
    reader = Reader(storage, segment)
    while reader.offset + SEAL_SIZE <= segment.size:
        offset = reader.offset
        head = reader.next()
        if head is None:
            found = reader.find_batch(offset + 1)
            if found < 0:
                return
            reader.offset = found
            continue
        salvage.next_id = max(salvage.next_id, head.next_id)
        if head.magic == SEAL_MAGIC:
            return
        batch = read_around(storage, segment.name, offset, head.total_size())
        is_whole = reader.is_part2_whole(head, offset)
        salvage.batches.append(batch if is_whole else restamp_part2(batch, head.part1_size))
        segment.last_batch = head.number
