"""Sort the entries of a long stream in slices, for the first subscription to it."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.engine.subscriptions.subscriptions import drop_if_unused
from jobyard.model.glidemq.subscriptions import Subscriptions, has_entry
from jobyard.model.queue import Queue

# Entries that are added at a time, and for one unit of work.
_FILLED: Final = 256
_FILLED_PER_UNIT: Final = 2


@final
class SubscriptionFill(Task):
    """Sorts the entries of a stream, for the first subscription to it."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__()
        self.is_reading = True
        self._yard = yard
        self._queue = queue
        subscriptions = queue.subscriptions
        if subscriptions is None:
            subscriptions = Subscriptions()
            queue.subscriptions = subscriptions
        subscriptions.filling_count += 1
        self._subscriptions = subscriptions

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  set by Task
        """Add some entries; those that arrive meanwhile are added as they arrive."""
        subscriptions = self._subscriptions
        done: i64 = 0
        while (
            done < most
            and not subscriptions.is_filled
            and self._queue.subscriptions is subscriptions
        ):
            count = min((most - done) * _FILLED_PER_UNIT, _FILLED)
            jobs = jobs_by_seq_of(self._queue).walk(subscriptions.filled_seq, count)
            for job in jobs:
                if has_entry(job):
                    subscriptions.take_in(job)
                subscriptions.filled_seq = job.key
            done += len(jobs) // _FILLED_PER_UNIT + 1
            subscriptions.is_filled = len(jobs) < count
        if subscriptions.is_filled or self._queue.subscriptions is not subscriptions:
            return min(done, most - 1)
        return done

    def end(self) -> None:
        """Release its hold on the table: the subscription was made, or is no longer wanted."""
        if self._queue.subscriptions is self._subscriptions:
            self._subscriptions.filling_count -= 1
            drop_if_unused(self._yard, self._queue, self._subscriptions)

    def abandon(self) -> Task | None:
        """Stop; the table stays if other tasks need it too."""
        self.end()
        return None


def needs_filling(queue: Queue) -> bool:
    """Return whether there are too many entries to sort at once."""
    is_filled = queue.subscriptions is not None and queue.subscriptions.is_filled
    return not is_filled and queue.jobs_count() > _FILLED
