"""Replays the journal on disk into a yard that can be served.

Reads records and calls the same `apply_*` as the verbs. Times are converted to the clock of this
boot: a delay keeps its remaining time, but never more than was requested, whatever the wall clock
did meanwhile. Leases end with the boot that gave them, except durable ones.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i16, i32, i64, u8

from jobyard.engine.jobs.obliterate import forget_condemned
from jobyard.engine.logs.cursors import break_history_holds, load_cursors
from jobyard.engine.recovery.gaps import Gaps
from jobyard.engine.recovery.key_replay import KeyReplay
from jobyard.engine.recovery.load_entries import load_entries
from jobyard.engine.recovery.log_replay import LogReplay
from jobyard.engine.recovery.open_runs import OpenRun, OpenRuns
from jobyard.engine.recovery.rebuild import settle
from jobyard.engine.state.barred_queues import bar
from jobyard.engine.state.history import recall_history
from jobyard.engine.state.yard import Yard, abs_stamp, come_due
from jobyard.engine.topics.claim_sets import load_claim_sets
from jobyard.engine.topics.fences import load_fences
from jobyard.engine.topics.routers import load_routers
from jobyard.engine.topics.stages import load_txns
from jobyard.engine.topics.topic_queue import resume_leases
from jobyard.errors import JournalDamaged
from jobyard.journal.format.key_record import KIND_KEYS
from jobyard.journal.format.record import (
    ATTEMPTS_BITS,
    ENTRY_SIZE,
    KIND_ALIVE,
    KIND_CLEAN,
    KIND_DROPPED,
    KIND_END,
    KIND_ENTRY,
    KIND_GONE,
    KIND_LEASE,
    KIND_MOVE,
    KIND_MOVED,
    KIND_NOTE,
    KIND_PUT,
    KIND_QUEUE,
    KIND_STATE,
    KIND_WORKER,
    MOVE_SIZE,
    MOVED_SIZE,
    NEW_BODY,
    NOTE_SIZE,
    PUT_SIZE,
    READY_LIST_BITS,
    READY_LIST_SHIFT,
    STATE_BITS,
    STATE_SIZE,
    Cause,
    base_length,
    changes_at,
    is_row,
)
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    BatchHead,
    Segment,
)
from jobyard.journal.recovery.scan import Recovery
from jobyard.model.details import is_put_blocked
from jobyard.model.details_codec import absorb, place_result
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, READY, Job
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.policy import PLAIN, Policy
from jobyard.model.queue import Queue
from jobyard.model.topic.config import QUEUE, decode_config
from jobyard.model.topic.log import LogTopic
from jobyard.model.transition import Transition

_STATE_AT: Final = 80


@final
class Replay:
    """Applies batches to a yard, one record at a time."""

    def __init__(self, yard: Yard, now_ms: i64) -> None:
        self._yard = yard
        self._journal = yard.journal
        self._now_ms: i64 = now_ms
        self._offset_ms: i64 = 0
        self._queues: dict[int, Queue] = {}
        # Jobs that were removed without a record of their own.
        self.condemned: list[Job] = []
        self._policies: dict[int, Policy] = {}
        self._alive: set[int] = set()
        self.batches_count: i64 = 0
        self.records_count: i64 = 0
        # Segments whose bases were copied elsewhere before a crash: compaction must finish these
        # first, or a kill record could be removed before the last copy of its job.
        self.superseded: set[int] = set()
        self._logs = LogReplay(yard, self.superseded)
        self._keys = KeyReplay(yard)
        # Added to a position in `data` to get the offset in the file.
        self._shift: i64 = 0
        # How many records there were before the last mark of a clean stop.
        self._clean_at: i64 = -1
        self.gaps = Gaps()
        # Added to the count of records read so far to get the number of the next one.
        self._record_shift: i64 = 0
        self.next_record: i64 = 0
        # The last record that removed a job, by queue number; only for history.
        self._last_gone: dict[int, int] = {}
        self._runs = OpenRuns(yard.journal)
        self._history_from: i64 = 0

    def apply_batch(self, data: bytes, at: i64, head: BatchHead, segment: Segment) -> None:
        """Apply every record of one batch, found at `at` in `data`."""
        journal = self._journal
        journal.hot = segment
        self._offset_ms = head.wall_offset_ms
        journal.next_id = max(journal.next_id, head.next_id)
        self.batches_count += 1
        pos: i64 = at + BATCH_HEADER_SIZE
        end: i64 = pos + head.records_size
        shift: i64 = segment.end - at
        self._shift = shift
        self._logs.offset_ms = self._keys.offset_ms = self._offset_ms
        before = self.records_count
        self._record_shift = head.first_record - before
        self._runs.enter(head.epoch)
        while pos < end:
            kind = data[pos]
            length = i64(read_i32_le(data, pos + 4))
            if length < 8 or pos + length > end:
                raise JournalDamaged(segment.name, pos + shift, "a record has an invalid length")
            if kind in (KIND_PUT, KIND_MOVED):
                self._base(data, pos, kind, head, segment, shift)
            elif kind == KIND_LEASE:
                self._lease(data, pos, segment)
            elif kind == KIND_END:
                self._end(data, pos, length)
            elif kind == KIND_MOVE:
                self._move(data, pos, length)
            elif kind == KIND_GONE:
                self._gone(data, pos)
            else:
                self._rare(data, pos, kind, length, segment)
            if is_row(data, pos):
                journal.last_row = self._record_shift + self.records_count
                journal.rows_count += 1
            pos += length
            self.records_count += 1
        self._count_batch(head, segment, self.records_count - before)

    def _count_batch(self, head: BatchHead, segment: Segment, count: i64) -> None:
        """Register the numbers of a batch's records."""
        journal = self._journal
        first = head.first_record
        self.next_record = max(self.next_record, first + count)
        if journal.history.is_on:
            newest_ms = journal.newest_event_ms
            history = journal.history
            rows = (journal.last_row, journal.rows_count)
            history.add_batch(segment, segment.end, first, count, newest_ms, rows)

    # -- jobs ---------------------------------------------------------------------------------

    def _base(
        self, data: bytes, pos: i64, kind: int, head: BatchHead, segment: Segment, shift: i64
    ) -> None:
        yard = self._yard
        live_bytes = self._journal.live_bytes
        job_id = read_i64_le(data, pos + 8)
        size = i64(read_i32_le(data, pos + 20))
        fixed: i64 = PUT_SIZE if kind == KIND_PUT else MOVED_SIZE
        details_at = pos + base_length(fixed, size)
        details_end = details_at + i64(read_i32_le(data, pos + 76))
        job = yard.jobs.get(job_id)
        is_known = job is not None
        if job is None:
            job = self._new_job(data, pos)
            if details_end > details_at:
                self._absorb(job, data, details_at, details_end)
        else:
            # A copy that compaction made, whose original may still exist, or a new body.
            if data[pos + 3] & NEW_BODY:
                job.add_old_base()
            else:
                self.superseded.add(job.place >> 32)
            live_bytes.leave_base(job)
            yard.bodies.drop(job)
            # By the copy's own clock offset, as it would be if the original were gone.
            job.created_ms = read_i64_le(data, pos + 32) + self._offset_ms
            # A new body may have another codec.
            job.codec = u8(data[pos + 2])
        self._set_body(job, data, pos + fixed, size, head, segment, shift)
        if is_known:
            self._restore(job, data, pos + _STATE_AT, data[pos + 3], details_at, details_end)
            self._restamp(job, read_i64_le(data, pos + 48))
            live_bytes.take_base(job, segment, job.place & 0xFFFFFFFF, details_end - details_at)
            return
        live_bytes.hold_base(job, segment, details_end - details_at)
        self._journal.newest_event_ms = max(self._journal.newest_event_ms, job.created_ms)
        self._put(job)
        if kind == KIND_MOVED:
            self._restore(job, data, pos + _STATE_AT, data[pos + 3], details_at, details_end)

    def _set_body(
        self,
        job: Job,
        data: bytes,
        at: i64,
        size: i64,
        head: BatchHead,
        segment: Segment,
        shift: i64,
    ) -> None:
        bodies = self._yard.bodies
        job.size = i32(size)
        if size > INLINE_BODY_MAX:
            in_part2 = read_i64_le(data, at)
            offset: i64 = segment.end + BATCH_HEADER_SIZE + head.part1_size + in_part2
            job.crc = read_i64_le(data, at + 8)
            job.body = None
        else:
            offset = at + shift
            body = data[at : at + size]
            if bodies.has_budget(size):
                job.body = body
                bodies.in_memory += size
            else:
                job.crc = crc32(body)
                job.body = None
        job.place = (segment.number << 32) | offset

    def _catch_up(self, job: Job, at_ms: i64) -> None:
        """Make a job whose delay is over ready; there is no record of that moment."""
        if job.state == DELAYED and job.due_ms <= at_ms:
            come_due(job)

    def _restamp(self, job: Job, stamp: i64) -> None:
        job.stamp = stamp
        self._yard.last_stamp = max(self._yard.last_stamp, abs_stamp(stamp))

    def _put(self, job: Job) -> None:
        yard = self._yard
        queue = job.queue
        queue.next_seq = max(queue.next_seq, job.key + 1)
        yard.last_stamp = max(yard.last_stamp, abs_stamp(job.stamp))
        self._journal.next_id = max(self._journal.next_id, job.id + 1)
        details = job.details
        state: i64 = DELAYED if job.delay_ms > 0 else READY
        if details is not None and is_put_blocked(details):
            state = BLOCKED
        yard.apply_put(job, state)

    def _new_job(self, data: bytes, pos: i64) -> Job:
        created_ms = read_i64_le(data, pos + 32)
        due_ms = read_i64_le(data, pos + 40)
        job = Job(
            read_i64_le(data, pos + 8),
            self._queue_of(i64(read_i32_le(data, pos + 16))),
            read_i64_le(data, pos + 64),
            read_i64_le(data, pos + 48),
            read_i64_le(data, pos + 24),
            created_ms + self._offset_ms,
            due_ms - created_ms,
            read_i64_le(data, pos + 56),
            self._policy_of(i64(read_i32_le(data, pos + 72))),
            None,
            0,
            data[pos + 1],
            data[pos + 2],
        )
        job.due_ms = self._carry(due_ms, due_ms - created_ms)
        job.ready_list = u8(_ready_list_at(data, pos))
        return job

    def _carry(self, due_ms: i64, asked_ms: i64) -> i64:
        """Return a due time on this boot's clock, at most `asked_ms` from now."""
        left = due_ms + self._offset_ms - self._now_ms
        return self._now_ms + min(left, asked_ms)

    def _restore(
        self, job: Job, data: bytes, at: i64, state: i64, details_at: i64, details_end: i64
    ) -> None:
        """Set everything that can change of a job from a state block and details."""
        job.ready_list = u8(state >> READY_LIST_SHIFT & READY_LIST_BITS)
        state &= STATE_BITS
        job.rank = read_i64_le(data, at)
        job.delay_ms = read_i64_le(data, at + 16)
        job.due_ms = self._carry(read_i64_le(data, at + 8), job.delay_ms)
        job.deliveries = read_i32_le(data, at + 24)
        job.attempts = i16(read_i32_le(data, at + 28))
        old = job.details
        job.details = None
        if old is not None:
            if old.outcome is not None:
                self._yard.bodies.drop_result(old.outcome)
            self._yard.bodies.drop_values(old)
            # The live bytes still count these weights.
            details = job.ensure_details()
            details.base_weight = old.base_weight
            details.trail_weight = old.trail_weight
            details.old_bases = old.old_bases
        if (
            read_i64_le(data, at + 32) != 0
            or read_i64_le(data, at + 40) != 0
            or read_i64_le(data, at + 64) != 0
        ):
            counters = job.counters()
            counters.timeouts = read_i32_le(data, at + 32)
            counters.releases = read_i32_le(data, at + 36)
            counters.buries = read_i32_le(data, at + 40)
            counters.kicks = read_i32_le(data, at + 44)
            counters.stalls = read_i32_le(data, at + 64)
        job.state = u8(state)
        if state in (DEAD, DONE):
            ending = read_i64_le(data, at + 48)
            job.queue.endings = max(job.queue.endings, ending)
            ended_ms = read_i64_le(data, at + 56) + self._offset_ms
            self._yard.rest(job, state, ending, ended_ms)
        if details_end > details_at:
            self._absorb(job, data, details_at, details_end)
            self._recall_result(job, details_end)

    def _absorb(self, job: Job, data: bytes, at: i64, end: i64) -> None:
        """Apply encoded details."""
        details = job.ensure_details()
        absorb(details, data, at, end, self._offset_ms)
        if details.members is not None or details.last_error:
            self._yard.bodies.count_values(details)

    def _recall_result(self, job: Job, end: i64) -> None:
        """Store the place of a job's result, the last part of a record that ends at `end`."""
        outcome = job.ensure_details().outcome
        if outcome is not None and outcome.result_size > 0:
            place_result(job, self._journal.hot.number, end + self._shift)
            self._yard.bodies.recall_result(job)

    def _lease(self, data: bytes, pos: i64, segment: Segment) -> None:
        journal = self._journal
        job_id = read_i64_le(data, pos + 8)
        journal.newest_event_ms = read_i64_le(data, pos + 24) + self._offset_ms
        if self._runs.is_on:
            # Also if the job comes later, since compaction has copied it during the run.
            run = OpenRun(data, pos, self._record_shift + self.records_count, self._offset_ms)
            self._runs.begin(job_id, run, segment.number)
        job = self._yard.jobs.get(job_id)
        if job is None:
            return
        self._catch_up(job, journal.newest_event_ms)
        self._yard.apply_taken(job, None)
        journal.live_bytes.trail(job, segment)

    def _end(self, data: bytes, pos: i64, length: i64) -> None:
        job_id = read_i64_le(data, pos + 8)
        state: i64 = data[pos + 2]
        self._runs.end(job_id)
        if data[pos + 1] == Cause.ABANDONED:
            return
        finished_ms = read_i64_le(data, pos + 80) + self._offset_ms
        self._journal.newest_event_ms = finished_ms
        if state == GONE:
            self._gone(data, pos)
            return
        job = self._yard.jobs.get(job_id)
        if job is None:
            return
        # A client whose lease ended may end the job late, after its delay and before it is taken.
        self._catch_up(job, finished_ms)
        end = Transition(job, data[pos + 1], state)
        end.rank = read_i64_le(data, pos + 24)
        end.due_ms = read_i64_le(data, pos + 32) + self._offset_ms
        end.attempts = i64(read_i32_le(data, pos + 48)) & ATTEMPTS_BITS
        end.ready_list = _ready_list_at(data, pos)
        self._set_stamp(end, read_i64_le(data, pos + 40))
        self._yard.apply_end(job, end, finished_ms)
        self._after(job, end, read_i64_le(data, pos + 40), finished_ms)
        # END has the right count even if a LEASE was not written.
        job.deliveries = max(job.deliveries, read_i32_le(data, pos + 52))
        self._apply_fields(job, data, changes_at(data, pos), pos + length)
        self._recall_result(job, pos + length)

    def _move(self, data: bytes, pos: i64, length: i64) -> None:
        job = self._yard.jobs.get(read_i64_le(data, pos + 8))
        if job is None:
            return
        at_ms = read_i64_le(data, pos + 40) + self._offset_ms
        self._journal.newest_event_ms = at_ms
        self._catch_up(job, at_ms)
        move = Transition(job, data[pos + 1], data[pos + 2])
        move.rank = read_i64_le(data, pos + 16)
        move.due_ms = read_i64_le(data, pos + 24) + self._offset_ms
        move.attempts = i64(read_i32_le(data, pos + 48))
        move.ready_list = _ready_list_at(data, pos)
        self._set_stamp(move, read_i64_le(data, pos + 32))
        self._yard.apply_move(job, move, at_ms)
        self._after(job, move, read_i64_le(data, pos + 32), at_ms)
        self._apply_fields(job, data, pos + MOVE_SIZE, pos + length)

    def _set_stamp(self, end: Transition, stamp: i64) -> None:
        if end.state not in (DEAD, DONE):
            end.stamp = stamp
            self._yard.last_stamp = max(self._yard.last_stamp, abs_stamp(stamp))

    def _after(self, job: Job, end: Transition, ending: i64, ended_ms: i64) -> None:
        if end.state in (DEAD, DONE):
            # The number that was written: earlier endings may have been compacted away.
            queue = job.queue
            queue.endings = max(queue.endings - 1, ending)
            self._yard.rest(job, end.state, ending, ended_ms)
        elif end.state == DELAYED:
            job.due_ms = self._carry(end.due_ms - self._offset_ms, job.delay_ms)

    def _apply_fields(self, job: Job, data: bytes, at: i64, end: i64) -> None:
        if end > at:
            self._absorb(job, data, at, end)
        self._journal.live_bytes.trail(job, self._journal.hot)

    def _gone(self, data: bytes, pos: i64) -> None:
        self._runs.end(read_i64_le(data, pos + 8))
        job = self._yard.jobs.get(read_i64_le(data, pos + 8))
        base = i64(read_i32_le(data, pos + 20))
        if self._journal.history.is_on:
            number = int(read_i32_le(data, pos + 16))
            self._last_gone[number] = self.records_count + self._record_shift
            if data[pos] == KIND_GONE and number != 0:
                self._journal.newest_event_ms = read_i64_le(data, pos + 24) + self._offset_ms
        if job is None:
            self._journal.live_bytes.count_kill(self._journal.hot, base)
            if self.gaps.is_filled:
                self.gaps.killed.add(read_i64_le(data, pos + 8))
            return
        self._journal.live_bytes.bury_base(job, self._journal.hot, base)
        self._yard.apply_gone(job)

    # -- everything else ----------------------------------------------------------------------

    def _rare(self, data: bytes, pos: i64, kind: int, length: i64, segment: Segment) -> None:
        if kind == KIND_STATE:
            job = self._yard.jobs.get(read_i64_le(data, pos + 8))
            if job is not None:
                end = pos + length
                self._restore(job, data, pos + 16, data[pos + 3], pos + STATE_SIZE, end)
                self._restamp(job, read_i64_le(data, pos + 88))
                self._journal.live_bytes.trail(job, self._journal.hot)
        elif kind == KIND_NOTE:
            job = self._yard.jobs.get(read_i64_le(data, pos + 8))
            if job is not None:
                self._apply_fields(job, data, pos + NOTE_SIZE, pos + length)
        elif kind == KIND_QUEUE:
            self._queue(data, pos, segment)
        elif kind == KIND_ENTRY:
            self._entry(data, pos, segment)
        elif kind == KIND_KEYS:
            self._keys.apply(data, pos, segment)
        elif not self._logs.apply(data, pos, kind, segment, self._shift):
            self._mark(data, pos, kind, length, segment)

    def _mark(self, data: bytes, pos: i64, kind: int, length: i64, segment: Segment) -> None:
        """Apply a record about the journal itself."""
        if kind == KIND_ALIVE:
            self._alive = {
                int(read_i32_le(data, at)) for at in range(int(pos) + 8, int(pos + length), 4)
            }
        elif kind == KIND_DROPPED:
            number = int(read_i64_le(data, pos + 8))
            self._alive.discard(number)
            self._journal.next_segment = max(self._journal.next_segment, number + 1)
        elif kind == KIND_CLEAN:
            self._clean_at = self.records_count
        elif kind == KIND_WORKER:
            # Only history needs it, and finds it by its offset.
            pass
        else:
            raise JournalDamaged(segment.name, segment.end, f"a record has the unknown kind {kind}")

    def _queue_of(self, number: i64) -> Queue:
        """Return a queue by number; its name may come later, if compaction moved that record."""
        queue = self._queues.get(number)
        if queue is None:
            queue = Queue("")
            queue.number = number
            self._queues[number] = queue
        return queue

    def _queue(self, data: bytes, pos: i64, segment: Segment) -> None:
        number = i64(read_i32_le(data, pos + 8))
        size = i64(read_i32_le(data, pos + 12))
        queue = self._queue_of(number)
        # The weight of a name counts with the name it was written under.
        self._journal.live_bytes.forget_queue(queue)
        queue.name = data[pos + 24 : pos + 24 + size].decode()
        # Even if an earlier record had reserved more: a clean stop gives that back.
        queue.next_seq = read_i64_le(data, pos + 16)
        self._journal.live_bytes.hold_queue(queue, segment)
        self._journal.next_queue = max(self._journal.next_queue, number + 1)

    def _policy_of(self, number: i64) -> Policy:
        """Return a policy by number; its values may come later, if compaction moved them."""
        if number == 0:
            return PLAIN
        policy = self._policies.get(number)
        if policy is None:
            policy = Policy(number)
            self._policies[number] = policy
        return policy

    def _entry(self, data: bytes, pos: i64, segment: Segment) -> None:
        journal = self._journal
        key_end: i64 = pos + ENTRY_SIZE + i64(read_i32_le(data, pos + 8))
        value_end: i64 = key_end + i64(read_i32_le(data, pos + 12))
        kind = int(data[pos + 1])
        key = data[pos + ENTRY_SIZE : key_end]
        entry = journal.entries.get((kind, key))
        if entry is None:
            entry = Entry(kind, key)
            journal.entries.put((kind, key), entry)
        journal.live_bytes.forget_entry(entry)
        entry.value = data[key_end:value_end]
        entry.is_gone = data[pos + 2] != 0
        entry.up_to = read_i64_le(data, pos + 16)
        journal.live_bytes.hold_entry(entry, segment)
        if kind == EntryKind.POLICY:
            policy = self._policy_of(int.from_bytes(key, "little"))
            policy.fill(entry.value)
            self._yard.policies[entry.value] = policy
            self._yard.next_policy = max(self._yard.next_policy, policy.number + 1)

    def finish(self, recovery: Recovery) -> None:
        """Check that no segment is missing, and put every job into its index."""
        recovery.require(self._alive)
        yard = self._yard
        self.gaps.look(yard, self._queues, self._policies)
        self.condemned = forget_condemned(yard)
        settle(yard, self._now_ms)
        self._recall_ruled()
        load_entries(yard, self._now_ms)
        resume_leases(yard, self._now_ms)
        is_clean = self._clean_at + 1 == self.records_count
        self._logs.finish(self._now_ms, self.gaps, is_clean=is_clean)
        self._keys.finish(self._now_ms)
        for log in yard.logs:
            bar(yard, log)
        load_routers(yard, self._now_ms)
        load_cursors(yard)
        load_fences(yard, self._now_ms)
        load_txns(yard, self._now_ms)
        load_claim_sets(yard, self._now_ms)
        if self._journal.history.is_on:
            for job in self.condemned:
                # Their removal is appended after this replay.
                self._last_gone[int(job.queue.number)] = int(self.next_record)
            self._history_from = recall_history(
                yard, recovery.segments, self.next_record, self._queues, self._last_gone
            )
            break_history_holds(yard)
        for queue in self._queues.values():
            if yard.queues.get(queue.name) is not queue:
                self._journal.live_bytes.forget_queue(queue)

    def abandon_runs(self) -> None:
        """Append to history that the runs of the last boot are over, except durable leases."""
        self._runs.abandon(self._yard, self._history_from)

    def gapped_logs(self) -> list[LogTopic]:
        """Return the logs that skip seqs which may have been issued before a crash."""
        return self._logs.gapped

    def _recall_ruled(self) -> None:
        """Keep queues without jobs that have settings, under their old numbers."""
        newest: dict[str, Queue] = {}
        for queue in self._queues.values():
            known = newest.get(queue.name)
            if known is None or known.number < queue.number:
                newest[queue.name] = queue
        for entry in self._journal.entries.values():
            if not entry.is_gone and (
                entry.kind in (EntryKind.SETTINGS, EntryKind.GROUP, EntryKind.COUNTED)
                or (entry.kind == EntryKind.CONFIG and decode_config(entry.value).type == QUEUE)
            ):
                name = entry.key.decode().partition("\0")[0]
                if name in newest and name not in self._yard.queues:
                    self._yard.queues[name] = newest[name]


def _ready_list_at(data: bytes, pos: i64) -> i64:
    return data[pos + 3] >> READY_LIST_SHIFT & READY_LIST_BITS
