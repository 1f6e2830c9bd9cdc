"""Long work, done in slices over several turns so that it does not delay other connections.

A task does a slice of its work when `step` is called and returns how much that was, in units: one
for a job that is read, a few for a job that is changed. No clock is read, so a run is reproducible.
One turn has UNITS_PER_TURN for all tasks; a command whose task fits into what is left of them gets
its reply at once, as if there were no tasks. All others continue at the end of every turn, each
with its share, and the task owner is notified when its task has ended.

Between two slices anything may happen to the yard. A task keeps no position in a heap or a dict: it
goes by ids, which only rise, or by a list of its own, and checks each job again before it changes
it. A change that must be all or nothing is not sliced; only the cleanup after it is.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.errors import Refused, StorageFull
from jobyard.journal.journal import Journal

# About two milliseconds of processor time in the compiled build.
UNITS_PER_TURN: Final = 2000
# Jobs given to waiting clients at once; clients further back are served over turns.
SERVED_AT_ONCE: Final = 250
# Units a task may do at once even if the turn has none left: most work is as small as that.
FIRST_UNITS: Final = 64
# The end of a task with this many slices takes the rest of its turn: it frees or joins what it has
# collected, and its owner often begins the next long task.
LONG_SLICES: Final = 8


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class TaskOwner:
    """The object that began a task and waits for its end."""

    def task_ended(self, task: "Task", refusal: Exception | None, now_ms: i64) -> None:
        """Handle the end of a task, or a refusal in the middle of it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenTaskOwner(TaskOwner):
    """A task owner that need not be compiled: an interpreted class cannot have a compiled trait."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Task:
    """One piece of long work."""

    def __init__(self) -> None:
        self.task_owner: TaskOwner | None = None
        # The batch that must be on disk before its owner replies, though less is enough for
        # others; 0 for none.
        self.reply_sync_batch: i64 = 0
        # It changes nothing, so it is dropped when its owner is gone.
        self.is_reading: bool = False
        # Without the first one, which is done at once.
        self.slices_count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Do about `most` units; return how many. Fewer than `most` mean that all is done."""
        raise NotImplementedError

    def abandon(self) -> "Task | None":
        """Unregister the task: its result is no longer needed, and `step` is not called again.

        Returns a task that frees what this one has collected, if that is much.
        """
        return None


@final
class NextTurnTask(Task):
    """A task without work, which ends at the end of the next turn."""

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Do nothing."""
        return 0


@final
class Tasks:
    """All tasks in progress."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # Smaller in tests, so that little work counts as long.
        self.units_per_turn: i64 = UNITS_PER_TURN
        self.first_units: i64 = FIRST_UNITS
        self.served_at_once: i64 = SERVED_AT_ONCE
        self._left: i64 = UNITS_PER_TURN
        self._going: list[Task] = []
        # Tasks of `rest` that were begun in this turn, and in the turn before.
        self._resting: list[Task] = []
        self._rested: list[Task] = []
        # The task whose slice is being done.
        self.running: Task | None = None
        # Since this process started, for tests and statistics.
        self.units_done: i64 = 0
        self.turns_count: i64 = 0

    def count(self) -> i64:
        """Return how many tasks are in progress."""
        return len(self._going) + len(self._resting) + len(self._rested)

    def has_units(self, units: i64) -> bool:
        """Return whether work of `units` may be done at once."""
        return units <= self.units_at_once()

    def units_at_once(self) -> i64:
        """Return how many units may be done at once."""
        return max(self._left, self.first_units)

    def may_do(self, units: i64) -> bool:
        """Return whether work of `units` may be done at once; if so, count it as done."""
        if not self.has_units(units):
            return False
        self._spend(units)
        return True

    def leave_less(self, units: i64) -> None:
        """Reduce the units of this turn because work that cannot be sliced took as long."""
        self._left = max(self._left - units, 0)

    def begin(self, task: Task, task_owner: TaskOwner | None, now_ms: i64) -> bool:
        """Do as much of a task as this turn has room for; return True if that was all of it.

        Otherwise the owner is notified later. A refusal in this first slice is raised.
        """
        most = self.units_at_once()
        done = task.step(most, now_ms)
        self._spend(done)
        if done < most:
            return True
        task.task_owner = task_owner
        self._going.append(task)
        return False

    def follow(self, task: Task) -> None:
        """Start a task without an owner at the end of this turn."""
        self._going.append(task)

    def rest(self, task_owner: TaskOwner) -> Task:
        """Begin a task that ends at the end of the next turn, so that others go first."""
        task = NextTurnTask()
        task.task_owner = task_owner
        self._resting.append(task)
        return task

    def leave(self, task: Task) -> None:
        """Detach a task from its owner, which is gone. Changes are still made."""
        task.task_owner = None
        if task.is_reading and task in self._going:
            self._going.remove(task)
            self._drop(task)

    def _drop(self, task: Task) -> None:
        freeing = task.abandon()
        if freeing is not None:
            self.follow(freeing)

    def proceed(self, now_ms: i64) -> bool:
        """End a turn: do as much as it has room for, at least a share; True if work is left."""
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
            _notify_owner(task, None, now_ms)

    def _step(self, task: Task, most: i64, now_ms: i64) -> i64:
        refusal: Exception | None = None
        done: i64 = 0
        self._journal.command_sync_batch = 0
        self.running = task
        try:
            done = task.step(most, now_ms)
        except (Refused, StorageFull) as error:
            refusal = error
        self.running = None
        task.reply_sync_batch = max(task.reply_sync_batch, self._journal.take_command_sync_batch())
        self._spend(done)
        task.slices_count += 1
        if done < most:
            if task.slices_count >= LONG_SLICES:
                self._left = 0
            _notify_owner(task, refusal, now_ms)
        # Break the cycle between the exception and this frame.
        refusal = None
        return done

    def give_up(self, refusal: Exception, now_ms: i64) -> None:
        """Notify the owner of the task whose slice failed that it has ended."""
        task = self.running
        assert task is not None
        self.running = None
        self._drop(task)
        _notify_owner(task, refusal, now_ms)

    def _spend(self, done: i64) -> None:
        self._left = max(self._left - done, 0)
        self.units_done += done


def _notify_owner(task: Task, refusal: Exception | None, now_ms: i64) -> None:
    """Notify the owner of a task that it has ended.

    The two no longer refer to each other then: objects that survive a turn of long work are old,
    and the collector looks for cycles only among young ones.
    """
    task_owner = task.task_owner
    task.task_owner = None
    if task_owner is not None:
        task_owner.task_ended(task, refusal, now_ms)
