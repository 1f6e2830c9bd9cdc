"""A client that waits at one door is served by every other: in order, with nothing lost."""

import pytest

from jobyard.model.job import READY
from tests.support.doors.crossing import DOORS, QUEUE, WAITS, Crossing


def opened() -> Crossing:
    doors = Crossing()
    doors.make()
    return doors


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", WAITS)
def test_who_waits_is_woken_by_a_put_of_any_door(how: str, door: str) -> None:
    doors = opened()
    waiting = doors.wait(how)
    assert waiting.heard() is None
    doors.put_at(door, 7)
    assert waiting.heard() == 7
    doors.check()


@pytest.mark.parametrize("first", range(5))
def test_first_come_first_served_over_all_doors(first: int) -> None:
    doors = opened()
    order = [*WAITS[first:], *WAITS[:first]]
    waiting = [doors.wait(how) for how in order]
    for number in range(5):
        doors.put_at(DOORS[number % 4], number)
    assert [one.heard() for one in waiting] == [0, 1, 2, 3, 4]
    doors.check()


@pytest.mark.parametrize("given", [{"priority": 1}, {"lifo": 1}, {"delay": 1000}])
@pytest.mark.parametrize("how", [how for how in WAITS if how != "XREADGROUP"])
def test_one_who_reads_the_stream_alone_hides_no_job_from_those_behind(
    how: str, given: dict[str, int]
) -> None:
    doors = opened()
    ahead = doors.wait("XREADGROUP")
    behind = doors.wait(how)
    doors.glide.add(data="7", **given)
    doors.tick(given.get("delay", 0))
    assert (ahead.heard(), behind.heard()) == (None, 7)
    doors.put_at("glide-mq", 8)
    assert ahead.heard() == 8
    doors.check()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", WAITS)
def test_who_is_gone_takes_no_job_along(how: str, door: str) -> None:
    doors = opened()
    gone = doors.wait(how)
    other = doors.wait("PULL")
    gone.vanish()
    doors.put_at(door, 7)
    assert other.heard() == 7
    assert doors.yard.queues[QUEUE].waiting_count == 0
    doors.check()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", WAITS)
def test_a_delayed_job_of_any_door_comes_due_for_who_waits_at_any(how: str, door: str) -> None:
    doors = opened()
    doors.put_at(door, 7, delay_ms=3000)
    waiting = doors.wait(how)
    doors.tick(2999)
    assert waiting.heard() is None
    doors.tick(1)
    if door == "glide-mq" and how == "XREADGROUP":
        # There workers promote it, or the server after five seconds if there are none.
        assert waiting.heard() is None
        doors.tick(6000)
    assert waiting.heard() == 7
    doors.check()


PROMOTIONS = {
    "kick": lambda doors: doors.bean.ask("kick 1"),
    "kick-job": lambda doors: doors.bean.ask("kick-job 1"),
    "Promote": lambda doors: doors.bun.ok(
        "Promote", id=doors.bun.ok("GetJobs", queue=QUEUE)["jobs"][0]["id"]
    ),
    "PromoteJobs": lambda doors: doors.bun.ok("PromoteJobs", queue=QUEUE),
    "MoveToWait": lambda doors: doors.bun.ok(
        "MoveToWait", id=doors.bun.ok("GetJobs", queue=QUEUE)["jobs"][0]["id"]
    ),
    "promoteJob": lambda doors: doors.glide.call(
        "promoteJob", ["job:1", "stream", "scheduled", "events"], "1"
    ),
    "changeDelay": lambda doors: doors.glide.call(
        "changeDelay", ["job:1", "stream", "scheduled", "events"], "1", 0, doors.glide.ts()
    ),
    "reserve-job": lambda doors: doors.bean.ask("reserve-job 1"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("promotion", PROMOTIONS)
def test_a_delayed_job_of_any_door_is_seen_and_promoted_by_each(promotion: str, door: str) -> None:
    doors = opened()
    doors.put_at(door, 7, delay_ms=60_000)
    assert doors.bean.of_job(1, "state") == "delayed"
    assert doors.bean.ask("peek-delayed") == "FOUND 1 1\r\n7"
    assert doors.bun.ok("GetJobs", queue=QUEUE, state="delayed")["jobs"][0]["data"] == 7
    assert doors.glide.state("1") == "delayed"
    score = float(doors.glide.client.ask("ZSCORE", doors.glide.key("scheduled"), "1"))
    assert score == doors.glide.ts() + 60_000
    assert doors.api.state(QUEUE)["queue"]["delayed"] == 1
    waiting = doors.wait("XREADGROUP")
    PROMOTIONS[promotion](doors)
    if promotion == "reserve-job":
        assert doors.bean.of_job(1, "state") == "reserved"
    else:
        assert waiting.heard() == 7
    doors.check()


@pytest.mark.parametrize("door", DOORS)
def test_jobs_of_all_families_come_by_rank_and_then_by_age(door: str) -> None:
    doors = opened()
    doors.bean.put("10", rank=2)
    doors.bun.push(QUEUE, 11, priority=-1)
    doors.glide.add(data="12")
    doors.api.write(QUEUE, 13)
    doors.bean.put("14", rank=0)
    doors.bun.push(QUEUE, 15)
    doors.api.ok(QUEUE, {"records": [{"data": 16, "priority": 3}]})
    doors.bun.push(QUEUE, 17, priority=5)
    doors.glide.add(data="18")
    doors.bean.put("19", rank=1)
    taken = [doors.take_at(door) for _ in range(10)]
    assert taken == [17, 16, 12, 13, 14, 15, 18, 11, 19, 10]
    assert doors.take_at(door) is None


@pytest.mark.parametrize("door", ["beanstalk", "bunqueue", "topics"])
def test_a_priority_of_glide_mq_is_a_rank_to_others(door: str) -> None:
    doors = opened()
    doors.glide.add(data="3", priority=3)
    doors.glide.add(data="1", priority=1)
    doors.bean.put("2", rank=2)
    doors.glide.add(data="5", lifo=1)
    doors.glide.add(data="6", lifo=1)
    doors.put_at("bunqueue", 0)
    # The newest LIFO job is first within its rank, before older jobs.
    assert [doors.take_at(door) for _ in range(6)] == [6, 5, 0, 1, 2, 3]


@pytest.mark.parametrize("door", DOORS)
def test_what_was_given_back_keeps_the_place_its_family_lets_it_have(door: str) -> None:
    doors = opened()
    doors.put_at(door, 1)
    doors.put_at("beanstalk", 2)
    bean = doors.another_bean()
    bean.reserve()
    bean.client.leave()
    assert [doors.take_at("bunqueue") for _ in range(2)] == [1, 2]
    assert doors.yard.jobs.count == 2


def test_a_client_that_waits_at_many_queues_is_served_once() -> None:
    doors = opened()
    bean = doors.another_bean()
    bean.ask("watch other")
    bean.client.session.receive(b"reserve\r\n", doors.now_ms)
    doors.put_at("glide-mq", 1)
    doors.bun.push("other", 2)
    assert bean.heard().endswith("\r\n1")
    assert doors.bun.pull("other")["data"] == 2
    jobs = [job for job in doors.yard.jobs.all() if job.state == READY]
    assert jobs == []
    doors.check()
