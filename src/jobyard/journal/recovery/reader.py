"""Iterates over the batches of one segment and verifies each of them.

Neither bytes that the disk cannot read nor bytes that fail their checksum count as a batch.
`failed_at` distinguishes the two, because a torn tail is not the same as a lost sector.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import read_i32_le
from mypy_extensions import i64

from jobyard.errors import ReadFailed
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    BATCH_MAGIC_BYTES,
    SEAL_MAGIC,
    SEAL_MAGIC_BYTES,
    SEGMENT_HEADER_SIZE,
    BatchHead,
    Segment,
)
from jobyard.journal.format.sums import find_bad, sums_size
from jobyard.journal.storage import Storage, find_unreadable, read_around

# Bytes read at once; part 2 of a batch is skipped if it is past the window.
READ_WINDOW: Final = 4 << 20

_CRC_AT: Final = BATCH_HEADER_SIZE - 8


@final
class Reader:
    """Iterates over the batches of one segment through a window of its bytes."""

    def __init__(self, storage: Storage, segment: Segment) -> None:
        self._storage = storage
        self.segment = segment
        self.data: bytes = b""
        self._view: memoryview = memoryview(b"")
        self._start: i64 = 0
        # How much is read at once.
        self.window: i64 = READ_WINDOW
        # Where the next batch should be in the file, and where the last one found is in `data`.
        self.offset: i64 = SEGMENT_HEADER_SIZE
        self.at: i64 = 0
        # The offset at which the disk could not read bytes that were needed, or -1.
        self.failed_at: i64 = -1
        # From whole headers of batches with torn records: the newest batch that was durable, and
        # the first id that was not issued.
        self.stated_durable: i64 = 0
        self.stated_id: i64 = 0

    def _need(self, offset: i64, size: i64) -> i64:
        """Return the position of `offset` in `data`, with `size` bytes there; -1 past the end."""
        if offset < self._start or offset + size > self._start + len(self.data):
            if offset + size > self.segment.size:
                return -1
            self.data = self._read(offset, size)
            self._view = memoryview(self.data)
            self._start = offset
            if len(self.data) < size:
                return -1
        return offset - self._start

    def _read(self, offset: i64, size: i64) -> bytes:
        """Return a window of the file, only `size` bytes if that fails, or none if both fail."""
        name = self.segment.name
        try:
            return self._storage.read(name, offset, max(size, self.window))
        except ReadFailed:
            pass
        try:
            return self._storage.read(name, offset, size)
        except ReadFailed:
            self._note_failure(offset, size)
            return b""

    def _note_failure(self, offset: i64, size: i64) -> None:
        found = find_unreadable(self._storage, self.segment.name, offset, size)
        # A transient error counts as well.
        self.failed_at = found if found >= 0 else offset

    def peek(self, offset: i64) -> BatchHead | None:
        """Return the batch or seal at `offset` if its header and part 1 are whole."""
        at = self._need(offset, BATCH_HEADER_SIZE)
        if at < 0:
            return None
        magic = i64(read_i32_le(self.data, at))
        if magic not in (BATCH_MAGIC, SEAL_MAGIC):
            return None
        head = BatchHead(self.data, at)
        if head.segment != self.segment.number or head.part1_size < 0 or head.part2_size < 0:
            return None
        at = self._need(offset, BATCH_HEADER_SIZE + head.part1_size)
        if at < 0 or offset + head.total_size() > self.segment.size:
            return None
        if not self._is_whole(head, offset, at):
            return None
        self.at = at
        return head

    def _is_whole(self, head: BatchHead, offset: i64, at: i64) -> bool:
        """Return whether a header and its records, at `at` in the window, match their checksums."""
        start = offset + BATCH_HEADER_SIZE
        if head.sums_size != 0 and head.sums_size != sums_size(start, head.records_size):
            return False
        view = self._view
        crc = crc32(view[at : at + _CRC_AT])
        body = at + BATCH_HEADER_SIZE
        end = body + head.part1_size
        summed = end - head.sums_size if head.sums_size > 0 else body
        if crc32(view[summed:end], crc) != head.crc:
            return False
        if head.sums_size == 0 or find_bad(self.data, body, start, head.records_size) < 0:
            return True
        self.stated_durable = max(self.stated_durable, head.durable)
        self.stated_id = max(self.stated_id, head.next_id)
        return False

    def next(self) -> BatchHead | None:
        """Return the next whole batch or seal and move past it."""
        head = self.peek(self.offset)
        if head is not None:
            self.offset += head.total_size()
        return head

    def is_part2_whole(self, head: BatchHead, offset: i64) -> bool:
        """Return whether the long bodies of the batch at `offset` match their checksum."""
        if head.part2_size == 0:
            return True
        start = offset + BATCH_HEADER_SIZE + head.part1_size
        try:
            data = self._storage.read(self.segment.name, start, head.part2_size)
        except ReadFailed:
            self._note_failure(start, head.part2_size)
            return False
        return len(data) == head.part2_size and crc32(data) == head.part2_crc

    def find_batch(self, offset: i64) -> i64:
        """Return the offset of the first whole batch or seal from `offset` on, or -1."""
        best: i64 = -1
        for magic in (BATCH_MAGIC_BYTES, SEAL_MAGIC_BYTES):
            at = offset
            while at < self.segment.size and (best < 0 or at < best):
                chunk = self._read_window(at)
                hit: i64 = chunk.find(magic)
                while hit >= 0 and self.peek(at + hit) is None:
                    hit = chunk.find(magic, hit + 1)
                if hit >= 0:
                    best = at + hit if best < 0 else min(best, at + hit)
                    break
                # A magic number may straddle two windows.
                at += max(1, len(chunk) - 3)
        return best

    def _read_window(self, offset: i64) -> bytes:
        """Return the next bytes of the file, with zeros where the disk cannot read."""
        try:
            return self._storage.read(self.segment.name, offset, READ_WINDOW)
        except ReadFailed:
            self._note_failure(offset, READ_WINDOW)
            return read_around(self._storage, self.segment.name, offset, READ_WINDOW)

    def find_stray(self, offset: i64) -> BatchHead | None:
        """Return the first whole batch or seal from `offset` on, at any position."""
        found = self.find_batch(offset)
        return self.peek(found) if found >= 0 else None
