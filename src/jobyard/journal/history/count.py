"""Counts rows of history: their numbers have gaps, so a difference of numbers is no count.

Each segment stores how many rows there are before some of its batches; only what lies between
one of these and the number in question is read, 64 KiB and a batch at most.
"""

from librt.strings import read_i32_le
from mypy_extensions import i64

from jobyard.errors import StorageFailed
from jobyard.journal.batches import Batches
from jobyard.journal.format.record import is_row
from jobyard.journal.format.segment import BATCH_HEADER_SIZE, SEAL_MAGIC, BatchHead, Segment
from jobyard.journal.history.reader import WINDOW_MIN, point_before, segment_at
from jobyard.journal.recovery.reader import Reader


def rows_up_to(journal: Batches, seq: i64) -> i64:
    """Return the count of rows up to a number, from the same beginning as `history.rows_count`.

    Rows that cannot be read any more count. What is damaged counts as if it had no rows.
    """
    history = journal.history
    if seq >= history.last_row:
        return history.rows_count
    after: i64 = max(seq + 1, history.floor)
    segment = segment_at(history, after)
    if segment is None:
        return history.rows_count
    point = point_before(segment, after)
    count = segment.point_rows[point]
    if segment.point_records[point] < after:
        count += _rows_between(journal, segment, segment.points[point], after)
    return count


def _rows_between(journal: Batches, segment: Segment, offset: i64, stop: i64) -> i64:
    """Return the count of rows below `stop` in the batches from an offset on."""
    reader = Reader(journal.storage(), segment)
    reader.window = WINDOW_MIN
    reader.offset = offset
    count: i64 = 0
    while True:
        try:
            head = reader.next()
        except StorageFailed:
            return count
        if head is None or head.magic == SEAL_MAGIC or head.first_record >= stop:
            return count
        count += _rows_in(reader.data, reader.at, head, stop)


def _rows_in(data: bytes, at: i64, head: BatchHead, stop: i64) -> i64:
    pos: i64 = at + BATCH_HEADER_SIZE
    end: i64 = pos + head.records_size
    seq = head.first_record
    count: i64 = 0
    while pos < end and seq < stop:
        if is_row(data, pos):
            count += 1
        pos += i64(read_i32_le(data, pos + 4))
        seq += 1
    return count
