"""The ids of a long list of jobs, sorted some at a time."""

import heapq
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.state.tasks import Task
from jobyard.model.job import READY, Job
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of

# Shorter lists are sorted at once.
LISTED_AT_ONCE: Final = 256
# Maximum length of a sorted run.
_RUN: Final = 256
# Cost of listing one job.
_UNITS: Final = 2

# The sort key of a job; its seq separates jobs that are otherwise equal.
_Entry = tuple[int, int, int, int, Job]


@final
class ListedIds(Task):
    """Jobs that wait in their ordering groups, then those in the list; the last is taken first."""

    def __init__(self, waiting: list[Job], standing: list[Job], ready_list: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._waiting = waiting
        self._standing = standing
        self._ready_list: i64 = ready_list
        self._runs: list[list[_Entry]] = []
        self._merged: Iterator[_Entry] | None = None
        self.ids: list[bytes] = []

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only looks
        """Sort some jobs, or list some."""
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
                if job.state == READY and job.ready_list == self._ready_list:
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
