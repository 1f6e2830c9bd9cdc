"""Delete jobs of a queue that is a topic: those below a seq, with a tag, or both.

A few jobs are removed at one moment. Many are removed in slices, in the order of their seqs; jobs
that came after the request stay. Holders are notified of ended leases after each slice.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.clearing import REMOVAL_UNITS
from jobyard.engine.jobs.lease_events import defer_lease_events, send_lease_events
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_queue import record_meta_of
from jobyard.model.job import GONE, Job
from jobyard.model.queue import Queue

# Means that no seq is given.
NO_SEQ: Final = -1

# Jobs that are looked at together.
_SLICE: Final = 256


@final
class Removal(Task):
    """Removes jobs that exist now, even leased ones."""

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
        # Seqs are not enough: a queue that is emptied meanwhile may restart them.
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
        defer_lease_events(yard)
        try:
            done = self._remove(most, now_ms, is_few=is_few)
        finally:
            send_lease_events(yard, now_ms)
        if queue.rules is not None and queue.first_link is not None:
            offer(yard, queue, now_ms)
        drop_if_idle(yard, queue)
        return min(done, most - 1) if self._is_through else max(done, most)

    def _remove(self, most: i64, now_ms: i64, *, is_few: bool) -> i64:
        done: i64 = 0
        jobs_by_seq = jobs_by_seq_of(self._queue)
        if self._seq == 0:
            oldest = jobs_by_seq.oldest()
            self._seq = 0 if oldest is None else oldest.key - 1
        while (is_few or done < most) and not self._is_through:
            jobs = jobs_by_seq.after(self._seq, _SLICE if is_few else min(_SLICE, most - done))
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
        record_meta = record_meta_of(job)
        if record_meta is None or not record_meta.tag:
            return False
        return (
            record_meta.tag.startswith(self._tag)
            if self._is_prefix
            else record_meta.tag == self._tag
        )
