"""The topics that a transaction writes to: its staged records, prepared before they enter.

Records are read back from the log of stages and made into rows of a log, or jobs of a queue with
their journal records encoded, in slices. When they enter, only seqs, ids, times and places are
left. A refusal comes before the first record enters.

Records whose keys are known are dropped when they are read. Whether these keys are still known, and
no others, is found out again when the records are to enter.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.put import (
    free_seqs,
    make_job,
    reserve_and_evict,
    room_for_all,
    way_room,
)
from jobyard.engine.jobs.put_transaction import enter_all
from jobyard.engine.logs.logs import WriteDraft, append_drafted, draft, floor_for
from jobyard.engine.state.record_keys import (
    check_new_keys,
    compare_keys,
    keys_of,
    keys_room,
    owner_seq_of,
)
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.job_batch import JobBatch, NewRecord
from jobyard.engine.topics.staged_rows import StagedRow, read_staged
from jobyard.engine.topics.topic_setup import config_of, remember_job_keys, set_queue_config
from jobyard.errors import Refused
from jobyard.journal.batches import RESERVED_PER_JOB
from jobyard.journal.format.log_record import head_bytes, log_length
from jobyard.model.ahead import EncodedAhead
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.queue import Queue
from jobyard.model.topic.config import DISCARD_OLD, EPHEMERAL, FSYNC, TopicConfig
from jobyard.model.topic.key_table import KEY_MEMORY
from jobyard.model.topic.log import LogRecord, LogTopic, TopicFull, WriteTooLarge
from jobyard.model.topic.log_rows import LogRows
from jobyard.model.topic.new_keys import NewKeys, TooManyKeys
from jobyard.model.topic.txn import StagedChunk

if TYPE_CHECKING:
    from jobyard.model.job import Job

# Records read at once, and what one takes in units of work.
_SLICE: Final = 128
_UNITS_PER_ROW: Final = 4
_BYTES_PER_UNIT: Final = 1024
# What a key takes besides.
_UNITS_PER_KEY: Final = 2
# Journal bytes besides the records: names, reserved seqs, cursors of routers, the configuration of
# a queue that has none, rounding.
_SLACK: Final = 8192


class TargetFull(Refused):
    """A topic is full and does not discard, or could never hold this many records."""

    def __init__(self, topic: str, *, is_too_large: bool) -> None:
        super().__init__(f"topic {topic} cannot take all records of the transaction")
        self.topic: str = topic
        self.is_too_large: bool = is_too_large


class TargetKeysFull(Refused):
    """A topic cannot store the new keys in addition to its own."""

    def __init__(self, topic: str, full: TooManyKeys, new: i64) -> None:
        super().__init__(f"topic {topic} has as many keys as it may; they expire with time")
        self.topic: str = topic
        self.count: i64 = full.count
        self.key_max: i64 = full.key_max
        self.new: i64 = new


class TargetMissing(Refused):
    """A topic of a transaction does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist")
        self.topic: str = topic


@final
class TargetWritten:
    """What a transaction wrote to one topic."""

    def __init__(self, first_seq: i64, last_seq: i64) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq


class CommitTarget:
    """One topic and the records for it; the base of both kinds."""

    def __init__(self, yard: Yard, name: str, chunks: list[StagedChunk]) -> None:
        self._yard = yard
        self.name: str = name
        self._chunks = chunks
        self._chunk: i64 = 0
        self._next_seq: i64 = 0
        # Records without those left out, and their keys if any has one.
        self._count: i64 = 0
        self.keys: NewKeys | None = None
        # Records that belong to jobs whose runs do not end.
        self.left_out: i64 = 0
        # Whether a record belongs to a job whose run ends.
        self.has_links: bool = False

    def is_read(self) -> bool:
        """Return whether all records are prepared."""
        return self._chunk == len(self._chunks)

    def key_count(self) -> i64:
        """Return how many of the records that were read have keys."""
        return 0 if self.keys is None else self.keys.count

    def duplicates(self) -> i64:
        """Return how many of the records that were read are duplicates."""
        return 0 if self.keys is None else len(self.keys.duplicates)

    def read_some(self, ending: set[tuple[str, int]], now_ms: i64) -> i64:
        """Prepare some records, without duplicates and those of skipped jobs; return the units."""
        log = self._yard.txns.log
        assert log is not None
        chunk = self._chunks[self._chunk]
        first = max(chunk.first_seq, self._next_seq)
        last = chunk.first_seq + chunk.rows - 1
        done: i64 = 1
        rows = read_staged(self._yard.journal, log, first, min(last, first + _SLICE - 1))
        for row in rows:
            done += _UNITS_PER_ROW + len(row.data) // _BYTES_PER_UNIT
            if row.with_seq > 0:
                self.has_links = True
                if (row.with_queue, int(row.with_seq)) not in ending:
                    self.left_out += 1
                    continue
            if row.key_digest:
                done += _UNITS_PER_KEY
            if self._is_new(row, now_ms):
                self.add(row)
        self._next_seq = first + len(rows)
        if self._next_seq > last:
            self._chunk += 1
            self._next_seq = 0
        if self.is_read():
            self.close()
        return done

    def _is_new(self, row: StagedRow, now_ms: i64) -> bool:
        """Note key and id of a record; return whether the record is no duplicate."""
        count = self._count
        self._count += 1
        keys = self.keys
        digest = row.key_digest
        if keys is None:
            if not digest and not row.job_id:
                return True
            keys = NewKeys()
            keys.add_unkeyed(count)
            self.keys = keys
        known: i64 = 0
        if digest:
            keys.add_digest(digest)
            table = keys_of(self._yard, self.name)
            if table is not None:
                known = table.seq_if_valid(digest, table.valid_after(now_ms))
        else:
            keys.digests.append(b"")
        if row.job_id:
            keys.add_job_id(row.job_id)
        before = len(keys.kept)
        keys.sort_in(digest, known, row.job_id, owner_seq_of(self._yard, row.job_id))
        return len(keys.kept) > before

    def has_same_duplicates(self, now_ms: i64) -> bool:
        """Return whether the same records are duplicates as when they were read."""
        keys = self.keys
        if keys is None:
            return True
        kept = keys.kept
        compare_keys(self._yard, keys_of(self._yard, self.name), keys, now_ms)
        return keys.kept == kept

    def check_keys(self, config: TopicConfig, now_ms: i64) -> None:
        """Refuse more keys than the topic can store."""
        keys = self.keys
        if keys is None:
            return
        try:
            check_new_keys(self._yard, keys_of(self._yard, self.name), keys, config, now_ms)
        except TooManyKeys as full:
            raise TargetKeysFull(self.name, full, len(keys.fresh)) from full

    def keys_room(self) -> i64:
        """Return the most journal bytes that the new keys take."""
        keys = self.keys
        return 0 if keys is None else keys_room(self.name, keys_of(self._yard, self.name), keys)

    def memory(self) -> i64:
        """Return how much memory the records take."""
        raise NotImplementedError

    def pinned(self) -> i64:
        """Return how much of the memory must stay memory."""
        keys = self.keys
        return 0 if keys is None else len(keys.fresh) * KEY_MEMORY

    def promise(self, sign: i64) -> None:
        """Reserve the memory that was checked while other things change; -1 ends that."""
        bodies = self._yard.bodies
        bodies.promise(sign * self.memory(), sign * self.pinned())

    def add(self, row: StagedRow) -> None:
        """Prepare one record."""
        raise NotImplementedError

    def close(self) -> None:
        """End the preparation: there are no more records."""

    def stamp_some(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  for subclasses
        """Do the part that depends on what others write; fewer units than `most` end it."""
        return 0

    def is_there(self) -> bool:
        """Return whether the topic is still the one that the records are prepared for."""
        raise NotImplementedError

    def is_synced(self) -> bool:
        """Return whether an answer about the topic waits for the disk."""
        raise NotImplementedError

    def check(self, now_ms: i64) -> None:
        """Refuse records that the topic may not hold."""
        raise NotImplementedError

    def room(self) -> i64:
        """Return the most journal bytes that the records take."""
        raise NotImplementedError

    def make_way(self, now_ms: i64) -> None:
        """Evict what the topic has no more room for; room for the records was made."""

    def enter(self, now_ms: i64) -> TargetWritten:
        """Let the records enter; cannot fail."""
        raise NotImplementedError


@final
class LogTarget(CommitTarget):
    """A log, and rows for it."""

    def __init__(self, yard: Yard, log: LogTopic, chunks: list[StagedChunk], now_ms: i64) -> None:
        super().__init__(yard, log.name, chunks)
        self._log = log
        self._rows = LogRows(0, 0, 0)
        self._stamping = WriteDraft(yard, log.name, self._rows, now_ms)

    def add(self, row: StagedRow) -> None:
        """Add a row."""
        draft(self._rows, LogRecord(row.data, row.meta, row.tag, row.node, is_binary=row.is_binary))

    def stamp_some(self, most: i64, now_ms: i64) -> i64:
        """Build texts with the seqs that are next."""
        return self._stamping.proceed(most, now_ms)

    def is_there(self) -> bool:
        """Return whether the log was not dropped."""
        return not self._log.is_dropped

    def is_synced(self) -> bool:
        """Return whether the log is of class fsync."""
        return self._log.config.durability == FSYNC

    def check(self, now_ms: i64) -> None:
        """Refuse what exceeds the caps, unless old records make room; and too many keys."""
        self.check_keys(self._log.config, now_ms)
        rows = self._rows
        if rows.count() == 0:
            return
        try:
            floor_for(self._yard, self._log, rows.count(), rows.content_size)
        except TopicFull as full:
            is_too_large = isinstance(full, WriteTooLarge)
            raise TargetFull(self.name, is_too_large=is_too_large) from full
        if rows.is_too_large:
            raise TargetFull(self.name, is_too_large=True)

    def memory(self) -> i64:
        """Return the size of the texts."""
        return self._rows.size

    def pinned(self) -> i64:
        """Return the size of new keys, and of texts that are never on disk."""
        pinned = super().pinned()
        return pinned + self._rows.size if self._log.config.durability == EPHEMERAL else pinned

    def promise(self, sign: i64) -> None:
        """Keep memory, and room below caps that refuse records."""
        super().promise(sign)
        if self._log.config.discard != DISCARD_OLD:
            self._log.promised_count += sign * self._rows.count()
            self._log.promised_bytes += sign * self._rows.content_size

    def room(self) -> i64:
        """Return the size of the record, of heads, and of what routers add."""
        rows = self._rows
        log = self._log
        # Numbers in texts may get longer if others write to the log.
        room = log_length(rows) + 64 * rows.count() + 4 * head_bytes(log) + _SLACK
        room += self.keys_room()
        if log.onward is not None:
            room += log.onward.room(rows.count(), rows.size)
        return room

    def enter(self, now_ms: i64) -> TargetWritten:
        """Append the rows as one write."""
        if self._rows.count() == 0:
            next_seq = self._log.next_seq
            return TargetWritten(next_seq, next_seq - 1)
        self._rows.record_keys = self.keys
        self._rows.is_admitted = True
        done = append_drafted(self._yard, self._log, self._rows, "", now_ms)
        return TargetWritten(done.first_seq, done.last_seq)


@final
class QueueTarget(CommitTarget):
    """A queue, and jobs for it."""

    def __init__(self, yard: Yard, queue: Queue, chunks: list[StagedChunk]) -> None:
        super().__init__(yard, queue.name, chunks)
        self._queue = queue
        self._batch = JobBatch(yard)
        # For evictions; known once the caps are checked.
        self._way_room: i64 = 0
        self._jobs: list[Job] = []
        self._ahead: EncodedAhead | None = EncodedAhead() if yard.journal.is_on else None

    def add(self, row: StagedRow) -> None:
        """Build a job and encode its record."""
        record = NewRecord(row.data, row.meta, row.tag, row.node)
        record.is_binary = row.is_binary
        record.delay_ms = row.delay_ms
        record.priority = row.priority
        record.name = row.name
        record.job_id = row.job_id
        record.max_attempts = row.max_attempts
        batch = self._batch
        batch.add(record)
        new_job = batch.new_jobs[len(batch.new_jobs) - 1]
        self._jobs.append(make_job(self._queue, new_job))
        ahead = self._ahead
        if ahead is not None:
            details = new_job.details
            body = new_job.body if len(new_job.body) <= INLINE_BODY_MAX else b""
            ahead.begin(body, b"" if details is None else details.ahead)
            ahead.end()
            if details is not None:
                details.ahead = b""

    def close(self) -> None:
        """End the encoding."""
        if self._ahead is not None:
            self._ahead.end_all()
            self._ahead.rewind()

    def is_there(self) -> bool:
        """Return whether the name still leads to the queue."""
        return self._yard.queues.get(self.name) is self._queue

    def is_synced(self) -> bool:
        """Return whether the queue is of class fsync."""
        return self._queue.is_synced

    def check(self, now_ms: i64) -> None:
        """Refuse what exceeds the caps, unless old jobs make room; and too many keys."""
        queue = self._queue
        self.check_keys(config_of(queue), now_ms)
        if queue.config is not None and self._jobs:
            try:
                self._way_room = way_room(self._yard, queue, len(self._jobs), self._batch.size)
            except TopicFull as full:
                is_too_large = isinstance(full, WriteTooLarge)
                raise TargetFull(self.name, is_too_large=is_too_large) from full

    def memory(self) -> i64:
        """Return the size of the bodies and metas."""
        return self._batch.size

    def room(self) -> i64:
        """Return the size of the jobs, of evictions, and of what routers add."""
        queue = self._queue
        count: i64 = len(self._jobs)
        room = room_for_all(queue, self._batch.new_jobs, self._batch.whole_room())
        return room + self._way_room + RESERVED_PER_JOB * count + self.keys_room() + _SLACK

    def make_way(self, now_ms: i64) -> None:
        """Evict the oldest jobs if the caps require it."""
        has_keys = self.keys is not None and len(self.keys.fresh) > 0
        if has_keys and self._jobs and self._queue.config is None:
            # It must outlive its jobs, as their keys do.
            set_queue_config(self._yard, self._queue, config_of(self._queue), now_ms)
        if self._queue.config is not None and self._jobs:
            size = self._batch.size
            reserve_and_evict(self._yard, self._queue, len(self._jobs), size, 0, now_ms)

    def enter(self, now_ms: i64) -> TargetWritten:
        """Put the jobs, with consecutive seqs."""
        yard = self._yard
        queue = self._queue
        first_seq = free_seqs(queue, len(self._jobs))
        if not self._jobs:
            return TargetWritten(first_seq, first_seq - 1)
        queue.next_seq = first_seq
        if self.keys is not None:
            remember_job_keys(yard, queue, self.keys, first_seq, now_ms)
        enter_all(yard, queue, self._jobs, self._ahead, now_ms)
        held_offers = yard.txns.held_offers
        assert held_offers is not None
        held_offers.append(queue)
        return TargetWritten(first_seq, queue.next_seq - 1)


def target_of(yard: Yard, name: str, chunks: list[StagedChunk], now_ms: i64) -> CommitTarget:
    """Return the target for some chunks; TargetMissing if there is no such topic."""
    log = yard.logs.get(name)
    if log is not None:
        return LogTarget(yard, log, chunks, now_ms)
    queue = yard.queues.get(name)
    if queue is None:
        raise TargetMissing(name)
    return QueueTarget(yard, queue, chunks)
