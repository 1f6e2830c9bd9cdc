"""The keys of records: which records of a write are duplicates, and what is stored of the others.

`known_keys` compares the keys of a write with those of its topic; the caller drops the duplicates,
makes room for the records and for `keys_room`, writes the records, and calls `remember_keys` with
the seq of the first of them, all in one turn. So keys and records are in one batch, and a crash
loses both or neither. Keys outlive their records: jobs that are finished, records that expired or
were deleted. They go with their topic, or once they are older than its `key_window_ms`; a topic
that has `key_max` valid keys refuses new ones instead of forgetting old ones.

The keys of an ephemeral log are in memory only, as its records are.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.errors import YardFull
from jobyard.journal.format.key_record import KEYS_PER_RECORD, KeyRows, keys_length
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.limits import NEVER_MS
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.key_table import KEY_MEMORY, KeyTable
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_rows import LogRows
from jobyard.model.topic.new_keys import NewKeys, TooManyKeys

# Keys that one ring of an alarm forgets; the next ring follows in the next turn.
KEYS_AT_ONCE: Final = 1000
# How often a topic looks for expired keys.
EXPIRY_MS: Final = 1000
# Keys of a dropped topic that are freed in a unit of work.
_KEYS_PER_UNIT: Final = 2
# The value of the entry: number and floor.
_VALUE_SIZE: Final = 16


def keys_of(yard: Yard, name: str) -> KeyTable | None:
    """Return the keys of the records of a topic; None if no record ever had one."""
    log = yard.logs.get(name)
    if log is not None:
        return log.record_keys
    queue = yard.queues.get(name)
    topic_state = None if queue is None else queue.topic_state
    return None if topic_state is None else topic_state.record_keys


def known_keys(
    yard: Yard, table: KeyTable | None, keys: NewKeys, config: TopicConfig, now_ms: i64
) -> None:
    """Find which records of a write are duplicates, of earlier records or of each other.

    TooManyKeys and YardFull if the keys of the others cannot be stored.
    """
    compare_keys(yard, table, keys, now_ms)
    check_new_keys(yard, table, keys, config, now_ms)


def compare_keys(yard: Yard, table: KeyTable | None, keys: NewKeys, now_ms: i64) -> None:
    """Find the duplicates without checking whether the other keys can be stored.

    A record is one, too, if a job of the yard has the id that was chosen for its job.
    """
    keys.begin()
    has_ids = len(keys.job_ids) > 0
    valid_after: i64 = 0 if table is None else table.valid_after(now_ms)
    for digest in keys.digests:
        seq: i64 = 0
        if digest and table is not None:
            seq = table.seq_if_valid(digest, valid_after)
        if has_ids:
            job_id = keys.next_job_id()
            keys.sort_in(digest, seq, job_id, owner_seq_of(yard, job_id))
        else:
            keys.sort_in(digest, seq)


def owner_seq_of(yard: Yard, job_id: str) -> i64:
    """Return the seq of the job with an id that a client chose, in its queue; 0 if there is none.

    Ids of glide-mq are known in their queues only and do not count.
    """
    owner = yard.names.named(job_id) if job_id else None
    return 0 if owner is None else owner.key


def check_new_keys(
    yard: Yard, table: KeyTable | None, keys: NewKeys, config: TopicConfig, now_ms: i64
) -> None:
    """Refuse keys that `compare_keys` found to be new if they cannot be stored."""
    more: i64 = len(keys.fresh)
    if more == 0:
        return
    count: i64 = 0 if table is None else table.valid_count(now_ms)
    if count + more > config.key_max:
        raise TooManyKeys(count, config.key_max)
    if not yard.bodies.admits_pinned(more * KEY_MEMORY):
        raise YardFull


def keys_room(name: str, table: KeyTable | None, keys: NewKeys) -> i64:
    """Return the most journal bytes that the new keys of a write take."""
    room: i64 = keys_length(len(keys.fresh))
    if table is None or table.number == 0:
        room += _entry_room(name)
    return room


def _entry_room(name: str) -> i64:
    return ENTRY_SIZE + 4 * len(name) + _VALUE_SIZE


def remember_keys(
    yard: Yard, table: KeyTable, keys: NewKeys, first_seq: i64, now_ms: i64, *, is_written: bool
) -> None:
    """Store the keys of the records that are written now, the first of them with `first_seq`."""
    seqs = keys.settle(first_seq)
    if not seqs:
        return
    journal = yard.journal
    before = table.count
    for digest in keys.stale:
        journal.live_bytes.forget_keys(1, table.take_out(digest))
    segment: i64 = 0
    if is_written:
        if table.number == 0:
            table.number = journal.next_queue
            journal.next_queue += 1
            yard.key_tables[table.number] = table
            _note_table(yard, table)
        for start in range(0, len(seqs), KEYS_PER_RECORD):
            rows = KeyRows(table.number, first_seq, now_ms)
            rows.digests = keys.fresh[start : start + KEYS_PER_RECORD]
            rows.seqs = seqs[start : start + KEYS_PER_RECORD]
            rows.times = [int(now_ms)] * len(rows.seqs)
            journal.append_keys(rows)
        segment = journal.hot.number
    table.put_all(keys.fresh, seqs, now_ms, segment)
    count_memory(yard, table.count - before)
    if table.alarm is None or table.alarm.pos < 0:
        set_expiry(yard, table, now_ms)


def remember_log_keys(
    yard: Yard, log: LogTopic, rows: LogRows, now_ms: i64, *, is_written: bool
) -> None:
    """Store the keys of rows that are appended to a log; `is_written` if the journal has them."""
    keys = rows.record_keys
    assert keys is not None
    if log.record_keys is None:
        log.record_keys = KeyTable(log.name, log.config.key_window_ms)
    remember_keys(yard, log.record_keys, keys, rows.first_seq, now_ms, is_written=is_written)


def _note_table(yard: Yard, table: KeyTable) -> None:
    """Store number and floor of a table."""
    out = BytesWriter()
    write_i64_le(out, table.number)
    write_i64_le(out, table.floor_ms + yard.journal.wall_offset_ms)
    yard.journal.set_entry(EntryKind.RECORD_KEY, table.name.encode(), out.getvalue())


def read_table(yard: Yard, entry: Entry) -> tuple[i64, i64]:
    """Return number and floor of a table as they were stored."""
    floor_ms = read_i64_le(entry.value, 8) - yard.journal.wall_offset_ms
    return read_i64_le(entry.value, 0), floor_ms


def count_memory(yard: Yard, more: i64) -> None:
    """Count keys that were added, or removed, towards the memory that cannot be freed."""
    yard.bodies.in_memory += more * KEY_MEMORY
    yard.bodies.pinned += more * KEY_MEMORY


# -- time ------------------------------------------------------------------------------------------


@final
class KeyExpiry(Alarm):
    """Fires when the oldest key of a topic is no longer valid."""

    def __init__(self, yard: Yard, table: KeyTable) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._yard = yard
        self._table = table

    def ring(self, now_ms: i64) -> None:
        """Forget some expired keys."""
        valid_after = self._table.valid_after(now_ms)
        _forget(self._yard, self._table, KEYS_AT_ONCE, valid_after)
        set_expiry(self._yard, self._table, now_ms)


def set_expiry(yard: Yard, table: KeyTable, now_ms: i64) -> None:
    """Ensure that keys are forgotten in time, even if nobody writes."""
    if not table.has_any():
        return
    alarm = table.alarm
    if alarm is None:
        alarm = KeyExpiry(yard, table)
        table.alarm = alarm
    at_ms = table.oldest_ms()
    if at_ms <= table.valid_after(now_ms):
        yard.arm(alarm, now_ms + 1)
    else:
        yard.arm(alarm, max(at_ms + table.window_ms + 1, now_ms + EXPIRY_MS))


def _forget(yard: Yard, table: KeyTable, most: i64, valid_after: i64) -> i64:
    """Forget up to `most` of the oldest keys that were written by a time; return how many."""
    live_bytes = yard.journal.live_bytes
    before = table.count
    done: i64 = 0
    while done < most and table.has_any() and table.oldest_ms() <= valid_after:
        segment = table.remove_oldest()
        if segment > 0:
            live_bytes.forget_keys(1, segment)
        done += 1
    count_memory(yard, table.count - before)
    return done


# -- the topic changes -----------------------------------------------------------------------------


def window_room(table: KeyTable | None) -> i64:
    """Return the most journal bytes that a new window takes."""
    return 0 if table is None else _entry_room(table.name)


def set_window(yard: Yard, table: KeyTable | None, window_ms: i64, now_ms: i64) -> None:
    """Set how long keys are valid; a key that is no longer valid never becomes valid again."""
    if table is None or table.window_ms == window_ms:
        return
    if window_ms > table.window_ms:
        table.floor_ms = table.valid_after(now_ms)
        if table.number != 0:
            _note_table(yard, table)
    table.window_ms = window_ms
    set_expiry(yard, table, now_ms)


def drop_keys(yard: Yard, table: KeyTable | None, now_ms: i64) -> None:
    """Forget the keys of a topic that is dropped; StorageFull if that cannot be recorded."""
    if table is None:
        return
    if table.number != 0:
        yard.journal.drop_entry(EntryKind.RECORD_KEY, table.name.encode())
        del yard.key_tables[table.number]
    if table.alarm is not None:
        yard.disarm(table.alarm)
    if table.has_any():
        yard.tasks.begin(DroppedKeys(yard, table), None, now_ms)


@final
class DroppedKeys(Task):
    """Frees the keys of a topic that was dropped."""

    def __init__(self, yard: Yard, table: KeyTable) -> None:
        super().__init__()
        self._yard = yard
        self._table = table

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Free some keys."""
        done = _forget(self._yard, self._table, most * _KEYS_PER_UNIT, NEVER_MS)
        return min(most - 1, done // _KEYS_PER_UNIT) if not self._table.has_any() else most
