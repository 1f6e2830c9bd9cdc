"""Long work in slices, and the notification at its end."""

from typing import final

import pytest

from jobyard.engine.state.tasks import FIRST_UNITS, UNITS_PER_TURN, OpenTaskOwner, Task, Tasks
from jobyard.errors import Refused, YardFull
from tests.support.site.site import NOW_MS
from tests.support.site.yard import OpenYard


class Counting(Task):
    """Work of so many units."""

    def __init__(self, size: int, notes: list[str], name: str = "") -> None:
        super().__init__()
        self.left = size
        self.steps: list[int] = []
        self._notes = notes
        self._name = name

    def step(self, most: int, now_ms: int) -> int:
        assert now_ms == NOW_MS
        done = min(most, self.left)
        self.left -= done
        self.steps.append(done)
        self._notes.append(self._name)
        return done


class Failing(Task):
    """Work that is refused in its second slice."""

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    def step(self, most: int, now_ms: int) -> int:
        assert now_ms == NOW_MS
        if self._has_begun:
            raise YardFull
        self._has_begun = True
        return most


@final
class DashboardEvent(OpenTaskOwner):
    """The owner of tasks."""

    def __init__(self) -> None:
        self.ended: list[Task] = []
        self.refusals: list[Exception | None] = []

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: int) -> None:
        assert now_ms == NOW_MS
        self.ended.append(task)
        self.refusals.append(refusal)


def tasks() -> Tasks:
    return OpenYard().yard.tasks


def test_small_work_is_done_at_once() -> None:
    told = DashboardEvent()
    work = tasks()
    task = Counting(UNITS_PER_TURN - 1, [])
    assert work.begin(task, told, NOW_MS)
    assert (task.left, work.count(), told.ended) == (0, 0, [])


def test_long_work_continues_turn_by_turn_and_reports_its_end_once() -> None:
    told = DashboardEvent()
    work = tasks()
    task = Counting(5 * UNITS_PER_TURN, [])
    assert not work.begin(task, told, NOW_MS)
    turns = 0
    before = task.left
    while work.proceed(NOW_MS):
        turns += 1
        assert before - task.left <= UNITS_PER_TURN
        before = task.left
        assert told.ended == []
    assert turns >= 4
    assert told.ended == [task]
    assert told.refusals == [None]
    assert not work.proceed(NOW_MS)
    assert work.units_done == 5 * UNITS_PER_TURN


def test_a_turn_has_so_much_for_all_that_begins_in_it() -> None:
    work = tasks()
    begun = [Counting(UNITS_PER_TURN, []) for _ in range(20)]
    for task in begun:
        work.begin(task, None, NOW_MS)
    assert work.units_done < 2 * UNITS_PER_TURN
    small = Counting(work.first_units - 1, [])
    assert work.begin(small, None, NOW_MS), "what is small is never put off"


def test_what_cannot_be_cut_leaves_less_for_the_rest_of_its_turn() -> None:
    work = tasks()
    work.leave_less(UNITS_PER_TURN - 500)
    assert work.has_units(500)
    assert not work.has_units(501)
    work.leave_less(UNITS_PER_TURN)
    assert work.has_units(work.first_units)
    work.proceed(NOW_MS)
    assert work.has_units(UNITS_PER_TURN)


def test_tasks_take_turns() -> None:
    notes: list[str] = []
    work = tasks()
    for name in ("a", "b"):
        work.begin(Counting(20 * UNITS_PER_TURN, notes, name), None, NOW_MS)
    notes.clear()
    work.proceed(NOW_MS)
    work.proceed(NOW_MS)
    assert "".join(notes) in {"ababa", "babab"}


def test_first_slices_of_new_work_leave_units_for_older_work() -> None:
    work = tasks()
    old = Counting(3 * UNITS_PER_TURN, [])
    work.begin(old, None, NOW_MS)
    before = old.left
    work.proceed(NOW_MS)
    work.begin(Counting(UNITS_PER_TURN - 1, []), None, NOW_MS)
    work.proceed(NOW_MS)
    assert old.left < before


def test_a_refusal_at_once_is_raised_and_a_later_one_is_reported() -> None:
    class Refusing(Task):
        def step(self, most: int, now_ms: int) -> int:
            raise Refused(f"no {most} at {now_ms}")

    told = DashboardEvent()
    work = tasks()
    with pytest.raises(Refused):
        work.begin(Refusing(), told, NOW_MS)
    assert work.count() == 0
    work.begin(Failing(), told, NOW_MS)
    assert not work.proceed(NOW_MS)
    assert isinstance(told.refusals[0], YardFull)


def test_whoever_left_is_not_told_but_changes_are_made() -> None:
    told = DashboardEvent()
    work = tasks()
    change, reading = Counting(2 * UNITS_PER_TURN, []), Counting(2 * UNITS_PER_TURN, [])
    reading.is_reading = True
    for task in (change, reading):
        work.begin(task, told, NOW_MS)
        work.leave(task)
    left = reading.left
    while work.proceed(NOW_MS):
        pass
    assert (change.left, reading.left, told.ended) == (0, left, [])


class Finding(Task):
    """A search that fails in its second slice and has found much by then."""

    def __init__(self, freeing: Task) -> None:
        super().__init__()
        self.is_reading = True
        self._has_begun = False
        self._freeing = freeing

    def step(self, most: int, now_ms: int) -> int:
        assert now_ms == NOW_MS
        if self._has_begun:
            raise LookupError
        self._has_begun = True
        return most

    def abandon(self) -> Task:
        return self._freeing


def test_what_a_failed_search_has_found_is_freed_over_turns() -> None:
    told = DashboardEvent()
    work = tasks()
    freeing = Counting(UNITS_PER_TURN + 1, [])
    assert not work.begin(Finding(freeing), told, NOW_MS)
    with pytest.raises(LookupError):
        work.proceed(NOW_MS)
    refusal = Refused("internal error")
    work.give_up(refusal, NOW_MS)
    assert told.refusals == [refusal]
    while work.proceed(NOW_MS):
        pass
    assert freeing.left == 0


def test_who_rests_is_told_at_the_end_of_the_next_turn() -> None:
    told = DashboardEvent()
    work = tasks()
    task, left = work.rest(told), work.rest(told)
    work.leave(left)
    assert (work.proceed(NOW_MS), told.ended, work.count()) == (True, [], 2)
    assert (work.proceed(NOW_MS), told.ended, work.count()) == (False, [task], 0)
    assert work.turns_count == 2
    # Neither keeps the other in memory: no collector comes for them.
    assert task.task_owner is None


@final
class Measuring(OpenTaskOwner):
    """Checks how many units are left at once when its task has ended."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.left: list[int] = []

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: int) -> None:
        assert (task.task_owner, refusal, now_ms) == (None, None, NOW_MS)
        self.left.append(int(self._tasks.units_at_once()))


@pytest.mark.parametrize(
    ("turns", "left"), [(1, UNITS_PER_TURN // 4 - 2), (5, FIRST_UNITS)], ids=["short", "long"]
)
def test_the_end_of_a_long_task_takes_the_rest_of_its_turn(turns: int, left: int) -> None:
    tasks = OpenYard().yard.tasks
    told = Measuring(tasks)
    assert not tasks.begin(Counting(turns * UNITS_PER_TURN + 2, []), told, NOW_MS)
    while not told.left:
        tasks.proceed(NOW_MS)
    assert told.left == [left]
