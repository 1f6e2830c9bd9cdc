"""Puts the entries of a long stream in order in slices, for the first subscription to it."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.jobs.subscriptions import let_go
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.model.glidemq.subscriptions import Audience, has_entry
from jobyard.model.queue import Queue

# Entries that are taken in at a time, and in one unit of work.
_FILLED: Final = 256
_FILLED_PER_UNIT: Final = 2


@final
class Filling(Task):
    """Puts the entries of a stream in order, for the first subscription to it."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__()
        self.is_reading = True
        self._yard = yard
        self._queue = queue
        audience = queue.audience
        if audience is None:
            audience = Audience()
            queue.audience = audience
        audience.filling_count += 1
        self._audience = audience

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Take in some entries; whatever comes meanwhile is taken in as it comes."""
        audience = self._audience
        done: i64 = 0
        while done < most and not audience.is_filled and self._queue.audience is audience:
            count = min((most - done) * _FILLED_PER_UNIT, _FILLED)
            jobs = roster_of(self._queue).walk(audience.filled_seq, count)
            for job in jobs:
                if has_entry(job):
                    audience.take_in(job)
                audience.filled_seq = job.key
            done += len(jobs) // _FILLED_PER_UNIT + 1
            audience.is_filled = len(jobs) < count
        if audience.is_filled or self._queue.audience is not audience:
            return min(done, most - 1)
        return done

    def end(self) -> None:
        """Have no share in it any more: a subscription was made, or is not wanted."""
        if self._queue.audience is self._audience:
            self._audience.filling_count -= 1
            let_go(self._yard, self._queue, self._audience)

    def abandon(self) -> Task | None:
        """Make it no further, unless others wait for it too."""
        self.end()
        return None


def needs_filling(queue: Queue) -> bool:
    """Tell whether there are so many entries to put in order that it is not done at once."""
    is_filled = queue.audience is not None and queue.audience.is_filled
    return not is_filled and queue.jobs_count() > _FILLED
