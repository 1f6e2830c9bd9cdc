"""Puts what can be read of a damaged segment in its place; the damaged file is kept beside it.

The replacement is written under a name of its own and synced. Only then is the damaged file renamed
aside and the replacement in, so a repair can be interrupted anywhere: run again, it begins from the
same bytes. Between the two renames the segment is missing; its damaged file then lies beside, and
is read instead. Before the first of them a file is made that says that a repair is on its way; it
goes when the repair has dealt with what is lost, and no server starts before. What is read of a
damaged batch is `journal/repair/damaged_batch.py`'s part.
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
from jobyard.journal.repair.damaged_batch import NOTHING, Salvage, is_hot, read_header, read_wreck
from jobyard.journal.storage import Storage, read_around

DAMAGED_TAIL: Final = ".damaged"
REPAIRED_TAIL: Final = ".repaired"
# There from the first replacement until the end of a repair.
UNFINISHED: Final = "repair.unfinished"
_UNFINISHED_TEXT: Final = b"`jobyard repair` has begun here and has not ended: run it again.\n"
# Of a file that is damaged again after it was repaired.
_AGAIN: Final = "-again"


def clear_unfinished(storage: Storage) -> None:
    """Remove replacements that an interrupted repair did not come to use."""
    for name in storage.names():
        stem = name.removesuffix(REPAIRED_TAIL)
        if stem != name and segment_number(stem) > 0:
            storage.unlink(name)


def is_unfinished(storage: Storage) -> bool:
    """Tell whether a repair has replaced files and not yet dealt with what that lost."""
    return UNFINISHED in storage.names()


def finish_repair(storage: Storage) -> None:
    """Let a server start again."""
    if is_unfinished(storage):
        storage.unlink(UNFINISHED)
        storage.sync_directory()


def repair_segment(
    storage: Storage, name: str, newest: i64 = 0, *, loses_records: bool = True
) -> Salvage:
    """Replace a segment by what can be read of it; an empty one if nothing can.

    `newest` is a batch that others know to be on disk and that is in no segment: one that says
    nothing takes its place. Where no records can be lost, the repair is not marked as unfinished.
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
    # Where bits were put right and nothing else is wrong, there is nothing to bring back.
    is_put_right = salvage.corrected and salvage.lost_bytes == 0 and newest == 0
    if loses_records and not is_put_right and UNFINISHED not in names:
        storage.create(UNFINISHED, len(_UNFINISHED_TEXT))
        storage.write(UNFINISHED, 0, _UNFINISHED_TEXT)
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


class _Replacement:
    """The bytes of a segment in the making, from those of a damaged one."""

    def __init__(self, storage: Storage, salvage: Salvage) -> None:
        self._storage = storage
        self._salvage = salvage
        number = segment_number(salvage.name)
        # Where batches are read, and where they go.
        self._old = Segment(number, 0, 0)
        self._new = Segment(number, 0, 0)
        self._batches: list[bytes] = []

    def encode(self, newest: i64) -> bytes:
        """Return the whole of the new segment."""
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
            # How many ids it gave is not known, but they fit into one batch.
            salvage.next_id += ID_BLOCK
            self._append(newest, HeadFields(1, 0, salvage.next_id), NOTHING, b"")
        batches = b"".join(self._batches)
        salvage.batches_count = len(self._batches)
        next_id = salvage.next_id
        seal = encode_seal(new, new.last_batch, HeadFields(1, 0, next_id))
        return encode_segment_header(new, 1, next_id, 0, 0) + batches + seal

    def _read(self) -> None:
        """Read batch after batch; behind one that cannot be read, look for the next."""
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
        """Take what is left of what begins at `offset` and step over it; None at the end."""
        salvage = self._salvage
        old = self._old
        wreck = read_wreck(self._storage, old, offset, salvage)
        if wreck is not None:
            reader.offset = offset + wreck.head.total_size()
            if wreck.head.magic != SEAL_MAGIC:
                self._add(wreck.head, wreck.records, wreck.part2)
                return wreck.head
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
        """Put a batch that says nothing in the place of one that others know to be there."""
        fields = HeadFields(head.epoch, head.wall_offset_ms, head.next_id)
        fields.first_record = max(0, head.first_record - 1)
        self._append(number, fields, NOTHING, b"")

    def _add(self, head: BatchHead, records: bytes, part2: bytes) -> None:
        """Encode a batch anew: where it lies now its sums may be others."""
        fields = HeadFields(head.epoch, head.wall_offset_ms, head.next_id)
        fields.durable = head.durable
        fields.first_record = head.first_record
        fields.other = head.other
        self._append(head.number, fields, records or NOTHING, part2)

    def _append(self, number: i64, fields: HeadFields, records: bytes, part2: bytes) -> None:
        new = self._new
        batch = encode_batch(new, number, fields, records, [part2] if part2 else [])
        self._batches.append(batch)
        new.end += len(batch)
        new.last_batch = number
