"""Recovers the records of a damaged batch whose own bytes are whole.

A single flipped bit is corrected (`bit_flip.py`). Otherwise the sums show which sectors of a batch
are damaged, and records that do not touch one are kept. The beginning of a damaged record may still
say that a job has ended: that is kept too, so that a finished job does not come back. A batch whose
header or sums cannot be verified is lost as a whole.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import BytesWriter, read_i32_le, read_i64_le
from mypy_extensions import i64

from jobyard.journal.batches import ID_BLOCK
from jobyard.journal.format.record import (
    GONE_SIZE,
    KIND_ALIVE,
    KIND_END,
    KIND_GONE,
    KIND_LEASE,
    KIND_MOVED,
    KIND_NOTE,
    KIND_PUT,
    MOVED_SIZE,
    NOTE_SIZE,
    write_gone,
)
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    SEAL_MAGIC,
    SEGMENT_HEADER_SIZE,
    BatchHead,
    Segment,
)
from jobyard.journal.format.sums import BLOCK, SUM_SIZE, find_bad, first_record, sums_size
from jobyard.journal.repair.bit_flip import SIZE_MAX, corrected
from jobyard.journal.storage import Storage, read_around
from jobyard.model.job import DONE, GONE

_CRC_AT: Final = BATCH_HEADER_SIZE - 8
_KIND_SIZE: Final = 8
_WITH_ID: Final = 16
_WITH_BASE: Final = 24
_SUM_BITS: Final = 0xFFFFFFFF
# The sums of 64 MiB of records.
SUMS_SIZE_MAX: Final = 1 << 20
# A NOTE about no job: the record that takes the place of a lost one.
EMPTY_NOTE: Final = (KIND_NOTE | NOTE_SIZE << 32).to_bytes(8, "little") + bytes(8)


@final
class Salvage:
    """What was read of one segment, what is lost, and where its damaged file is."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The file that was read; empty if there was none.
        self.source: str = ""
        # Whether the file is missing, or has no readable end.
        self.is_missing: bool = False
        self.is_cut: bool = False
        # The new name of the damaged file, if this repair renamed it.
        self.kept: str = ""
        self.batches_count: i64 = 0
        self.next_id: i64 = 1
        # Where single bits were corrected.
        self.corrected: list[int] = []
        self.lost_bytes: i64 = 0
        # Jobs whose bases are lost, and the numbers of their queues (0 if unknown).
        self.lost_jobs: dict[int, int] = {}
        # Finished jobs that are known to come back, and how many others may come back at most.
        self.back_jobs: set[int] = set()
        self.back_max: i64 = 0
        # Jobs whose lost bases were copies or had new bodies, so that an older base may count now.
        # And how many others may have the same problem at most.
        self.older_jobs: set[int] = set()
        self.older_max: i64 = 0
        # The size of a batch that was begun behind the last readable one.
        self.end_size: i64 = 0
        # The first id not issued before the next batch, and whether some may be lost.
        self._next_id: i64 = 0
        self._has_gap: bool = False

    def add(self, earlier: "Salvage") -> None:
        """Add the losses of an earlier replacement of the same segment."""
        self.is_missing = self.is_missing or earlier.is_missing
        self.is_cut = self.is_cut or earlier.is_cut
        self.corrected += earlier.corrected
        self.lost_bytes += earlier.lost_bytes
        self.lost_jobs.update(earlier.lost_jobs)
        self.back_jobs |= earlier.back_jobs
        self.back_max += earlier.back_max
        self.older_jobs |= earlier.older_jobs
        self.older_max += earlier.older_max
        self.end_size += earlier.end_size

    def note_ids(self, records: bytes, head: BatchHead) -> None:
        """Find the jobs lost between the previous batch and this one by their missing ids."""
        first = self._next_id
        self._next_id = head.next_id
        # If ids are reserved ahead, headers show only whole blocks.
        is_known = first > 0 and first % ID_BLOCK != 0 and head.next_id % ID_BLOCK != 0
        if not self._has_gap or not is_known:
            return
        self._has_gap = False
        there: set[int] = set()
        pos: i64 = 0
        while pos < len(records):
            if records[pos] == KIND_PUT:
                there.add(read_i64_le(records, pos + 8))
            pos += i64(read_i32_le(records, pos + 4))
        for number in range(int(first), int(head.next_id)):
            if number not in there:
                self.lost_jobs.setdefault(number, 0)

    def note_gap(self, start: i64, end: i64) -> None:
        """Count the bytes between two offsets as unreadable."""
        self._has_gap = True
        self.note_unknown(end - start)

    def note_unknown(self, size: i64) -> None:
        """Count lost bytes that held unknown records."""
        self._has_gap = True
        self.lost_bytes += size
        self.back_max += size // GONE_SIZE
        self.older_max += size // MOVED_SIZE

    def note_end(self, storage: Storage, segment: Segment, offset: i64) -> None:
        """Count what is lost at `offset`, where no batch follows: a batch that was begun there."""
        data = read_around(storage, segment.name, offset, BATCH_HEADER_SIZE)
        if len(data) < BATCH_HEADER_SIZE:
            return
        head = BatchHead(data, 0)
        if head.segment == segment.number and head.magic in (BATCH_MAGIC, SEAL_MAGIC):
            self.end_size = min(max(head.total_size(), 0), segment.size - offset)
            self.note_unknown(self.end_size)
            self.next_id += ID_BLOCK

    def bound_end(self, records: i64) -> None:
        """Count `records` as lost at the end instead of the estimate by size.

        Damage that begins in one batch may cover others, or leave no trace of any.
        """
        self.back_max += records - self.end_size // GONE_SIZE
        self.older_max += records - self.end_size // MOVED_SIZE
        self.end_size = 0


@final
class DamagedBatch:
    """A damaged batch whose header is verified."""

    def __init__(self, head: BatchHead, sums: bytes, part1: bytes) -> None:
        self.head = head
        self.sums = sums
        # Part 1 if a checksum over all of it matches; otherwise empty until it is read.
        self.records: bytes = part1
        self.part2: bytes = b""


def read_header(storage: Storage, salvage: Salvage) -> bytes:
    """Return a segment header with a flipped bit corrected; empty if it cannot be verified."""
    header = read_around(storage, salvage.source, 0, SEGMENT_HEADER_SIZE)
    if len(header) < SEGMENT_HEADER_SIZE:
        return b""
    known = read_i64_le(header, 56)
    fields: bytes | None = header[:56]
    wrong = crc32(header[:56]) ^ known
    if wrong & (wrong - 1) != 0:
        fields = corrected(header[:56], known)
    if fields is None:
        return b""
    if wrong != 0:
        salvage.corrected.append(0)
    salvage.next_id = max(salvage.next_id, read_i64_le(fields, 24))
    return fields


def is_hot(batches: list[bytes]) -> bool:
    """Return whether a segment is hot: it has kinds of records that compaction never copies."""
    for batch in batches:
        head = BatchHead(batch, 0)
        pos: i64 = BATCH_HEADER_SIZE
        end = pos + head.records_size
        while pos < end:
            if batch[pos] in (KIND_PUT, KIND_LEASE, KIND_END, KIND_ALIVE):
                return True
            pos += i64(read_i32_le(batch, pos + 4))
    return False


def read_damaged(
    storage: Storage, segment: Segment, offset: i64, salvage: Salvage
) -> DamagedBatch | None:
    """Return what is left of the batch at `offset`; None if its header cannot be verified."""
    damaged = _trusted(storage, segment, offset, salvage)
    if damaged is None or damaged.head.magic == SEAL_MAGIC:
        return damaged
    head = damaged.head
    start = offset + BATCH_HEADER_SIZE
    if head.sums_size > 0:
        records = read_around(storage, segment.name, start, head.records_size)
        records, bad = _corrected_blocks(records, damaged.sums, start, salvage)
        damaged.records = _Records(records, damaged.sums, start, bad, salvage).kept()
    salvage.next_id = max(salvage.next_id, head.next_id)
    salvage.note_ids(damaged.records, head)
    damaged.part2 = read_around(storage, segment.name, start + head.part1_size, head.part2_size)
    return damaged


def _trusted(
    storage: Storage, segment: Segment, offset: i64, salvage: Salvage
) -> DamagedBatch | None:
    """Return the batch at `offset` if its header is verified, with at most one bit corrected."""
    raw = read_around(storage, segment.name, offset, BATCH_HEADER_SIZE)
    if len(raw) < BATCH_HEADER_SIZE:
        return None
    damaged = _try_header(storage, segment, offset, raw)
    if damaged is not None:
        return damaged
    damaged = _try_header(storage, segment, offset, raw, is_summed_wrong=True)
    trial = bytearray(raw)
    for bit in range(8 * len(raw)):
        if damaged is not None:
            break
        trial[bit >> 3] ^= 1 << (bit & 7)
        damaged = _try_header(storage, segment, offset, bytes(trial))
        trial[bit >> 3] ^= 1 << (bit & 7)
    if damaged is not None:
        salvage.corrected.append(int(offset))
    return damaged


def _try_header(
    storage: Storage, segment: Segment, offset: i64, raw: bytes, *, is_summed_wrong: bool = False
) -> DamagedBatch | None:
    """Return the batch of a header if the checksum matches.

    With `is_summed_wrong`, one flipped bit in the sums, or in a short part 1, is corrected.
    """
    head = BatchHead(raw, 0)
    if head.magic not in (BATCH_MAGIC, SEAL_MAGIC) or head.segment != segment.number:
        return None
    sizes = min(head.part1_size, head.part2_size, head.sums_size, head.records_size)
    if sizes < 0 or offset + head.total_size() > segment.size:
        return None
    start = offset + BATCH_HEADER_SIZE
    if head.sums_size not in (0, sums_size(start, head.records_size)):
        return None
    summed_size = head.sums_size if head.sums_size > 0 else head.part1_size
    summed_at = start + head.part1_size - summed_size
    summed = read_around(storage, segment.name, summed_at, summed_size)
    before = crc32(raw[:_CRC_AT])
    if crc32(summed, before) != head.crc:
        # Corrected sums are verified later by the sectors they belong to.
        most = SUMS_SIZE_MAX if head.sums_size > 0 else SIZE_MAX
        right = corrected(summed, head.crc, before, most) if is_summed_wrong else None
        if right is None:
            return None
        summed = right
    if head.sums_size > 0:
        return DamagedBatch(head, summed, b"")
    return DamagedBatch(head, b"", summed)


def _corrected_blocks(
    records: bytes, sums: bytes, start: i64, salvage: Salvage
) -> tuple[bytes, set[int]]:
    """Return records with single bits corrected, and the sectors that could not be."""
    bad: set[int] = set()
    size: i64 = len(records)
    data = records + sums
    number = find_bad(data, 0, start, size)
    while number >= 0:
        at = _block_at(start, number)
        stop: i64 = min(size, _block_at(start, number + 1))
        known = read_i64_le(sums, number * SUM_SIZE) & _SUM_BITS
        right = corrected(data[at:stop], known)
        if right is None:
            bad.add(int(number))
        else:
            data = data[:at] + right + data[stop:]
            salvage.corrected.append(int(start + at))
        number = find_bad(data, 0, start, size, number + 1)
    return data[:size], bad


def _block_at(start: i64, number: i64) -> i64:
    """Return the position of a sector in records that begin at `start` in their file."""
    return max(0, (start // BLOCK + number) * BLOCK - start)


@final
class _Records:
    """The records of a batch with damaged sectors."""

    def __init__(
        self, records: bytes, sums: bytes, start: i64, bad: set[int], salvage: Salvage
    ) -> None:
        self._records = records
        self._sums = sums
        self._start: i64 = start
        self._bad = bad
        self._salvage = salvage
        self._out = BytesWriter()

    def kept(self) -> bytes:
        """Return the records that are whole, and what can be recovered of the others."""
        records = self._records
        if not self._bad:
            return records
        end: i64 = len(records)
        pos: i64 = 0
        while pos < end:
            if self._whole_from(pos, _KIND_SIZE) < _KIND_SIZE:
                after = self._next_record(pos)
                self._salvage.note_unknown(after - pos)
                pos = after
                continue
            length = i64(read_i32_le(records, pos + 4))
            whole = self._whole_from(pos, length)
            if whole == length:
                self._out.write(records[pos : pos + length])
            else:
                self._lose(pos, length, whole)
            pos += length
        return self._out.getvalue()

    def _number_of(self, pos: i64) -> i64:
        return (self._start + pos) // BLOCK - self._start // BLOCK

    def _whole_from(self, pos: i64, size: i64) -> i64:
        """Return how many bytes from `pos` on, at most `size`, come before a damaged sector."""
        number = self._number_of(pos)
        last = self._number_of(pos + size - 1)
        while number <= last:
            if int(number) in self._bad:
                return max(0, _block_at(self._start, number) - pos)
            number += 1
        return size

    def _next_record(self, pos: i64) -> i64:
        """Return where the next record after `pos` begins, as far as the sums show."""
        number = self._number_of(pos)
        count: i64 = len(self._sums) // SUM_SIZE
        while number < count:
            first = first_record(self._sums, number)
            at = _block_at(self._start, number) + first
            if first >= 0 and at > pos:
                return at
            number += 1
        return len(self._records)

    def _lose(self, pos: i64, length: i64, whole: i64) -> None:
        """Count a record as lost; only its first `whole` bytes are readable."""
        records = self._records
        salvage = self._salvage
        salvage.lost_bytes += length
        salvage.note_unknown(0)
        kind = records[pos]
        is_end = kind == KIND_GONE or (kind == KIND_END and records[pos + 2] == GONE)
        if whole >= _WITH_BASE and is_end:
            base = i64(read_i32_le(records, pos + 20))
            write_gone(self._out, i64(records[pos + 1]), read_i64_le(records, pos + 8), 0, base, 0)
            return
        if whole >= _WITH_ID:
            number = int(read_i64_le(records, pos + 8))
            if kind in (KIND_PUT, KIND_MOVED):
                queue = int(read_i32_le(records, pos + 16)) if whole >= _WITH_BASE else 0
                salvage.lost_jobs[number] = queue
                if kind == KIND_MOVED:
                    salvage.older_jobs.add(number)
            elif is_end or (kind == KIND_END and records[pos + 2] == DONE):
                salvage.back_jobs.add(number)
        elif kind in (KIND_END, KIND_GONE):
            salvage.back_max += 1
        elif kind == KIND_MOVED:
            salvage.older_max += 1
        # Records are numbered without gaps, so an empty record takes its place.
        self._out.write(EMPTY_NOTE)
