"""The verbs for logs: append, read by cursor, and removal by age and caps.

A seq is issued once. Where a reply may precede its sync, seqs are reserved ahead in the head of the
log, and after a crash the rest of the block is skipped. Records removed by cap or age leave a floor
behind, and a reader from below it gets a tombstone; a deleted record leaves nothing.

The records of an ephemeral log are in memory only: the journal has its name, its configuration and
its reserved seqs, and readers see a restart as a gap. A log is either ephemeral or not as a whole.

Invariant: the newest floors and the next seq are in the head of the log, or in a later write that
still holds a record.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.logs.cursors import held_floor, is_all_held
from jobyard.engine.logs.dropped_log import DroppedLog
from jobyard.engine.logs.read import collect, gap, gap_reason, label_of
from jobyard.engine.logs.text import TextJoining, cool
from jobyard.engine.logs.write_keys import forget_expired, is_known, remember_key
from jobyard.engine.state.barred_queues import bar, unbar
from jobyard.engine.state.record_keys import (
    drop_keys,
    keys_room,
    remember_log_keys,
    set_window,
    window_room,
)
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.journal.format.log_record import LABEL_SIZE_MAX, head_bytes, log_length
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import EntryKind
from jobyard.model.index.recent_keys import RecentKeys
from jobyard.model.limits import NEVER_MS, SEQ_BLOCK
from jobyard.model.topic.config import DISCARD_OLD, EPHEMERAL, FSYNC, TopicConfig
from jobyard.model.topic.log import (
    RECREATED,
    Appended,
    LogPage,
    LogQuery,
    LogReader,
    LogRecord,
    LogTopic,
    TopicFull,
    WriteKey,
    WriteTooLarge,
    next_alive,
)
from jobyard.model.topic.log_chunk import LOG_CHUNK_ROWS, META_SIZE_MAX
from jobyard.model.topic.log_rows import LogRows, binary_text

# How often expired records are removed if no client reads or appends.
TRIM_MS: Final = 1000
# Records removed at once; the others are removed in the following turns.
TRIM_ROWS: Final = 16 << 10
# Records of one write that are appended in a unit of work.
ROWS_PER_UNIT: Final = 2
# How often a long write is stamped again over turns because others wrote to its log.
STAMPED_AGAIN_MAX: Final = 4


class HoldsRecords(Refused):
    """The durability of a log that holds records cannot change between memory and disk."""


@final
class TrimAlarm(Alarm):
    """Fires when the first record of a log has expired."""

    def __init__(self, yard: Yard, log: LogTopic) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._yard = yard
        self._log = log

    def ring(self, now_ms: i64) -> None:
        """Remove expired records."""
        trim(self._yard, self._log, now_ms)
        set_alarm(self._yard, self._log, now_ms)


def set_alarm(yard: Yard, log: LogTopic, now_ms: i64) -> None:
    """Ensure that records expire in time even if no client reads or appends."""
    # Longer than any timer is as good as forever; half of it avoids an overflow below.
    ttl_ms: i64 = min(log.config.ttl_ms, NEVER_MS // 2)
    if (ttl_ms == 0 and not log.is_late) or log.count == 0:
        return
    if log.alarm is None:
        log.alarm = TrimAlarm(yard, log)
    if log.is_late:
        yard.arm(log.alarm, now_ms + 1)
    elif log.alarm.pos < 0:
        # A record from before the clock was set back may have a time in the future.
        at_ms = min(log.earliest_at_ms(), now_ms)
        yard.arm(log.alarm, max(at_ms + ttl_ms + 1, now_ms + TRIM_MS))


# -- topics --------------------------------------------------------------------------------------


def open_log(yard: Yard, name: str, config: TopicConfig, now_ms: i64) -> LogTopic:
    """Return the log with this name, or create it; YardFull on a full disk."""
    known = yard.logs.get(name)
    if known is not None:
        return known
    log = LogTopic(name, config)
    journal = yard.journal
    if journal.is_on:
        value = config.encode()
        room = head_bytes(log) + ENTRY_SIZE + len(name) + len(value)
        if not journal.admit(room, now_ms):
            raise YardFull
        log.incarnation = yard.stamp(now_ms)
        journal.append_head(log)
        journal.set_entry(EntryKind.CONFIG, name.encode(), value)
        yard.log_numbers[log.number] = log
    else:
        log.incarnation = yard.stamp(now_ms)
    yard.logs[name] = log
    bar(yard, name)
    return log


def set_config(yard: Yard, log: LogTopic, config: TopicConfig, now_ms: i64) -> None:
    """Replace the configuration of a log, and remove records that the new one does not allow.

    Raises HoldsRecords if existing records would have to move between memory and disk.
    """
    journal = yard.journal
    trim(yard, log, now_ms)
    is_moving = (config.durability == EPHEMERAL) != (log.config.durability == EPHEMERAL)
    if is_moving and log.count > 0:
        raise HoldsRecords
    if journal.is_on:
        value = config.encode()
        room = head_bytes(log) + ENTRY_SIZE + len(log.name) + len(value)
        if not journal.admit(room + window_room(log.record_keys), now_ms):
            raise YardFull
        if is_moving:
            _change_kind(yard, log)
        journal.set_entry(EntryKind.CONFIG, log.name.encode(), value)
        log.batch = journal.open_number
    set_window(yard, log.record_keys, config.key_window_ms, now_ms)
    log.config = config
    trim(yard, log, now_ms)
    if log.alarm is not None:
        yard.disarm(log.alarm)
    set_alarm(yard, log, now_ms)
    _notify_readers(log)


def _change_kind(yard: Yard, log: LogTopic) -> None:
    """Restart an empty log in memory or on disk; its head keeps the floors and the next seq."""
    log.erased_floor = log.next_seq
    log.chunks.clear()
    log.memory = 0
    settle(yard, log)
    yard.journal.append_head(log)
    log.is_written = False


def drop_log(yard: Yard, log: LogTopic, now_ms: i64) -> None:
    """Delete a log with all its records; a later one with the same name is a new log."""
    journal = yard.journal
    if journal.is_on:
        try:
            journal.make_room(2 * (ENTRY_SIZE + len(log.name)))
            journal.drop_entry(EntryKind.CONFIG, log.name.encode())
        except StorageFull as error:
            raise YardFull from error
        log.batch = journal.open_number
        yard.log_numbers.pop(log.number, None)
    del yard.logs[log.name]
    unbar(yard, log.name)
    log.is_dropped = True
    if log.alarm is not None:
        yard.disarm(log.alarm)
    chunks = log.take_all()
    keys, log.keys = log.keys, RecentKeys()
    if chunks or keys.count() > 0:
        yard.tasks.begin(DroppedLog(journal.live_bytes, chunks, keys), None, now_ms)
    drop_keys(yard, log.record_keys, now_ms)
    settle(yard, log)
    journal.live_bytes.forget_head(log)
    _notify_readers(log)


def hold_reader(log: LogTopic, reader: LogReader) -> None:
    """Notify `reader` of new records from now on."""
    log.readers[reader] = None


def drop_reader(log: LogTopic, reader: LogReader) -> None:
    """Stop notifying `reader`."""
    log.readers.pop(reader, None)


def _notify_readers(log: LogTopic) -> None:
    # A reader may remove itself or add others while it is notified.
    for reader in list(log.readers):
        if reader in log.readers:
            reader.appended(log)


def settle(yard: Yard, log: LogTopic) -> None:
    """Update the accounting after records were added or removed."""
    if log.freed:
        yard.journal.live_bytes.free_rows(log)
    more = log.memory - log.memory_counted
    yard.bodies.in_memory += more
    if log.config.durability == EPHEMERAL:
        yard.bodies.pinned += more
    log.memory_counted = log.memory


# -- append ---------------------------------------------------------------------------------------


def draft(items: LogRows, row: LogRecord) -> None:
    """Add a record to a write, as far as that is possible before it has a seq."""
    node = b""
    if row.node:
        # Most writes come from one node.
        if row.node != items.node_name:
            items.node_name = row.node
            items.node_label = label_of(b'"$node":', row.node)
        node = items.node_label
    tag = label_of(b'"$tag":', row.tag)
    if len(tag) > LABEL_SIZE_MAX or len(node) > LABEL_SIZE_MAX or len(row.meta) > META_SIZE_MAX:
        items.is_too_large = True
    data = binary_text(row.data) if row.is_binary else row.data
    items.add_ahead(data, row.meta, tag, node)


def _time_of(yard: Yard, log: LogTopic | None, now_ms: i64) -> i64:
    """Return the time of a write to a log; it never goes back."""
    ts: i64 = now_ms + yard.journal.wall_offset_ms
    return ts if log is None else max(ts, log.last_write_ms)


def _set_expected_seqs(yard: Yard, log: LogTopic | None, items: LogRows, now_ms: i64) -> None:
    next_seq: i64 = 1 if log is None else log.next_seq
    items.set_expected_seqs(next_seq, _time_of(yard, log, now_ms))


@final
class WriteDraft:
    """Builds the texts of a long write with the expected seqs before it is appended.

    If others write to the log meanwhile, the texts are built again in slices, and as a last resort
    at once. The log is referred to by name: it may be dropped, and a new one created meanwhile.
    """

    def __init__(self, yard: Yard, name: str, items: LogRows, now_ms: i64) -> None:
        self._yard = yard
        self._name: str = name
        self._items = items
        self._again: i64 = STAMPED_AGAIN_MAX
        _set_expected_seqs(yard, yard.logs.get(name), items, now_ms)

    def proceed(self, most: i64, now_ms: i64) -> i64:
        """Continue with complete rows; fewer units than `most` mean that they are ready."""
        items = self._items
        done: i64 = 0
        while done < most:
            done += items.stamp_some(most - done)
            if done < most:
                log = self._yard.logs.get(self._name)
                if self._again == 0 or _is_right(log, items):
                    break
                self._again -= 1
                _set_expected_seqs(self._yard, log, items, now_ms)
        return done


def _is_right(log: LogTopic | None, items: LogRows) -> bool:
    return items.is_right(1, 0) if log is None else items.is_right(log.next_seq, log.last_write_ms)


def append(yard: Yard, log: LogTopic, rows: list[LogRecord], key: str, now_ms: i64) -> Appended:
    """Append records, all or none; with the key of an earlier write, return its result.

    TopicFull, WriteTooLarge and YardFull change nothing.
    """
    items = LogRows(0, 0, 0)
    for row in rows:
        draft(items, row)
    return append_drafted(yard, log, items, key, now_ms)


def append_drafted(yard: Yard, log: LogTopic, items: LogRows, key: str, now_ms: i64) -> Appended:
    """Append records that were prepared by `draft`, as `append` does."""
    assert items.count() > 0
    assert not log.is_dropped
    trim(yard, log, now_ms)
    forget_expired(yard, log, now_ms)
    if key:
        known = log.keys.get(key)
        if known is not None and is_known(log, known, now_ms):
            # The reply shows the current head of the log, so it waits for that too.
            batch = max(known.batch, log.batch)
            return Appended(known.first_seq, known.last_seq, batch, is_deduped=True)
    floor = floor_for(yard, log, items.count(), items.content_size)
    if items.is_too_large:
        raise WriteTooLarge
    _stamp(yard, log, items, now_ms)
    items.key = key
    is_written = _admit(yard, log, items, now_ms)
    if floor > log.earliest_seq:
        log.cap_floor = floor
    written = _write(yard, log, items, now_ms) if is_written else None
    _apply(yard, log, items, floor, is_written=is_written)
    batch = log.batch if is_written else _reserved_by(yard, log)
    if key:
        if written is None:
            written = WriteKey(items.first_seq, log.next_seq - 1, now_ms, batch)
        remember_key(yard, log, key, written)
    set_alarm(yard, log, now_ms)
    appended = Appended(items.first_seq, log.next_seq - 1, batch, is_deduped=False)
    if log.onward is not None:
        # A router may lead back to this log.
        log.onward.copy(now_ms)
    if floor >= items.first_seq:
        trim(yard, log, now_ms)
    _notify_readers(log)
    if len(items.seqs) > LOG_CHUNK_ROWS:
        yard.tasks.leave_less(len(items.seqs) // ROWS_PER_UNIT)
    return appended


def _stamp(yard: Yard, log: LogTopic, items: LogRows, now_ms: i64) -> None:
    """Set the seqs and the time of the records of a write."""
    if items.has_expected_seqs and not _is_right(log, items):
        _set_expected_seqs(yard, log, items, now_ms)
        items.stamp_some(NEVER_MS)
    items.stamp(log.next_seq, _time_of(yard, log, now_ms), now_ms)


def floor_for(yard: Yard, log: LogTopic, count: i64, size: i64) -> i64:
    """Return the seq below which records must be removed so that the write fits the caps.

    Records that cursors hold stay beyond the caps.
    """
    config = log.config
    cap_records: i64 = config.cap_records
    cap_bytes: i64 = config.cap_bytes
    is_exceeded = config.is_exceeded_by(count, size)
    if is_exceeded and config.discard != DISCARD_OLD:
        raise WriteTooLarge
    count += log.count + log.promised_count
    size += log.bytes + log.promised_bytes
    over_count: i64 = count - cap_records if cap_records > 0 else 0
    over_size: i64 = size - cap_bytes if cap_bytes > 0 else 0
    if over_count <= 0 and over_size <= 0:
        return 0
    if config.discard != DISCARD_OLD:
        raise TopicFull
    if is_all_held(yard, log):
        return 0
    # If the write itself exceeds the caps, its oldest records are removed once it is written.
    floor = log.next_seq if is_exceeded else log.floor_without(over_count, over_size)
    return held_floor(yard, log, floor)


def _admit(yard: Yard, log: LogTopic, items: LogRows, now_ms: i64) -> bool:
    """Make room for a write and reserve its seqs; return whether its records are journaled."""
    journal = yard.journal
    if not items.is_admitted and not yard.bodies.admits(items.size):
        raise YardFull
    if not journal.is_on:
        return False
    is_written = log.config.durability != EPHEMERAL
    seq_after: i64 = log.next_seq + len(items.seqs)
    if not is_written:
        if not items.is_admitted and not yard.bodies.admits_pinned(items.size):
            raise YardFull
        is_reserved = seq_after <= log.durable_limit and seq_after + SEQ_BLOCK // 2 <= log.seq_limit
        if is_reserved and log.onward is None:
            return False
    room = 2 * head_bytes(log) + (log_length(items) if is_written else 0)
    if items.record_keys is not None:
        room += keys_room(log.name, log.record_keys, items.record_keys)
    if log.onward is not None:
        # Copies must be in the same batch, or a crash would lose track of what was copied.
        room += log.onward.room(len(items.seqs), items.size)
    if not journal.admit(room, now_ms):
        raise YardFull
    if not is_written or journal.is_answered_early():
        _reserve(yard, log, seq_after, len(items.seqs))
    return is_written


def _reserve(yard: Yard, log: LogTopic, seq_after: i64, count: i64) -> None:
    """Ensure that no seq below `seq_after` is issued again, whatever a crash may lose."""
    journal = yard.journal
    if journal.durable >= log.limit_batch:
        log.durable_limit = log.seq_limit
    if seq_after + SEQ_BLOCK // 2 > log.seq_limit:
        log.seq_limit = seq_after + max(SEQ_BLOCK, 16 * count)
        journal.append_head(log)
        log.limit_batch = journal.open_number
    if seq_after > log.durable_limit:
        journal.seqs_sync_batch = max(journal.seqs_sync_batch, log.limit_batch)


def _reserved_by(yard: Yard, log: LogTopic) -> i64:
    """Return the batch that must be safe before a reply may show the newest seq of a log."""
    if not yard.journal.is_on or log.next_seq <= log.durable_limit:
        return 0
    return log.limit_batch


def batch_of_head(yard: Yard, log: LogTopic) -> i64:
    """Return the batch that must be safe before a reply may show what a log has now."""
    return _reserved_by(yard, log) if log.config.durability == EPHEMERAL else log.batch


def _write(yard: Yard, log: LogTopic, items: LogRows, now_ms: i64) -> WriteKey | None:
    journal = yard.journal
    key: WriteKey | None = None
    if items.key:
        last_seq = items.first_seq + len(items.seqs) - 1
        key = WriteKey(items.first_seq, last_seq, now_ms, journal.open_number)
    journal.append_rows(log, items, key)
    log.is_written = True
    return key


def _apply(yard: Yard, log: LogTopic, items: LogRows, floor: i64, *, is_written: bool) -> None:
    segment = yard.journal.hot.number if is_written else 0
    if not is_written:
        items.place(0)
    count: i64 = len(items.seqs)
    if log.add(items, segment):
        yard.tasks.follow(TextJoining(log, items.first_seq - 1))
    if log.count == count:
        log.earliest_seq = items.first_seq
    log.next_seq = items.first_seq + count
    log.last_write_ms = items.ts
    if items.record_keys is not None:
        remember_log_keys(yard, log, items, items.at_ms, is_written=is_written)
    if floor > log.earliest_seq:
        log.kill_below(floor)
    settle(yard, log)
    cool(yard, log)


# -- trim -----------------------------------------------------------------------------------------


def trim(yard: Yard, log: LogTopic, now_ms: i64) -> None:
    """Remove records that are too old or too many; a large number in slices.

    On a disk without any room they stay for now.
    """
    log.is_late = False
    if log.count == 0 or is_all_held(yard, log):
        return
    config = log.config
    if config.ttl_ms > 0:
        before_ms: i64 = now_ms - config.ttl_ms
        if log.earliest_at_ms() < before_ms:
            bound = log.floor_of_first(TRIM_ROWS)
            floor = log.floor_before(before_ms, bound)
            log.is_late = floor >= bound
            _remove_below(yard, log, floor, is_by_cap=False)
    if config.discard != DISCARD_OLD:
        return
    over_count: i64 = log.count - config.cap_records if config.cap_records > 0 else 0
    over_size: i64 = log.bytes - config.cap_bytes if config.cap_bytes > 0 else 0
    if over_count > 0 or over_size > 0:
        floor = log.floor_without(over_count, over_size)
        if floor - log.earliest_seq > TRIM_ROWS:
            bound = log.floor_of_first(TRIM_ROWS)
            log.is_late = log.is_late or floor > bound
            floor = min(floor, bound)
        _remove_below(yard, log, floor, is_by_cap=True)


def _remove_below(yard: Yard, log: LogTopic, floor: i64, *, is_by_cap: bool) -> None:
    """Remove the records below a seq, except those that cursors hold."""
    held = held_floor(yard, log, floor)
    if held < floor:
        log.is_late = False
        if held <= log.earliest_seq:
            return
    cap_floor = max(log.cap_floor, held) if is_by_cap else log.cap_floor
    ttl_floor = log.ttl_floor if is_by_cap else max(log.ttl_floor, held)
    try:
        make_head_room(yard, log, 0)
    except StorageFull:
        return
    log.cap_floor = cap_floor
    log.ttl_floor = ttl_floor
    remember_head(yard, log)
    log.kill_below(log.evict_floor())
    settle(yard, log)


def make_head_room(yard: Yard, log: LogTopic, size: i64) -> None:
    """Ensure that the head of a log and `size` more bytes can be written, or raise StorageFull."""
    if log.is_written:
        yard.journal.make_room(head_bytes(log) + size)


def remember_head(yard: Yard, log: LogTopic) -> None:
    """Append the head of a log with its floors, if the journal has any of its records."""
    if log.is_written:
        yard.journal.append_head(log)


# -- read -----------------------------------------------------------------------------------------


def read(yard: Yard, log: LogTopic, query: LogQuery, now_ms: i64) -> LogPage:
    """Return records after a cursor, at least one if there is one for this reader."""
    trim(yard, log, now_ms)
    page = LogPage(log.next_seq - 1, log.earliest_seq, log.batch)
    page.is_synced = log.config.durability == FSYNC
    after: i64 = max(query.from_seq, 0)
    if after > page.head_seq:
        page.tombstone = gap(page, 1, log.earliest_seq - 1, RECREATED)
        after = log.earliest_seq - 1
    elif after + 1 < log.evict_floor():
        reason = gap_reason(log.cap_floor, log.ttl_floor, after)
        page.tombstone = gap(page, after + 1, log.evict_floor() - 1, reason)
        after = log.evict_floor() - 1
    page.next_from_seq = after
    collect(yard.journal, log, query, page)
    return page


def seq_at(yard: Yard, log: LogTopic, ts_ms: i64) -> i64:
    """Return the seq of the first record written at `ts_ms` or later, or the next seq."""
    trim(yard, log, yard.now_ms)
    low: i64 = 0
    high: i64 = len(log.chunks)
    while low < high:
        middle = (low + high) // 2
        if log.chunks[middle].ts[-1] < ts_ms:
            low = middle + 1
        else:
            high = middle
    while low < len(log.chunks):
        chunk = log.chunks[low]
        slot = next_alive(chunk, 0)
        while slot < chunk.used():
            if chunk.ts[slot] >= ts_ms:
                return chunk.base + slot
            slot = next_alive(chunk, slot + 1)
        low += 1
    return log.next_seq
