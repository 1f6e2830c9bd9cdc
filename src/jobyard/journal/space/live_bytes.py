"""How many bytes of each segment compaction would have to copy, as counters, without scans.

A byte is live if it is needed to rebuild the yard: the base of a live job, its trail (the one
segment with all changes since the base), kill records as long as the segment of what they remove
exists, names of existing queues, heads and records of existing logs, keys of records that are in
memory. A segment with a count of zero can be removed without reading it.
"""

from typing import final

from mypy_extensions import i32, i64

from jobyard.journal.format.key_record import KEY_SIZE
from jobyard.journal.format.log_record import head_bytes
from jobyard.journal.format.record import ENTRY_SIZE, GONE_SIZE, MOVED_SIZE, QUEUE_SIZE, STATE_SIZE
from jobyard.journal.format.segment import Segment
from jobyard.model.details_codec import size_of
from jobyard.model.entry import Entry
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.model.topic.key_table import KeyTable
from jobyard.model.topic.log import LogTopic, WriteKey


def queue_bytes(queue: Queue) -> i64:
    """Return the size of the record of a queue's name."""
    return QUEUE_SIZE + len(queue.name)


def entry_bytes(entry: Entry) -> i64:
    """Return the size of the record of an entry."""
    return ENTRY_SIZE + len(entry.key) + len(entry.value)


def base_bytes(job: Job) -> i64:
    """Return the size of the base of a job when it is copied."""
    details = job.details
    weight: i64 = 0 if details is None else i64(details.base_weight)
    return MOVED_SIZE + i64(job.size) + weight


def _trail_bytes(job: Job) -> i64:
    details = job.details
    return STATE_SIZE + (0 if details is None else i64(details.trail_weight))


@final
class LiveBytes:
    """Live bytes by segment, and the number of live jobs."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.jobs_count: i64 = 0

    def trail(self, job: Job, segment: Segment) -> None:
        """Count the changes of a job as live in `segment`, and no longer in an older one."""
        number = segment.number
        details = job.details
        if details is None:
            if i64(job.trail) != number:
                self._forget_trail(job)
                segment.live += STATE_SIZE
                job.trail = i32(number)
            return
        self._forget_trail(job)
        details.trail_weight = i32(size_of(details))
        segment.live += _trail_bytes(job)
        job.trail = i32(number)

    def _forget_trail(self, job: Job) -> None:
        trail = i64(job.trail)
        if trail != 0:
            self.segments[trail].live -= _trail_bytes(job)
            job.trail = 0
            details = job.details
            if details is not None:
                details.trail_weight = 0

    def hold_base(self, job: Job, segment: Segment, weight: i64) -> None:
        """Count a new job whose details have `weight` bytes; its place is set."""
        if weight > 0:
            job.ensure_details().base_weight = i32(weight)
        segment.live += base_bytes(job)
        self.jobs_count += 1

    def bury_base(self, job: Job, segment: Segment, base: i64) -> None:
        """Count a job as removed; its kill record is live as long as its base exists.

        `base` is the segment that the record names. On replay that may be gone; the job then has an
        older base, for which there is another record.
        """
        self.segments[job.place >> 32].live -= base_bytes(job)
        self._forget_trail(job)
        self.jobs_count -= 1
        self.count_kill(segment, base)

    def count_kill(self, segment: Segment, base: i64) -> None:
        """Count a kill record in `segment` for a base in another segment."""
        self.count_erased(segment, base, GONE_SIZE)

    def count_erased(self, segment: Segment, base: i64, size: i64) -> None:
        """Count `size` bytes in `segment` that remove something in another segment."""
        if segment.number != base and base in self.segments:
            segment.kills[base] = segment.kills.get(base, 0) + size
            segment.live += size

    def leave_base(self, job: Job) -> None:
        """Stop counting the base and the trail of a job that is being written again."""
        self.segments[job.place >> 32].live -= base_bytes(job)
        self._forget_trail(job)

    def take_base(self, job: Job, segment: Segment, offset: i64, weight: i64) -> None:
        """Set the base of a job to an offset in `segment`, after `leave_base`."""
        details = job.details
        if details is not None:
            details.base_weight = i32(weight)
        segment.live += base_bytes(job)
        job.place = (segment.number << 32) | offset

    def hold_queue(self, queue: Queue, segment: Segment) -> None:
        """Count the name of a queue as written in `segment`, and nowhere else."""
        self.forget_queue(queue)
        queue.segment = i32(segment.number)
        segment.live += queue_bytes(queue)

    def forget_queue(self, queue: Queue) -> None:
        """Stop counting the name of a removed queue."""
        if queue.segment != 0:
            self.segments[i64(queue.segment)].live -= queue_bytes(queue)
            queue.segment = 0

    def hold_entry(self, entry: Entry, segment: Segment) -> None:
        """Count the value of an entry as written in `segment`, after `forget_entry`."""
        entry.segment = i32(segment.number)
        segment.live += entry_bytes(entry)

    def forget_entry(self, entry: Entry) -> None:
        """Stop counting the value of an entry; call this before the value changes."""
        if entry.segment != 0:
            self.segments[i64(entry.segment)].live -= entry_bytes(entry)
            entry.segment = 0

    def hold_head(self, log: LogTopic, segment: Segment) -> None:
        """Count the head of a log as written in `segment`, and nowhere else."""
        self.forget_head(log)
        log.segment = i32(segment.number)
        segment.live += head_bytes(log)

    def forget_head(self, log: LogTopic) -> None:
        """Stop counting the head of a dropped log."""
        if log.segment != 0:
            self.segments[i64(log.segment)].live -= head_bytes(log)
            log.segment = 0

    def free_rows(self, log: LogTopic) -> None:
        """Stop counting the records that a log has removed."""
        for number, weight in log.freed.items():
            self.segments[number].live -= weight
        log.freed.clear()

    def move_row(self, log: LogTopic, seq: i64, segment: Segment, offset: i64) -> None:
        """Count a record of a log as written in `segment`, and set the place of its text."""
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
        """Stop counting the key of a write."""
        segment = self.segments.get(key.segment)
        if segment is not None:
            segment.live -= key.weight
        key.segment = 0

    def hold_keys(self, count: i64, segment: Segment) -> None:
        """Count keys of records as written in `segment`."""
        segment.live += KEY_SIZE * count

    def forget_keys(self, count: i64, number: i64) -> None:
        """Stop counting keys of records that were written in a segment, if it still exists."""
        segment = self.segments.get(number)
        if segment is not None:
            segment.live -= KEY_SIZE * count

    def move_keys(self, table: KeyTable, numbers: list[int], segment: Segment) -> None:
        """Count some keys of a table as written in `segment`, and nowhere else."""
        for number in numbers:
            self.forget_keys(1, table.segment_of(number))
            table.set_segment(number, segment.number)
        self.hold_keys(len(numbers), segment)

    def forget_segment(self, number: i64) -> None:
        """Remove a segment; kill records for bases in it are no longer live."""
        del self.segments[number]
        for segment in self.segments.values():
            segment.live -= segment.kills.pop(number, 0)
