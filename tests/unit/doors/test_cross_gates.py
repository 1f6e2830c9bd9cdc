"""Pauses and limits set at one door apply at all others, and lifting them wakes waiting clients."""

from collections.abc import Callable

import pytest

from tests.support.doors.crossing import DOORS, QUEUE, WAITS, Crossing
from tests.support.site.storage import MemoryStorage

Act = Callable[[Crossing], object]

PAUSES: dict[str, Act] = {
    "pause-tube": lambda doors: doors.bean.ask(f"pause-tube {QUEUE} 60"),
    "Pause": lambda doors: doors.bun.ok("Pause", queue=QUEUE),
    "glidemq_pause": lambda doors: doors.glide.call("pause", ["meta", "events"]),
    "HSET": lambda doors: doors.glide.client.ask("HSET", doors.glide.key("meta"), "paused", 1),
}
RESUMES: dict[str, Act] = {
    "Resume": lambda doors: doors.bun.ok("Resume", queue=QUEUE),
    "glidemq_resume": lambda doors: doors.glide.call("resume", ["meta", "events"]),
    "HDEL": lambda doors: doors.glide.client.ask("HDEL", doors.glide.key("meta"), "paused"),
    "HSET": lambda doors: doors.glide.client.ask("HSET", doors.glide.key("meta"), "paused", 0),
}


def nothing_to_take(doors: Crossing) -> bool:
    return all(doors.take_at(door) is None for door in DOORS)


def shown_paused(doors: Crossing) -> tuple[bool, bool, bool]:
    paused = doors.glide.client.ask("HGET", doors.glide.key("meta"), "paused")
    return (
        doors.bun.ok("IsPaused", queue=QUEUE)["paused"],
        paused == b"1",
        int(doors.bean.of_tube("pause")) > 0,
    )


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("resume", RESUMES)
def test_a_pause_of_any_door_holds_at_all_until_any_door_ends_it(pause: str, resume: str) -> None:
    doors = Crossing()
    doors.make()
    PAUSES[pause](doors)
    for number, door in enumerate(DOORS):
        doors.put_at(door, number)
    doors.glide.add(priority=1, data="9")
    assert nothing_to_take(doors)
    assert doors.glide.call("popLists", ["priority", "lifo"], 1) == []
    assert shown_paused(doors) == (True, True, True)
    waiting = [doors.wait(how) for how in WAITS]
    assert [one.heard() for one in waiting] == [None] * 5
    RESUMES[resume](doors)
    assert shown_paused(doors) == (False, False, False)
    # The last in the line has no job of the stream left for it.
    assert sorted(one.heard() for one in waiting) == [0, 1, 2, 3, 9]
    doors.check()


def test_a_flag_has_no_end_and_a_pause_for_a_time_has() -> None:
    doors = Crossing()
    doors.make()
    doors.put_at("topics", 1)
    doors.bun.ok("Pause", queue=QUEUE)
    assert doors.bean.of_tube("pause") == "4294967295"
    doors.bean.ask(f"pause-tube {QUEUE} 5")
    waiting = doors.wait("claim")
    doors.tick(6000)
    assert waiting.heard() is None
    # The end of the timed pause leaves the flag, and vice versa.
    assert shown_paused(doors) == (True, True, True)
    doors.bean.ask(f"pause-tube {QUEUE} 0")
    assert waiting.heard() is None
    doors.bun.ok("Resume", queue=QUEUE)
    assert waiting.heard() == 1


@pytest.mark.parametrize("how", WAITS)
def test_who_waits_is_served_when_a_pause_for_a_time_is_over(how: str) -> None:
    doors = Crossing()
    doors.make()
    doors.put_at("bunqueue", 1)
    doors.bean.ask(f"pause-tube {QUEUE} 5")
    waiting = doors.wait(how)
    doors.tick(4999)
    assert waiting.heard() is None
    doors.tick(1)
    assert waiting.heard() == 1
    assert shown_paused(doors) == (False, False, False)


def test_only_pause_tube_counts_as_one() -> None:
    doors = Crossing()
    doors.make()
    doors.bean.ask(f"pause-tube {QUEUE} 5")
    doors.bun.ok("Resume", queue=QUEUE)
    assert doors.bean.of_tube("cmd-pause-tube") == "1"


def test_the_flag_outlives_the_server_and_a_pause_for_a_time_does_not() -> None:
    doors = Crossing(MemoryStorage())
    doors.make()
    doors.put_at("topics", 1)
    doors.glide.call("pause", ["meta", "events"])
    doors.bean.ask(f"pause-tube {QUEUE} 60")
    after = doors.after_a_crash()
    assert shown_paused(after) == (True, True, True)
    assert nothing_to_take(after)
    after.bun.ok("Resume", queue=QUEUE)
    assert after.take_at("glide-mq") == 1


LIMITS: dict[str, Act] = {
    "SetConcurrency": lambda doors: doors.bun.ok("SetConcurrency", queue=QUEUE, limit=2),
    "HSET": lambda doors: doors.glide.client.ask(
        "HSET", doors.glide.key("meta"), "globalConcurrency", 2
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("door", DOORS)
def test_so_many_run_at_once_at_all_doors_together(limit: str, door: str) -> None:
    doors = Crossing()
    doors.make()
    for number in range(4):
        doors.put_at(DOORS[number], number)
    # One that ran before the limit was set counts as well.
    assert doors.take_at(door) == 0
    LIMITS[limit](doors)
    ((job_id, entry),) = doors.glide.read(count=9)
    assert job_id == "2"
    assert nothing_to_take(doors)
    waiting = doors.wait("work")
    assert waiting.heard() is None
    shown = doors.bun.ok("GetQueueLimits", queue=QUEUE)["data"]["limits"]
    assert (shown["concurrencyLimit"], shown["maxed"]) == (2, True)
    keys = ["meta", "stream", "list-active"]
    assert doors.glide.call("checkConcurrency", keys, "workers") == 0
    doors.glide.complete(job_id, entry)
    assert waiting.heard() == 2
    assert nothing_to_take(doors)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", WAITS)
def test_a_running_job_that_is_removed_lets_the_next_run(how: str, door: str) -> None:
    doors = Crossing()
    doors.make()
    doors.put_at(door, 1)
    doors.bun.ok("SetConcurrency", queue=QUEUE, limit=1)
    assert doors.take_at("glide-mq") == 1
    doors.put_at("topics", 2)
    waiting = doors.wait(how)
    assert doors.glide.client.ask("DEL", doors.glide.key("job:1")) == 1
    assert waiting.heard() == 2


RATES: dict[str, Act] = {
    "RateLimit": lambda doors: doors.bun.ok("RateLimit", queue=QUEUE, limit=2, duration=1000),
    "HSET": lambda doors: doors.glide.client.ask(
        "HSET", doors.glide.key("meta"), "rateLimitMax", 2, "rateLimitDuration", 1000
    ),
}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("how", WAITS)
def test_a_rate_is_one_for_all_doors_and_no_waiter_oversleeps_it(rate: str, how: str) -> None:
    doors = Crossing()
    doors.make()
    RATES[rate](doors)
    for number in range(4):
        doors.put_at(DOORS[number], number)
    assert [doors.take_at("beanstalk"), doors.take_at("glide-mq")] == [0, 1]
    assert nothing_to_take(doors)
    waiting = doors.wait(how)
    doors.tick(499)
    assert waiting.heard() is None
    doors.tick(1)
    assert waiting.heard() == 2
    assert nothing_to_take(doors)
