"""Copies live records out of a segment that is mostly dead, then removes the segment.

Segments are chosen by their dead share, not by age, so one old job never pins the journal, and
long-lived records are not copied again and again: they settle in cold segments. One victim at a
time:

    scan, a slice a turn -> all copies durable -> DROPPED durable -> unlinked, directory synced

Only then is the next chosen. A crash at any arrow leaves the victim and the copies or only the
copies, and replay, which follows batch numbers, ends in the same state.

A segment that cannot be read stays until nothing in it is live; all others are still compacted,
except those that hold copies out of it. They stay too: the kill record of a copied job is kept only
as long as the segment of the copy, and without it the damaged segment would bring the job back. A
damaged long body is copied as it is, with its original checksum.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from jobyard.engine.logs.cursors import break_history_holds
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull
from jobyard.journal.format.key_record import KIND_KEYS, KeyRows, read_keys
from jobyard.journal.format.log_record import (
    KIND_ERASED,
    KIND_HEAD,
    KIND_LOG,
    read_erased,
    read_log,
)
from jobyard.journal.format.record import (
    ENTRY_SIZE,
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
)
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    SEAL_MAGIC,
    BatchHead,
    Segment,
    spare_name,
)
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.space.survivors import Survivors
from jobyard.model.job import GONE, Job
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_rows import LogRows

IDLE: Final = 0
SCANNING: Final = 1
COPYING: Final = 2
DROPPING: Final = 3

# The most that one slice may write and read: about 2 ms of work.
SLICE_BYTES: Final = 256 * 1024
SLICE_BATCHES: Final = 64
SLICE_RECORDS: Final = 3000
SLICE_READ: Final = 1 << 20
# If there are more small segments than this, they are merged even if they are mostly live.
SMALL_SEGMENTS_MAX: Final = 8


@final
class Compactor:
    """The one compaction in progress."""

    def __init__(self, yard: Yard, first: list[int]) -> None:
        self._yard = yard
        self._journal = yard.journal
        # Victims of a compaction that a crash interrupted: these are compacted first.
        self._first: list[int] = first
        self.phase: int = IDLE
        self._reader: Reader | None = None
        # The batch being scanned: its offset in the segment, and how much of it is scanned.
        self._head: BatchHead | None = None
        self._batch_at: i64 = 0
        self._seen: i64 = 0
        self._after: i64 = 0
        # Segments with copies out of the victim; and for each segment that cannot be read, the
        # segments that must stay as long as it does.
        self._copied_to: set[int] = set()
        self._left: dict[int, set[int]] = {}
        self.dropped_count: i64 = 0
        # Smaller in tests, so that slices end within batches.
        self.slice_records: i64 = SLICE_RECORDS

    def step(self) -> bool:
        """Do one slice of work; return True if there is more to do right away."""
        if self.phase == IDLE:
            return self._begin()
        if self.phase == SCANNING:
            return self._scan()
        if self.phase == COPYING:
            return self._announce()
        return self._drop()

    def _victim(self) -> Segment:
        reader = self._reader
        assert reader is not None
        return reader.segment

    def _begin(self) -> bool:
        victim = self._choose()
        if victim is None:
            return False
        self._copied_to.clear()
        self._reader = Reader(self._journal.storage(), victim)
        self._head = None
        self._seen = 0
        self.phase = SCANNING
        self._journal.history.leave(victim)
        if victim.live + victim.past_names == 0 and victim.number not in self._first:
            self._finish_scan()
        return True

    def _choose(self) -> Segment | None:
        journal = self._journal
        while self._first:
            segment = journal.segments.get(self._first[0])
            if segment is not None:
                return segment
            self._first.pop(0)
        history = journal.history
        if history.is_on:
            history.trim(self._yard.now_ms + journal.wall_offset_ms)
        victim = self._emptiest()
        if journal.is_short and not journal.is_full and journal.spares_wanted() == 0:
            # There is room again.
            journal.is_short = False
        if journal.is_short:
            while victim is None and history.give_way():
                victim = self._emptiest()
            journal.is_short = victim is not None
        break_history_holds(self._yard)
        if history.is_on:
            history.forget_names(journal.segments)
        return victim

    def _emptiest(self) -> Segment | None:
        journal = self._journal
        best: Segment | None = None
        small: Segment | None = None
        small_count = 0
        for segment in journal.segments.values():
            if not segment.is_sealed or segment.is_history:
                continue
            if self._left and self._must_stay(segment):
                continue
            if segment.live * 2 < segment.size and (best is None or _is_emptier(segment, best)):
                best = segment
            if segment.size * 8 < journal.segment_size:
                small_count += 1
                if small is None or segment.size < small.size:
                    small = segment
        if best is None and small_count > SMALL_SEGMENTS_MAX:
            return small
        return best

    def _must_stay(self, segment: Segment) -> bool:
        """Return whether a segment cannot be removed because it or another one is damaged."""
        if any(segment.number in held for held in self._left.values()):
            return True
        return segment.number in self._left and segment.live + segment.past_names > 0

    # -- the scan -----------------------------------------------------------------------------

    def _scan(self) -> bool:
        reader = self._reader
        assert reader is not None
        start = reader.offset if self._head is None else self._batch_at
        start_seen = self._seen
        saved = Survivors()
        is_done = self._look_at_some(reader, saved)
        if self._reader is None:
            return True
        if saved.count() > 0:
            try:
                self._copied_to.add(self._journal.write_cold(saved))
            except StorageFull:
                # Nothing was changed: the slice is scanned again when there is room.
                reader.offset = start
                self._head = None
                self._seen = start_seen
                return False
        if is_done:
            self._finish_scan()
        return True

    def _look_at_some(self, reader: Reader, saved: Survivors) -> bool:
        """Collect what is live in the next records; return True at the end of the segment.

        If the segment cannot be read, `self._reader` is None afterwards.
        """
        seen: set[int] = set()
        left = self.slice_records
        size: i64 = 0
        batches: i64 = 0
        while left > 0 and size < SLICE_READ and saved.size <= SLICE_BYTES:
            head = self._head
            if head is None:
                if batches == SLICE_BATCHES:
                    break
                batches += 1
                self._batch_at = reader.offset
                head = reader.next()
                if head is not None and head.magic == SEAL_MAGIC:
                    return True
                self._head = head
            left = -1 if head is None else self._save(head, saved, seen, left)
            if head is None or left < 0:
                self._give_up(reader.offset)
                break
            if self._seen >= head.records_size:
                size += head.total_size()
                self._head = None
                self._seen = 0
        return False

    def _give_up(self, offset: i64) -> None:
        """Skip a segment that cannot be read, and the segments that hold copies out of it."""
        victim = self._victim()
        held = set(self._copied_to)
        if victim.number in self._first:
            # Where a compaction before the start copied to is unknown.
            held.update(self._journal.segments)
            self._first.remove(victim.number)
        held.discard(victim.number)
        self._left[int(victim.number)] = held
        story = f"{victim.name} at offset {offset}: a batch cannot be read"
        self._journal.damages.note_segment(victim.number, story)
        self._reader = None
        self.phase = IDLE

    def _save(self, head: BatchHead, saved: Survivors, seen: set[int], most: i64) -> i64:
        """Collect what is live in at most `most` records of a batch.

        Returns how many more records may be scanned, or -1 if a body cannot be read.
        """
        reader = self._reader
        assert reader is not None
        data = reader.data
        first: i64 = reader.at + BATCH_HEADER_SIZE
        pos = first + self._seen
        end = first + head.records_size
        while pos < end and most > 0 and saved.size <= SLICE_BYTES:
            kind = data[pos]
            # A key is looked up as a record is.
            most -= i64(read_i32_le(data, pos + 12)) if kind == KIND_KEYS else 1
            if kind in (KIND_PUT, KIND_MOVED):
                if not self._save_base(read_i64_le(data, pos + 8), saved, seen):
                    return -1
            elif kind == KIND_GONE or (kind == KIND_END and data[pos + 2] == GONE):
                base = i64(read_i32_le(data, pos + 20))
                if base != reader.segment.number and base in self._journal.segments:
                    saved.add_kill(read_i64_le(data, pos + 8), base)
            elif kind in (KIND_LEASE, KIND_END, KIND_MOVE, KIND_STATE, KIND_NOTE):
                self._save_state(read_i64_le(data, pos + 8), saved, seen)
            elif kind == KIND_QUEUE:
                size = i64(read_i32_le(data, pos + 12))
                self._save_queue(
                    i64(read_i32_le(data, pos + 8)), data[pos + 24 : pos + 24 + size], saved
                )
            elif kind == KIND_ENTRY:
                key_end: i64 = pos + ENTRY_SIZE + i64(read_i32_le(data, pos + 8))
                self._save_entry(int(data[pos + 1]), data[pos + ENTRY_SIZE : key_end], saved)
            elif kind in (KIND_LOG, KIND_HEAD, KIND_ERASED, KIND_KEYS):
                self._save_log(data, pos, kind, saved)
            pos += i64(read_i32_le(data, pos + 4))
        self._seen = pos - first
        return max(most, 0)

    def _save_base(self, job_id: i64, saved: Survivors, seen: set[int]) -> bool:
        job = self._job(job_id)
        victim = self._victim().number
        if job is None or job.place >> 32 != victim or job_id in seen:
            return True
        bodies = self._yard.bodies
        body = bodies.fetch(job)
        if body is None:
            if job.size > INLINE_BODY_MAX:
                body = bodies.salvage(job)
            if body is None:
                # It cannot be read now, or it has no checksum on disk to mark the copy as damaged.
                return False
        seen.add(job_id)
        self._journal.warm(job)
        saved.add_job(job, body)
        return True

    def _job(self, job_id: i64) -> Job | None:
        """Return a job; one that is only there to be freed gets the queue it was written with."""
        job = self._yard.jobs.find(job_id)
        if job is not None and job.id < job.queue.gone_before and job.queue.frees_before == 0:
            for grave in self._yard.condemned.values():
                # They are in order of time.
                if grave.name == job.queue.name and job.id < grave.frees_before:
                    job.queue = grave
                    break
        return job

    def _save_state(self, job_id: i64, saved: Survivors, seen: set[int]) -> None:
        job = self._job(job_id)
        victim = self._victim().number
        if job is None or i64(job.trail) != victim or job_id in seen:
            return
        # A base in the same victim comes first, and its copy includes the state.
        if job.place >> 32 != victim:
            seen.add(job_id)
            self._journal.warm(job)
            saved.add_state(job)

    def _save_queue(self, number: i64, name: bytes, saved: Survivors) -> None:
        queue = self._yard.queues.get(name.decode())
        if queue is None or queue.number != number:
            queue = self._yard.condemned.get(number)
        if (
            queue is not None
            and queue.number == number
            and i64(queue.segment) == self._victim().number
            and queue not in saved.queues
        ):
            saved.add_queue(queue)
        past = self._journal.history.past.get(number)
        if past is not None and past.segment == self._victim().number and past not in saved.names:
            saved.add_name(past)

    def _save_entry(self, kind: int, key: bytes, saved: Survivors) -> None:
        journal = self._journal
        entry = journal.entries.get((kind, key))
        victim = self._victim().number
        if entry is None or i64(entry.segment) != victim or entry in saved.entries:
            return
        if journal.is_entry_needed(entry, victim):
            saved.add_entry(entry)
        else:
            journal.forget_entry(entry)

    def _save_log(self, data: bytes, pos: i64, kind: int, saved: Survivors) -> None:
        if kind == KIND_KEYS:
            self._save_keys(read_keys(data, pos), saved)
            return
        log = self._yard.log_numbers.get(int(read_i32_le(data, pos + 8)))
        if log is None:
            # It was dropped.
            return
        victim = self._victim().number
        if kind == KIND_HEAD:
            if i64(log.segment) == victim and log not in saved.heads:
                saved.add_head(log)
        elif kind == KIND_ERASED:
            erased = read_erased(data, pos)
            if erased.segment != victim and erased.segment in self._journal.segments:
                saved.add_erased(erased)
        else:
            self._save_rows(log, read_log(data, pos), saved)

    def _save_rows(self, log: LogTopic, rows: LogRows, saved: Survivors) -> None:
        victim = self._victim().number
        key = log.keys.get(rows.key) if rows.key else None
        keyed: LogRows | None = None
        if key is not None and key.segment == victim and key.first_seq == rows.first_seq:
            # With the time of the key on the clock of this boot.
            keyed = LogRows(rows.first_seq, rows.ts, key.at_ms)
            keyed.key = rows.key
            keyed.total = rows.total
            saved.add_rows(log, keyed, key)
        for i in range(len(rows.seqs)):
            seq = i64(rows.seqs[i])
            chunk = log.chunk_of(seq)
            if chunk is None or not chunk.is_alive(seq - chunk.base):
                continue
            if chunk.segments[seq - chunk.base] != victim:
                continue
            ts = i64(rows.times[i])
            at_ms = i64(chunk.at[seq - chunk.base])
            if keyed is not None:
                # The time of its write, even if the clock was set before a copy was made.
                at_ms = keyed.at_ms
            target = keyed if keyed is not None else saved.rows_of(log, seq, ts, at_ms)
            before = target.size
            target.add(seq, ts, at_ms, rows.texts[i], rows.metas[i], rows.tags[i], rows.nodes[i])
            saved.count_row(target.size - before)

    def _save_keys(self, rows: KeyRows, saved: Survivors) -> None:
        table = self._yard.key_tables.get(rows.table)
        if table is None:
            # Its topic was dropped.
            return
        victim = self._victim().number
        valid_after = table.valid_after(self._yard.now_ms)
        for i in range(len(rows.digests)):
            digest = rows.digests[i]
            number = table.find(digest)
            if number < 0 or table.segment_of(number) != victim:
                continue
            seq = table.seq_of(number)
            at_ms = table.at_of(number)
            if seq == i64(rows.seqs[i]) and at_ms > valid_after:
                saved.add_key(table, number, digest, seq, at_ms)

    # -- removal ------------------------------------------------------------------------------

    def _finish_scan(self) -> None:
        self._after = self._journal.open_number - 1
        self.phase = COPYING

    def _announce(self) -> bool:
        durable = self._journal.durable
        # A newer batch must be on disk: recovery requires the newest one to exist.
        if durable < self._after or durable <= self._victim().last_batch:
            return False
        try:
            self._journal.append_dropped(self._victim())
        except StorageFull:
            # Nothing was changed: it is announced when there is room.
            return False
        self._after = self._journal.open_number
        self.phase = DROPPING
        return False

    def _drop(self) -> bool:
        journal = self._journal
        if journal.durable < self._after:
            return False
        victim = self._victim()
        storage = journal.storage()
        if victim.size == journal.segment_size and journal.spares_wanted() > 0:
            # Its old batches never count again: every checksum covers the segment number.
            name = spare_name(journal.take_segment_number())
            storage.rename(victim.name, name)
            journal.add_spare(name)
        else:
            storage.unlink(victim.name)
        storage.sync_directory()
        journal.live_bytes.forget_segment(victim.number)
        journal.damages.forget_segment(victim.number)
        self._left.pop(int(victim.number), None)
        journal.is_short = False
        self.dropped_count += 1
        self._reader = None
        self.phase = IDLE
        return True


def _is_emptier(a: Segment, b: Segment) -> bool:
    return a.live * b.size < b.live * a.size
