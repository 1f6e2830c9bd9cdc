"""Replaces a damaged segment by its readable part; the damaged file is kept under another name.

The replacement is written under a name of its own and synced. Only then is the damaged file renamed
and the replacement takes its name, so a repair can be interrupted anywhere: run again, it starts
from the same bytes. Between the two renames the segment is missing; the renamed damaged file is
then read instead. Before the first rename, a file is created that marks a repair in progress; it is
removed when the repair has dealt with what is lost, and no server starts until then. Damaged
batches are read by `journal/repair/damaged_batch.py`.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.journal.batches import ID_BLOCK
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    SEAL_MAGIC,
    SEAL_SIZE,
    BatchHead,
    HeadFields,
    Segment,
    encode_batch,
    encode_seal,
    encode_segment_header,
    segment_number,
)
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.repair.damaged_batch import (
    EMPTY_NOTE,
    Salvage,
    is_hot,
    read_damaged,
    read_header,
)
from jobyard.journal.storage import Storage, read_around

DAMAGED_TAIL: Final = ".damaged"
REPAIRED_TAIL: Final = ".repaired"
# Exists from the first replacement until the end of a repair.
UNFINISHED: Final = "repair.unfinished"
_UNFINISHED_TEXT: Final = b"`jobyard repair` started here and did not finish: run it again.\n"
# Marks a file that was damaged again after a repair.
_AGAIN: Final = "-again"


def clear_unfinished(storage: Storage) -> None:
    """Remove replacements that an interrupted repair did not put in place."""
    for name in storage.names():
        stem = name.removesuffix(REPAIRED_TAIL)
        if stem != name and segment_number(stem) > 0:
            storage.unlink(name)


def is_unfinished(storage: Storage) -> bool:
    """Return whether a repair has replaced files and not yet dealt with what is lost."""
    return UNFINISHED in storage.names()


def finish_repair(storage: Storage) -> None:
    """Remove the mark of an unfinished repair, so that a server can start again."""
    if is_unfinished(storage):
        storage.unlink(UNFINISHED)
        storage.sync_directory()


def repair_segment(
    storage: Storage, name: str, newest: i64 = 0, *, loses_records: bool = True
) -> Salvage:
    """Replace a segment by its readable part, or by an empty segment if nothing can be read.

    `newest` is a batch that was on disk, as others say, and is now in no segment: an empty batch
    takes its place. If no records can be lost, the repair is not marked as unfinished.
    """
    salvage = Salvage(name)
    names = storage.names()
    salvage.source = name if name in names else _last_aside(names, name)
    salvage.is_missing = not salvage.source
    data = _Replacement(storage, salvage).encode(newest)
    fresh = name + REPAIRED_TAIL
    storage.create(fresh, len(data))
    storage.write(fresh, 0, data)
    storage.sync(fresh)
    # If corrected bits were the only damage, nothing is lost.
    is_put_right = salvage.corrected and salvage.lost_bytes == 0 and newest == 0
    if loses_records and not is_put_right and UNFINISHED not in names:
        storage.create(UNFINISHED, len(_UNFINISHED_TEXT))
        storage.write(UNFINISHED, 0, _UNFINISHED_TEXT)
    # The replacement must be durable before the damaged file is renamed.
    storage.sync_directory()
    if salvage.source == name:
        salvage.kept = next_aside(names, name)
        storage.rename(name, salvage.kept)
    storage.rename(fresh, name)
    storage.sync_directory()
    return salvage


def _last_aside(names: list[str], name: str) -> str:
    """Return the name of the newest damaged file of a segment, or an empty string."""
    last = ""
    aside = name + DAMAGED_TAIL
    while aside in names:
        last = aside
        aside += _AGAIN
    return last


def next_aside(names: list[str], name: str) -> str:
    """Return a free name for a damaged file."""
    aside = name + DAMAGED_TAIL
    while aside in names:
        aside += _AGAIN
    return aside


class _Replacement:
    """Builds the bytes of a new segment from those of a damaged one."""

    def __init__(self, storage: Storage, salvage: Salvage) -> None:
        self._storage = storage
        self._salvage = salvage
        number = segment_number(salvage.name)
        # The segment that is read, and the one that is built.
        self._old = Segment(number, 0, 0)
        self._new = Segment(number, 0, 0)
        self._batches: list[bytes] = []

    def encode(self, newest: i64) -> bytes:
        """Return the bytes of the new segment."""
        salvage = self._salvage
        new = self._new
        if salvage.source:
            self._old.name = salvage.source
            self._old.size = self._storage.size(salvage.source)
            header = read_header(self._storage, salvage)
            if header:
                new.temperature = header[20] & 1
            self._read()
            if not header:
                new.temperature = 0 if is_hot(self._batches) else 1
        if newest > new.last_batch:
            # How many ids it issued is unknown, but they fit into one block.
            salvage.next_id += ID_BLOCK
            self._append(newest, HeadFields(1, 0, salvage.next_id), EMPTY_NOTE, b"")
        batches = b"".join(self._batches)
        salvage.batches_count = len(self._batches)
        next_id = salvage.next_id
        seal = encode_seal(new, new.last_batch, HeadFields(1, 0, next_id))
        return encode_segment_header(new, 1, next_id, 0, 0) + batches + seal

    def _read(self) -> None:
        """Read batch after batch; after one that cannot be read, search for the next."""
        old = self._old
        salvage = self._salvage
        salvage.is_cut = True
        reader = Reader(self._storage, old)
        while reader.offset + SEAL_SIZE <= old.size:
            offset = reader.offset
            head = reader.next()
            if head is None:
                head = self._read_damaged(reader, offset)
                if head is None:
                    return
                continue
            salvage.next_id = max(salvage.next_id, head.next_id)
            if head.magic == SEAL_MAGIC:
                salvage.note_ids(b"", head)
                salvage.is_cut = False
                return
            batch = read_around(self._storage, old.name, offset, head.total_size())
            part2_at: i64 = BATCH_HEADER_SIZE + head.part1_size
            records = batch[BATCH_HEADER_SIZE : BATCH_HEADER_SIZE + head.records_size]
            salvage.note_ids(records, head)
            self._add(head, records, batch[part2_at:])

    def _read_damaged(self, reader: Reader, offset: i64) -> BatchHead | None:
        """Recover what is left of the batch at `offset` and skip it; return None at the end."""
        salvage = self._salvage
        old = self._old
        damaged = read_damaged(self._storage, old, offset, salvage)
        if damaged is not None:
            reader.offset = offset + damaged.head.total_size()
            if damaged.head.magic != SEAL_MAGIC:
                self._add(damaged.head, damaged.records, damaged.part2)
                return damaged.head
            salvage.is_cut = False
            return None
        found = reader.find_batch(offset + 1)
        if found < 0:
            salvage.note_end(self._storage, old, offset)
            return None
        salvage.note_gap(offset, found)
        reader.offset = found
        head = reader.peek(found)
        if head is not None and head.previous > self._new.last_batch:
            self._stand_in(head.previous, head)
        return head

    def _stand_in(self, number: i64, head: BatchHead) -> None:
        """Append an empty batch in place of a lost one that others refer to."""
        fields = HeadFields(head.epoch, head.wall_offset_ms, head.next_id)
        fields.first_record = max(0, head.first_record - 1)
        self._append(number, fields, EMPTY_NOTE, b"")

    def _add(self, head: BatchHead, records: bytes, part2: bytes) -> None:
        """Encode a batch again: at its new offset it may have other sums."""
        fields = HeadFields(head.epoch, head.wall_offset_ms, head.next_id)
        fields.durable = head.durable
        fields.first_record = head.first_record
        fields.other = head.other
        self._append(head.number, fields, records or EMPTY_NOTE, part2)

    def _append(self, number: i64, fields: HeadFields, records: bytes, part2: bytes) -> None:
        new = self._new
        batch = encode_batch(new, number, fields, records, [part2] if part2 else [])
        self._batches.append(batch)
        new.end += len(batch)
        new.last_batch = number
