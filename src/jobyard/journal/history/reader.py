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
    ATTEMPTS_BITS,
    HOLDER_BITS,
    KIND_END,
    KIND_GONE,
    KIND_LEASE,
    KIND_MOVE,
    KIND_PUT,
    LEASE_SIZE,
    PUT_SIZE,
    WORKER_ROOM,
    Cause,
    base_length,
    changes_at,
    is_row_of_gone,
    worker_named,
)
from jobyard.journal.format.segment import BATCH_HEADER_SIZE, SEAL_MAGIC, BatchHead, Segment
from jobyard.journal.history.filter import HistoryFilter
from jobyard.journal.history.window import History
from jobyard.journal.recovery.reader import Reader
from jobyard.model.details_codec import Tag
from jobyard.model.entry import EntryKind
from jobyard.model.family import FAMILY_NAMES
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY
from jobyard.model.limits import NEVER_MS
from jobyard.model.members import TAG_SIZE, MemberState
from jobyard.model.policy import NAME_DEFAULT, name_in, policy_key
from jobyard.model.topic.history_row import (
    ABANDONED,
    CLAIMED,
    DEAD_LETTERED,
    ENQUEUED,
    HistoryRow,
)

# Bytes read at once: few for a short page; a long page reads more windows anyway.
WINDOW_MIN: Final = 64 << 10
WINDOW_MAX: Final = 1 << 20
# The approximate size of a row on disk.
ROW_BYTES: Final = 256
# Leases of glide-mq and of queues that do not look for stalled jobs last so long: for ever.
_ENDLESS_MS: Final = NEVER_MS // 2


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
        (Cause.DEAD_LETTERED, DEAD_LETTERED),
        (Cause.ABANDONED, ABANDONED),
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
FAMILIES: Final = _words(list(FAMILY_NAMES.items()))


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

    def __init__(
        self,
        journal: Batches,
        page: HistoryPage,
        rows_max: i64,
        stop: i64,
        choice: HistoryFilter | None,
    ) -> None:
        self.choice = choice
        self._journal = journal
        self._segment: Segment | None = None
        # Names of workers by their offset in the segment, and of policies by their number.
        self._workers: dict[int, str] = {}
        self._policies: dict[int, str] = {}
        self.names = journal.history.names
        self.rows = page.rows
        self.rows_max: i64 = rows_max
        # The next number to read, and the first one not to read.
        self.seq: i64 = 0
        self.stop: i64 = stop
        # Bytes that may still be read.
        self.bytes_left: i64 = 0
        self._number: i64 = 0
        self._name: str = ""
        # Whether rows of a queue are wanted, as of the last call.
        self._asked: i64 = -1
        self._is_wanted: bool = False

    def is_over(self) -> bool:
        """Return whether the page is full or at its end."""
        return self.seq >= self.stop or len(self.rows) >= self.rows_max or self.bytes_left <= 0

    def name_of(self, number: i64) -> str:
        """Return the name of a queue, which is mostly the same as in the last call."""
        if number != self._number:
            self._number = number
            self._name = self.names.get(number, "")
        return self._name

    def wants(self, choice: HistoryFilter, number: i64) -> bool:
        """Return whether rows of a queue may be wanted."""
        if number != self._asked:
            self._asked = number
            self._is_wanted = self.names.get(number, "") in choice.queues
        return self._is_wanted

    def enter(self, segment: Segment) -> None:
        """Begin with a segment."""
        self._segment = segment
        self._workers.clear()

    def worker_at(self, offset: i64) -> str:
        """Return the name of a worker by its offset in the segment; empty if it is unknown."""
        segment = self._segment
        if offset == 0 or segment is None:
            return ""
        known = self._workers.get(offset)
        if known is None:
            known = read_worker(self._journal, segment, offset)
            self._workers[offset] = known
        return known

    def job_name(self, policy: i64) -> str:
        """Return the name of the jobs with a policy; empty for the default, or if it is unknown."""
        if policy == 0:
            return ""
        known = self._policies.get(policy)
        if known is None:
            entry = self._journal.entries.get((EntryKind.POLICY, policy_key(policy)))
            known = "" if entry is None or entry.is_gone else name_in(entry.value)
            if known == NAME_DEFAULT:
                known = ""
            self._policies[policy] = known
        return known


def read_worker(journal: Batches, segment: Segment, offset: i64) -> str:
    """Return the name that a WORKER record of a segment holds; empty if there is none."""
    return worker_bytes(journal, segment, offset).decode(errors="replace")


def worker_bytes(journal: Batches, segment: Segment, offset: i64) -> bytes:
    """Return the same name as its bytes, which may end within a letter."""
    size = min(WORKER_ROOM, segment.end - offset)
    if size <= 0:
        return b""
    name = worker_named(journal.read(segment.number, offset, size), 0)
    return b"" if name is None else name


def read_past(
    journal: Batches,
    from_seq: i64,
    to_seq: i64,
    rows_max: i64,
    bytes_max: i64,
    choice: HistoryFilter | None = None,
) -> HistoryPage:
    """Return the rows with numbers over `from_seq`, up to `to_seq`, as far as the page goes.

    The page ends after `rows_max` rows, or after `bytes_max` bytes of the journal were read. With a
    choice, other rows are left out, and segments that are too old are not read at all.
    """
    history = journal.history
    page = HistoryPage()
    page.floor = history.floor
    page.head_seq = history.next_durable - 1
    if from_seq >= page.head_seq:
        page.to_seq = from_seq
        return page
    walk = _Walk(journal, page, rows_max, min(history.next_hot, to_seq + 1), choice)
    walk.seq = max(from_seq + 1, history.floor)
    walk.bytes_left = bytes_max
    while not walk.is_over():
        segment = segment_at(history, walk.seq)
        if segment is None:
            walk.seq = walk.stop
        elif choice is not None and segment.latest_ms < choice.from_ms:
            walk.seq = segment.next_record
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


def segment_at(history: History, seq: i64) -> Segment | None:
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


def point_before(segment: Segment, seq: i64) -> i64:
    """Return which of the known offsets is that of the last batch at or before a record."""
    records = segment.point_records
    low: i64 = 0
    high: i64 = len(records)
    while low < high:
        middle = (low + high) // 2
        if records[middle] <= seq:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


def _read_segment(journal: Batches, segment: Segment, walk: _Walk) -> bool:
    """Read a segment from the walk's position on; return False if it cannot be read."""
    walk.seq = max(walk.seq, segment.first_record)
    walk.enter(segment)
    reader = Reader(journal.storage(), segment)
    reader.window = min(max(WINDOW_MIN, walk.rows_max * ROW_BYTES), WINDOW_MAX)
    reader.offset = segment.points[point_before(segment, walk.seq)]
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
    choice = walk.choice
    while pos < end and seq < stop:
        if seq >= wanted and (choice is None or _may_be_wanted(data, pos, walk, choice)):
            row = _row(data, pos, seq, wall_ms, walk)
            if row is not None and (choice is None or choice.takes(row)):
                if len(rows) >= room:
                    walk.seq = seq
                    return
                rows.append(row)
        pos += i64(read_i32_le(data, pos + 4))
        seq += 1
    walk.seq = max(wanted, seq)


def _may_be_wanted(data: bytes, pos: i64, walk: _Walk, choice: HistoryFilter) -> bool:
    """Return False for a record of a queue whose rows are not wanted, without making its row."""
    if not choice.has_queues:
        return True
    kind: i64 = data[pos]
    if kind in (KIND_PUT, KIND_END, KIND_GONE):
        return walk.wants(choice, i64(read_i32_le(data, pos + 16)))
    if kind == KIND_LEASE:
        return walk.wants(choice, read_i64_le(data, pos + 40) >> 32)
    if kind == KIND_MOVE:
        return walk.wants(choice, i64(read_i32_le(data, pos + 52)))
    return True


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
    row.queue_seq = read_i64_le(data, pos + 64)
    row.name = walk.job_name(i64(read_i32_le(data, pos + 72)))
    details_size = i64(read_i32_le(data, pos + 76))
    if details_size > 0:
        at = pos + base_length(PUT_SIZE, row.size)
        _read_details(row, data, at, at + details_size)
    return row


def _read_details(row: HistoryRow, data: bytes, at: i64, end: i64) -> None:
    """Set what the details of a new job say: its custom id, and whether it waits for others."""
    while at < end:
        tag: i64 = data[at]
        size = i64(read_i32_le(data, at + 1))
        at += TAG_SIZE
        if tag == Tag.MEMBER:
            if read_i64_le(data, at + 8) == MemberState.OPEN:
                row.state = "blocked"
        elif tag == Tag.CUSTOM_ID:
            row.client_id = data[at : at + size].decode(errors="replace")
        elif tag == Tag.ORIGIN:
            row.origin_id = read_i64_le(data, at)
            row.origin_queue = data[at + 8 : at + size].decode(errors="replace")
        at += size


def _claimed(data: bytes, pos: i64, seq: i64, wall_ms: i64, walk: _Walk) -> HistoryRow:
    at_ms = read_i64_le(data, pos + 24) + wall_ms
    holder = read_i64_le(data, pos + 40)
    row = HistoryRow(seq, at_ms, CLAIMED, walk.name_of(holder >> 32), read_i64_le(data, pos + 8))
    row.state = "leased"
    row.lease = read_i64_le(data, pos + 16)
    row.holder = holder & HOLDER_BITS
    row.door = FAMILIES[data[pos + 1]]
    ttl_ms = read_i64_le(data, pos + 32)
    # A lease without an end is shown without one.
    row.ttl_ms = ttl_ms if ttl_ms < _ENDLESS_MS else 0
    row.claimed_ms = at_ms
    if i64(read_i32_le(data, pos + 4)) >= LEASE_SIZE:
        row.family = FAMILIES[data[pos + 2]]
        row.queue_seq = read_i64_le(data, pos + 48)
        row.deliveries = i64(read_i32_le(data, pos + 56))
        row.worker = walk.worker_at(i64(read_i32_le(data, pos + 60)) & HOLDER_BITS)
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
    row.attempts = i64(read_i32_le(data, pos + 48)) & ATTEMPTS_BITS
    row.deliveries = i64(read_i32_le(data, pos + 52))
    row.enqueued_ms = read_i64_le(data, pos + 56) + wall_ms
    row.available_ms = read_i64_le(data, pos + 64) + wall_ms
    claimed_ms = read_i64_le(data, pos + 72)
    row.claimed_ms = claimed_ms + wall_ms if claimed_ms != 0 else 0
    row.finished_ms = at_ms
    row.holder = read_i64_le(data, pos + 88) & HOLDER_BITS
    if data[pos + 51] != 0:
        row.door = FAMILIES[data[pos + 50]]
        row.family = FAMILIES[data[pos + 51]]
        row.worker = walk.worker_at(i64(read_i32_le(data, pos + 92)) & HOLDER_BITS)
        row.lease = read_i64_le(data, pos + 96)
        row.queue_seq = read_i64_le(data, pos + 104)
        row.name = walk.job_name(i64(read_i32_le(data, pos + 112)))
    _read_changes(row, data, changes_at(data, pos), pos + i64(read_i32_le(data, pos + 4)))
    return row


def _read_changes(row: HistoryRow, data: bytes, at: i64, end: i64) -> None:
    """Set what the changes of a job say: its custom id, and the error of a failed run."""
    while at < end:
        tag: i64 = data[at]
        size = i64(read_i32_le(data, at + 1))
        at += TAG_SIZE
        if tag == Tag.FAILURE:
            row.error = data[at + 32 : at + size].decode(errors="replace")
        elif tag == Tag.REASON and not row.error:
            row.error = data[at + 8 : at + size].decode(errors="replace")
        elif tag == Tag.ERROR:
            row.error = data[at : at + size].decode(errors="replace")
        elif tag == Tag.LETTER:
            row.letter_seq = read_i64_le(data, at)
            name_end: i64 = at + 16 + read_i64_le(data, at + 8)
            row.letter_topic = data[at + 16 : name_end].decode(errors="replace")
            row.reason = data[name_end : at + size].decode(errors="replace")
        elif tag == Tag.CUSTOM_ID:
            row.client_id = data[at : at + size].decode(errors="replace")
        at += size


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
    if not is_row_of_gone(data, pos):
        return None
    number = i64(read_i32_le(data, pos + 16))
    at_ms = read_i64_le(data, pos + 24) + wall_ms
    queue = walk.name_of(number)
    row = HistoryRow(seq, at_ms, CAUSE_WORDS[data[pos + 1]], queue, read_i64_le(data, pos + 8))
    row.state = "gone"
    row.finished_ms = at_ms
    return row
