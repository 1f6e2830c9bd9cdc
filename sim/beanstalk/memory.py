"""What a restart may bring back of each job, record by record.

One entry for each record the yard must have made, in the order of all records. A restart brings
back everything up to some record and nothing after it, so the state found must fit every job's
entries at the same record. Of entries that can no longer be lost, only the newest is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.state import ModelJob

READY: Final = 0
DELAYED: Final = 1
LEASED: Final = 2
DEAD: Final = 3

# Among the due times of a remembered delay: it may also have been recorded as over.
OVER: Final = -1


class Memory:
    """A job as one record left it; `walls` are the wall times at which its delay may end."""

    __slots__ = ("counts", "delay_ms", "ending", "rank", "state", "walls")

    def __init__(self, job: ModelJob, state: int, walls: set[int]) -> None:
        self.state = state
        self.rank = job.rank
        self.delay_ms = job.delay_ms
        self.counts = (job.reserves, job.timeouts, job.releases, job.buries, job.kicks)
        self.ending = job.ending
        self.walls = walls


class Entry:
    """One record: the states it may have left, and its place in the order of all records.

    `first` and `last` differ if the order within one tick is unknown. None: the job is gone.
    """

    __slots__ = ("first", "last", "memories")

    def __init__(self, number: int, memories: list[Memory] | None) -> None:
        self.first = number
        self.last = number
        self.memories = memories


class Records:
    """The order of all records, and which of them answers may depend on."""

    def __init__(self) -> None:
        self.count = 0
        # The newest record that an answer may wait for, and the newest that certainly exists.
        self.waited = 0
        self.certain = 0
        # A full disk may skip records that change only counts.
        self.may_skip = False
        # Wall time minus world time as stored in the journal.
        self.wall_offset = 0
        # Jobs with entries that a power cut might undo.
        self.recent: list[ModelJob] = []

    def add(
        self, job: ModelJob, state: int, *, waited: bool = True, is_light: bool = False
    ) -> None:
        """Note the record of a change; a light one changes nothing that a restart would not."""
        is_sure = not self.may_skip or (waited and not is_light)
        self.count += 1
        memory = Memory(job, state, set())
        if state == DELAYED:
            memory.walls.add(job.due + self.wall_offset)
        memories = [memory]
        if not is_sure:
            memories += job.history[-1].memories or ()
        job.history.append(Entry(self.count, memories))
        self.recent.append(job)
        if is_sure:
            self.certain = self.count
            if waited:
                self.waited = job.waited = self.count

    def add_gone(self, job: ModelJob) -> None:
        """Note the record of a removal."""
        self.count += 1
        job.history.append(Entry(self.count, None))
        self.recent.append(job)
        self.waited = self.certain = self.count

    def note_over(self, job: ModelJob) -> None:
        """Note that a delay ended: no record states it, but a copy made from now on would."""
        for memory in job.history[-1].memories or ():
            memory.walls.add(OVER)

    def note_wall(self, offset: int, jobs: Iterable[ModelJob]) -> None:
        """Note that the journal dates records by another wall clock from now on."""
        self.wall_offset = offset
        for job in jobs:
            job.created_walls.add(job.created + offset)
            for memory in job.history[-1].memories or ():
                if memory.state == DELAYED:
                    memory.walls.add(job.due + offset)

    def blur(self, before: int) -> None:
        """Note that the order of the records after `before` is unknown."""
        for job in self.recent:
            for entry in job.history:
                if entry.last > before:
                    entry.first = before + 1
                    entry.last = self.count

    def settle(self, number: int) -> None:
        """Note that records up to `number` are durable: no restart goes back before them."""
        recent: list[ModelJob] = []
        for job in self.recent:
            history = job.history
            while len(history) > 1 and history[1].last <= number:
                history.pop(0)
            if len(history) > 1 or history[0].last > number:
                recent.append(job)
        self.recent = recent
