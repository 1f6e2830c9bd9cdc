"""Rebuilds logs from the records of the journal.

Records of a log may be read in any order: copies that compaction made are read later than records
appended since. So each record is put into its slot, and only at the end, when all floors and
configurations are known, it is decided which logs exist and what they hold.

A name belongs to the log with the greatest number, unless its configuration was dropped. Everything
written under other numbers is dead, and so are records without a head: compaction may remove the
head of a dropped log before its records. Only in a repair may the head itself be lost.
"""

from typing import final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from jobyard.engine.logs.logs import set_alarm, settle
from jobyard.engine.logs.text import cool
from jobyard.engine.recovery.gaps import Gaps
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.stages import stage_config
from jobyard.journal.format.log_record import (
    HEAD_SIZE,
    KIND_ERASED,
    KIND_HEAD,
    KIND_LOG,
    LOG_SIZE,
    read_erased,
    read_log,
)
from jobyard.journal.format.segment import HOT, Segment
from jobyard.model.entry import EntryKind
from jobyard.model.index.recent_keys import RecentKeys
from jobyard.model.topic.config import EPHEMERAL, LOG, TopicConfig, decode_config
from jobyard.model.topic.log import LogTopic, WriteKey
from jobyard.model.topic.log_chunk import ROW_WEIGHT
from jobyard.model.topic.log_rows import LogRows
from jobyard.model.topic.txn import STAGE_LOG


@final
class LogReplay:
    """Applies the records of logs to a yard."""

    def __init__(self, yard: Yard, superseded: set[int]) -> None:
        self._yard = yard
        self._journal = yard.journal
        self._logs: dict[int, LogTopic] = {}
        # Segments whose records were copied elsewhere before a crash.
        self._superseded = superseded
        # Text of logs in memory that is not counted in the budget yet.
        self._memory: i64 = 0
        # From the clock of the boot that wrote a batch to that of this one.
        self.offset_ms: i64 = 0
        # Logs that skip seqs which may have been issued: their heads must be written again.
        self.gapped: list[LogTopic] = []

    def apply(self, data: bytes, pos: i64, kind: int, segment: Segment, shift: i64) -> bool:
        """Apply a record and return True if it belongs to a log.

        `shift` is added to a position in `data` to get the offset in the file.
        """
        if kind == KIND_LOG:
            self._rows(data, pos, segment, shift)
        elif kind == KIND_HEAD:
            self._head(data, pos, segment)
        elif kind == KIND_ERASED:
            self._erased(data, pos, segment)
        else:
            return False
        return True

    def _log_of(self, number: i64) -> LogTopic:
        """Return a log by number; its name may come later, if compaction moved its head."""
        log = self._logs.get(number)
        if log is None:
            log = LogTopic("", TopicConfig())
            log.number = number
            log.is_filling = True
            self._logs[number] = log
            # Also for a log without a head: no other log may get its records.
            self._journal.next_queue = max(self._journal.next_queue, number + 1)
        return log

    def _rows(self, data: bytes, pos: i64, segment: Segment, shift: i64) -> None:
        log = self._log_of(i64(read_i32_le(data, pos + 8)))
        log.is_written = True
        log.cap_floor = max(log.cap_floor, read_i64_le(data, pos + 40))
        log.ttl_floor = max(log.ttl_floor, read_i64_le(data, pos + 48))
        rows = read_log(data, pos)
        texts_at: i64 = pos + i64(read_i32_le(data, pos + 4)) - (rows.size - rows.labels_size)
        rows.place(texts_at + shift)
        if self.offset_ms != 0:
            rows.arrivals = [at_ms + int(self.offset_ms) for at_ms in rows.arrivals]
        if _are_new(log, rows):
            chunks_count = len(log.chunks)
            memory = log.memory
            log.add(rows, segment.number)
            self._memory += log.memory - memory
            if len(log.chunks) > chunks_count:
                self._cool(log)
            segment.live += ROW_WEIGHT * len(rows.seqs) + rows.size
            log.next_seq = rows.seqs[-1] + 1
            log.last_write_ms = max(log.last_write_ms, rows.times[-1])
        else:
            i: i64 = 0
            while i < len(rows.seqs):
                self._row(log, rows, i, segment)
                i += 1
        log.next_seq = max(log.next_seq, rows.first_seq + rows.total)
        if rows.times and segment.temperature == HOT:
            # History keeps a segment by the time at which it was written.
            journal = self._journal
            journal.newest_event_ms = max(journal.newest_event_ms, rows.times[-1])
        if rows.key:
            self._key(log, rows, segment)

    def _cool(self, log: LogTopic) -> None:
        """Free text beyond the budget, so that a start uses no more memory than a running server.

        Chunks with free slots are kept, because records may still be added to them.
        """
        bodies = self._yard.bodies
        index: i64 = len(log.chunks) - 2
        while index >= 0 and not bodies.fits(bodies.in_memory + self._memory):
            chunk = log.chunks[index]
            if chunk.is_cold:
                return
            is_full = chunk.count == chunk.used()
            if is_full and log.chunks[index + 1].base == chunk.last_seq() + 1:
                memory = log.memory
                log.cool(chunk)
                self._memory += log.memory - memory
            index -= 1

    def _row(self, log: LogTopic, rows: LogRows, i: i64, segment: Segment) -> None:
        seq: i64 = rows.seqs[i]
        log.next_seq = max(log.next_seq, seq + 1)
        log.last_write_ms = max(log.last_write_ms, rows.times[i])
        chunk = log.chunk_of(seq)
        if chunk is not None and chunk.is_alive(seq - chunk.base):
            # A copy that compaction made, whose original still exists.
            self._superseded.add(chunk.segments[seq - chunk.base])
            self._journal.live_bytes.move_row(log, seq, segment, rows.offsets[i])
            return
        log.put_back(rows, i, segment.number)
        chunk = log.chunk_of(seq)
        assert chunk is not None
        segment.live += chunk.weight_of(seq - chunk.base)

    def _key(self, log: LogTopic, rows: LogRows, segment: Segment) -> None:
        live_bytes = self._journal.live_bytes
        known = log.keys.get(rows.key)
        if known is not None:
            live_bytes.forget_key(known)
        last_seq = rows.first_seq + rows.total - 1
        key = WriteKey(rows.first_seq, last_seq, rows.at_ms + self.offset_ms, 0)
        live_bytes.hold_key(key, segment, LOG_SIZE + len(rows.key.encode()))
        log.keys.put(rows.key, key)

    def _head(self, data: bytes, pos: i64, segment: Segment) -> None:
        log = self._log_of(i64(read_i32_le(data, pos + 8)))
        size = i64(read_i32_le(data, pos + 12))
        log.name = data[pos + HEAD_SIZE : pos + HEAD_SIZE + size].decode()
        log.next_seq = max(log.next_seq, read_i64_le(data, pos + 16))
        log.seq_limit = max(log.seq_limit, read_i64_le(data, pos + 24))
        log.cap_floor = max(log.cap_floor, read_i64_le(data, pos + 32))
        log.ttl_floor = max(log.ttl_floor, read_i64_le(data, pos + 40))
        log.erased_floor = max(log.erased_floor, read_i64_le(data, pos + 48))
        log.incarnation = read_i64_le(data, pos + 56)
        log.last_write_ms = max(log.last_write_ms, read_i64_le(data, pos + 64))
        self._yard.last_stamp = max(self._yard.last_stamp, log.incarnation)
        self._journal.live_bytes.hold_head(log, segment)

    def _erased(self, data: bytes, pos: i64, segment: Segment) -> None:
        erased = read_erased(data, pos)
        log = self._log_of(erased.number)
        for first, count in zip(erased.firsts, erased.counts, strict=True):
            for seq in range(first, first + count):
                chunk = log.chunk_of(seq)
                if chunk is not None and chunk.is_alive(seq - chunk.base):
                    log.kill(chunk, seq - chunk.base)
        live_bytes = self._journal.live_bytes
        live_bytes.free_rows(log)
        live_bytes.count_erased(segment, erased.segment, erased.length())

    # -- the end -------------------------------------------------------------------------------

    def finish(self, now_ms: i64, gaps: Gaps, *, is_clean: bool) -> None:
        """Decide which logs exist, and prepare them for reading."""
        if gaps.fills_logs:
            gaps.name_logs(self._yard, list(self._logs.values()), now_ms)
        newest: dict[str, LogTopic] = {}
        for log in self._logs.values():
            known = newest.get(log.name)
            if log.name and (known is None or known.number < log.number):
                newest[log.name] = log
        for log in self._logs.values():
            config = self._config_of(log)
            if config is not None and newest.get(log.name) is log:
                log.config = config
                self._settle(log, now_ms, is_clean=is_clean)
            else:
                self._discard(log)
        if gaps.fills_logs:
            gaps.look_at_settings(self._yard)

    def _config_of(self, log: LogTopic) -> TopicConfig | None:
        """Return the configuration of a log, or None if it was dropped."""
        entry = self._journal.entries.get((EntryKind.CONFIG, log.name.encode()))
        if log.name == STAGE_LOG:
            return stage_config()
        if entry is None:
            # Lost with a damaged file: as long as a head exists, so does the record of a drop.
            return TopicConfig()
        if entry.is_gone:
            return None
        config = decode_config(entry.value)
        return config if config.type == LOG else None

    def _settle(self, log: LogTopic, now_ms: i64, *, is_clean: bool) -> None:
        yard = self._yard
        log.is_filling = False
        is_ephemeral = log.config.durability == EPHEMERAL
        if (is_ephemeral or not is_clean) and log.next_seq < log.seq_limit:
            log.next_seq = log.seq_limit
            self.gapped.append(log)
        if is_ephemeral:
            # Its records are lost, and readers that continue from there see a gap.
            log.is_written = False
            log.cap_floor = log.next_seq
        log.durable_limit = log.seq_limit
        log.kill_below(log.floor())
        log.sweep()
        for chunk in log.chunks[:-1]:
            if not chunk.is_cold:
                chunk.join()
        log.keys = _by_age(log.keys)
        if log.name == STAGE_LOG:
            yard.txns.log = log
        else:
            yard.logs[log.name] = log
        yard.log_numbers[log.number] = log
        settle(yard, log)
        cool(yard, log)
        set_alarm(yard, log, now_ms)

    def _discard(self, log: LogTopic) -> None:
        live_bytes = self._journal.live_bytes
        log.kill_below(log.next_seq)
        live_bytes.free_rows(log)
        for key in log.keys.values():
            live_bytes.forget_key(key)
        live_bytes.forget_head(log)


def _are_new(log: LogTopic, rows: LogRows) -> bool:
    """Return whether rows have no gaps and come after all existing ones."""
    count = len(rows.seqs)
    if count == 0 or rows.seqs[0] != rows.first_seq or rows.seqs[-1] - rows.seqs[0] != count - 1:
        return False
    return rows.first_seq >= log.next_seq


def _by_age(keys: RecentKeys[WriteKey]) -> RecentKeys[WriteKey]:
    """Return keys ordered by time: compaction may have copied some behind younger ones."""
    found: RecentKeys[WriteKey] = RecentKeys()
    for name, key in sorted(keys.items(), key=_age_of):
        found.put(name, key)
    return found


def _age_of(item: tuple[str, WriteKey]) -> int:
    return item[1].at_ms
