"""How much a lost segment held, as far as what lies around it tells.

Batches and records are numbered through, and batch headers say which ids have been given. So what
is missing between two batches that are there has an upper bound, though nothing of it can be read.
Segments that compaction let go of leave the same traces, so it is no more than a bound.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from jobyard.journal.batches import ID_BLOCK
from jobyard.journal.format.record import KIND_PUT
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    SEAL_MAGIC,
    SEGMENT_HEADER_SIZE,
    Segment,
    segment_number,
)
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.repair.damaged_batch import NOTHING
from jobyard.journal.storage import Storage, read_around

_UNKNOWN: Final = -1


@final
class Hole:
    """What is not there of a segment."""

    def __init__(self, first_batch: i64, last_batch: i64) -> None:
        self.first_batch: i64 = first_batch
        self.last_batch: i64 = last_batch
        # Whether it got fresh records for sure, not copies that compaction made.
        self.is_hot: bool = False
        # The most records that were in it; -1 if that is not known.
        self.records_max: i64 = _UNKNOWN
        # Ids that were given meanwhile, from the first up to and without the last, and are in no
        # put that is there. Not known if the last is 0.
        self.first_id: i64 = 1
        self.last_id: i64 = 0


@final
class _Batch:
    """What is to be known of a batch that is there."""

    def __init__(self, segment: i64, side: i64, number: i64, next_id: i64) -> None:
        self.segment: i64 = segment
        self.side: i64 = side
        self.number: i64 = number
        self.next_id: i64 = next_id
        self.first_record: i64 = 0
        self.count: i64 = 0


@final
class Around:
    """All batches of a journal after a repair, by their numbers."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # As their headers tell.
        self._segments: list[Segment] = []
        self._batches: list[_Batch] = []
        for name in sorted(storage.names()):
            number = segment_number(name)
            if number > 0:
                header = read_around(storage, name, 0, SEGMENT_HEADER_SIZE)
                segment = Segment(number, header[20] & 1, storage.size(name))
                # As of its begin.
                segment.last_batch = read_i64_le(header, 32)
                segment.prior = read_i64_le(header, 48)
                self._segments.append(segment)
                self._read(segment)
        self._batches.sort(key=_number_of)

    def _read(self, segment: Segment) -> None:
        reader = Reader(self._storage, segment)
        while True:
            head = reader.next()
            if head is None or head.magic == SEAL_MAGIC:
                return
            pos: i64 = reader.at + BATCH_HEADER_SIZE
            end: i64 = pos + head.records_size
            if reader.data[pos:end] == NOTHING:
                # In the place of one that is lost.
                continue
            batch = _Batch(segment.number, segment.temperature, head.number, head.next_id)
            batch.first_record = head.first_record
            while pos < end:
                batch.count += 1
                pos += i64(read_i32_le(reader.data, pos + 4))
            self._batches.append(batch)

    def hole(self, name: str, newest: i64, *, is_missing: bool) -> Hole | None:
        """Return what is missing of a segment, or None if nothing tells that something is.

        `newest` is the newest batch that is known to have been on disk.
        """
        number: i64 = segment_number(name)
        sides = self._sides(number, is_missing=is_missing)
        before = self._last_of(number, sides[0]) if len(sides) == 1 else None
        if before is None:
            before = self._last_before(number)
        afters = [self._first_behind(number, side) for side in sides]
        after = afters[0]
        for other in afters[1:]:
            if after is not None and (other is None or other.number > after.number):
                after = other
        hole = self._between(before, after, newest)
        if hole is not None:
            hole.is_hot = sides == [0]
        return hole

    def _sides(self, number: i64, *, is_missing: bool) -> list[int]:
        """Return of which temperatures a segment may be: hot has fresh records, cold copies."""
        if not is_missing:
            return [int(one.temperature) for one in self._segments if one.number == number]
        for segment in self._segments:
            if segment.number > number and segment.temperature == 0:
                if segment.prior == number:
                    return [0]
                if segment.prior not in (0, segment.number):
                    return [1]
                break
        return [0, 1] if any(batch.side == 1 for batch in self._batches) else [0]

    def _last_of(self, number: i64, side: i64) -> _Batch | None:
        """Return the last batch of one temperature up to the end of a segment."""
        found: _Batch | None = None
        for batch in self._batches:
            if batch.side == side and batch.segment <= number:
                found = batch
        return found

    def _last_before(self, number: i64) -> _Batch | None:
        """Return the last batch there was before a segment was begun, of those that are there.

        It was begun after the one before it, whose header tells how far all was then.
        """
        begun: i64 = 0
        for segment in self._segments:
            if segment.number < number:
                begun = max(begun, segment.last_batch)
        found: _Batch | None = None
        for batch in self._batches:
            if batch.number <= begun:
                found = batch
        return found

    def _first_behind(self, number: i64, side: i64) -> _Batch | None:
        """Return the first batch of one temperature behind a segment."""
        for batch in self._batches:
            if batch.side == side and batch.segment > number:
                return batch
        return None

    def _first_after(self, number: i64) -> _Batch | None:
        """Return the first batch with a greater number."""
        for batch in self._batches:
            if batch.number > number:
                return batch
        return None

    def _between(self, before: _Batch | None, after: _Batch | None, newest: i64) -> Hole | None:
        start: i64 = 0 if before is None else before.number
        end: i64 = newest + 1 if after is None else after.number
        inner = [batch for batch in self._batches if start < batch.number < end]
        there = {int(batch.number) for batch in inner}
        first = start + 1
        while int(first) in there:
            first += 1
        last = end - 1
        while int(last) in there:
            last -= 1
        if last < first:
            return None
        hole = Hole(first, last)
        # Where none of its own temperature follows, one of the other tells as much.
        behind = self._first_after(last)
        if behind is not None:
            begun: i64 = 0 if before is None else before.first_record + before.count
            if behind.first_record > 0:
                count = behind.first_record - begun
                for batch in inner:
                    if batch.number < last:
                        count -= batch.count
                hole.records_max = max(0, count)
            hole.last_id = behind.next_id
            if before is not None:
                hole.first_id = before.next_id
                if before.next_id % ID_BLOCK == 0:
                    # Reserved ahead: up to two blocks of them were not given yet.
                    hole.first_id = max(1, before.next_id - 2 * ID_BLOCK)
        return hole

    def put_ids(self, hole: Hole) -> set[int]:
        """Return the ids of a hole whose puts are there."""
        found: set[int] = set()
        for segment in self._segments:
            reader = Reader(self._storage, segment)
            while True:
                head = reader.next()
                if head is None or head.magic == SEAL_MAGIC:
                    break
                data = reader.data
                pos: i64 = reader.at + BATCH_HEADER_SIZE
                end: i64 = pos + head.records_size
                while pos < end:
                    if data[pos] == KIND_PUT:
                        number = read_i64_le(data, pos + 8)
                        if hole.first_id <= number < hole.last_id:
                            found.add(int(number))
                    pos += i64(read_i32_le(data, pos + 4))
        return found


def _number_of(batch: _Batch) -> int:
    return int(batch.number)
