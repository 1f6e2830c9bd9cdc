"""Reads rows of history from the records of the journal, a page at a time.

A record about a job that a verb made is a row; a copy that compaction made is not. Rows are read
from the disk once they are durable, in windows of at most a megabyte, and the checksum of every
batch is verified. A batch that cannot be read removes itself and all before it from history:
readers see a gap, and compaction and `jobyard check` report the damage.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from jobyard.errors import StorageFailed
from jobyard.journal.batches import Batches
from jobyard.journal.format.record import (
    END_SIZE,
    HOLDER_BITS,
    KIND_END,
    KIND_GONE,
    KIND_LEASE,
    KIND_MOVE,
    KIND_PUT,
    PUT_SIZE,
    Cause,
    base_length,
)
from jobyard.journal.format.segment import BATCH_HEADER_SIZE, SEAL_MAGIC, BatchHead, Segment
from jobyard.journal.history.window import History
from jobyard.journal.recovery.reader import Reader
from jobyard.model.details import MemberState
from jobyard.model.details_codec import Tag
from jobyard.model.family import BEANSTALK, BUNQUEUE, GLIDE, TOPICS
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY
from jobyard.model.topic.history_row import CLAIMED, ENQUEUED, HistoryRow

# Bytes read at once: few for a short page; a long page reads more windows anyway.
WINDOW_MIN: Final = 64 << 10
WINDOW_MAX: Final = 1 << 20
# The approximate size of a row on disk.
ROW_BYTES: Final = 256
TAG_SIZE: Final = 5


def _words(pairs: list[tuple[int, str]]) -> list[str]:
    """Return a table of words by number, with an empty string where there is none."""
    words = [""] * 256
    for number, word in pairs:
        words[number] = word
    return words


CAUSE_WORDS: Final = _words(
    [
        (Cause.FINISHED, "completed"),
        (Cause.RELEASED, "released"),
        (Cause.BURIED, "buried"),
        (Cause.EXPIRED, "expired"),
        (Cause.HOLDER_LEFT, "disconnected"),
        (Cause.KICKED, "kicked"),
        (Cause.REMOVED, "removed"),
        (Cause.CORRUPT, "corrupt"),
        (Cause.FAILED, "failed"),
        (Cause.STALLED, "stalled"),
        (Cause.REVIVED, "retried"),
        (Cause.PROMOTED, "promoted"),
        (Cause.RANKED, "priority"),
        (Cause.DUE_SET, "delayed"),
        (Cause.UNBLOCKED, "unblocked"),
        (Cause.PARKED, "parked"),
        (Cause.HANDED_BACK, "failed"),
    ]
)
STATE_WORDS: Final = _words(
    [
        (READY, "ready"),
        (DELAYED, "delayed"),
        (LEASED, "leased"),
        (DEAD, "dead"),
        (GONE, "gone"),
        (DONE, "done"),
        (BLOCKED, "blocked"),
    ]
)
FAMILIES: Final = _words(
    [(BEANSTALK, "beanstalk"), (BUNQUEUE, "bunqueue"), (GLIDE, "glidemq"), (TOPICS, "topics")]
)


@final
class HistoryPage:
    """Rows in order, and how far the search for them went."""

    def __init__(self) -> None:
        self.rows: list[HistoryRow] = []
        # No row below this number can be read. If it is greater than the number after the cursor,
        # the reader missed what is between them.
        self.floor: i64 = 0
        # The newest number on disk, whether it is a row or not.
        self.head_seq: i64 = 0
        # Everything up to here was read: the cursor of the next page.
        self.to_seq: i64 = 0


@final
class _Walk:
    """What one page requests, and how far reading has got."""

    def __init__(self, history: History, page: HistoryPage, rows_max: i64, stop: i64) -> None:
        self.names = history.names
        self.rows = page.rows
        self.rows_max: i64 = rows_max
        # The next number to read, and the first one not to read.
        self.seq: i64 = 0
        self.stop: i64 = stop
        # Bytes that may still be read.
        self.bytes_left: i64 = 0
        self._number: i64 = 0
        self._name: str = ""

    def is_over(self) -> bool:
        """Return whether the page is full or at its end."""
        return self.seq >= self.stop or len(self.rows) >= self.rows_max or self.bytes_left <= 0

    def name_of(self, number: i64) -> str:
        """Return the name of a queue, which is mostly the same as in the last call."""
        if number != self._number:
            self._number = number
            self._name = self.names.get(number, "")
        return self._name


def read_past(
    journal: Batches, from_seq: i64, to_seq: i64, rows_max: i64, bytes_max: i64
) -> HistoryPage:
    """Return the rows with numbers over `from_seq`, up to `to_seq`, as far as the page goes.

    The page ends after `rows_max` rows, or after `bytes_max` bytes of the journal were read.
    """
    history = journal.history
    page = HistoryPage()
    page.floor = history.floor
    page.head_seq = history.next_durable - 1
    if from_seq >= page.head_seq:
        page.to_seq = from_seq
        return page
    walk = _Walk(history, page, rows_max, min(history.next_hot, to_seq + 1))
    walk.seq = max(from_seq + 1, history.floor)
    walk.bytes_left = bytes_max
    while not walk.is_over():
        segment = _segment_at(history, walk.seq)
        if segment is None:
            walk.seq = walk.stop
        elif not _read_segment(journal, segment, walk):
            history.leave(segment)
            page.rows.clear()
            page.floor = history.floor
            walk.seq = max(walk.seq, history.floor)
    if walk.seq >= history.next_hot:
        # Anything that follows is copies.
        walk.seq = history.next_durable
    page.to_seq = max(min(walk.seq - 1, to_seq), from_seq)
    return page


def _segment_at(history: History, seq: i64) -> Segment | None:
    """Return the first segment with a record of this or a greater number."""
    segments = history.segments
    low: i64 = 0
    high: i64 = len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].next_record <= seq:
            low = middle + 1
        else:
            high = middle
    return segments[low] if low < len(segments) else None


def _point_before(segment: Segment, seq: i64) -> i64:
    """Return the offset of a batch at or before a record."""
    records = segment.point_records
    low: i64 = 0
    high: i64 = len(records)
    while low < high:
        middle = (low + high) // 2
        if records[middle] <= seq:
            low = middle + 1
        else:
            high = middle
    return segment.points[max(low - 1, 0)]


def _read_segment(journal: Batches, segment: Segment, walk: _Walk) -> bool:
    """Read a segment from the walk's position on; return False if it cannot be read."""
    walk.seq = max(walk.seq, segment.first_record)
    reader = Reader(journal.storage(), segment)
    reader.window = min(max(WINDOW_MIN, walk.rows_max * ROW_BYTES), WINDOW_MAX)
    reader.offset = _point_before(segment, walk.seq)
    while not walk.is_over():
        if walk.seq >= segment.next_record:
            return True
        try:
            head = reader.next()
        except StorageFailed:
            head = None
        if head is None or head.magic == SEAL_MAGIC:
            return False
        before = walk.seq
        _read_batch(reader.data, reader.at, head, walk)
        if walk.seq > before:
            # Batches before the cursor do not count, or a page of few bytes would never end.
            walk.bytes_left -= BATCH_HEADER_SIZE + head.part1_size
    return True


def _read_batch(data: bytes, at: i64, head: BatchHead, walk: _Walk) -> None:
    """Add the requested rows of a batch, as many as there is room for."""
    seq = head.first_record
    pos: i64 = at + BATCH_HEADER_SIZE
    end: i64 = pos + head.records_size
    wall_ms = head.wall_offset_ms
    wanted = walk.seq
    stop = walk.stop
    rows = walk.rows
    room = walk.rows_max
    while pos < end and seq < stop:
        if seq >= wanted:
            row = _row(data, pos, seq, wall_ms, walk)
            if row is not None:
                if len(rows) >= room:
                    walk.seq = seq
                    return
                rows.append(row)
        pos += i64(read_i32_le(data, pos + 4))
        seq += 1
    walk.seq = max(wanted, seq)


def _row(data: bytes, pos: i64, seq: i64, wall_ms: i64, walk: _Walk) -> HistoryRow | None:
    """Return the row of a record, or None if it has none."""
    kind: i64 = data[pos]
    if kind == KIND_PUT:
        return _enqueued(data, pos, seq, wall_ms, walk)
    if kind == KIND_LEASE:
        return _claimed(data, pos, seq, wall_ms, walk)
    if kind == KIND_END:
        return _ended(data, pos, seq, wall_ms, walk)
    if kind == KIND_MOVE:
        return _moved(data, pos, seq, wall_ms, walk)
    if kind == KIND_GONE:
        return _gone(data, pos, seq, wall_ms, walk)
    return None


def _enqueued(data: bytes, pos: i64, seq: i64, wall_ms: i64, walk: _Walk) -> HistoryRow:
    created_ms = read_i64_le(data, pos + 32)
    due_ms = read_i64_le(data, pos + 40)
    queue = walk.name_of(i64(read_i32_le(data, pos + 16)))
    job_id = read_i64_le(data, pos + 8)
    row = HistoryRow(seq, created_ms + wall_ms, ENQUEUED, queue, job_id)
    row.family = FAMILIES[data[pos + 1]]
    row.size = i64(read_i32_le(data, pos + 20))
    row.rank = read_i64_le(data, pos + 24)
    row.enqueued_ms = created_ms + wall_ms
    row.available_ms = due_ms + wall_ms
    row.state = "ready"
    if due_ms > created_ms:
        row.due_ms = due_ms + wall_ms
        row.state = "delayed"
    details_size = i64(read_i32_le(data, pos + 76))
    if details_size > 0:
        at = pos + base_length(PUT_SIZE, row.size)
        if _has_open_member(data, at, at + details_size):
            row.state = "blocked"
    return row


def _has_open_member(data: bytes, at: i64, end: i64) -> bool:
    """Return whether the details of a job name another job that it waits for."""
    while at < end:
        if data[at] == Tag.MEMBER and read_i64_le(data, at + TAG_SIZE + 8) == MemberState.OPEN:
            return True
        at += TAG_SIZE + i64(read_i32_le(data, at + 1))
    return False


def _claimed(data: bytes, pos: i64, seq: i64, wall_ms: i64, walk: _Walk) -> HistoryRow:
    at_ms = read_i64_le(data, pos + 24) + wall_ms
    holder = read_i64_le(data, pos + 40)
    row = HistoryRow(seq, at_ms, CLAIMED, walk.name_of(holder >> 32), read_i64_le(data, pos + 8))
    row.state = "leased"
    row.lease = read_i64_le(data, pos + 16)
    row.holder = holder & HOLDER_BITS
    row.door = FAMILIES[data[pos + 1]]
    row.ttl_ms = read_i64_le(data, pos + 32)
    row.claimed_ms = at_ms
    return row


def _ended(data: bytes, pos: i64, seq: i64, wall_ms: i64, walk: _Walk) -> HistoryRow:
    at_ms = read_i64_le(data, pos + 80) + wall_ms
    queue = walk.name_of(i64(read_i32_le(data, pos + 16)))
    row = HistoryRow(seq, at_ms, CAUSE_WORDS[data[pos + 1]], queue, read_i64_le(data, pos + 8))
    state: i64 = data[pos + 2]
    row.state = STATE_WORDS[state]
    row.rank = read_i64_le(data, pos + 24)
    if state == DELAYED:
        row.due_ms = read_i64_le(data, pos + 32) + wall_ms
    row.attempts = i64(read_i32_le(data, pos + 48))
    row.deliveries = i64(read_i32_le(data, pos + 52))
    row.enqueued_ms = read_i64_le(data, pos + 56) + wall_ms
    row.available_ms = read_i64_le(data, pos + 64) + wall_ms
    claimed_ms = read_i64_le(data, pos + 72)
    row.claimed_ms = claimed_ms + wall_ms if claimed_ms != 0 else 0
    row.finished_ms = at_ms
    row.holder = read_i64_le(data, pos + 88) & HOLDER_BITS
    news_end = pos + i64(read_i32_le(data, pos + 4))
    if news_end > pos + END_SIZE:
        row.error = _error(data, pos + END_SIZE, news_end)
    return row


def _error(data: bytes, at: i64, end: i64) -> str:
    """Return the error of a failed run, or an empty string."""
    error = ""
    while at < end:
        tag: i64 = data[at]
        size = i64(read_i32_le(data, at + 1))
        at += TAG_SIZE
        if tag == Tag.FAILURE:
            error = data[at + 32 : at + size].decode(errors="replace")
        elif tag == Tag.REASON and not error:
            error = data[at + 8 : at + size].decode(errors="replace")
        at += size
    return error


def _moved(data: bytes, pos: i64, seq: i64, wall_ms: i64, walk: _Walk) -> HistoryRow:
    at_ms = read_i64_le(data, pos + 40) + wall_ms
    queue = walk.name_of(i64(read_i32_le(data, pos + 52)))
    row = HistoryRow(seq, at_ms, CAUSE_WORDS[data[pos + 1]], queue, read_i64_le(data, pos + 8))
    state: i64 = data[pos + 2]
    row.state = STATE_WORDS[state]
    row.rank = read_i64_le(data, pos + 16)
    if state == DELAYED:
        row.due_ms = read_i64_le(data, pos + 24) + wall_ms
    row.attempts = i64(read_i32_le(data, pos + 48))
    return row


def _gone(data: bytes, pos: i64, seq: i64, wall_ms: i64, walk: _Walk) -> HistoryRow | None:
    number = i64(read_i32_le(data, pos + 16))
    # A copy that compaction made names no queue; the end of an old body is not the job's end.
    if number == 0 or data[pos + 2] != 0:
        return None
    at_ms = read_i64_le(data, pos + 24) + wall_ms
    queue = walk.name_of(number)
    row = HistoryRow(seq, at_ms, CAUSE_WORDS[data[pos + 1]], queue, read_i64_le(data, pos + 8))
    row.state = "gone"
    row.finished_ms = at_ms
    return row
