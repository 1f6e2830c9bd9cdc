"""What compaction would have to save of each segment, kept as counters, never found by a scan.

A byte lives where it is needed to rebuild the yard: the base of a living job, its trail (the one
segment with all news since the base), kill records for as long as the segment of what they kill
exists, names of living queues. A segment whose count is zero can go unread.
"""

from typing import final

from mypy_extensions import i32, i64

from jobyard.journal.record import GONE_SIZE, MOVED_SIZE, QUEUE_SIZE, STATE_SIZE
from jobyard.journal.segment import Segment
from jobyard.model.job import Job
from jobyard.model.queue import Queue


def queue_bytes(queue: Queue) -> i64:
    """Return what the record of a queue's name weighs."""
    return QUEUE_SIZE + len(queue.name)


@final
class Ledger:
    """Live bytes by segment, and the number of living jobs."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.jobs_count: i64 = 0

    def trail(self, job: Job, segment: Segment) -> None:
        """Count the news of a job as worth saving in `segment`, and no longer in an older one."""
        number = segment.number
        trail = i64(job.trail)
        if trail != number:
            if trail != 0:
                self.segments[trail].live -= STATE_SIZE
            segment.live += STATE_SIZE
            job.trail = i32(number)

    def bury_base(self, job: Job, segment: Segment) -> None:
        """Count a job as dead: its bytes no longer live, its kill record lives with its base."""
        base = job.place >> 32
        self.segments[base].live -= MOVED_SIZE + i64(job.size)
        trail = i64(job.trail)
        if trail != 0:
            self.segments[trail].live -= STATE_SIZE
            job.trail = 0
        self.jobs_count -= 1
        self.count_kill(segment, base)

    def count_kill(self, segment: Segment, base: i64) -> None:
        """Count a kill record in `segment` for a base in another segment."""
        if segment.number != base and base in self.segments:
            segment.kills[base] = segment.kills.get(base, 0) + GONE_SIZE
            segment.live += GONE_SIZE

    def rebase(self, job: Job, segment: Segment, offset: i64) -> None:
        """Make a place in `segment` the base of a job that has one elsewhere."""
        length: i64 = MOVED_SIZE + i64(job.size)
        self.segments[job.place >> 32].live -= length
        segment.live += length
        if job.trail != 0:
            self.segments[i64(job.trail)].live -= STATE_SIZE
            job.trail = 0
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

    def forget_segment(self, number: i64) -> None:
        """Drop a segment from the books; kill records for bases in it are dead now."""
        del self.segments[number]
        for segment in self.segments.values():
            segment.live -= segment.kills.pop(number, 0)
