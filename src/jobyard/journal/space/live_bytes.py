"""What compaction would have to save of each segment, kept as counters, never found by a scan.

A byte lives where it is needed to rebuild the yard: the base of a living job, its trail (the one
segment with all news since the base), kill records for as long as the segment of what they kill
exists, names of living queues, heads and records of living logs. A segment whose count is zero can
go unread.
"""

from typing import final

from mypy_extensions import i32, i64

from jobyard.journal.format.log_record import head_bytes
from jobyard.journal.format.record import ENTRY_SIZE, GONE_SIZE, MOVED_SIZE, QUEUE_SIZE, STATE_SIZE
from jobyard.journal.format.segment import Segment
from jobyard.model.details import size_of
from jobyard.model.entry import Entry
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.model.topic.log import LogTopic, WriteKey


def queue_bytes(queue: Queue) -> i64:
    """Return what the record of a queue's name weighs."""
    return QUEUE_SIZE + len(queue.name)


def entry_bytes(entry: Entry) -> i64:
    """Return what the record of an entry weighs."""
    return ENTRY_SIZE + len(entry.key) + len(entry.value)


def base_bytes(job: Job) -> i64:
    """Return what the base of a job weighs."""
    extra = job.extra
    weight: i64 = 0 if extra is None else i64(extra.base_weight)
    return MOVED_SIZE + i64(job.size) + weight


def _trail_bytes(job: Job) -> i64:
    extra = job.extra
    return STATE_SIZE + (0 if extra is None else i64(extra.trail_weight))


@final
class Ledger:
    """Live bytes by segment, and the number of living jobs."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.jobs_count: i64 = 0

    def trail(self, job: Job, segment: Segment) -> None:
        """Count the news of a job as worth saving in `segment`, and no longer in an older one."""
        number = segment.number
        extra = job.extra
        if extra is None:
            if i64(job.trail) != number:
                self._forget_trail(job)
                segment.live += STATE_SIZE
                job.trail = i32(number)
            return
        self._forget_trail(job)
        extra.trail_weight = i32(size_of(extra))
        segment.live += _trail_bytes(job)
        job.trail = i32(number)

    def _forget_trail(self, job: Job) -> None:
        trail = i64(job.trail)
        if trail != 0:
            self.segments[trail].live -= _trail_bytes(job)
            job.trail = 0
            extra = job.extra
            if extra is not None:
                extra.trail_weight = 0

    def hold_base(self, job: Job, segment: Segment, weight: i64) -> None:
        """Count a new job whose extra weighs `weight`; its place is set."""
        if weight > 0:
            job.more().base_weight = i32(weight)
        segment.live += base_bytes(job)
        self.jobs_count += 1

    def bury_base(self, job: Job, segment: Segment, base: i64) -> None:
        """Count a job as dead: its bytes no longer live, its kill record lives with its base.

        `base` is the one the record names. On replay that may be gone, and the job one of an older
        body, for which there is another record.
        """
        self.segments[job.place >> 32].live -= base_bytes(job)
        self._forget_trail(job)
        self.jobs_count -= 1
        self.count_kill(segment, base)

    def count_kill(self, segment: Segment, base: i64) -> None:
        """Count a kill record in `segment` for a base in another segment."""
        self.count_erased(segment, base, GONE_SIZE)

    def count_erased(self, segment: Segment, base: i64, size: i64) -> None:
        """Count `size` bytes in `segment` that kill something in another segment."""
        if segment.number != base and base in self.segments:
            segment.kills[base] = segment.kills.get(base, 0) + size
            segment.live += size

    def leave_base(self, job: Job) -> None:
        """Count neither the base of a job nor its trail any more: it is written anew."""
        self.segments[job.place >> 32].live -= base_bytes(job)
        self._forget_trail(job)

    def take_base(self, job: Job, segment: Segment, offset: i64, weight: i64) -> None:
        """Make a place in `segment` the base of a job that has left its old one."""
        extra = job.extra
        if extra is not None:
            extra.base_weight = i32(weight)
        segment.live += base_bytes(job)
        job.place = (segment.number << 32) | offset

    def hold_queue(self, queue: Queue, segment: Segment) -> None:
        """Count the name of a queue as written in `segment`, and nowhere else."""
        self.forget_queue(queue)
        queue.segment = i32(segment.number)
        segment.live += queue_bytes(queue)

    def forget_queue(self, queue: Queue) -> None:
        """Count the name of a queue that ended as dead."""
        if queue.segment != 0:
            self.segments[i64(queue.segment)].live -= queue_bytes(queue)
            queue.segment = 0

    def hold_entry(self, entry: Entry, segment: Segment) -> None:
        """Count the value of an entry as written in `segment`; its old weight is off the books."""
        entry.segment = i32(segment.number)
        segment.live += entry_bytes(entry)

    def forget_entry(self, entry: Entry) -> None:
        """Count the value of an entry no more; call before it changes."""
        if entry.segment != 0:
            self.segments[i64(entry.segment)].live -= entry_bytes(entry)
            entry.segment = 0

    def hold_head(self, log: LogTopic, segment: Segment) -> None:
        """Count the head of a log as written in `segment`, and nowhere else."""
        self.forget_head(log)
        log.segment = i32(segment.number)
        segment.live += head_bytes(log)

    def forget_head(self, log: LogTopic) -> None:
        """Count the head of a log that was dropped as dead."""
        if log.segment != 0:
            self.segments[i64(log.segment)].live -= head_bytes(log)
            log.segment = 0

    def free_rows(self, log: LogTopic) -> None:
        """Count the records a log has let go of as dead."""
        for number, weight in log.freed.items():
            self.segments[number].live -= weight
        log.freed.clear()

    def move_row(self, log: LogTopic, seq: i64, segment: Segment, offset: i64) -> None:
        """Count a record of a log as written in `segment`, and nowhere else; its text is there."""
        chunk = log.chunk_of(seq)
        assert chunk is not None
        slot = seq - chunk.base
        weight = chunk.weight_of(slot)
        self.segments[chunk.segments[slot]].live -= weight
        segment.live += weight
        chunk.segments[slot] = segment.number
        chunk.offsets[slot] = offset

    def hold_key(self, key: WriteKey, segment: Segment, weight: i64) -> None:
        """Count the key of a write as written in `segment`, and nowhere else."""
        self.forget_key(key)
        key.segment = segment.number
        key.weight = weight
        segment.live += weight

    def forget_key(self, key: WriteKey) -> None:
        """Count the key of a write as dead."""
        segment = self.segments.get(key.segment)
        if segment is not None:
            segment.live -= key.weight
        key.segment = 0

    def forget_segment(self, number: i64) -> None:
        """Drop a segment from the books; kill records for bases in it are dead now."""
        del self.segments[number]
        for segment in self.segments.values():
            segment.live -= segment.kills.pop(number, 0)
