"""From the journal on disk to a yard that can be served.

Reads records and calls the same `apply_*` the verbs call. Times are carried over to the clock of
this boot: a due time keeps what was left of it, never more than the delay that was asked for,
whatever the wall clock did meanwhile. Leases end with the boot that gave them.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i16, i64, u8

from jobyard.engine.yard import Yard
from jobyard.errors import JournalDamaged
from jobyard.journal.journal import Journal
from jobyard.journal.record import (
    KIND_ALIVE,
    KIND_CLEAN,
    KIND_DROPPED,
    KIND_END,
    KIND_GONE,
    KIND_LEASE,
    KIND_MOVE,
    KIND_MOVED,
    KIND_PUT,
    KIND_QUEUE,
    KIND_STATE,
    MOVED_SIZE,
    PUT_SIZE,
)
from jobyard.journal.recovery import Merge, Recovery, missing_segment
from jobyard.journal.segment import (
    BATCH_HEADER_SIZE,
    BatchHead,
    HeadFields,
    Segment,
    spare_number,
)
from jobyard.journal.storage import Storage
from jobyard.model.job import DEAD, DELAYED, GONE, READY, Job
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.queue import Queue

_STATE_AT: Final = 72


@final
class Replay:
    """Applies batches to a yard, one record at a time."""

    def __init__(self, yard: Yard, now_ms: i64) -> None:
        self._yard = yard
        self._journal = yard.journal
        self._now_ms: i64 = now_ms
        self._offset_ms: i64 = 0
        self._queues: dict[int, Queue] = {}
        self._alive: set[int] = set()
        self.batches_count: i64 = 0
        self.records_count: i64 = 0
        # Segments whose bases were saved elsewhere before a crash: compaction must finish these
        # first, or a kill record could go before the last copy of what it kills.
        self.superseded: set[int] = set()
        # Whether queues whose names are lost get new ones, and which did.
        self.names_lost: bool = False
        self.renamed: list[Queue] = []

    def apply_batch(self, data: bytes, at: i64, head: BatchHead, segment: Segment) -> None:
        """Apply every record of one batch, found at `at` in `data`."""
        journal = self._journal
        journal.hot = segment
        self._offset_ms = head.wall_offset_ms
        journal.next_id = max(journal.next_id, head.next_id)
        self.batches_count += 1
        pos: i64 = at + BATCH_HEADER_SIZE
        end: i64 = pos + head.part1_size
        # From a position in `data` to one in the file.
        shift: i64 = segment.end - at
        while pos < end:
            kind = data[pos]
            length = i64(read_i32_le(data, pos + 4))
            if length < 8 or pos + length > end:
                raise JournalDamaged(segment.name, pos + shift, "a record is cut short")
            if kind in (KIND_PUT, KIND_MOVED):
                self._base(data, pos, kind, head, segment, shift)
            elif kind == KIND_LEASE:
                job = self._yard.jobs.get(read_i64_le(data, pos + 8))
                if job is not None:
                    self._yard.apply_taken(job, None)
                    journal.ledger.trail(job, segment)
            elif kind == KIND_END:
                self._end(data, pos)
            elif kind == KIND_MOVE:
                self._move(data, pos)
            elif kind == KIND_GONE:
                self._gone(read_i64_le(data, pos + 8), i64(read_i32_le(data, pos + 20)))
            else:
                self._rare(data, pos, kind, length, segment)
            pos += length
            self.records_count += 1

    # -- jobs ---------------------------------------------------------------------------------

    def _base(
        self, data: bytes, pos: i64, kind: int, head: BatchHead, segment: Segment, shift: i64
    ) -> None:
        yard = self._yard
        journal = self._journal
        job_id = read_i64_le(data, pos + 8)
        queue = self._queue_of(i64(read_i32_le(data, pos + 16)))
        size = i64(read_i32_le(data, pos + 20))
        fixed: i64 = PUT_SIZE if kind == KIND_PUT else MOVED_SIZE
        body: bytes | None = None
        crc: i64 = 0
        if size <= INLINE_BODY_MAX:
            offset: i64 = pos + shift + fixed
            body = data[pos + fixed : pos + fixed + size]
            if not yard.bodies.has_budget(size):
                crc = crc32(body)
                body = None
        else:
            in_part2 = read_i64_le(data, pos + fixed)
            offset = segment.end + BATCH_HEADER_SIZE + head.part1_size + in_part2
            crc = read_i64_le(data, pos + fixed + 8)
        place: i64 = (segment.number << 32) | offset
        job = yard.jobs.get(job_id)
        if job is not None:
            # A copy made by compaction: the original may still be there.
            self.superseded.add(job.place >> 32)
            journal.ledger.rebase(job, segment, offset)
            # By its own offset: had the original been gone, nothing else would tell.
            job.created_ms = read_i64_le(data, pos + 32) + self._offset_ms
            self._restore(job, data, pos + _STATE_AT, data[pos + 3])
            return
        job = self._new_job(data, pos, queue, size, body)
        job.place = place
        job.crc = crc
        if body is not None:
            yard.bodies.in_memory += size
        segment.live += MOVED_SIZE + size
        journal.ledger.jobs_count += 1
        queue.next_seq = max(queue.next_seq, job.key + 1)
        yard.last_stamp = max(yard.last_stamp, job.stamp)
        journal.next_id = max(journal.next_id, job_id + 1)
        yard.apply_put(job, DELAYED if job.delay_ms > 0 else READY)
        if kind == KIND_MOVED:
            self._restore(job, data, pos + _STATE_AT, data[pos + 3])

    def _new_job(self, data: bytes, pos: i64, queue: Queue, size: i64, body: bytes | None) -> Job:
        created_ms = read_i64_le(data, pos + 32)
        due_ms = read_i64_le(data, pos + 40)
        job = Job(
            read_i64_le(data, pos + 8),
            queue,
            read_i64_le(data, pos + 64),
            read_i64_le(data, pos + 48),
            read_i64_le(data, pos + 24),
            created_ms + self._offset_ms,
            due_ms - created_ms,
            read_i64_le(data, pos + 56),
            body,
            size,
            data[pos + 1],
            data[pos + 2],
        )
        job.due_ms = self._carry(due_ms, due_ms - created_ms)
        return job

    def _carry(self, due_ms: i64, asked_ms: i64) -> i64:
        """Return a due time on this boot's clock, no further off than what was asked for."""
        left = due_ms + self._offset_ms - self._now_ms
        return self._now_ms + min(left, asked_ms)

    def _restore(self, job: Job, data: bytes, at: i64, state: i64) -> None:
        """Set all that can change of a job to what a state block says."""
        yard = self._yard
        if job.state == DEAD:
            extra = job.extra
            assert extra is not None
            extra.outcome = None
        job.rank = read_i64_le(data, at)
        job.delay_ms = read_i64_le(data, at + 16)
        job.due_ms = self._carry(read_i64_le(data, at + 8), job.delay_ms)
        job.deliveries = read_i32_le(data, at + 24)
        job.attempts = i16(read_i32_le(data, at + 28))
        if read_i64_le(data, at + 32) != 0 or read_i64_le(data, at + 40) != 0:
            tally = job.tally()
            tally.timeouts = read_i32_le(data, at + 32)
            tally.releases = read_i32_le(data, at + 36)
            tally.buries = read_i32_le(data, at + 40)
            tally.kicks = read_i32_le(data, at + 44)
        job.state = u8(state)
        if state == DEAD:
            ending = read_i64_le(data, at + 48)
            job.queue.endings = max(job.queue.endings, ending)
            yard.rest(job, ending, read_i64_le(data, at + 56) + self._offset_ms)

    def _end(self, data: bytes, pos: i64) -> None:
        job_id = read_i64_le(data, pos + 8)
        state = data[pos + 2]
        if state == GONE:
            self._gone(job_id, i64(read_i32_le(data, pos + 20)))
            return
        job = self._yard.jobs.get(job_id)
        if job is None:
            return
        finished_ms = read_i64_le(data, pos + 80) + self._offset_ms
        due_ms = read_i64_le(data, pos + 32) + self._offset_ms
        rank = read_i64_le(data, pos + 24)
        self._yard.apply_end(job, data[pos + 1], state, rank, due_ms, finished_ms)
        if state == DEAD:
            self._set_ending(job, read_i64_le(data, pos + 40), finished_ms)
        if state == DELAYED:
            job.due_ms = self._carry(due_ms - self._offset_ms, job.delay_ms)
        # The wide record has the true count even where a lease record was not kept.
        job.deliveries = max(job.deliveries, read_i32_le(data, pos + 52))
        self._journal.ledger.trail(job, self._journal.hot)

    def _move(self, data: bytes, pos: i64) -> None:
        job = self._yard.jobs.get(read_i64_le(data, pos + 8))
        if job is not None:
            at_ms = read_i64_le(data, pos + 40) + self._offset_ms
            due_ms = read_i64_le(data, pos + 24) + self._offset_ms
            self._yard.apply_move(job, data[pos + 1], data[pos + 2], due_ms, at_ms)
            if data[pos + 2] == DEAD:
                self._set_ending(job, read_i64_le(data, pos + 32), at_ms)
            self._journal.ledger.trail(job, self._journal.hot)

    def _set_ending(self, job: Job, ending: i64, ended_ms: i64) -> None:
        """Give a dead job the number it had: what lay before it may have been compacted away."""
        queue = job.queue
        queue.endings = max(queue.endings - 1, ending)
        self._yard.rest(job, ending, ended_ms)

    def _gone(self, job_id: i64, base: i64) -> None:
        job = self._yard.jobs.get(job_id)
        if job is None:
            self._journal.ledger.count_kill(self._journal.hot, base)
            return
        self._journal.ledger.bury_base(job, self._journal.hot)
        self._yard.apply_gone(job)

    # -- everything else ----------------------------------------------------------------------

    def _rare(self, data: bytes, pos: i64, kind: int, length: i64, segment: Segment) -> None:
        if kind == KIND_STATE:
            job = self._yard.jobs.get(read_i64_le(data, pos + 8))
            if job is not None:
                self._restore(job, data, pos + 16, data[pos + 3])
                self._journal.ledger.trail(job, self._journal.hot)
        elif kind == KIND_QUEUE:
            self._queue(data, pos, segment)
        elif kind == KIND_ALIVE:
            self._alive = {
                int(read_i32_le(data, at)) for at in range(int(pos) + 8, int(pos + length), 4)
            }
        elif kind == KIND_DROPPED:
            number = int(read_i64_le(data, pos + 8))
            self._alive.discard(number)
            self._journal.next_segment = max(self._journal.next_segment, number + 1)
        elif kind != KIND_CLEAN:
            raise JournalDamaged(segment.name, segment.end, f"a record of unknown kind {kind}")

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
        self._journal.ledger.forget_queue(queue)
        queue.name = data[pos + 24 : pos + 24 + size].decode()
        queue.next_seq = max(queue.next_seq, read_i64_le(data, pos + 16))
        self._journal.ledger.hold_queue(queue, segment)
        self._journal.next_queue = max(self._journal.next_queue, number + 1)

    def finish(self, segments: list[Segment]) -> None:
        """Check that no segment is missing and stand every job in its index."""
        name = missing_segment(self._alive, segments)
        if name is not None:
            raise JournalDamaged(name, 0, "the segment is missing")
        yard = self._yard
        if self.names_lost:
            self._name_lost()
        yard.settle(self._now_ms)
        if "" in yard.queues:
            raise JournalDamaged("journal", 0, "jobs name a queue that no record describes")
        for queue in self._queues.values():
            if yard.queues.get(queue.name) is not queue:
                self._journal.ledger.forget_queue(queue)

    def _name_lost(self) -> None:
        for queue in self._queues.values():
            if not queue.name:
                queue.name = f"lost-{queue.number}"
                self.renamed.append(queue)


@final
class Recovered:
    """What a start found, for the log."""

    def __init__(self, replay: Replay, recovery: Recovery) -> None:
        self.batches_count: i64 = replay.batches_count
        self.records_count: i64 = replay.records_count
        self.superseded: list[int] = sorted(replay.superseded)
        self.cut_bytes: i64 = recovery.cut_bytes
        self.segments_count: i64 = len(recovery.segments)


def replay_all(
    yard: Yard, storage: Storage, now_ms: i64, *, names_lost: bool = False
) -> tuple[Replay, Recovery]:
    """Read the whole journal into an empty yard, changing nothing on disk."""
    recovery = Recovery(storage)
    recovery.survey()
    journal = yard.journal
    for segment in recovery.segments:
        journal.segments[segment.number] = segment
    replay = Replay(yard, now_ms)
    replay.names_lost = names_lost
    yard.is_replaying = True
    merge = Merge(storage, recovery)
    ends = {segment.number: segment.end for segment in recovery.segments}
    while True:
        found = merge.next()
        if found is None:
            break
        reader, head = found
        segment = reader.segment
        segment.end = merge.batch_offset
        replay.apply_batch(reader.data, reader.at, head, segment)
    for segment in recovery.segments:
        segment.end = max(segment.end, ends[segment.number])
    replay.finish(recovery.segments)
    return replay, recovery


def open_yard(yard: Yard, storage: Storage, now_ms: i64, *, names_lost: bool = False) -> Recovered:
    """Recover a yard from its journal and begin a new segment; only then may it be served."""
    journal = yard.journal
    replay, recovery = replay_all(yard, storage, now_ms, names_lost=names_lost)
    _resume(journal, storage, recovery)
    fields = HeadFields(recovery.epoch, 0, journal.next_id)
    fields.durable = recovery.next_number - 1
    recovery.mend(fields)
    for segment in recovery.segments:
        segment.is_sealed = True
    journal.start()
    recovery.clear()
    for queue in replay.renamed:
        journal.append_name(queue, queue.name.encode())
    return Recovered(replay, recovery)


def _resume(journal: Journal, storage: Storage, recovery: Recovery) -> None:
    """Go on counting where the last boot stopped."""
    journal.epoch = recovery.epoch + 1
    journal.next_id = max(journal.next_id, recovery.next_id)
    journal.open_number = recovery.next_number
    journal.written = recovery.next_number - 1
    journal.durable = recovery.next_number - 1
    journal.appended = recovery.next_number - 1
    for segment in recovery.segments:
        journal.next_segment = max(journal.next_segment, segment.number + 1)
    for segment in recovery.empty:
        journal.next_segment = max(journal.next_segment, segment.number + 1)
    for name in storage.names():
        number = spare_number(name)
        if number == 0:
            continue
        journal.next_segment = max(journal.next_segment, number + 1)
        if storage.size(name) == journal.segment_size:
            journal.add_spare(name)
        else:
            storage.unlink(name)
