"""The history of the yard, which clients read as the topic `_events`.

A view of the journal: nothing is written for it, and nothing is stored except the window of
segments that compaction does not touch. Rows can be read only once they are durable, so a row that
was read never disappears in a crash.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.journal.format.segment import HOT, Segment
from jobyard.journal.history.count import rows_up_to
from jobyard.journal.history.filter import HistoryFilter
from jobyard.journal.history.reader import HistoryPage, read_past
from jobyard.journal.history.window import FORGOTTEN_AT_ONCE, History, PastName
from jobyard.model.entry import EntryKind
from jobyard.model.queue import Queue
from jobyard.model.topic.cursor import TopicCursor
from jobyard.model.topic.history_row import HistoryRow

# The most that one page may read: a few milliseconds of work.
PAGE_BYTES: Final = 1 << 20
NEVER_ENDS: Final = 1 << 62
ROWS_LOOKED_AT: Final = 1000


def has_history(yard: Yard) -> bool:
    """Return whether history is kept."""
    return yard.journal.history.is_on


def yard_id(yard: Yard) -> str:
    """Return the id of the data directory; "1" if none was drawn for it."""
    entry = yard.journal.entries.get((EntryKind.YARD_ID, b""))
    return "1" if entry is None else entry.value.decode()


def queue_incarnation(yard: Yard, queue: Queue) -> str:
    """Return the id of this life of a queue, which no other one has, in whichever directory.

    Its number is 0, and so no part of an id that is final, while it has neither a configuration nor
    jobs that were put since the queue was created, or obliterated.
    """
    return f"{yard_id(yard)}-{int(queue.number)}"


def read_history(
    yard: Yard,
    from_seq: i64,
    limit_rows: i64,
    limit_bytes: i64 = PAGE_BYTES,
    to_seq: i64 = NEVER_ENDS,
    choice: HistoryFilter | None = None,
) -> HistoryPage:
    """Return the rows after `from_seq`, up to `to_seq`, in order; with a choice, only those.

    At most `limit_rows`, and no more than are found in `limit_bytes` of the journal; `page.to_seq`
    is the cursor for the next page, which may move without a row. A `page.floor` greater than
    `from_seq + 1` means that the rows between were missed.
    """
    return read_past(
        yard.journal, from_seq, min(to_seq, NEVER_ENDS), limit_rows, limit_bytes, choice
    )


def rows_after(yard: Yard, cursor: TopicCursor) -> i64:
    """Return how many rows follow a cursor of the history and can be read."""
    history = yard.journal.history
    if cursor.rows_before < 0:
        cursor.rows_before = rows_up_to(yard.journal, cursor.seq)
    before = cursor.rows_before
    if cursor.seq < history.floor:
        # What lies between has left the window.
        before = max(before, rows_up_to(yard.journal, history.floor - 1))
    return max(history.rows_count - before, 0)


def seq_at(yard: Yard, ts_ms: i64) -> i64:
    """Return the number of the first row at or after a wall time; one past the head if none is.

    Searches the one segment that can hold it, by the times of some of its batches.
    """
    history = yard.journal.history
    found: Segment | None = None
    for segment in history.segments:
        if segment.newest_ms >= ts_ms:
            found = segment
            break
    if found is None:
        return history.next_durable
    records = found.point_records
    low: i64 = 0
    high: i64 = len(records)
    while low < high:
        middle = (low + high) // 2
        rows = read_history(yard, records[middle] - 1, 1).rows
        if rows and rows[0].ts_ms < ts_ms:
            low = middle + 1
        else:
            high = middle
    seq = records[max(low - 1, 0)]
    while seq < history.next_durable:
        page = read_history(yard, seq - 1, ROWS_LOOKED_AT)
        for row in page.rows:
            if row.ts_ms >= ts_ms:
                return row.seq
        seq = page.to_seq + 1
    return history.next_durable


def recent_history(yard: Yard, bytes_max: i64, rows_max: i64) -> list[HistoryRow]:
    """Return at most `rows_max` of the rows in the last `bytes_max` bytes of the journal."""
    history = yard.journal.history
    rows: list[HistoryRow] = []
    if not history.is_on:
        return rows
    seq = _seq_before(history, bytes_max)
    while seq < history.next_durable:
        page = read_history(yard, seq - 1, ROWS_LOOKED_AT)
        rows += page.rows
        if page.to_seq < seq:
            break
        seq = page.to_seq + 1
    return rows[-rows_max:]


def _seq_before(history: History, bytes_max: i64) -> i64:
    """Return the lowest known number that at most `bytes_max` bytes of the journal follow."""
    found = history.next_durable
    size: i64 = 0
    for segment in reversed(history.segments):
        end = segment.end
        at: i64 = len(segment.points) - 1
        while at >= 0:
            size += end - segment.points[at]
            if size > bytes_max:
                return found
            end = segment.points[at]
            found = segment.point_records[at]
            at -= 1
    return found


def recall_history(
    yard: Yard,
    segments: list[Segment],
    next_record: i64,
    queues: dict[int, Queue],
    last_gone: dict[int, int],
) -> i64:
    """Find what can be read as history after a start, and the names of the queues in it.

    `queues` has all queues found in the journal, `last_gone` the last record that removed a job of
    each. Returns the record from which on nothing was missing, also of what is too old to be read.
    """
    journal = yard.journal
    history = journal.history
    history.recover([segment for segment in segments if segment.temperature == HOT], next_record)
    first = history.floor
    history.last_row = journal.last_row
    history.rows_count = journal.rows_count
    history.trim(yard.now_ms + journal.wall_offset_ms)
    past: list[tuple[int, int]] = []
    for number, queue in queues.items():
        history.name(number, queue.name)
        if yard.queues.get(queue.name) is not queue and queue.segment != 0:
            past.append((last_gone.get(number, -1) + 1, number))
    past.sort()
    for until, number in past:
        queue = queues[number]
        name = PastName(number, queue.name, queue.next_seq, until)
        history.retire(name, journal.segments[i64(queue.segment)])
    for _ in range(len(history.segments) + len(history.past) // FORGOTTEN_AT_ONCE + 2):
        if history.forget_names(journal.segments):
            break
    return first
