"""The journal as the engine sees it: one method for each kind of change.

Each makes room for its records, encodes them into the open batch and updates the live bytes. None
of them decides anything; `batches` decides when a record is safe and where it is stored.
"""

from typing import Final, final
from zlib import crc32

from mypy_extensions import i32, i64

from jobyard.errors import StorageFull, YardFull
from jobyard.journal.batches import Batches
from jobyard.journal.damage import CORRUPT_RESULT
from jobyard.journal.format.key_record import KeyRows, write_keys
from jobyard.journal.format.log_record import (
    LOG_SIZE,
    Erased,
    head_bytes,
    write_erased,
    write_head,
    write_log,
    write_log_rows,
)
from jobyard.journal.format.record import (
    DROPPED_SIZE,
    END_ROOM,
    END_SIZE,
    ENTRY_SIZE,
    GONE_SIZE,
    LEASE_ROOM,
    LONG_BODY_SIZE,
    MOVE_SIZE,
    MOVED_SIZE,
    NOTE_SIZE,
    PUT_SIZE,
    QUEUE_SIZE,
    STATE_SIZE,
    WORKER_ROOM,
    Cause,
    end_identity,
    entering_bytes,
    write_clean,
    write_dropped,
    write_end,
    write_entry,
    write_gone,
    write_lease,
    write_move,
    write_moved,
    write_note,
    write_put,
    write_put_ahead,
    write_queue,
    write_state,
    write_worker,
)
from jobyard.journal.format.segment import Segment, segment_name
from jobyard.journal.history.window import PastName
from jobyard.journal.storage import Storage
from jobyard.model.ahead import EncodedAhead
from jobyard.model.details import FailureReason, Outcome
from jobyard.model.details_codec import place_result, size_of
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.job import GONE, READY, Job
from jobyard.model.lease import Lease, WorkerName
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.policy import DURABLE
from jobyard.model.queue import Queue
from jobyard.model.topic.config import FSYNC
from jobyard.model.topic.log import LogTopic, WriteKey
from jobyard.model.topic.log_chunk import ROW_WEIGHT
from jobyard.model.topic.log_rows import LogRows
from jobyard.model.transition import Transition

# How many names of workers in the hot segment are remembered; others are written again.
WORKERS_KNOWN: Final = 1024
_NEEDED: Final = (
    EntryKind.POLICY,
    EntryKind.COUNTED,
    EntryKind.CONDEMNED,
    EntryKind.TXN,
    EntryKind.CLAIM_SET,
    EntryKind.FENCE,
    # Without an id a start would have to draw another the next time.
    EntryKind.YARD_ID,
)


@final
class Journal(Batches):
    """Appends every change as records, and reads results back."""

    def __init__(self, storage: Storage | None, segment_size: i64, *, ids_ahead: bool) -> None:
        super().__init__(storage, segment_size, ids_ahead=ids_ahead)
        # Where the names of workers are in the hot segment.
        self._worker_places: dict[bytes, int] = {}
        self._workers_home: Segment | None = None

    def append_put(self, job: Job, body: bytes) -> None:
        """Append a new job; `admit` has made the room."""
        part1 = self._part1
        hot = self.hot
        details = entering_bytes(job)
        start = self._here()
        if i64(job.size) <= INLINE_BODY_MAX:
            write_put(part1, job, body, details, 0)
            job.place = (hot.number << 32) | (start + PUT_SIZE)
        else:
            write_put(part1, job, body, details, self._append_long(job, body))
            job.place = hot.number << 32
        self._hold_put(job, hot, len(details))

    def append_put_ahead(self, job: Job, ahead: EncodedAhead, first_id: i64) -> None:
        """Append the next of the jobs that were encoded ahead; the first of them has `first_id`."""
        hot = self.hot
        start = self._here()
        offset: i64 = 0
        if i64(job.size) <= INLINE_BODY_MAX:
            job.place = (hot.number << 32) | (start + PUT_SIZE)
        else:
            body = job.body
            assert body is not None
            offset = self._append_long(job, body)
            job.place = hot.number << 32
        weight = write_put_ahead(self._part1, job, ahead, first_id, offset)
        self._hold_put(job, hot, weight)

    def _hold_put(self, job: Job, hot: Segment, weight: i64) -> None:
        self.live_bytes.hold_base(job, hot, weight)
        self.newest_event_ms = job.created_ms
        self._waited(job)
        self._note_row()

    def append_body(self, job: Job, body: bytes) -> None:
        """Append a job again with a new body: this is its base from here on."""
        self.make_room(self.body_room(job, body))
        part1 = self._part1
        hot = self.hot
        self.live_bytes.leave_base(job)
        job.add_old_base()
        if job in self._long_jobs:
            # Its older body in the same batch must not set its place.
            at = self._long_jobs.index(job)
            del self._long_jobs[at]
            del self._long_offsets[at]
        job.size = i32(len(body))
        self.warm(job)
        start = self._here()
        if i64(job.size) <= INLINE_BODY_MAX:
            weight = write_moved(part1, job, body, 0, is_new_body=True)
            self.live_bytes.take_base(job, hot, start + MOVED_SIZE, weight)
        else:
            weight = write_moved(part1, job, body, self._append_long(job, body), is_new_body=True)
            self.live_bytes.take_base(job, hot, 0, weight)
        place_result(job, hot.number, self._here())
        self._waited(job)

    def body_room(self, job: Job, body: bytes) -> i64:
        """Return the most bytes that a job takes with a new body."""
        return MOVED_SIZE + LONG_BODY_SIZE + len(body) + self._details_room(job)

    def _append_long(self, job: Job, body: bytes) -> i64:
        job.crc = crc32(body)
        self._part2.append(body)
        offset = self._part2_size
        self._part2_size = offset + len(body)
        self._long_jobs.append(job)
        self._long_offsets.append(offset)
        return offset

    def _note_row(self) -> None:
        """Note that the newest record is a row of history."""
        self.last_row = self.record_base + self.records_count - 1
        self.rows_count += 1

    def _waited(self, job: Job) -> None:
        number = self.open_number
        job.batch = number
        self.appended = number
        self.records_count += 1
        if self._ids_ahead and (job.queue.is_synced or job.policy.flags & DURABLE):
            self.command_sync_batch = number

    def append_lease(self, lease: Lease) -> None:
        """Append the start of a lease. No reply waits for it, and a full disk goes without it."""
        if self.is_full:
            return
        job = lease.job
        try:
            self._make_room_for_change(job, LEASE_ROOM)
        except StorageFull:
            self.note_full()
            return
        self._follow(job)
        write_lease(self._part1, lease, self._place_of(lease.worker))
        self.newest_event_ms = lease.started_ms
        self.records_count += 1
        self._note_row()

    def _place_of(self, worker: WorkerName) -> i64:
        """Return the offset of a worker's name in the hot segment; 0 without history.

        The name is written before its first run in each segment, so that history can lose whole
        segments and no name. A full disk goes without it.
        """
        hot = self.hot
        if worker.home is hot:
            return worker.at
        if not self.history.is_on:
            return 0
        places = self._worker_places
        if self._workers_home is not hot:
            self._workers_home = hot
            places.clear()
        at = places.get(worker.name)
        if at is None:
            if self.is_full:
                return 0
            if len(places) >= WORKERS_KNOWN:
                places.clear()
            at = int(self._here())
            places[worker.name] = at
            write_worker(self._part1, worker.name)
            self.records_count += 1
        worker.home = hot
        worker.at = at
        return at

    def append_end(self, job: Job, end: Transition, now_ms: i64, *, waited: bool) -> None:
        """Append the end of a run; `waited` unless a timer or a disconnect ended it."""
        state = end.state
        if self.is_full and state == READY and self._may_go_unwritten(job, end):
            return
        identity = end_identity(job)
        worker_room = 0 if self.is_full else WORKER_ROOM
        size: i64 = END_SIZE + len(identity) + len(end.changed_fields) + worker_room
        try:
            self._make_room_for_change(job, size + self._older_room(job))
        except StorageFull:
            if end.why in (Cause.HOLDER_LEFT, Cause.EXPIRED):
                # No client has a reply about it, and a restart ends the lease too.
                return
            if state != GONE:
                raise
            self.is_full = True
            self.make_room(GONE_SIZE + self._older_room(job))
        if state != GONE:
            self._follow(job)
        if self.is_full and state == GONE:
            write_gone(self._part1, end.why, job.id, job.queue.number, job.place >> 32, now_ms)
        else:
            lease = job.lease
            worker_at: i64 = 0
            if lease is not None:
                worker_at = self._place_of(lease.worker)
            write_end(self._part1, job, lease, end, now_ms, worker_at, identity)
            self.record_end = self._here()
        self.newest_event_ms = now_ms
        if waited:
            self._waited(job)
        else:
            self.records_count += 1
        self._note_row()
        if state == GONE:
            self._kill_older(job, end.why, now_ms)
            self.live_bytes.bury_base(job, self.hot, job.place >> 32)

    def append_abandoned(self, job: Job, lease: Lease, at_ms: i64) -> None:
        """Append the row of a run that the last boot left open; it changes nothing of the job."""
        identity = end_identity(job)
        self.make_room(END_ROOM + len(identity))
        worker_at = self._place_of(lease.worker) if lease.worker.name else 0
        end = Transition(job, Cause.ABANDONED, i64(job.state))
        write_end(self._part1, job, lease, end, at_ms, worker_at, identity)
        self.records_count += 1
        self._note_row()

    def end_size(self, job: Job, fields_size: i64) -> i64:
        """Return the size of the record of an end, with the job's state if that is needed."""
        size: i64 = END_SIZE + len(end_identity(job)) + fields_size
        return size if self.has_room_for_change(job, size) else size + self.state_room(job)

    def _may_go_unwritten(self, job: Job, end: Transition) -> bool:
        """Return whether a crash restores a job as it is; as a last resort, with its old rank."""
        lease = job.lease
        if end.changed_fields:
            return False
        if job.details is not None and job.details.durable_lease is not None:
            # A restart would restore the durable lease.
            return False
        if lease is None or lease.taken_from != READY or end.attempts != i64(job.attempts):
            return False
        return end.rank == job.rank or (not self.spares and not self._fits(STATE_SIZE + END_SIZE))

    def append_move(self, job: Job, move: Transition, now_ms: i64) -> None:
        """Append a change of state that ends no run."""
        self._make_room_for_change(job, MOVE_SIZE + len(move.changed_fields))
        self._follow(job)
        write_move(self._part1, job, move, now_ms)
        self.newest_event_ms = now_ms
        self._waited(job)
        self._note_row()

    def append_note(self, job: Job, changed_fields: bytes) -> None:
        """Append changes of a job that affect neither its state nor its position."""
        self._make_room_for_change(job, NOTE_SIZE + len(changed_fields))
        self._follow(job)
        write_note(self._part1, job, changed_fields)
        self._waited(job)

    def append_gone(self, job: Job, why: i64, now_ms: i64) -> None:
        """Append the removal of a job that is not leased."""
        self.make_room(GONE_SIZE + self._older_room(job))
        write_gone(self._part1, why, job.id, job.queue.number, job.place >> 32, now_ms)
        self.newest_event_ms = now_ms
        self._waited(job)
        self._note_row()
        self._kill_older(job, why, now_ms)
        self.live_bytes.bury_base(job, self.hot, job.place >> 32)

    def _kill_older(self, job: Job, why: i64, now_ms: i64) -> None:
        """Append kill records for older bases of a job that still exist."""
        details = job.details
        if details is None or details.old_bases is None:
            return
        for base in details.old_bases:
            if base in self.segments:
                queue = job.queue.number
                write_gone(self._part1, why, job.id, queue, base, now_ms, is_old=True)
                self.live_bytes.count_kill(self.hot, base)
                self.records_count += 1

    def _older_room(self, job: Job) -> i64:
        details = job.details
        if details is None or details.old_bases is None:
            return 0
        return GONE_SIZE * len(details.old_bases)

    def append_queue(self, queue: Queue, name: bytes) -> None:
        """Assign a number to a queue and append its name; the caller has made the room."""
        queue.number = self.next_queue
        self.next_queue += 1
        self.history.name(queue.number, queue.name)
        self._append_name(queue, name)

    def append_name(self, queue: Queue, name: bytes) -> None:
        """Append a new name for a queue that has a number."""
        self.make_room(QUEUE_SIZE + len(name))
        self._append_name(queue, name)

    def _append_name(self, queue: Queue, name: bytes) -> None:
        write_queue(self._part1, queue.number, queue.restart_seq(), name)
        self.records_count += 1
        self.live_bytes.hold_queue(queue, self.hot)

    def retire_queue(self, queue: Queue) -> None:
        """Stop counting the name of a removed queue, but keep it while history needs it."""
        segment = i64(queue.segment)
        self.live_bytes.forget_queue(queue)
        if self.history.is_on and segment != 0:
            name = PastName(queue.number, queue.name, queue.restart_seq(), self.next_record())
            self.history.retire(name, self.segments[segment])
            if len(self.history.past) > self.history.past_max:
                # Not left to compaction, which runs now and then: names may come faster.
                self.history.forget_names(self.segments)

    def set_entry(self, kind: i64, key: bytes, value: bytes) -> None:
        """Store a value under a key, replacing the previous one; YardFull on a full disk."""
        # The caller has made room for these, or they come with the removal of many jobs.
        is_needed = kind in _NEEDED
        if not is_needed and not self.has_room(ENTRY_SIZE + len(key) + len(value)):
            raise YardFull
        entry = self.entries.get((kind, key))
        if entry is None:
            entry = Entry(kind, key)
            self.entries.put((kind, key), entry)
        self._append_entry(entry, value, is_gone=False)

    def drop_entry(self, kind: i64, key: bytes) -> None:
        """Remove the value under a key."""
        entry = self.entries.get((kind, key))
        if entry is not None and not entry.is_gone:
            self._append_entry(entry, b"", is_gone=True)

    def _append_entry(self, entry: Entry, value: bytes, *, is_gone: bool) -> None:
        self.make_room(ENTRY_SIZE + len(entry.key) + len(value))
        self.live_bytes.forget_entry(entry)
        entry.value = value
        entry.is_gone = is_gone
        entry.up_to = self.next_segment if is_gone else 0
        write_entry(self._part1, entry)
        self.live_bytes.hold_entry(entry, self.hot)
        self.records_count += 1
        self.appended = self.open_number

    def is_entry_needed(self, entry: Entry, victim: i64) -> bool:
        """Return whether an entry must be copied when segment `victim` is removed."""
        if not entry.is_gone:
            return True
        return any(number < entry.up_to and number != victim for number in self.segments)

    def forget_entry(self, entry: Entry) -> None:
        """Forget a removed entry of which no older value exists on disk."""
        self.live_bytes.forget_entry(entry)
        self.entries.remove((entry.kind, entry.key))

    def append_rows(self, log: LogTopic, rows: LogRows, key: WriteKey | None) -> None:
        """Append a write to a log, all of it or nothing; `admit` has made the room."""
        texts_size = rows.size - rows.labels_size
        if texts_size > self.summed_at_once:
            write_log_rows(self._part1, log, rows)
            self._cut_off(rows.texts)
        else:
            write_log(self._part1, log, rows)
        rows.place(self._here() - texts_size)
        self.newest_event_ms = max(self.newest_event_ms, rows.at_ms)
        self.hot.live += ROW_WEIGHT * len(rows.seqs) + rows.size
        if key is not None:
            self.live_bytes.hold_key(key, self.hot, LOG_SIZE + len(rows.key.encode()))
        self._note_log(log)

    def append_keys(self, rows: KeyRows) -> None:
        """Append keys of records, in the batch of the records; `admit` has made the room."""
        write_keys(self._part1, rows)
        self.live_bytes.hold_keys(len(rows.digests), self.hot)
        self.records_count += 1
        self.appended = self.open_number

    def append_head(self, log: LogTopic) -> None:
        """Append the head of a log as it is now."""
        self.make_room(head_bytes(log))
        if log.number == 0:
            log.number = self.next_queue
            self.next_queue += 1
        write_head(self._part1, log)
        self.live_bytes.hold_head(log, self.hot)
        self._note_log(log)

    def append_erased(self, log: LogTopic, erased: list[Erased]) -> None:
        """Append which records of a log were deleted; the caller has made the room."""
        for one in erased:
            write_erased(self._part1, one)
            self.live_bytes.count_erased(self.hot, one.segment, one.length())
            self._note_log(log)

    def _note_log(self, log: LogTopic) -> None:
        log.batch = self.open_number
        self.appended = self.open_number
        self.records_count += 1
        if self._ids_ahead and log.config.durability == FSYNC:
            self.command_sync_batch = self.open_number

    def append_dropped(self, segment: Segment) -> None:
        """Append the announcement that a segment will be removed."""
        self.make_room(DROPPED_SIZE)
        write_dropped(self._part1, segment.number)
        segment.is_leaving = True
        self.records_count += 1
        self.appended = self.open_number

    def append_clean(self) -> None:
        """Append the mark of a clean stop; a full disk goes without it."""
        try:
            self.make_room(8)
        except StorageFull:
            return
        write_clean(self._part1)
        self.records_count += 1
        self.appended = self.open_number

    def has_room_for_change(self, job: Job, size: i64) -> bool:
        """Return whether `size` bytes of changes fit without repeating the job's state first."""
        trail = i64(job.trail)
        return trail in (0, self.hot.number) and self._fits(size)

    def _make_room_for_change(self, job: Job, size: i64) -> None:
        """Make room for changes of a job, and for its state if they begin a new trail.

        Only then: otherwise a job longer than half a segment would be written whole every time.
        """
        if not self.has_room_for_change(job, size):
            self.make_room(self.state_room(job) + size)

    def state_room(self, job: Job) -> i64:
        """Return the size of a job's state, without its body, at the start of a new trail."""
        return STATE_SIZE + self._details_room(job)

    def _details_room(self, job: Job) -> i64:
        details = job.details
        return 0 if details is None else size_of(details)

    def _follow(self, job: Job) -> None:
        """Repeat the state of a job in the hot segment if its trail is in an older one.

        So all changes since the base are in one segment, `job.trail`, and the older one can be
        removed without copying them.
        """
        if job.trail != 0 and i64(job.trail) != self.hot.number:
            self.warm(job)
            write_state(self._part1, job)
            place_result(job, self.hot.number, self._here())
            self.records_count += 1
        self.live_bytes.trail(job, self.hot)

    def warm(self, job: Job) -> None:
        """Read the result of a job back into memory before all of the job is written again.

        A damaged result is not written again; from then on the job shows that it is lost.
        """
        details = job.details
        outcome = None if details is None else details.outcome
        if outcome is None or outcome.result_size == len(outcome.result):
            return
        result = self.read_result(job, outcome)
        if result is not None:
            outcome.result = result
            self.warmed.append(job)
            return
        outcome.result_size = 0
        outcome.reason = FailureReason.RESULT_LOST
        outcome.error = CORRUPT_RESULT

    def read_result(self, job: Job, outcome: Outcome) -> bytes | None:
        """Read the result of a job from the disk; if damaged, register that and return None."""
        number, offset = outcome.result_place >> 32, outcome.result_place & 0xFFFFFFFF
        result = self.read(number, offset, outcome.result_size)
        if len(result) == outcome.result_size and crc32(result) == outcome.result_crc:
            return result
        where = f"{segment_name(number)} at offset {offset}"
        self.damages.note_body(job.id, where, "result")
        return None
