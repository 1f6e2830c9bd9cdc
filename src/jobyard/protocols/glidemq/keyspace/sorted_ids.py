"""The ids of a long list of jobs, put in order some at a time."""

import heapq
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.state.tasks import Task
from jobyard.model.job import READY, Job
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of

# Fewer are put in order at once.
MANY: Final = 256
# Put in order together, at most.
_RUN: Final = 256
# What it takes to list one, in units of work.
_UNITS: Final = 2

# Where a job stands; its number tells it from others that stand as far ahead.
_Entry = tuple[int, int, int, int, Job]


@final
class ListedIds(Task):
    """Jobs that wait for their turn, then those that stand there; the last is taken first."""

    def __init__(self, waiting: list[Job], standing: list[Job], shelf: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._waiting = waiting
        self._standing = standing
        self._shelf: i64 = shelf
        self._runs: list[list[_Entry]] = []
        self._merged: Iterator[_Entry] | None = None
        self.ids: list[bytes] = []

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only looks
        """Put some in order, or list some."""
        done: i64 = 0
        while done < most:
            if self._waiting:
                done += self._put_in_order(self._waiting, 0, most - done)
            elif self._standing:
                done += self._put_in_order(self._standing, 1, most - done)
            elif self._merged is None:
                self._merged = heapq.merge(*self._runs)
            else:
                entry = next(self._merged, None)
                if entry is None:
                    break
                done += _UNITS
                job = entry[4]
                # It may have been taken meanwhile.
                if job.state == READY and job.shelf == self._shelf:
                    self.ids.append(bytes_of(glide_add.id_of(job)))
        return done

    def _put_in_order(self, jobs: list[Job], group: int, most: i64) -> i64:
        start = max(len(jobs) - min(_RUN, most // _UNITS + 1), 0)
        run = jobs[start:]
        del jobs[start:]
        entries: list[_Entry] = [
            (group, -job.sort_key, -job.stamp, int(job.key), job) for job in run
        ]
        entries.sort()
        self._runs.append(entries)
        return _UNITS * len(run)
