"""The steps at the beginning and end of every turn."""

import gc

import pytest

from jobyard.engine.recovery.compaction import IDLE
from jobyard.engine.state.job_waits import JobWait, OpenJobWaiter
from jobyard.engine.state.tasks import Task
from jobyard.model.limits import NEVER_MS
from jobyard.server.turn import COMPACTION_LOOK_MS, ROUNDS_MAX, Commits, Turns, Wakeable, timeout_s
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


class NotedCommits(Commits):
    """A committer that only notes when it was called."""

    def __init__(self, next_ms: int = NEVER_MS) -> None:
        self.next_ms = next_ms
        self.turns: list[int] = []

    def turn(self, now_ms: int) -> int:
        self.turns.append(now_ms)
        return self.next_ms


class Noted(Wakeable):
    """A connection that notes when it continues, and may wake another."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name = name
        self._notes = notes
        self.wakes: list[Noted] = []
        self.turns: Turns | None = None

    def proceed(self, now_ms: int) -> None:
        self._notes.append(f"{self._name} {now_ms - NOW_MS}")
        if self.turns is not None:
            self.turns.woken.extend(self.wakes)

    def wake(self) -> None:
        raise AssertionError("nothing wakes it this way here")

    def deliver(self, data: bytes) -> None:
        raise AssertionError(data)


def test_a_turn_begins_with_what_is_due() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 5 60 1\r\nx\r\n")
    turns = Turns(site.yard, None, None)
    turns.begin(NOW_MS + 4999)
    assert site.yard.ready_count == 0
    turns.begin(NOW_MS + 5000)
    assert site.yard.ready_count == 1


def test_it_ends_with_the_time_of_the_next_timer() -> None:
    site = OpenYard()
    turns = Turns(site.yard, None, None)
    assert turns.end(NOW_MS) == NEVER_MS
    site.connect().say(b"put 0 5 60 1\r\nx\r\n")
    assert turns.end(NOW_MS) == NOW_MS + 5000


def test_the_committer_may_ask_for_an_earlier_turn() -> None:
    site = OpenYard()
    site.connect().say(b"put 0 5 60 1\r\nx\r\n")
    commits = NotedCommits(NOW_MS + 50)
    turns = Turns(site.yard, commits, None)
    assert turns.end(NOW_MS) == NOW_MS + 50
    commits.next_ms = NOW_MS + 9000
    assert turns.end(NOW_MS + 1) == NOW_MS + 5000
    assert commits.turns == [NOW_MS, NOW_MS + 1]


def test_woken_sessions_continue_in_order_before_the_commit() -> None:
    site = OpenYard()
    notes: list[str] = []

    class CommitNote(Commits):
        def turn(self, now_ms: int) -> int:
            notes.append(f"commit {now_ms - NOW_MS}")
            return NEVER_MS

    turns = Turns(site.yard, CommitNote(), None)
    first, second, third = (Noted(name, notes) for name in ("first", "second", "third"))
    first.turns = turns
    first.wakes = [third]
    turns.woken = [first, second]
    turns.end(NOW_MS + 7)
    assert notes == ["first 7", "second 7", "third 7", "commit 7"]


def test_a_session_that_wakes_itself_forever_delays_no_other() -> None:
    notes: list[str] = []
    turns = Turns(OpenYard().yard, None, None)
    restless = Noted("restless", notes)
    restless.turns = turns
    restless.wakes = [restless]
    turns.woken = [restless]
    assert turns.end(NOW_MS) == NOW_MS, "the loop would sleep"
    assert len(notes) == ROUNDS_MAX


def test_a_session_woken_by_the_commit_continues_without_delay() -> None:
    site = OpenYard()
    notes: list[str] = []

    class Waking(Commits):
        def turn(self, now_ms: int) -> int:
            del now_ms
            turns.woken.append(Noted("late", notes))
            return NEVER_MS

    turns = Turns(site.yard, Waking(), None)
    assert turns.end(NOW_MS) == NOW_MS, "the loop would sleep"
    assert notes == []


def test_a_stopped_turn_touches_no_disk() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    commits = NotedCommits()
    turns = Turns(site.yard, commits, site.compactor)
    site.put(b"x")
    seconds: list[int] = []
    turns.on_second = lambda: seconds.append(1)
    turns.stop()
    calls = storage.calls_count
    turns.begin(NOW_MS)
    assert turns.end(NOW_MS) == NEVER_MS
    assert commits.turns == []
    assert seconds == []
    assert storage.calls_count == calls


def test_once_a_second_there_is_a_call() -> None:
    turns = Turns(OpenYard().yard, None, None)
    calls: list[int] = []
    turns.on_second = lambda: calls.append(1)
    for ms in (0, 1, 500, 999, 1000, 1500, 2000, 9000, 9999):
        turns.begin(NOW_MS + ms)
    assert len(calls) == 4


def fill_and_empty(site: OpenYard, count: int) -> None:
    """Leave `count` sealed segments behind in which nothing lives."""
    last = len(site.journal.segments)
    client = site.connect()
    while len(site.journal.segments) < last + count:
        client.say(b"put 0 0 60 4000\r\n" + b"x" * 4000 + b"\r\nreserve\r\n")
        job = next(iter(site.yard.jobs.all()))
        client.say(b"delete %d\r\n" % job.id)
        site.commit()


class RealCommits(Commits):
    """Commits in every turn."""

    def __init__(self, site: OpenYard) -> None:
        self._site = site

    def turn(self, now_ms: int) -> int:
        del now_ms
        self._site.commit()
        return NEVER_MS


def test_compaction_continues_from_turn_to_turn() -> None:
    site = OpenYard(MemoryStorage())
    fill_and_empty(site, 5)
    turns = Turns(site.yard, RealCommits(site), site.compactor)
    now_ms = NOW_MS + COMPACTION_LOOK_MS
    for _ in range(100):
        now_ms += 10
        turns.end(now_ms)
    assert site.compactor.dropped_count >= 5, "dead segments stay though there was time"


def test_an_idle_compactor_looks_only_now_and_then() -> None:
    site = OpenYard(MemoryStorage())
    turns = Turns(site.yard, RealCommits(site), site.compactor)
    turns.end(NOW_MS)
    fill_and_empty(site, 2)
    turns.end(NOW_MS + COMPACTION_LOOK_MS - 1)
    assert site.compactor.phase == IDLE
    assert turns.end(NOW_MS + COMPACTION_LOOK_MS) == NOW_MS + COMPACTION_LOOK_MS
    assert site.compactor.phase != IDLE


def test_sleep_is_the_time_left_but_never_too_long() -> None:
    assert timeout_s(NEVER_MS, NOW_MS, 1.0) == 1.0
    assert timeout_s(NOW_MS + 250, NOW_MS, 1.0) == 0.25
    assert timeout_s(NOW_MS + 2500, NOW_MS, 1.0) == 1.0
    assert timeout_s(NOW_MS, NOW_MS, 1.0) == 0.0
    assert timeout_s(NOW_MS - 5, NOW_MS, 1.0) == 0.0


class Clumsy(OpenJobWaiter):
    """A callback that fails."""

    def job_done(self, wait: JobWait, result: bytes | None) -> None:
        del wait, result
        raise ValueError


def test_a_timer_that_fails_and_changes_nothing_stops_nobody() -> None:
    site = OpenYard()
    turns = Turns(site.yard, None, None)
    told: list[str] = []
    turns.error_boundary.log_error = lambda doing, _error: told.append(doing)
    site.connect().say(b"put 0 5 60 1\r\nx\r\n")
    wait = JobWait(site.yard.new_number(), site.enter(), Clumsy(), NOW_MS + 1000)
    site.yard.waits.add(wait)
    site.yard.arm(wait, wait.sort_key)
    turns.begin(NOW_MS + 5000)
    assert told == ["a timer"]
    assert site.yard.errors.survived_count == 1
    turns.begin(NOW_MS + 5000)
    assert told == ["a timer"]
    assert site.yard.delayed_count == 0


class Lasting(Task):
    """Work that never ends."""

    def step(self, most: int, now_ms: int) -> int:
        del now_ms
        return most


def test_young_objects_are_looked_at_in_every_turn_of_long_work() -> None:
    site = OpenYard()
    turns = Turns(site.yard, None, None)
    looks: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looks.append(info["generation"])

    gc.disable()
    gc.callbacks.append(look)
    try:
        turns.end(NOW_MS)
        assert looks == []
        site.yard.tasks.follow(Lasting())
        for _ in range(3):
            turns.end(NOW_MS)
    finally:
        gc.callbacks.remove(look)
        gc.enable()
    assert looks == [0, 0, 0]


class Stumbling(Task):
    """Work that fails in its second slice."""

    def __init__(self, *, is_reading: bool) -> None:
        super().__init__()
        self.is_reading = is_reading
        self._has_begun = False

    def step(self, most: int, now_ms: int) -> int:
        del now_ms
        if self._has_begun:
            raise ValueError
        self._has_begun = True
        return most


def test_long_work_that_reads_and_fails_stops_nobody() -> None:
    site = OpenYard()
    turns = Turns(site.yard, None, None)
    site.yard.tasks.follow(Stumbling(is_reading=True))
    turns.end(NOW_MS)
    turns.end(NOW_MS)
    assert site.yard.errors.survived_count == 1
    assert site.yard.tasks.count() == 0


def test_long_work_that_changes_and_fails_ends_the_process() -> None:
    site = OpenYard()
    turns = Turns(site.yard, None, None)
    site.yard.tasks.follow(Stumbling(is_reading=False))
    with pytest.raises(ValueError, match=r"^$"):
        turns.end(NOW_MS)
