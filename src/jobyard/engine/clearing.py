"""Removes many jobs of one queue, in slices that anything may happen between.

Of the jobs that were there when it began, those go that are of the chosen when their turn comes;
what comes meanwhile stays. Few are gathered at once. To find many, all jobs of the yard are looked
through by their ids, the newest first: a heap changes between two slices, ids do not, and jobs
leave a heap from its end with the least to do.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.lists import FEW, Choice
from jobyard.engine.move import erase
from jobyard.engine.queues import drop_if_idle
from jobyard.engine.take import offer
from jobyard.engine.tasks import Task
from jobyard.engine.yard import Yard
from jobyard.model.job import Job
from jobyard.model.queue import Queue

# What it takes to remove a job, in jobs looked at.
REMOVAL_UNITS: Final = 4


@final
class Walk:
    """All jobs that were in the yard when it began, page by page, the newest first."""

    def __init__(self, yard: Yard) -> None:
        self._jobs = yard.jobs
        self._before: i64 = yard.journal.next_id
        self._pages = yard.jobs.numbers()
        self._stragglers: list[int] | None = None

    def next(self) -> list[Job] | None:
        """Return some more of the jobs, the newest last; None if there are no more."""
        if self._pages:
            before = self._before
            return [job for job in self._jobs.on_page(self._pages.pop()) if job.id < before]
        if self._stragglers is None:
            # Only now: jobs of a page that was not looked at yet may have moved there.
            self._stragglers = self._jobs.stragglers()
        if not self._stragglers:
            return None
        ids = self._stragglers[-FEW:]
        del self._stragglers[-FEW:]
        found: list[Job] = []
        for job_id in ids:
            job = self._jobs.get(job_id)
            if job is not None and job.id < self._before:
                found.append(job)
        return found


@final
class Clearing(Task):
    """Removes all jobs of a queue that are of the chosen."""

    def __init__(self, yard: Yard, queue: Queue, choice: Choice) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        self._choice = choice
        self._walk: Walk | None = None
        self._found: list[Job] = []
        if choice.count(queue) <= FEW:
            self._found = choice.jobs(queue)
        else:
            self._walk = Walk(yard)
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Remove some."""
        if self._yard.queues.get(self._queue.name) is not self._queue:
            # It was emptied by others and has gone.
            return 0
        done: i64 = 0
        before = self.count
        while done < most:
            if not self._found:
                more = None if self._walk is None else self._walk.next()
                if more is None:
                    break
                self._found = more
                done += 1
                continue
            job = self._found.pop()
            done += 1
            if job.queue is self._queue and self._choice.has(job):
                erase(self._yard, job, now_ms)
                self.count += 1
                done += REMOVAL_UNITS
        if self.count > before:
            if self._queue.rules is not None:
                # One that is gone may have held up others.
                offer(self._yard, self._queue, now_ms)
            drop_if_idle(self._yard, self._queue)
        return done
