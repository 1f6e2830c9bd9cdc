"""Computes how much a lost segment held at most, from the batches around it.

Batches and records are numbered without gaps, and batch headers say which ids have been issued. So
what is missing between two existing batches has an upper bound, though none of it can be read. It
is only a bound, because segments that compaction removed leave the same gaps.
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
from jobyard.journal.repair.damaged_batch import EMPTY_NOTE
from jobyard.journal.storage import Storage, read_around

_UNKNOWN: Final = -1


@final
class LostRange:
    """The part of a segment that is lost."""

    def __init__(self, first_batch: i64, last_batch: i64) -> None:
        self.first_batch: i64 = first_batch
        self.last_batch: i64 = last_batch
        # Whether it certainly held fresh records, not copies that compaction made.
        self.is_hot: bool = False
        # The most records that were in it; -1 if that is unknown.
        self.records_max: i64 = _UNKNOWN
        # The ids issued meanwhile, without `last_id` itself. Unknown if `last_id` is 0.
        self.first_id: i64 = 1
        self.last_id: i64 = 0


@final
class _Batch:
    """The header fields of an existing batch, and how many records it has."""

    def __init__(self, segment: i64, side: i64, number: i64, next_id: i64) -> None:
        self.segment: i64 = segment
        self.side: i64 = side
        self.number: i64 = number
        self.next_id: i64 = next_id
        self.first_record: i64 = 0
        self.count: i64 = 0


@final
class NeighbouringBatches:
    """All batches of a journal after a repair, by their numbers."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # With fields from their headers.
        self._segments: list[Segment] = []
        self._batches: list[_Batch] = []
        for name in sorted(storage.names()):
            number = segment_number(name)
            if number > 0:
                header = read_around(storage, name, 0, SEGMENT_HEADER_SIZE)
                segment = Segment(number, header[20] & 1, storage.size(name))
                # The last batch when it was begun.
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
            if reader.data[pos:end] == EMPTY_NOTE:
                # Takes the place of a lost one.
                continue
            batch = _Batch(segment.number, segment.temperature, head.number, head.next_id)
            batch.first_record = head.first_record
            while pos < end:
                batch.count += 1
                pos += i64(read_i32_le(reader.data, pos + 4))
            self._batches.append(batch)

    def lost_range(self, name: str, newest: i64, *, is_missing: bool) -> LostRange | None:
        """Return what is missing of a segment, or None if nothing shows that something is.

        `newest` is the newest batch known to have been on disk.
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
        lost_range = self._between(before, after, newest)
        if lost_range is not None:
            lost_range.is_hot = sides == [0]
        return lost_range

    def _sides(self, number: i64, *, is_missing: bool) -> list[int]:
        """Return the possible temperatures of a segment: 0 hot (fresh records), 1 cold (copies)."""
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
        """Return the last existing batch from before a segment was begun.

        It was begun after the segment before it, whose header names the last batch at that time.
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
        """Return the first batch of one temperature in later segments."""
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

    def _between(
        self, before: _Batch | None, after: _Batch | None, newest: i64
    ) -> LostRange | None:
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
        lost_range = LostRange(first, last)
        # If no batch of its own temperature follows, one of the other serves as well.
        behind = self._first_after(last)
        if behind is not None:
            begun: i64 = 0 if before is None else before.first_record + before.count
            if behind.first_record > 0:
                count = behind.first_record - begun
                for batch in inner:
                    if batch.number < last:
                        count -= batch.count
                lost_range.records_max = max(0, count)
            lost_range.last_id = behind.next_id
            if before is not None:
                lost_range.first_id = before.next_id
                if before.next_id % ID_BLOCK == 0:
                    # Reserved ahead: up to two blocks of ids were not issued yet.
                    lost_range.first_id = max(1, before.next_id - 2 * ID_BLOCK)
        return lost_range

    def put_ids(self, lost_range: LostRange) -> set[int]:
        """Return the ids of a lost range whose puts exist."""
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
                        if lost_range.first_id <= number < lost_range.last_id:
                            found.add(int(number))
                    pos += i64(read_i32_le(data, pos + 4))
        return found


def _number_of(batch: _Batch) -> int:
    return int(batch.number)
