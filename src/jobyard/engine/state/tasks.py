"""Work that may take longer than others can be kept waiting: done in slices, over turns.

A task does some of its work whenever it is asked to and says how much that was, in units: about one
job looked at, or a few for one that is changed. No clock is read, so a run can be repeated. One
turn has UNITS_PER_TURN for all tasks; a command whose task is through with what is left of them is
answered at once, as if there were no tasks. All others go on at the end of every turn, each with
its share, and whoever began one is told when it has ended.

Between two slices anything may happen to the yard. A task keeps no place in a heap or a dict: it
goes by ids, which only rise, or by a list of its own, and looks at each job again before it
changes it. What must be all or nothing for others is not cut into tasks, but the work it leaves.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.errors import Refused, StorageFull
from jobyard.journal.journal import Journal

# About two milliseconds of processor time in the compiled build.
UNITS_PER_TURN: Final = 2000
# Jobs that are handed at once to clients that wait; those further back are served over turns.
SERVED_AT_ONCE: Final = 250
# What a task may do at once though the turn has nothing left: most work is as small as that.
FIRST_UNITS: Final = 64
# The end of a task of so many slices takes the rest of its turn: it frees what it has gathered, or
# puts it together, and its starter often begins the next long task.
LONG_SLICES: Final = 8


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Starter:
    """Who began a task and waits for its end."""

    def task_ended(self, task: "Task", refusal: Exception | None, now_ms: i64) -> None:
        """Take note that a task is through, or was refused in the middle."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenStarter(Starter):
    """A starter that need not be compiled: an interpreted class cannot have a compiled trait."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Task:
    """One piece of long work."""

    def __init__(self) -> None:
        self.starter: Starter | None = None
        # The batch that must be on the disk before its starter answers, though less is enough for
        # others; 0 for none.
        self.raised: i64 = 0
        # It changes nothing, so nobody needs the rest of it once its starter has gone.
        self.is_reading: bool = False
        # Since it was begun, but for what was done at once.
        self.slices_count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Do up to about `most` units; return how many. Fewer than `most` says that all is done."""
        raise NotImplementedError

    def abandon(self) -> "Task | None":
        """Let go of what the task is known by: nobody wants the rest of it, and it does no more.

        Returns the work of freeing what it has gathered, if that is much.
        """
        return None


@final
class Rest(Task):
    """Nothing to do before the next turn."""

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Do nothing."""
        return 0


@final
class Tasks:
    """All tasks under way."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # Smaller in tests, so that little work is long.
        self.units_per_turn: i64 = UNITS_PER_TURN
        self.first_units: i64 = FIRST_UNITS
        self.served_at_once: i64 = SERVED_AT_ONCE
        self._left: i64 = UNITS_PER_TURN
        self._going: list[Task] = []
        # Those that do nothing before the next turn, and those that wait for its end.
        self._resting: list[Task] = []
        self._rested: list[Task] = []
        # The task whose slice is being done, while it is.
        self.running: Task | None = None
        # Since this process began, for tests and figures.
        self.units_done: i64 = 0
        self.turns_count: i64 = 0

    def count(self) -> i64:
        """Return how many tasks are under way."""
        return len(self._going) + len(self._resting) + len(self._rested)

    def has_units(self, units: i64) -> bool:
        """Tell whether work of so many units may be done at once."""
        return units <= self.units_at_once()

    def units_at_once(self) -> i64:
        """Return how much work may be done at once."""
        return max(self._left, self.first_units)

    def may_do(self, units: i64) -> bool:
        """Tell whether work of so many units may be done at once; if so it counts as done."""
        if not self.has_units(units):
            return False
        self._spend(units)
        return True

    def leave_less(self, units: i64) -> None:
        """Do so much less in this turn: what cannot be cut took as long."""
        self._left = max(self._left - units, 0)

    def begin(self, task: Task, starter: Starter | None, now_ms: i64) -> bool:
        """Do what this turn has room for; True if that was all, else the starter is told later.

        A refusal in this first slice is raised.
        """
        most = self.units_at_once()
        done = task.step(most, now_ms)
        self._spend(done)
        if done < most:
            return True
        task.starter = starter
        self._going.append(task)
        return False

    def follow(self, task: Task) -> None:
        """Let work nobody waits for go on from the end of this turn."""
        self._going.append(task)

    def rest(self, starter: Starter) -> Task:
        """Begin what ends at the end of the next turn: `starter` lets others go first."""
        task = Rest()
        task.starter = starter
        self._resting.append(task)
        return task

    def leave(self, task: Task) -> None:
        """Tell nobody of the end of a task: who began it has gone. Changes are still made."""
        task.starter = None
        if task.is_reading and task in self._going:
            self._going.remove(task)
            freeing = task.abandon()
            if freeing is not None:
                self.follow(freeing)

    def go_on(self, now_ms: i64) -> bool:
        """End a turn: do what it has room for, and some in any case; True if work is left."""
        self.turns_count += 1
        if self._rested or self._resting:
            self._wake(now_ms)
        going = self._going
        share = max(1, self.units_per_turn // 4)
        self._left = max(self._left, share)
        while going and self._left > 0:
            task = going.pop(0)
            most = min(self._left, share)
            done = self._step(task, most, now_ms)
            if done >= most:
                going.append(task)
            elif done == 0:
                self._left = max(self._left - 1, 0)
        self._left = self.units_per_turn
        return self.count() > 0

    def _wake(self, now_ms: i64) -> None:
        rested = self._rested
        self._rested = self._resting
        self._resting = []
        for task in rested:
            _tell(task, None, now_ms)

    def _step(self, task: Task, most: i64, now_ms: i64) -> i64:
        refusal: Exception | None = None
        done: i64 = 0
        self._journal.raised = 0
        self.running = task
        try:
            done = task.step(most, now_ms)
        except (Refused, StorageFull) as error:
            refusal = error
        self.running = None
        task.raised = max(task.raised, self._journal.take_raised())
        self._spend(done)
        task.slices_count += 1
        if done < most:
            if task.slices_count >= LONG_SLICES:
                self._left = 0
            _tell(task, refusal, now_ms)
        # It knows this frame, which knows it.
        refusal = None
        return done

    def give_up(self, refusal: Exception, now_ms: i64) -> None:
        """Tell who waits for the task whose slice failed that nothing comes of it."""
        task = self.running
        assert task is not None
        self.running = None
        task.abandon()
        _tell(task, refusal, now_ms)

    def _spend(self, done: i64) -> None:
        self._left = max(self._left - done, 0)
        self.units_done += done


def _tell(task: Task, refusal: Exception | None, now_ms: i64) -> None:
    """Tell who began a task that it has ended.

    Neither keeps the other from there on: what outlives a turn of long work is old for the
    collector, which looks for cycles among young objects only.
    """
    starter = task.starter
    task.starter = None
    if starter is not None:
        starter.task_ended(task, refusal, now_ms)
