"""What compaction copies out of a segment before it is removed, and how that is written again.

Bases of live jobs are written whole, as MOVED; other changes of live jobs as one STATE; kill
records whose base still exists as GONE; names of existing queues as QUEUE. Records of logs are
written together, several writes as one LOG, unless a key names a write. Valid keys of records are
written together, those of a table as one KEYS.
"""

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.journal.format.key_record import KEY_SIZE, KEYS_SIZE, KeyRows, write_keys
from jobyard.journal.format.log_record import (
    LOG_SIZE,
    ROW_SIZE,
    Erased,
    head_bytes,
    may_share,
    write_erased,
    write_head,
    write_log,
)
from jobyard.journal.format.record import (
    MOVED_SIZE,
    QUEUE_SIZE,
    STATE_SIZE,
    Cause,
    write_entry,
    write_gone,
    write_moved,
    write_queue,
    write_state,
)
from jobyard.journal.history.window import PastName
from jobyard.journal.space.live_bytes import entry_bytes, queue_bytes
from jobyard.model.details_codec import size_of
from jobyard.model.entry import Entry
from jobyard.model.job import Job
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.queue import Queue
from jobyard.model.topic.key_table import KeyTable
from jobyard.model.topic.log import LogTopic, WriteKey
from jobyard.model.topic.log_rows import LogRows


@final
class Survivors:
    """The contents of one cold batch that is being built."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._bodies: list[bytes] = []
        self.states: list[Job] = []
        self._kill_ids: list[i64] = []
        self.kill_bases: list[i64] = []
        # In order of arrival, as dicts: a batch may look up thousands of them again.
        self.queues: dict[Queue, None] = {}
        # Names of removed queues.
        self.names: dict[PastName, None] = {}
        self.entries: dict[Entry, None] = {}
        self.heads: dict[LogTopic, None] = {}
        self.erased: list[Erased] = []
        # Records of logs, their logs, and their write keys.
        self.rows: list[LogRows] = []
        self.rows_logs: list[LogTopic] = []
        self.rows_keys: list[WriteKey | None] = []
        self._unkeyed: dict[int, LogRows] = {}
        # Keys of records, their tables, and their numbers there; the newest rows of each table.
        self.keys: list[KeyRows] = []
        self.key_tables: list[KeyTable] = []
        self.key_numbers: list[list[int]] = []
        self._open_keys: dict[int, int] = {}
        # Jobs with results, and where the records with the results end in part 1.
        self.results: list[Job] = []
        self.result_ends: list[i64] = []
        self.part2: list[bytes] = []
        self.part2_size: i64 = 0
        # An estimate of the batch's size, to keep slices of work short.
        self.size: i64 = 0

    def add_job(self, job: Job, body: bytes) -> None:
        """Copy a job whose base is removed."""
        self.jobs.append(job)
        self._bodies.append(body)
        self.size += MOVED_SIZE + len(body) + _details_size(job)

    def add_state(self, job: Job) -> None:
        """Copy the changes of a job whose base stays."""
        self.states.append(job)
        self.size += STATE_SIZE + _details_size(job)

    def add_kill(self, job_id: i64, base: i64) -> None:
        """Copy the kill record of a job whose base stays."""
        self._kill_ids.append(job_id)
        self.kill_bases.append(base)
        self.size += STATE_SIZE

    def add_queue(self, queue: Queue) -> None:
        """Copy the name of a queue."""
        self.queues[queue] = None
        self.size += queue_bytes(queue)

    def add_name(self, name: PastName) -> None:
        """Copy the name of a removed queue."""
        self.names[name] = None
        self.size += QUEUE_SIZE + len(name.name)

    def add_entry(self, entry: Entry) -> None:
        """Copy the value of an entry."""
        self.entries[entry] = None
        self.size += entry_bytes(entry)

    def add_head(self, log: LogTopic) -> None:
        """Copy the head of a log."""
        self.heads[log] = None
        self.size += head_bytes(log)

    def add_erased(self, erased: Erased) -> None:
        """Copy which records were deleted in a segment that stays."""
        self.erased.append(erased)
        self.size += erased.length()

    def add_rows(self, log: LogTopic, rows: LogRows, key: WriteKey | None) -> None:
        """Copy records of a log; a key is copied even if no records are left of its write."""
        self._unkeyed.pop(log.number, None)
        self.rows.append(rows)
        self.rows_logs.append(log)
        self.rows_keys.append(key)
        if key is None:
            self._unkeyed[log.number] = rows
        self.size += LOG_SIZE

    def rows_of(self, log: LogTopic, seq: i64, ts: i64, at_ms: i64) -> LogRows:
        """Return rows that a record of a log can be copied with; the caller must add it."""
        rows = self._unkeyed.get(log.number)
        if rows is None or rows.seqs[-1] >= seq or not may_share(rows, seq, ts, at_ms):
            rows = LogRows(seq, ts, at_ms)
            self.add_rows(log, rows, None)
        return rows

    def count_row(self, size: i64) -> None:
        """Count a record that was added to rows."""
        self.size += ROW_SIZE + size

    def add_key(self, table: KeyTable, number: i64, digest: bytes, seq: i64, at_ms: i64) -> None:
        """Copy a key of a record."""
        index = self._open_keys.get(table.number, -1)
        if index < 0 or not self.keys[index].may_take(seq, at_ms):
            index = len(self.keys)
            self._open_keys[table.number] = index
            self.keys.append(KeyRows(table.number, seq, at_ms))
            self.key_tables.append(table)
            self.key_numbers.append([])
            self.size += KEYS_SIZE
        self.keys[index].add(digest, seq, at_ms)
        self.key_numbers[index].append(number)
        self.size += KEY_SIZE

    def count(self) -> i64:
        """Return the number of records."""
        named = len(self.queues) + len(self.names) + len(self.entries)
        named += len(self.heads) + len(self.erased) + len(self.rows) + len(self.keys)
        return len(self.jobs) + len(self.states) + len(self._kill_ids) + named

    def encode(self, part1: BytesWriter) -> list[i64]:
        """Write all records; return where each job's body begins in its part of the batch.

        The offsets of log texts are set relative to the start of part 1.
        """
        self._encode_names(part1)
        for entry in self.entries:
            write_entry(part1, entry)
        for i in range(len(self._kill_ids)):
            write_gone(part1, Cause.REMOVED, self._kill_ids[i], 0, self.kill_bases[i], 0)
        for job in self.states:
            write_state(part1, job)
            self._note_result(job, len(part1))
        for log in self.heads:
            write_head(part1, log)
        for erased in self.erased:
            write_erased(part1, erased)
        for keys in self.keys:
            write_keys(part1, keys)
        for i in range(len(self.rows)):
            rows = self.rows[i]
            write_log(part1, self.rows_logs[i], rows)
            rows.place(len(part1) - (rows.size - rows.labels_size))
        offsets: list[i64] = []
        for i in range(len(self.jobs)):
            job = self.jobs[i]
            body = self._bodies[i]
            if job.size <= INLINE_BODY_MAX:
                offsets.append(len(part1) + MOVED_SIZE)
                write_moved(part1, job, body, 0)
                self._note_result(job, len(part1))
                continue
            self.part2.append(body)
            write_moved(part1, job, body, self.part2_size)
            self._note_result(job, len(part1))
            offsets.append(self.part2_size)
            self.part2_size += len(body)
        return offsets

    def _note_result(self, job: Job, end: i64) -> None:
        details = job.details
        if details is not None and details.outcome is not None and details.outcome.result_size > 0:
            self.results.append(job)
            self.result_ends.append(end)

    def _encode_names(self, part1: BytesWriter) -> None:
        for queue in self.queues:
            write_queue(part1, queue.number, queue.restart_seq(), queue.name.encode())
        for name in self.names:
            write_queue(part1, name.number, name.next_seq, name.name.encode())


def _details_size(job: Job) -> i64:
    details = job.details
    return 0 if details is None else size_of(details)
