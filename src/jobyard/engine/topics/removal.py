"""Deletes jobs of a queue that is a topic: those below a seq, with a tag, or both.

Few go at one moment. Of many some go at a time, in the order of their seqs; what came after the
request stays. Holders hear of the ends of their leases after each slice.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import REMOVAL_UNITS
from jobyard.engine.jobs.lease_events import hold_tidings, send_tidings
from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_queue import remark_of
from jobyard.model.job import GONE, Job
from jobyard.model.queue import Queue

# No seq is given.
NO_SEQ: Final = -1

# Jobs that are looked at together.
_SLICE: Final = 256


@final
class Removal(Task):
    """Removes the jobs there are now, even leased ones."""

    def __init__(
        self,
        yard: Yard,
        queue: Queue,
        before_seq: i64,
        tag: str,
        *,
        is_prefix: bool,
        has_match: bool,
    ) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        self._tag: str = tag
        self._is_prefix: bool = is_prefix
        self._has_match: bool = has_match
        end: i64 = queue.next_seq if before_seq < 0 else min(before_seq, queue.next_seq)
        self._end: i64 = end
        # A queue that was emptied meanwhile counts its seqs anew.
        self._before_id: i64 = yard.journal.next_id
        self._seq: i64 = 0
        self._is_through: bool = False
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Remove some."""
        yard = self._yard
        queue = self._queue
        if yard.queues.get(queue.name) is not queue:
            return 0
        is_few = queue.jobs_count() * REMOVAL_UNITS <= yard.tasks.units_per_turn
        hold_tidings(yard)
        try:
            done = self._remove(most, now_ms, is_few=is_few)
        finally:
            send_tidings(yard, now_ms)
        if queue.rules is not None and queue.first_link is not None:
            offer(yard, queue, now_ms)
        drop_if_idle(yard, queue)
        return min(done, most - 1) if self._is_through else max(done, most)

    def _remove(self, most: i64, now_ms: i64, *, is_few: bool) -> i64:
        done: i64 = 0
        roster = roster_of(self._queue)
        if self._seq == 0:
            oldest = roster.oldest()
            self._seq = 0 if oldest is None else oldest.key - 1
        while (is_few or done < most) and not self._is_through:
            jobs = roster.after(self._seq, _SLICE if is_few else min(_SLICE, most - done))
            self._is_through = not jobs
            for job in jobs:
                if job.key >= self._end:
                    self._is_through = True
                    break
                self._seq = job.key
                done += 1
                if self._is_meant(job):
                    erase(self._yard, job, now_ms)
                    self.count += 1
                    done += REMOVAL_UNITS
        return done

    def _is_meant(self, job: Job) -> bool:
        if job.state == GONE or job.id >= self._before_id:
            return False
        if not self._has_match:
            return True
        remark = remark_of(job)
        if remark is None or not remark.tag:
            return False
        return remark.tag.startswith(self._tag) if self._is_prefix else remark.tag == self._tag
